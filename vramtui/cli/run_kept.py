"""A finished run as the history keeps it: one entry for each process on each GPU."""

import shlex
from collections.abc import Iterator
from typing import Any

import msgspec

from vramtui.cli.run_child import FROM_SIGNAL
from vramtui.cli.run_oom import failure_of
from vramtui.cli.run_seen import Finished, Seen
from vramtui.core.ledger import Ledger
from vramtui.core.runs import Ending, Run


def kept_runs(finished: Finished, seen: tuple[Seen, ...], host: str) -> Iterator[Run]:
    """What to keep of `finished`, whose processes ran on `host`."""
    preset = finished.preset
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    for one in seen:
        uuid = _uuid(one)
        yield Run(
            key=f"{host}/{uuid}/{one.job.pid}/{finished.started_at}",
            source="run",
            host=host,
            gpu_uuid=uuid,
            gpu_name=one.device.name if one.gpu is None else one.gpu.name,
            pid=one.job.pid,
            command=shlex.join(finished.command),
            started_at=finished.started_at,
            ended_at=finished.ended_at,
            ending=_ending(one, finished.code),
            exit_code=finished.code,
            preset="" if preset is None else preset.key,
            model_kind=_kind(workload, "model"),
            run_kind=_kind(workload, "run"),
            workload=workload,
            method="" if one.estimate is None else one.estimate.method,
            peak_phase="" if one.peak is None else one.peak[0],
            predicted=Ledger() if one.estimate is None else one.estimate.ledger,
            observed=one.ledger,
            peak_how="probe",
            versions=_versions(one),
        )


def _uuid(one: Seen) -> str:
    if one.gpu is not None:
        return one.gpu.uuid
    return (one.told.uuid if one.told is not None else None) or f"cuda:{one.counters.index}"


def _ending(one: Seen, code: int) -> Ending:
    if failure_of(one) is not None and code:
        return "out_of_memory"
    if not code:
        return "exited"
    return "killed" if code > FROM_SIGNAL else "failed"


def _kind(workload: dict[str, Any], table: str) -> str:
    return str(workload.get(table, {}).get("kind", ""))


def _versions(one: Seen) -> dict[str, str]:
    hello = one.job.hello
    return {} if hello is None else {"torch": hello.torch, "python": hello.python}
