"""`vramtui run`: a job unchanged, with PyTorch's own figures and the driver's, and a report at its end."""

import io
import os
import platform
import secrets
import signal
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.exit_codes import RECORDER_ROOM, fail, require_open_files, say
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes, format_percent
from vramtui.models.named_files import exists, path_named
from vramtui.probe.socket_dir import PRESET

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from vramtui.cli.run.prediction import RunPrediction
    from vramtui.cli.run.results import CompletedRun, GpuWatch
    from vramtui.core.schema.preset import PresetFile
    from vramtui.sources.probe_listener import ProbeListener

WITHOUT_FIGURES = "vramtui: the job runs without the driver's figures"


@command_of
def run(
    *,
    command: list[str],
    preset: str | None = None,
    record: Path | None = None,
    interval: float = 1.0,
    when_fits: bool = False,
    needs: str | None = None,
    gpus: int | None = None,
    predict: bool = False,
) -> None:
    """Run a training job unchanged and see its memory from the inside: parts, phases, peaks.

    The job keeps its terminal, signals and exit code. The report comes at its end, on standard error.
    """
    with suppress(OSError, ValueError):  # no message on standard error may fail; in a test it has no descriptor
        raw = io.BufferedWriter(_Unfailing(sys.stderr.fileno(), "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, sys.stderr.encoding, sys.stderr.errors, line_buffering=True)
    from vramtui.cli.estimate import changed_preset

    preset_file = None if preset is None else changed_preset(preset, [])
    dry = None
    if predict:
        from vramtui.cli.run.prediction import NOT_PREDICTED, RunPrediction

        if preset is not None:
            raise UserError("--predict predicts by the command itself, so it does not go with --preset")
        try:
            dry = RunPrediction(command)
        except UserError as error:
            if when_fits and needs is None:
                raise
            say(NOT_PREDICTED.format(error))
    placed = {} if preset is None else {PRESET: resolved_preset(preset)}
    if dry is not None:
        placed[PRESET] = str(dry.path)
    if when_fits:
        from vramtui.cli.common.open_source import open_source
        from vramtui.cli.run import placement

        if needs is None and dry is not None:
            source = open_source().source
            need = placement.Need(dry.need(source), None, gpus or 1)
        else:
            known = preset_file if needs or preset_file is not None else placed_by(command)
            need = placement.need_of(needs, known, gpus)  # before a GPU is looked for
            source = open_source().source
        # The claim ends with this process.
        sample, chosen = placement.wait_for_room(source, need, placement.Claims(), say=say)
        for gpu, fit in chosen:
            say(f"on GPU {gpu.index}: {fit.sentence}")
        placed |= placement.placing([gpu for gpu, _ in chosen], sample.gpus)
    elif needs is not None or gpus is not None:
        raise UserError("--needs and --gpus go with --when-fits")
    finished, watch = _run(command, interval, record, preset_file, dry, placed)
    # The job has ended: no error of the report may change its exit code.
    try:
        from vramtui.cli.common.settings import run_history
        from vramtui.cli.run.results import completed_runs, print_report, seen_in
        from vramtui.core.runs.run import DRY_RUN

        seen = seen_in(finished, watch)
        print_report(finished, seen, watch)
        history = run_history()
        former = [stored.run for stored in history.runs()] if finished.preset is None else []
        for run in completed_runs(finished, seen, platform.node(), watch, former):
            if run.method == DRY_RUN and run.error is not None:
                sizes = format_bytes(run.predicted.process), format_bytes(run.observed.process)
                sys.stderr.write("dry run {}, here {}: ".format(*sizes) + format_percent(run.error) + "\n")
            history.keep(run)
    except UserError as error:
        say(str(error))
    except Exception as error:  # noqa: BLE001 - as above
        say(f"the report cannot be made: {error}")
    raise SystemExit(finished.code)


class _Unfailing(io.FileIO):
    """A file that takes everything: what cannot be written is lost, and the job runs on and keeps its exit code."""

    def write(self, data: "Buffer", /) -> int:
        try:
            return super().write(data)
        except OSError:  # a full disk, or a reader that has gone
            return memoryview(data).nbytes


def _run(
    command: list[str],
    interval: float,
    record: Path | None,
    preset: "PresetFile | None",
    dry: "RunPrediction | None",
    placed: dict[str, str],
) -> "tuple[CompletedRun, GpuWatch | None]":
    """Run the job from its start to its end; `placed` are variables that are added to this process's. Raises
    SourceFailed if it has to be recorded, and no GPU can be read, and UserError if the recording cannot be written.
    """
    from vramtui.cli.run.placement import open_listener
    from vramtui.dryrun.child import Child, NotStartedError, hold_signals, probed_environment

    mask = hold_signals()
    mark = secrets.token_hex(8)

    def unmask(kind: object, *_error: object) -> None:
        if kind is not None:  # a job that did not start takes no signals
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    with ExitStack() as at_end:
        at_end.push(unmask)
        listener = open_listener(mark)
        if listener is not None:
            at_end.callback(listener.close)
        watch = _watch(interval, record, listener, preset)
        if watch is not None:
            at_end.callback(watch.close)
        if dry is not None:
            at_end.callback(dry.close)
            dry.hand_on()
        environment = dict(os.environ) | placed
        if listener is not None:
            environment = probed_environment(environment, str(listener.path), mark)
        try:
            job = Child(command, environment, mask)
        except NotStartedError as error:
            fail(error.code, str(error))
        started_at = time.time()
        if watch is not None:
            watch.start()
        if dry is not None:
            dry.start(watch, listener)
        code = job.wait()
        ended_at = max(started_at, time.time())  # the clock may have been set back
        if dry is not None:
            dry.finish()
    from vramtui.cli.run.results import CompletedRun  # not while the job waits to start

    finished = CompletedRun(
        command=tuple(command),
        code=code,
        started_at=started_at,
        ended_at=ended_at,
        jobs=() if listener is None else listener.jobs(),
        preset=preset if dry is None else dry.preset,
        traces=None if dry is None else dry.traces,
    )
    return finished, watch


def resolved_preset(preset: str) -> str:
    """The preset as dashboards find it from any folder."""
    path = path_named(preset)
    return str(path.resolve()) if (os.sep in preset or path.suffix == ".toml") and exists(path) else preset


def placed_by(command: list[str]) -> "PresetFile | None":
    """The preset by the model and the flags in the command, which is shown; None if it names none."""
    from vramtui.core.estimate.assumptions import values_of
    from vramtui.presets.importers.derived import STORES, JobPlace, derived_preset

    stores = {name: os.environ[name] for name in STORES if name in os.environ}
    preset_file = derived_preset(" ".join(command), JobPlace(Path.cwd(), "", stores))
    if preset_file is not None:
        read = "".join(f", {known.words}" for known in preset_file.known)
        assumed = f"; {', '.join(values_of(preset_file))} assumed" if preset_file.assumed else ""
        say(f"what it needs is derived from {preset_file.derived}{read}{assumed}; --needs or --preset says it surely")
    return preset_file


def _watch(
    interval: float, record: Path | None, listener: "ProbeListener | None", preset: "PresetFile | None"
) -> "GpuWatch | None":
    """The driver's side. A job may run without a driver, but cannot be recorded then. Other errors are shown, and the
    job starts. Raises SourceFailed if it has to be recorded, and no GPU can be read, and UserError if the recording
    cannot be written.
    """
    from vramtui.cli.common.open_source import open_source
    from vramtui.cli.run.results import GpuWatch
    from vramtui.monitor.jobs import no_jobs

    try:
        require_open_files(RECORDER_ROOM)
        source = open_source().source
    except (SourceFailed, UserError) as error:
        if record is not None:
            raise
        if isinstance(error, UserError):
            sys.stderr.write(f"{WITHOUT_FIGURES}: {error}\n")
        return None
    try:
        return GpuWatch(source, interval, record, no_jobs if listener is None else listener.jobs, preset)
    except (SourceFailed, UserError):
        raise
    except Exception as error:  # noqa: BLE001 - the job is what counts
        sys.stderr.write(f"{WITHOUT_FIGURES}: {error}\n")
        return None
