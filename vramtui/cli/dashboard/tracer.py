"""What the dashboard has done in child processes: traces, whose answers are kept, and runs on emulated cards."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.decoder_models import TorchModel
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.app.plan.each_card import CardRun
    from vramtui.estimators.traced.process.results import JobCommand, Progress, TraceResult
    from vramtui.estimators.traced.traces import FinishedTrace, JobTrace

KEPT = 200


class ChildTracer:
    """Traces for the dashboard; torch stays in the child.

    Args:
        folder: where traces are kept. Those of code in files are not, for files change.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._refusals: dict[Workload, str] = {}

    def refusal(self, workload: Workload) -> str:
        """Why the workload cannot be traced, empty where it can; each workload is looked into once."""
        if workload not in self._refusals:
            self._refusals[workload] = _refusal(workload)
        return self._refusals[workload]

    def cached(self, workload: Workload, device: Device) -> "FinishedTrace | None":
        """The trace in the cache folder; None where there is none or it cannot be read."""
        path = self._path(workload, device)
        if path is None or not path.is_file():
            return None
        from vramtui.estimators.traced.estimator import estimate_of
        from vramtui.estimators.traced.process.results import TraceResult
        from vramtui.estimators.traced.traces import FinishedTrace

        try:
            result = msgspec.json.decode(path.read_bytes(), type=TraceResult)
        except (OSError, msgspec.MsgspecError):
            return None
        return FinishedTrace(estimate_of(result, workload), result)

    def trace(
        self,
        workload: Workload,
        device: Device,
        progress: "Callable[[Progress], None]",
        cancel: threading.Event,
    ) -> "FinishedTrace | None":
        """Trace the workload in a child process, on a card of this kind that has all the memory one could ask for."""
        from vramtui.estimators.traced.estimator import (
            NO_LIMIT,
            STEPS,
            estimate_of,
            request_of,
        )
        from vramtui.estimators.traced.process.run import TraceCancelledError
        from vramtui.estimators.traced.process.run import trace as run
        from vramtui.estimators.traced.traces import FinishedTrace

        request = request_of(workload, msgspec.structs.replace(device, total_memory=NO_LIMIT))
        try:
            result = run(msgspec.structs.replace(request, steps=STEPS), progress=progress, cancel=cancel)
        except TraceCancelledError:
            return None
        self.store(workload, device, result)
        return FinishedTrace(estimate_of(result, workload), result)

    def command_of(self, pid: int, command: str) -> "JobCommand":
        """The job that a process runs, as the `Tracer` protocol asks."""
        return command_of(pid, command)

    def trace_job(
        self,
        command: "JobCommand",
        device: Device,
        progress: "Callable[[Progress], None]",
        cancel: threading.Event,
    ) -> "JobTrace | None":
        """Trace a script in a child process, as the `Tracer` protocol asks."""
        from vramtui.cli.trace.job_command import traced_job
        from vramtui.estimators.traced.process.run import TraceCancelledError

        try:
            return traced_job(command, device, progress=progress, cancel=cancel)
        except TraceCancelledError:
            return None

    def _path(self, workload: Workload, device: Device) -> Path | None:
        """Where a trace is kept: by workload, card, and the versions that made it."""
        if isinstance(workload.model, TorchModel):
            return None
        import hashlib

        from vramtui.estimators.traced.process.interpreters import job_interpreter

        try:
            python = job_interpreter()
        except UserError:
            return None
        versions = (_version("vramtui"), python.torch, python.transformers)
        key = msgspec.json.encode((workload, device.name, device.capability, versions), order="deterministic")
        return self._folder / f"{hashlib.sha256(key).hexdigest()[:32]}.json"

    def store(self, workload: Workload, device: Device, result: "TraceResult") -> None:
        """Write a trace for `cached`, whole or not at all; a full disk loses only that, and the oldest make room.
        None of code in files is stored, for files change.
        """
        path = self._path(workload, device)
        if path is None:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_bytes(msgspec.json.encode(result))
            draft.replace(path)
            traces = sorted(self._folder.glob("*.json"), key=lambda result_file: result_file.stat().st_mtime)
            for old in traces[:-KEPT]:
                old.unlink(missing_ok=True)
        except OSError:
            return


def command_of(pid: int, command: str) -> "JobCommand":
    """The job that a process on this host runs."""
    from vramtui.cli.trace.job_command import command_of_process
    from vramtui.presets.importers.process_files import place_of

    if place_of(pid, command) is None:
        raise UserError(f"pid {pid} cannot be looked into here: it is another user's, on another host, or gone")
    return command_of_process(pid)


def _refusal(workload: Workload) -> str:
    from vramtui.estimators.traced.estimator import request_of

    try:
        request_of(workload, Device(name="any", capability=(9, 0), total_memory=1))
    except UserError as error:
        return str(error)
    return ""


@cache
def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


LOOK = 0.2  # seconds between two looks at whether it is to end
GRACE = 5.0  # seconds that the job has to end in


class ChildCardRunner:
    """Runs `vramtui run --on CARD` for Plan; what the job prints is seen only where it fails."""

    command_of = staticmethod(command_of)

    def run(
        self, words: Sequence[str], job: "JobCommand | None", name: str, cancel: threading.Event
    ) -> "CardRun | None":
        """Run the job on an emulated card in a child process, as the `CardRunner` protocol asks."""
        import tempfile  # every dashboard would load it and its random numbers

        from vramtui.api.tracing import dry_arguments, dry_result
        from vramtui.app.plan.each_card import STEPS, CardRun

        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(  # noqa: S603 - the person's own command, in this very program
                dry_arguments(words, on=name, steps=STEPS),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=None if job is None else job.folder,
                env=os.environ if job is None else job.environment,
            ) as child:
                while child.poll() is None:
                    if cancel.wait(LOOK):
                        child.terminate()  # which it passes on to the job
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            child.wait(GRACE)
                        child.kill()
                        return None
            output.seek(0)
            errors.seek(0)
            ran = dry_result(output.read(), errors.read())
        return CardRun(
            card=ran.card,
            allocated=ran.allocated,
            reserved=ran.reserved,
            process=ran.process,
            memory=ran.memory,
            verdict=f"failed with exit code {ran.exit_code}" if ran.verdict == "failed" else ran.verdict,
        )
