"""A past run as it is taken away: its entry, both sides compared, and what could be calculated again."""

import msgspec

from vramtui.core.estimate.comparison import ComparisonRow, compare_ledgers
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.runs.run import StoredRun


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a past run.

    Attributes:
        stored: the run and its number.
        rows: predicted beside observed, every line that either side knows.
        estimate: the prediction calculated again from the stored workload, for its timeline and arithmetic.
        notes: what is to be known of that, a sentence each.
    """

    stored: StoredRun
    rows: tuple[ComparisonRow, ...]
    estimate: Estimate | None = None
    notes: tuple[str, ...] = ()


def run_report(kept: StoredRun, again: Estimate | None, problem: str, version: str) -> RunReport:
    """The report of `kept`.

    Args:
        kept: the run.
        again: what its own method says of its workload now; None where that could not be told.
        problem: why not.
        version: the program's, which calculated again.
    """
    run = kept.run
    notes: list[str] = []
    if again is not None:
        notes.append(
            f"timeline, arithmetic and assumptions were calculated again from the stored workload by vramtui {version}"
        )
        if again.ledger != run.predicted:
            notes.append("today's figures differ from those that were predicted then, which the comparison shows")
    elif problem:
        notes.append(f"there is no timeline: {problem}")
    if not run.times:
        notes.append("there is no memory graph: nobody looked at the process while it ran")
    return RunReport(stored=kept, rows=compare_ledgers(run.predicted, run.observed), estimate=again, notes=tuple(notes))
