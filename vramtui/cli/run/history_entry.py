"""A finished run as the history keeps it: one entry for each process on each GPU."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vramtui import __version__
from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.oom import fatal_oom
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.runs.run import Ending, Run, run_key
from vramtui.core.runs.run_tracker import thinned
from vramtui.dryrun.child import FROM_SIGNAL
from vramtui.dryrun.estimate import ledger_of
from vramtui.dryrun.result import DryRun

DRY_RUN = "dry-run"  # the source and method of a dry run's prediction


def dry_prediction(command: Sequence[str], rank: RankResult, runs: Iterable[Run]) -> Run | None:
    """The latest dry run of the same command on a GPU of the same name; `runs` are the latest first."""
    try:
        name = card(rank.device.name).name
    except UserError:
        return None
    text = shlex.join(command)
    return next((run for run in runs if (run.source, run.command, run.gpu_name) == (DRY_RUN, text, name)), None)


def prediction_run(words: Sequence[str], result: DryRun, ended_at: float, host: str) -> Run:
    """What to keep of a dry run: a prediction for a GPU of its kind."""
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
    """What to keep of a command that ended.

    Args:
        finished: the command.
        seen: its processes on the GPUs of `host`.
        host: the machine's name.
        watch: what looked at its GPUs.
        former: earlier runs, the latest first: where there is no preset, a dry run is the prediction.
    """
    preset = finished.preset
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    for rank in seen:
        uuid = _uuid(rank)
        track = None if watch is None else watch.track(uuid, rank.job.pid)
        started_at = finished.started_at if track is None else (track.key.started_at or finished.started_at)
        former_run = None if rank.estimate is not None else dry_prediction(finished.command, rank, former)
        expected = rank.estimate or former_run
        predicted = (
            rank.estimate.ledger if rank.estimate is not None else former_run.predicted if former_run else Ledger()
        )
        times, values = ([], []) if track is None else thinned(track.times, track.values)
        yield Run(
            key=run_key(host, uuid, rank.job.pid, started_at),
            source="run",
            host=host,
            gpu_uuid=uuid,
            gpu_name=rank.device.name if rank.gpu is None else rank.gpu.name,
            pid=rank.job.pid,
            command=shlex.join(finished.command),
            started_at=started_at,
            ended_at=finished.ended_at,
            ending=_ending(rank, finished.code),
            exit_code=finished.code,
            preset="" if preset is None else preset.key,
            model_kind=_kind(workload, "model"),
            run_kind=_kind(workload, "run"),
            workload=workload,
            method=rank.estimate.method if rank.estimate is not None else "" if former_run is None else DRY_RUN,
            peak_phase=expected.peak_phase if expected is not None else "",
            predicted=predicted,
            observed=rank.ledger,
            peak_how="probe",
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions=_versions(rank, watch),
        )


def _uuid(rank: RankResult) -> str:
    """The card's, spelt as the driver does: PyTorch leaves out what it begins with."""
    if rank.gpu is not None:
        return rank.gpu.uuid
    uuid = None if rank.reported is None else rank.reported.uuid
    if uuid is None:
        return f"cuda:{rank.counters.index}"
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _ending(rank: RankResult, code: int) -> Ending:
    if fatal_oom(rank) is not None and code:
        return "out_of_memory"
    if not code:
        return "exited"
    return "killed" if code > FROM_SIGNAL else "failed"


def _kind(workload: dict[str, Any], table: str) -> str:
    return str(workload.get(table, {}).get("kind", ""))


def _versions(rank: RankResult, watch: GpuWatch | None) -> dict[str, str]:
    hello = rank.job.hello
    seen = None if watch is None or watch.last is None else watch.last.host
    known = {
        "vramtui": __version__,
        "driver": None if seen is None else seen.driver_version,
        "cuda": None if seen is None else seen.cuda_version,
        "torch": None if hello is None else hello.torch,
        "python": None if hello is None else hello.python,
    }
    return {name: version for name, version in known.items() if version}
