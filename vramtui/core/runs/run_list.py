"""Lists of past runs: which of them, in which order, and how their errors are spread."""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Literal, get_args

import msgspec

from vramtui.core.base.text import toml_words
from vramtui.core.base.units import UNKNOWN, format_duration
from vramtui.core.estimate.estimate import PHASE_TITLES
from vramtui.core.runs.run import Run, StoredRun

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
    lines = []
    for table in TABLES:
        values = run.workload.get(table) or {}
        if text := toml_words(values):
            lines.append((table, text))
    return tuple(lines)


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
