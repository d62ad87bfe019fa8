"""A finished run as the history keeps it: one entry for each process on each GPU."""

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from vramtui import __version__
from vramtui.cli.run.child import FROM_SIGNAL
from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.oom import fatal_oom
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.runs.run import Ending, Run
from vramtui.core.runs.run_identity import run_key
from vramtui.core.runs.run_tracker import thinned


def completed_runs(
    finished: CompletedRun, seen: tuple[RankResult, ...], host: str, watch: GpuWatch | None = None
) -> Iterator[Run]:
    """What to keep of `finished`, whose processes ran on `host` while `watch` looked at its GPUs."""
    preset = finished.preset
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    for one in seen:
        uuid = _uuid(one)
        track = None if watch is None else watch.track(uuid, one.job.pid)
        started_at = finished.started_at if track is None else (track.key.started_at or finished.started_at)
        times, values = ([], []) if track is None else thinned(track.times, track.values)
        yield Run(
            key=run_key(host, uuid, one.job.pid, started_at),
            source="run",
            host=host,
            gpu_uuid=uuid,
            gpu_name=one.device.name if one.gpu is None else one.gpu.name,
            pid=one.job.pid,
            command=shlex.join(finished.command),
            started_at=started_at,
            ended_at=finished.ended_at,
            ending=_ending(one, finished.code),
            exit_code=finished.code,
            preset="" if preset is None else preset.key,
            model_kind=_kind(workload, "model"),
            run_kind=_kind(workload, "run"),
            workload=workload,
            method="" if one.estimate is None else one.estimate.method,
            peak_phase="" if one.estimate is None else one.estimate.peak_phase,
            predicted=Ledger() if one.estimate is None else one.estimate.ledger,
            observed=one.ledger,
            peak_how="probe",
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions=_versions(one, watch),
        )


def _uuid(one: RankResult) -> str:
    """The card's, spelt as the driver does: PyTorch leaves out what it begins with."""
    if one.gpu is not None:
        return one.gpu.uuid
    uuid = None if one.reported is None else one.reported.uuid
    if uuid is None:
        return f"cuda:{one.counters.index}"
    return uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


def _ending(one: RankResult, code: int) -> Ending:
    if fatal_oom(one) is not None and code:
        return "out_of_memory"
    if not code:
        return "exited"
    return "killed" if code > FROM_SIGNAL else "failed"


def _kind(workload: dict[str, Any], table: str) -> str:
    return str(workload.get(table, {}).get("kind", ""))


def _versions(one: RankResult, watch: GpuWatch | None) -> dict[str, str]:
    hello = one.job.hello
    seen = None if watch is None or watch.last is None else watch.last.host
    known = {
        "vramtui": __version__,
        "driver": None if seen is None else seen.driver_version,
        "cuda": None if seen is None else seen.cuda_version,
        "torch": None if hello is None else hello.torch,
        "python": None if hello is None else hello.python,
    }
    return {name: version for name, version in known.items() if version}
