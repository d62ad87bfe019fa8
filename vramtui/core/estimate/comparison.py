"""One process, one estimate: two Ledgers side by side, the difference, and what it means."""

from typing import Literal

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate
from vramtui.core.estimate.fits import USUAL_ERROR
from vramtui.core.estimate.ledger import CATEGORIES, LINES, Ledger, Line

Verdict = Literal["unknown", "below", "as predicted", "over"]


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tree on both sides, in bytes. `fraction` is observed over predicted, less one.

    A job can tell weights, gradients and optimizer states apart, and the rest only as one figure. It stands with the
    activations; the other lines that it covers are `within` it, and difference and fraction are those of all of them.
    In the same way other libraries are `within` the context, of which only both together are seen from outside.
    """

    line: Line
    predicted: int | None
    observed: int | None
    difference: int | None
    fraction: float | None
    within: Line | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction beside an observation.

    Attributes:
        preset: the key of the preset the prediction came from.
        method: the estimator's name.
        rows: every line that either side knows, outermost totals last.
        predicted: the predicted peak of the process in bytes.
        now: what the process holds now; `peak` the most it was seen to hold.
        fraction: peak over predicted, less one; None when the peak is unknown.
        verdict: `as predicted` within the stated error, `over` beyond it, `below` when there is still room to grow.
    """

    preset: str
    method: str
    rows: tuple[ComparisonRow, ...]
    predicted: int
    now: int | None
    peak: int | None
    fraction: float | None
    verdict: Verdict
    sentence: str


def compare(preset: str, estimate: Estimate, observed: Ledger, now: int | None) -> Comparison:
    """Set `estimate` beside `observed`, whose process line is the peak seen so far."""
    rows = compare_ledgers(estimate.ledger, observed)
    total = _row("process", estimate.process, observed.process)
    allowed = USUAL_ERROR if estimate.error is None else estimate.error
    verdict = _verdict(total.fraction, allowed)
    return Comparison(
        preset=preset,
        method=estimate.method,
        rows=rows,
        predicted=estimate.process,
        now=now,
        peak=observed.process,
        fraction=total.fraction,
        verdict=verdict,
        sentence=_sentence(estimate, total, verdict),
    )


def compare_ledgers(predicted: Ledger, observed: Ledger) -> tuple[ComparisonRow, ...]:
    """Every line that either side knows, outermost totals last."""
    within = _within(observed)
    return tuple(
        _row(
            line,
            predicted.bytes_of(line),
            observed.bytes_of(line),
            rest=sum(predicted.bytes_of(covered) or 0 for covered, by in within.items() if by == line),
            within=within.get(line),
        )
        for line in LINES
        if predicted.bytes_of(line) or observed.bytes_of(line) is not None
    )


def _within(observed: Ledger) -> dict[Line, Line]:
    """Lines whose bytes are seen with those of another: the known parts are all that there is already."""
    found: dict[Line, Line] = {}
    known = {line: observed.bytes_of(line) for line in CATEGORIES}
    if observed.activations is not None and observed.allocated == sum(size or 0 for size in known.values()):
        found |= {line: "activations" for line, size in known.items() if size is None}
    outer = (observed.reserved, observed.context)
    if None not in outer and observed.other is None and observed.process == sum(size or 0 for size in outer):
        found["other"] = "context"
    return found


def _row(
    line: Line, predicted: int | None, observed: int | None, *, rest: int = 0, within: Line | None = None
) -> ComparisonRow:
    """A line; `rest` is what is predicted on the other lines that its observed bytes cover."""
    expected = None if predicted is None else predicted + rest
    known = expected is not None and observed is not None
    return ComparisonRow(
        line=line,
        predicted=predicted,
        observed=observed,
        difference=observed - expected if expected is not None and observed is not None else None,
        fraction=(observed or 0) / expected - 1 if known and expected else None,
        within=within,
    )


def _verdict(fraction: float | None, allowed: float) -> Verdict:
    if fraction is None:
        return "unknown"
    if fraction > allowed:
        return "over"
    return "below" if fraction < -allowed else "as predicted"


def _sentence(estimate: Estimate, total: ComparisonRow, verdict: Verdict) -> str:
    phase = PHASE_TITLES[estimate.peak_phase]
    if total.difference is None:
        return f"predicted to peak at {format_bytes(total.predicted)} in {phase}"
    if verdict == "below":
        return f"{format_bytes(-total.difference)} below the prediction, which peaks in {phase}"
    if verdict == "over":
        return f"{format_bytes(total.difference)} over the prediction"
    return f"as predicted; the peak falls in {phase}"
