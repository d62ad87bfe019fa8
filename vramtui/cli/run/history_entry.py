"""A finished run as the history keeps it: one entry for each process on each GPU."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from vramtui import __version__
from vramtui.cli.run.child import FROM_SIGNAL
from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.oom import fatal_oom
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.runs.run import Ending, Run, run_key
from vramtui.core.runs.run_tracker import thinned

EMULATED = "emulated"  # the method of what a job's own run on an emulated card predicts


def emulated_prediction(command: Sequence[str], one: RankResult, runs: Iterable[Run]) -> Run | None:
    """The latest run of the same command on an emulated card of the same name; `runs` are the latest first."""
    try:
        name = card(one.device.name).name
    except UserError:
        return None
    text = shlex.join(command)
    return next((run for run in runs if (run.source, run.command, run.gpu_name) == (EMULATED, text, name)), None)


def prediction_run(finished: CompletedRun, one: RankResult, device: Device, host: str) -> Run:
    """What to keep of a run on an emulated card: its largest process is a prediction for such a card."""
    return Run(
        key=run_key(host, f"{EMULATED} {device.name}", one.job.pid, finished.started_at),
        source="emulated",
        host=host,
        gpu_uuid=f"{EMULATED} {device.name}",
        gpu_name=device.name,
        pid=one.job.pid,
        command=shlex.join(finished.command),
        started_at=finished.started_at,
        ended_at=finished.ended_at,
        ending=_ending(one, finished.code),
        exit_code=finished.code,
        preset="",
        method=EMULATED,
        peak_phase="" if one.peak is None else one.peak[0],
        predicted=one.ledger,
        observed=Ledger(),
        versions=_versions(one, None),
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
        former: earlier runs, the latest first: where there is no preset, one on an emulated card is the prediction.
    """
    preset = finished.preset
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    for one in seen:
        uuid = _uuid(one)
        track = None if watch is None else watch.track(uuid, one.job.pid)
        started_at = finished.started_at if track is None else (track.key.started_at or finished.started_at)
        emulated = None if one.estimate is not None else emulated_prediction(finished.command, one, former)
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
            method=one.estimate.method if one.estimate is not None else "" if emulated is None else EMULATED,
            peak_phase=one.estimate.peak_phase if one.estimate is not None else emulated.peak_phase if emulated else "",
            predicted=one.estimate.ledger if one.estimate is not None else emulated.predicted if emulated else Ledger(),
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
