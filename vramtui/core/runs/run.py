"""A run: one job on one GPU that had a prediction, as the history keeps it and as it is taken away, and when two
entries are about one process.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, get_args

import msgspec

from vramtui.core.base.text import toml_words
from vramtui.core.base.units import UNKNOWN, format_duration
from vramtui.core.estimate.estimate import PHASE_TITLES, Ledger
from vramtui.core.observation.readings import CLOCKS_APART

DRY_RUN: Final = "dry-run"  # the source and method of a dry run's prediction
Ending = Literal["running", "exited", "failed", "out_of_memory", "killed"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one GPU, predicted and observed.

    Attributes:
        key: what makes it one and the same: host, GPU, pid and start time.
        source: `watched` by the dashboard, started by `vramtui run`, or only a prediction: a `dry-run`.
        started_at: seconds since the epoch; `ended_at` None while it runs.
        workload: the preset's exact values, as a preset's tables spell them.
        method: the estimator behind `predicted`, and `peak_phase` when that peaks; both empty without a prediction.
        peak_how: how the observed peak was learned: `sampled`, `accounting` or `probe`.
        seen_until: when it was last known to run, if its end was not seen.
        times: seconds since the start, and `values` the bytes of the process from then on.
        exit_code: of the process, where it is known.
        versions: programs and drivers behind the figures.
    """

    key: str
    source: Literal["watched", "run", "dry-run"]
    host: str
    gpu_uuid: str
    gpu_name: str
    pid: int
    command: str = ""
    started_at: float
    ended_at: float | None = None
    seen_until: float | None = None
    ending: Ending = "running"
    exit_code: int | None = None
    preset: str
    model_kind: str = ""
    run_kind: str = ""
    workload: dict[str, dict[str, Any] | None] = {}
    method: str
    peak_phase: str = ""
    predicted: Ledger
    observed: Ledger
    peak_how: str = "sampled"
    times: tuple[float, ...] = ()
    values: tuple[int, ...] = ()
    versions: dict[str, str] = {}

    @property
    def error(self) -> float | None:
        """Observed over predicted, less one, of the process; None if either is not known."""
        if not self.predicted.process or self.observed.process is None:
            return None
        return self.observed.process / self.predicted.process - 1

    @property
    def finished(self) -> bool:
        """Return whether it came to its end, as far as is known: one that broke off may never have reached its peak."""
        return self.ended_at is not None and self.ending == "exited"

    @property
    def last_known(self) -> float:
        """The latest moment at which it is known to have been there, in seconds since the epoch."""
        known = (
            self.started_at,
            self.seen_until,
            self.ended_at,
            self.started_at + self.times[-1] if self.times else None,
        )
        return max(moment for moment in known if moment is not None)


class StoredRun(msgspec.Struct, frozen=True):
    id: int
    run: Run


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """How far predictions of one kind were off: the number of runs, the median and the widest error."""

    method: str
    model_kind: str
    runs: int
    median: float
    lowest: float
    highest: float


def spreads(runs: tuple[Run, ...]) -> tuple[Spread, ...]:
    """The errors by method and kind of model of the runs that came to their end."""
    from statistics import median  # noqa: PLC0415 - the dashboard's start would wait for it, only History needs it

    differences: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.finished and run.error is not None:
            differences.setdefault((run.method, run.model_kind), []).append(run.error)
    return tuple(
        Spread(
            method=method,
            model_kind=kind,
            runs=len(errors),
            median=median(errors),
            lowest=min(errors),
            highest=max(errors),
        )
        for (method, kind), errors in sorted(differences.items())
    )


_HOW_WELL = {"sampled": 0, "accounting": 1, "probe": 2}


def run_key(host: str, gpu_uuid: str, pid: int, started_at: float) -> str:
    """The key of the process that is `pid` on a GPU of `host`; `started_at` in seconds since the epoch."""
    return f"{host}/{gpu_uuid}/{pid}/{round(started_at)}"


