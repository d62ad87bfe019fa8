"""A finished run as the history keeps it: one entry for each process on each GPU."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from vramtui import __version__
from vramtui.cli.run.results import CompletedRun, GpuWatch, RankResult
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import Ending, Run, run_key
from vramtui.core.runs.run_tracker import thinned
from vramtui.dryrun.child import FROM_SIGNAL
from vramtui.dryrun.estimate import ledger_of
from vramtui.dryrun.result import DryRun

DRY_RUN = "dry-run"  # the source and method of a dry run's prediction


def prediction_run(words: Sequence[str], result: DryRun, ended_at: float, host: str) -> Run:
    """A dry run as a prediction for a GPU of its kind."""
    return Run(
        key=run_key(host, f"{DRY_RUN} {result.name}", 0, ended_at),
        source="dry-run",
        host=host,
        gpu_uuid=f"{DRY_RUN} {result.device}",
        gpu_name=result.device,
        pid=0,
        command=shlex.join(words),
        started_at=ended_at,
        ended_at=ended_at,
        ending="exited" if result.out_of_memory is None else "out_of_memory",
        exit_code=result.exit_code,
        preset="",
        method=DRY_RUN,
        peak_phase=result.peak_phase,
        predicted=ledger_of(result),
        observed=Ledger(),
        versions={"vramtui": __version__, "torch": result.torch, "engine": result.engine},
    )


def completed_runs(
    finished: CompletedRun,
    seen: tuple[RankResult, ...],
    host: str,
    watch: GpuWatch | None = None,
    former: Sequence[Run] = (),
) -> Iterator[Run]:
    """The entries of a command that ended.

    Args:
        finished: the command.
        seen: its processes on the GPUs of `host`.
        host: the machine's name.
        watch: the driver's side.
        former: earlier runs, the latest first: without a preset, a dry run of the same command on a GPU of the same
            name is the prediction.
    """
    preset, command = finished.preset, shlex.join(finished.command)
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    host_seen = None if watch is None or watch.last is None else watch.last.host
    for rank in seen:
        if rank.gpu is not None:
            uuid = rank.gpu.uuid
        else:  # spelt as the driver does: PyTorch leaves out its beginning
            uuid = (None if rank.reported is None else rank.reported.uuid) or f"cuda:{rank.counters.index}"
            uuid = uuid if uuid.startswith(("GPU-", "MIG-", "cuda:")) else f"GPU-{uuid}"
        track = None if watch is None else watch.track(uuid, rank.job.pid)
        started_at = finished.started_at if track is None else (track.key.started_at or finished.started_at)
        times, values = ([], []) if track is None else thinned(track.times, track.values)
        predicted, method, peak_phase = Ledger(), "", ""
        if rank.estimate is not None:
            predicted, method = rank.estimate.ledger, rank.estimate.method
            peak_phase = rank.estimate.peak_phase
        else:
            try:
                wanted = (DRY_RUN, command, card(rank.device.name).name)
            except UserError:
                wanted = None
            dry = next((run for run in former if (run.source, run.command, run.gpu_name) == wanted), None)
            if dry is not None:
                predicted, method, peak_phase = dry.predicted, DRY_RUN, dry.peak_phase
        ending: Ending = "killed" if finished.code > FROM_SIGNAL else "failed" if finished.code else "exited"
        hello = rank.job.hello
        versions = {
            "vramtui": __version__,
            "driver": None if host_seen is None else host_seen.driver_version,
            "cuda": None if host_seen is None else host_seen.cuda_version,
            "torch": None if hello is None else hello.torch,
            "python": None if hello is None else hello.python,
        }
        yield Run(
            key=run_key(host, uuid, rank.job.pid, started_at),
            source="run",
            host=host,
            gpu_uuid=uuid,
            gpu_name=rank.device.name if rank.gpu is None else rank.gpu.name,
            pid=rank.job.pid,
            command=command,
            started_at=started_at,
            ended_at=finished.ended_at,
            ending="out_of_memory" if finished.code and rank.fatal_oom() is not None else ending,
            exit_code=finished.code,
            preset="" if preset is None else preset.key,
            model_kind=str(workload.get("model", {}).get("kind", "")),
            run_kind=str(workload.get("run", {}).get("kind", "")),
            workload=workload,
            method=method,
            peak_phase=peak_phase,
            predicted=predicted,
            observed=rank.ledger,
            peak_how="probe",
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions={name: version for name, version in versions.items() if version},
        )
