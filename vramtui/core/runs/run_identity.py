"""When two entries are about one process, and what the better-known one takes from the other."""

import msgspec

from vramtui.core.estimate.ledger import Ledger
from vramtui.core.runs.run import Run

# Start times come from the system's uptime in one program and from a clock in another, so they differ a little.
CLOCKS_APART = 2.0
_HOW_WELL = {"sampled": 0, "accounting": 1, "probe": 2}


def run_key(host: str, gpu_uuid: str, pid: int, started_at: float) -> str:
    """The key of the process that is `pid` on a GPU of `host`; `started_at` in seconds since the epoch."""
    return f"{host}/{gpu_uuid}/{pid}/{round(started_at)}"


def same_process(one: Run, other: Run) -> bool:
    """Whether both are about one process: a host gives a pid to one process at a time, so their lives overlap.

    Runs without a pid (those that were shared, or are known from Slurm's accounting) are the same by their key alone.
    """
    if one.pid == 0 or other.pid == 0:
        return one.key == other.key
    if (one.host, one.gpu_uuid, one.pid) != (other.host, other.gpu_uuid, other.pid):
        return False
    return one.started_at - CLOCKS_APART <= other.last_known and other.started_at - CLOCKS_APART <= one.last_known


def merged(former: Run, latest: Run) -> Run:
    """One entry of two about the same process, under the former's key.

    The figures are those of the better-known one (a probe's before the driver's own before sampled ones, then those of
    the program that started the job), and among equals the latest. It takes from the other what it lacks: a
    prediction, an end, a higher peak, a longer graph.
    """
    better, other = (former, latest) if _rank(former) > _rank(latest) else (latest, former)
    changes: dict[str, object] = {
        "key": former.key,
        "observed": with_peak(better.observed, other.observed.process),
        "seen_until": max((at for at in (former.seen_until, latest.seen_until) if at is not None), default=None),
        "versions": {**other.versions, **better.versions},
        **_end(better, other),
    }
    if not better.predicted.process and other.predicted.process:
        changes |= {name: getattr(other, name) for name in _PREDICTION}
    if _length(other) > _length(better):
        shift = other.started_at - better.started_at
        changes |= {"times": tuple(at + shift for at in other.times), "values": other.values}
    return msgspec.structs.replace(better, **changes)


_PREDICTION = ("preset", "model_kind", "run_kind", "workload", "method", "peak_phase", "predicted")


def with_peak(observed: Ledger, process: int | None) -> Ledger:
    """`observed` with a process line of at least `process` bytes; what is beyond reserved is the context then, unless
    there was a process line without one: the job was gone before it had told all of reserved.
    """
    if process is None or process <= (observed.process or 0):
        return observed
    context = observed.context
    known = observed.process is None or observed.context is not None
    if known and observed.reserved is not None and process >= observed.reserved:
        context = process - observed.reserved
    return msgspec.structs.replace(observed, process=process, context=context)


def _rank(run: Run) -> tuple[int, bool]:
    return _HOW_WELL.get(run.peak_how, 0), run.source == "run"


def _end(better: Run, other: Run) -> dict[str, object]:
    """The end, from the one that knows most of it. One that was seen later was not at its end before."""
    knows = other if _end_known(other, better) > _end_known(better, other) else better
    over = any(_end_known(knows, other if knows is better else better))
    if not over:
        return {"ended_at": None, "ending": "running", "exit_code": None}
    return {"ended_at": knows.ended_at, "ending": knows.ending, "exit_code": knows.exit_code}


def _end_known(run: Run, other: Run) -> tuple[bool, bool, bool]:
    """Whether `run` knows the exit code, a reason, and that it is over at all."""
    told = run.exit_code is not None, run.ending not in ("running", "exited"), run.ended_at is not None
    gone_too_soon = (
        run.ended_at is not None
        and other.ended_at is None
        and other.seen_until is not None
        and other.seen_until > run.ended_at + CLOCKS_APART
    )
    return told if any(told[:2]) or not gone_too_soon else (False, False, False)


def _length(run: Run) -> float:
    return run.times[-1] - run.times[0] if run.times else -1.0
