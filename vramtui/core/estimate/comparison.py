"""One process, one estimate: two Ledgers side by side, the difference, and what it means."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import PHASE_TITLES, USUAL_ERROR, Estimate
from vramtui.core.estimate.ledger import CATEGORIES, CUDA, LINES, TITLES, Ledger, Line, title_of

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
    above = USUAL_ERROR if estimate.error is None else estimate.error
    below = above if estimate.error_below is None else estimate.error_below
    verdict = _verdict(total.fraction, above, below)
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


class ShownRow(msgspec.Struct, frozen=True, kw_only=True):
    """A line as it is shown, in bytes.

    Attributes:
        line: whose it is; of a subtotal the first of those that it is of.
        title: `activations`; of a subtotal the names of its lines.
        is_part: it is observed only together with other lines, of which the subtotal tells.
        is_subtotal: the sum of lines above it.
    """

    line: Line
    title: str
    predicted: int | None
    observed: int | None = None
    difference: int | None = None
    fraction: float | None = None
    is_part: bool = False
    is_subtotal: bool = False


def shown_rows(rows: Iterable[ComparisonRow], vendor: str = CUDA) -> tuple[ShownRow, ...]:
    """The lines for a table, in the words of the card's vendor: those that are observed together have one subtotal,
    with the only Δ that there is.
    """
    every = tuple(rows)
    groups: dict[Line, list[ComparisonRow]] = {}
    for row in every:
        if row.within is not None and row.observed is None:
            groups.setdefault(row.within, []).append(row)
    group_of = {row.line: outer for outer, inner in groups.items() for row in inner} | {
        outer: outer for outer in groups
    }
    shown = []
    for at, row in enumerate(every):
        outer = group_of.get(row.line)
        if outer is None:
            shown.append(ShownRow(title=title_of(row.line, vendor), **{name: getattr(row, name) for name in _SAME}))
            continue
        shown.append(ShownRow(line=row.line, title=title_of(row.line, vendor), predicted=row.predicted, is_part=True))
        if not any(group_of.get(later.line) == outer for later in every[at + 1 :]):
            shown.append(_subtotal([one for one in every if group_of.get(one.line) == outer], outer))
    return tuple(shown)


_SAME = ("line", "predicted", "observed", "difference", "fraction")


def _subtotal(rows: list[ComparisonRow], outer: Line) -> ShownRow:
    seen = next(row for row in rows if row.line == outer)
    *names, last = (TITLES[row.line] for row in rows)
    return ShownRow(
        line=outer,
        title=f"{', '.join(names)} and {last}",
        predicted=sum(row.predicted or 0 for row in rows),
        observed=seen.observed,
        difference=seen.difference,
        fraction=seen.fraction,
        is_subtotal=True,
    )


def _within(observed: Ledger) -> dict[Line, Line]:
    """Lines whose bytes are seen with those of another: the known parts are all that there is already."""
    lines: dict[Line, Line] = {}
    known = {line: observed.bytes_of(line) for line in CATEGORIES}
    if observed.activations is not None and observed.allocated == sum(size or 0 for size in known.values()):
        lines |= {line: "activations" for line, size in known.items() if size is None}
    outer = (observed.reserved, observed.context)
    if None not in outer and observed.other is None and observed.process == sum(size or 0 for size in outer):
        lines["other"] = "context"
    return lines


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


def _verdict(fraction: float | None, above: float, below: float) -> Verdict:
    if fraction is None:
        return "unknown"
    if fraction > above:
        return "over"
    return "below" if fraction < -below else "as predicted"


def _sentence(estimate: Estimate, total: ComparisonRow, verdict: Verdict) -> str:
    phase = PHASE_TITLES[estimate.peak_phase]
    if total.difference is None:
        return f"predicted to peak at {format_bytes(total.predicted)} in {phase}"
    if verdict == "below":
        return f"{format_bytes(-total.difference)} below the prediction; its peak: {phase}"
    if verdict == "over":
        return f"{format_bytes(total.difference)} over the prediction"
    return f"as predicted; peak: {phase}"