def same_process(one: Run, other: Run) -> bool:
    """Return whether both are about one process: a host gives a pid to one process at a time, so their lives overlap.

    Runs without a pid are the same if their keys are.
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
    }
    # The end, from the one that knows most of it. One that was seen later was not at its end before.
    knows = other if _end_known(other, better) > _end_known(better, other) else better
    if any(_end_known(knows, other if knows is better else better)):
        changes |= {"ended_at": knows.ended_at, "ending": knows.ending, "exit_code": knows.exit_code}
    else:
        changes |= {"ended_at": None, "ending": "running", "exit_code": None}
    if not better.predicted.process and other.predicted.process:
        changes |= {name: getattr(other, name) for name in _PREDICTION}
    if _length(other) > _length(better):
        shift = other.started_at - better.started_at
        changes |= {"times": tuple(at + shift for at in other.times), "values": other.values}
    return msgspec.structs.replace(better, **changes)


_PREDICTION = ("preset", "model_kind", "run_kind", "workload", "method", "peak_phase", "predicted")


def with_peak(observed: Ledger, process: int | None) -> Ledger:
    """`observed` with a process line of at least `process` bytes; what is beyond reserved is the context then, unless
    there was a process line without one: the job was gone before it had reported all of reserved.
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


def _end_known(run: Run, other: Run) -> tuple[bool, bool, bool]:
    """Return whether `run` knows the exit code, a reason, and that it is over at all."""
    known = run.exit_code is not None, run.ending not in ("running", "exited"), run.ended_at is not None
    gone_too_soon = (
        run.ended_at is not None
        and other.ended_at is None
        and other.seen_until is not None
        and other.seen_until > run.ended_at + CLOCKS_APART
    )
    return known if any(known[:2]) or not gone_too_soon else (False, False, False)


def _length(run: Run) -> float:
    return run.times[-1] - run.times[0] if run.times else -1.0


