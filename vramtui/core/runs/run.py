"""A run: one job on one GPU that had a prediction, as the history keeps it."""

from typing import Any, Literal

import msgspec

from vramtui.core.estimate.ledger import Ledger

Ending = Literal["running", "exited", "failed", "out_of_memory", "killed"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one GPU, predicted and observed.

    Attributes:
        key: what makes it one and the same: host, GPU, pid and start time.
        source: `watched` by the dashboard, started by `vramtui run`, told by `slurm` of what nobody watched, or a
            prediction alone: it ran on an `emulated` card.
        started_at: seconds since the epoch; `ended_at` None while it runs.
        workload: the preset's exact values, as a preset's tables spell them.
        method: the estimator behind `predicted`, and `peak_phase` when that peaks; both empty without a prediction.
        peak_how: how the observed peak was learned: `sampled`, `accounting` or `probe`.
        seen_until: when it was last known to run, where nobody saw its end.
        times: seconds since the start, and `values` the bytes of the process from then on.
        exit_code: of the process, where it is known.
        versions: programs and drivers behind the figures.
    """

    key: str
    source: Literal["watched", "run", "slurm", "emulated"]
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
        """Observed over predicted, less one, of the process; None where either is not known."""
        if not self.predicted.process or self.observed.process is None:
            return None
        return self.observed.process / self.predicted.process - 1

    @property
    def finished(self) -> bool:
        """Whether it came to its end, as far as is known: one that broke off may never have reached its peak."""
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
    """A run and the number it is kept under."""

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
    from statistics import median  # noqa: PLC0415 - the dashboard's start would wait for it, History alone needs it

    found: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run.finished and run.error is not None:
            found.setdefault((run.method, run.model_kind), []).append(run.error)
    return tuple(
        Spread(
            method=method,
            model_kind=kind,
            runs=len(errors),
            median=median(errors),
            lowest=min(errors),
            highest=max(errors),
        )
        for (method, kind), errors in sorted(found.items())
    )
