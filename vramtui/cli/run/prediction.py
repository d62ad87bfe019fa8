"""`vramtui run --predict`: the dry run of the job's own command, handed to whoever watches the job."""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.exit_codes import say
from vramtui.cli.common.settings import cache_dir
from vramtui.cli.run.placement import open_listener, usable
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate
from vramtui.core.estimate.fits import fit_beside_others
from vramtui.core.observation.readings import Gpu, Sample, Source
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.child import CancelledError
from vramtui.dryrun.command import dry_run_of
from vramtui.dryrun.job_command import RunTools, job_command
from vramtui.dryrun.traces import JobTrace, Traces, write_job_trace
from vramtui.monitor.jobs import TRACE_SUFFIX
from vramtui.probe.socket_dir import listeners_folder, private

if TYPE_CHECKING:
    from vramtui.cli.run.results import GpuWatch
    from vramtui.dryrun.result import JobCommand
    from vramtui.sources.probe_listener import ProbeListener

LOOK_EVERY = 0.1
NOT_PREDICTED = "no dry run of the job: {}"
AT_END = 60.0
PATIENCE = 30.0  # seconds for the driver's first sample of the GPUs
NO_CARD = "no GPU is seen here; `vramtui dry-run --gpu 4090 COMMAND` needs none"


class RunPrediction:
    """The dry run of a run's command: on a thread of its own while the job runs, or before it if the job waits for it.

    Attributes:
        traces: the result, for the report and the recording; empty until it has ended.
        preset: what it amounts to; None until then, and if it failed.

    Raises:
        UserError: it is not a Python script or module.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._command: JobCommand = job_command(words, str(Path.cwd()), os.environ)
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self.path = Path(listeners_folder()) / f"run-{os.getpid()}{TRACE_SUFFIX}"
        self.traces = Traces()
        self.preset: PresetFile | None = None
        self._trace: JobTrace | None = None

    def dry_run(self, device: Device) -> JobTrace:
        """Run it now, on this GPU; raises UserError if it fails, CancelledError if it was cancelled."""
        tools = RunTools(open_listener, cache_dir(), cancel=self._cancel)
        self._trace = trace = dry_run_of(self._command, device, tools)
        self.preset = self.traces.take(trace)
        return trace

    def need(self, source: Source) -> int:
        """Bytes that the job takes of a GPU of this machine, by a dry run that is made now. Raises SourceFailed if the
        GPUs cannot be read, and UserError if there is no GPU, or the dry run fails.
        """
        gpu = first_usable(source.read())
        if gpu is None:
            raise UserError(NO_CARD)
        say(f"dry run on {gpu.name}: what it needs there is what it waits for")
        needs = self.dry_run(device_of(gpu)).result.fit.needs  # of all its processes at once
        say(f"it needs {format_bytes(needs)} by its dry run")
        return needs

    def hand_on(self) -> None:
        """Leave the result where dashboards that watch the job find it; a file that cannot be written is left out."""
        if self._trace is not None and private(str(self.path.parent)):
            with contextlib.suppress(OSError):
                write_job_trace(self.path, self._trace)

    def start(self, watch: "GpuWatch | None", listener: "ProbeListener | None") -> None:
        """Make it from now on, for the GPU that the job got, and show the result in one line."""
        if self._trace is None:
            self._thread = threading.Thread(target=self._run, args=(watch, listener), name="dry run", daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Wait after the job's end for a dry run that is nearly done, for so long and until Ctrl-C."""
        if self._thread is None or not self._thread.is_alive():
            return
        say(f"the job has ended; its dry run has {AT_END:.0f} s more for the report (Ctrl-C ends it)")
        until = time.monotonic() + AT_END
        while self._thread.is_alive() and time.monotonic() < until and not self._cancel.is_set():
            # `run` holds these back, so that none is lost to the job.
            if signal.sigtimedwait((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), LOOK_EVERY) is not None:
                self._cancel.set()

    def close(self) -> None:
        """End it, and remove the file for dashboards."""
        self._cancel.set()
        if self._thread is not None:
            self._thread.join()
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _run(self, watch: "GpuWatch | None", listener: "ProbeListener | None") -> None:
        began = time.monotonic()
        until = began + PATIENCE
        while watch is not None and watch.last is None and time.monotonic() < until and not self._cancel.is_set():
            self._cancel.wait(LOOK_EVERY)
        gpu = None if watch is None or watch.last is None else first_usable(watch.last)
        if gpu is None:
            say(NOT_PREDICTED.format(NO_CARD))
            return
        try:
            estimate = self.dry_run(device_of(gpu)).finished().estimate
        except CancelledError:
            say("the job ended, and its dry run with it")
        except (UserError, OSError) as error:
            if not self._cancel.is_set():
                say(NOT_PREDICTED.format(error))
        except Exception as error:  # noqa: BLE001 - the job is what counts
            say(NOT_PREDICTED.format(f"{type(error).__name__}: {error}"))
        else:
            self.hand_on()
            sample = None if watch is None else watch.last
            took = format_duration(time.monotonic() - began)
            pids = frozenset(() if listener is None else (job.pid for job in listener.jobs()))
            say(f"dry run in {took}: {verdict_of(estimate, gpu, sample, pids)}")


def first_usable(sample: Sample) -> Gpu | None:
    """The first GPU that a job started here may use."""
    return next((gpu for gpu in usable(sample.gpus) if gpu.state == "ok"), None) if sample.gpus else None


def verdict_of(estimate: Estimate, gpu: Gpu, sample: Sample | None, pids: frozenset[int]) -> str:
    """The verdict on the job next to the others on its GPU; if it does not fit, with the step in which it ends. The
    memory of the job's own `pids` is room for it.
    """
    now = gpu if sample is None else next((one for one in sample.gpus if one.uuid == gpu.uuid), gpu)
    own = sum(process.used_memory or 0 for process in now.processes if process.pid in pids)
    room = None if now.memory.free is None else now.memory.free + own
    where = f"GPU {now.index}"
    fit = fit_beside_others(estimate.process, now.memory.total or 0, room, estimate.error, where)
    over = None if fit.is_enough else estimate.first_over(fit.has)
    if over is None:
        return fit.line(where)
    moment, short = over
    more, has = format_bytes(short), format_bytes(fit.has)
    note = f"; {fit.note}" if fit.note else ""
    begins = f"from {PHASE_TITLES[moment.phase]} on"
    return f"will not fit {where}: step {moment.step + 1} needs {more} more than the {has} that it has, {begins}{note}"
