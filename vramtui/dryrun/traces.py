"""Finished traces, by what was traced on which card; and how `vramtui run --predict` hands one to whoever watches."""

import os
import shlex
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import JOB_TRACE
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.dryrun.result import DryRun, JobCommand
from vramtui.models.readers.bounded import open_plain

Job = tuple[Workload, Device]


class FinishedTrace(msgspec.Struct, frozen=True):
    estimate: Estimate
    result: DryRun


class JobTrace(msgspec.Struct, frozen=True, kw_only=True):
    """The trace of a running job's own command, as a preset that no file has."""

    preset: PresetFile
    device: Device
    result: DryRun

    def finished(self) -> FinishedTrace:
        from vramtui.dryrun.estimate import estimate_of  # noqa: PLC0415 - only where there is a trace

        return FinishedTrace(estimate_of(self.result, self.preset.preset.workload), self.result)


class Traces:
    """Finished traces. Any thread may ask; the trace of a job's own code is used for any card of its kind."""

    def __init__(self) -> None:
        self.done: dict[Job, FinishedTrace] = {}
        self.of_jobs: set[Workload] = set()  # that stand for a running job's own command, which no preset describes

    def take(self, trace: JobTrace | Path) -> PresetFile:
        """Keep the trace of a running job, or one in a file of `write_job_trace`; its preset."""
        job_trace = read_job_trace(trace) if isinstance(trace, Path) else trace
        workload = job_trace.preset.preset.workload
        self.of_jobs.add(workload)
        self.done[workload, job_trace.device] = job_trace.finished()
        return job_trace.preset

    def get(self, job: Job) -> FinishedTrace | None:
        known = self.done.get(job)
        if known is not None or not isinstance(job[0].model, TorchModel):
            return known
        for (workload, device), trace in list(self.done.items()):
            if workload == job[0] and device.capability == job[1].capability:
                return trace
        return None


def preset_of_command(command: JobCommand, result: DryRun) -> PresetFile:
    """A job's command as a preset: one command in one folder has one key, however often it runs."""
    title = command.script if command.is_module else Path(command.script).name
    named = f"{command.folder}\0{shlex.join(command.words)}"
    import zlib  # noqa: PLC0415 - few jobs have a trace; not hashlib, which loads 3 MB of OpenSSL

    mark = f"{zlib.crc32(named.encode(errors='surrogateescape')):08x}"[:4]
    trains = any(row.phase in {"backward", "step"} for row in result.timeline)
    return PresetFile(
        key=f"{title} (dry run {mark})",
        path="",
        bundled=False,
        preset=Preset(
            name=f"{title}, dry run",
            notes=f"{shlex.join(command.words)} in {command.folder}",
            model=TorchModel(file=command.script, arguments=command.arguments),
            run=TrainRun() if trains else InferRun(),
        ),
    )


def write_job_trace(path: Path, job_trace: JobTrace) -> None:
    """Write a job's trace for whoever watches the job; the file is whole or not there.

    Raises:
        OSError: it cannot be written.
    """
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # follows no link
        file.write(msgspec.json.encode(job_trace))
    draft.replace(path)


def read_job_trace(path: Path) -> JobTrace:
    """The trace that a run has handed on.

    Raises:
        UserError: it cannot be read, is another user's, or says no such thing.
    """
    file, size = open_plain(path)
    with file:
        is_ours = os.fstat(file.fileno()).st_uid == os.getuid()
        data = file.read(JOB_TRACE.size) if is_ours and size <= JOB_TRACE.size else b""
    try:
        return msgspec.json.decode(data, type=JobTrace)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise UserError(f"{path} is not a dry run of a job") from None