RunColumn = Literal["when", "host", "gpu", "preset", "predicted", "observed", "error", "lasted", "ended"]
RUN_COLUMNS: tuple[RunColumn, ...] = get_args(RunColumn)
FROM_THE_LARGEST = ("when", "predicted", "observed", "error", "lasted")
FAILED = ("failed", "out_of_memory", "killed")
TABLES = ("model", "run", "parallel")
STALE = 180.0  # seconds without an update after which a run without an end is not shown as running
# Where one bar of a histogram ends and the next begins: observed over predicted, less one.
EDGES = (-0.2, -0.1, -0.05, -0.02, 0.02, 0.05, 0.1, 0.2)
BARS = ("below −20 %", "−20 to −10 %", "−10 to −5 %", "−5 to −2 %", "within 2 %", "+2 to +5 %", "+5 to +10 %",
        "+10 to +20 %", "above +20 %")  # fmt: skip


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs: texts that a name must hold whatever its case, the earliest start (seconds since the epoch), only
    those that broke off. `words` must each stand somewhere in the run.
    """

    preset: str = ""
    gpu: str = ""
    host: str = ""
    since: float | None = None
    failed: bool = False
    words: str = ""

    def takes(self, run: Run) -> bool:
        if self.since is not None and run.started_at < self.since:
            return False
        if self.failed and run.ending not in FAILED:
            return False
        named = ((self.preset, run.preset), (self.gpu, f"{run.gpu_name} {run.gpu_uuid}"), (self.host, run.host))
        if not all(wanted.casefold() in name.casefold() for wanted, name in named):
            return False
        text = " ".join((run.host, run.gpu_name, run.preset, run.method, run.command, str(run.pid), run.ending))
        return all(word in text.casefold() for word in self.words.casefold().split())


def filtered(runs: Iterable[StoredRun], wanted: RunFilter) -> list[StoredRun]:
    return [stored for stored in runs if wanted.takes(stored.run)]


def in_order(runs: Iterable[StoredRun], column: RunColumn, *, reverse: bool = False) -> list[StoredRun]:
    """Sorted by a column: the latest, the largest and the farthest off first, names from A; unknown values last."""
    key = _KEYS[column]
    known: list[StoredRun] = []
    unknown: list[StoredRun] = []
    for stored in runs:
        (unknown if key(stored.run) is None else known).append(stored)
    falls = column in FROM_THE_LARGEST
    known.sort(key=lambda stored: key(stored.run), reverse=falls != reverse)  # type: ignore[arg-type, return-value]  # all of one type, None is out
    return known + unknown


def histogram(errors: Iterable[float]) -> tuple[int, ...]:
    counts = [0] * (len(EDGES) + 1)
    for error in errors:
        counts[bisect_right(EDGES, error)] += 1
    return tuple(counts)


def errors_of(runs: Iterable[Run], method: str, model_kind: str) -> list[float]:
    mine = (run for run in runs if run.finished and (run.method, run.model_kind) == (method, model_kind))
    return [run.error for run in mine if run.error is not None]


def ending_words(run: Run, now: float) -> str:
    """How it ended, as far as is known: `exited`, `failed (1)`, `running`, `last seen 2 h 14 m ago`."""
    if run.ending == "running":
        age = now - run.last_known
        return "running" if age < STALE else f"last seen {format_duration(age)} ago"
    if run.ending == "exited" and run.exit_code is None:
        return "ended"
    word = run.ending.replace("_", " ")
    return f"{word} ({run.exit_code})" if run.exit_code else word


def why_not_deleted(stored: StoredRun, now: float) -> str:
    """Why a run cannot be deleted yet; empty if it can be. What follows would be kept as a new run."""
    if ending_words(stored.run, now) != "running":
        return ""
    return f"run {stored.id} is still running (pid {stored.run.pid}); delete it after it has ended"


def with_gone(runs: Iterable[StoredRun], host: str, is_gone: Callable[[int, float], bool]) -> tuple[StoredRun, ...]:
    """The runs, those of `host` whose process is gone no longer `running`: when and how they ended is unknown.

    Args:
        runs: runs as they are stored.
        host: where `is_gone` can tell.
        is_gone: whether the process of a pid that ran at a time (seconds since the epoch) is there no more.
    """

    def settled(one: StoredRun) -> StoredRun:
        run = one.run
        if run.ending != "running" or run.host != host or not is_gone(run.pid, run.started_at):
            return one
        return StoredRun(one.id, msgspec.structs.replace(run, ending="exited"))

    return tuple(map(settled, runs))


def lasted_words(run: Run) -> str:
    """How long it ran; unknown without an end."""
    return UNKNOWN if run.ended_at is None else format_duration(run.ended_at - run.started_at)


HOW = {
    "sampled": "sampled: a short peak may have been missed",
    "accounting": "the driver's accounting of the process",
    "probe": "PyTorch's own counters, from a probe in the job",
}


def facts_of(run: Run, now: float, started: str) -> dict[str, str]:
    """Return names and words: the place, time, end, prediction and observation of a run."""
    lasted = f", after {lasted_words(run)}" if run.ended_at is not None else ""
    peak = f", peak: {PHASE_TITLES[run.peak_phase]}" if run.peak_phase in PHASE_TITLES else ""
    return {
        "command": run.command or UNKNOWN,
        "where": f"{run.host}, {run.gpu_name} ({run.gpu_uuid}), pid {run.pid}",
        "started": started,
        "ended": f"{ending_words(run, now)}{lasted}",
        "method": f"{run.preset}, {run.method}{peak}" if run.preset else "no prediction: no preset",
        "observed": HOW.get(run.peak_how, run.peak_how),
        "versions": ", ".join(f"{name} {known}" for name, known in run.versions.items()) or UNKNOWN,
    }


def preset_values(run: Run) -> tuple[tuple[str, str], ...]:
    """The preset's exact values: each table's name, and its keys and values in one line, as TOML spells them."""
    texts = ((table, toml_words(run.workload.get(table) or {})) for table in TABLES)
    return tuple((table, text) for table, text in texts if text)


_KEYS: dict[RunColumn, Callable[[Run], float | str | None]] = {
    "when": lambda run: run.started_at,
    "host": lambda run: run.host,
    "gpu": lambda run: run.gpu_name,
    "preset": lambda run: run.preset or None,
    "predicted": lambda run: run.predicted.process,
    "observed": lambda run: run.observed.process,
    "error": lambda run: None if run.error is None else abs(run.error),
    "lasted": lambda run: None if run.ended_at is None else run.ended_at - run.started_at,
    "ended": lambda run: run.ending,
}
