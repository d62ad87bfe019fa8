"""A process compared with its estimate: two Ledgers, the difference, and its verdict."""

from collections.abc import Iterable
from typing import Literal

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import PHASE_TITLES, USUAL_ERROR, Estimate
from vramtui.core.estimate.ledger import CATEGORIES, CUDA, LINES, TITLES, Ledger, Line, title_of

Verdict = Literal["unknown", "below", "as predicted", "over"]


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tree on both sides, in bytes. `fraction` is observed over predicted, less one.

    A job reports weights, gradients and optimizer states, and the rest as one figure, listed as activations; the other
    lines in it are `within` activations, and difference and fraction are those of all of them. In the same way
    other libraries are `within` the context: only their sum is seen from outside.
    """

    line: Line
    predicted: int | None
    observed: int | None
    difference: int | None
    fraction: float | None
    within: Line | None = None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction and an observation.

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
    """Compare `estimate` with `observed`, whose process line is the peak seen so far."""
    total = _row("process", estimate.process, observed.process)
    above = USUAL_ERROR if estimate.error is None else estimate.error
    below = above if estimate.error_below is None else estimate.error_below
    phase, fraction = PHASE_TITLES[estimate.peak_phase], total.fraction
    verdict: Verdict = "as predicted"
    sentence = f"as predicted; peak: {phase}"
    if fraction is None:
        verdict = "unknown"
    elif fraction > above:
        verdict, sentence = "over", f"{format_bytes(total.difference)} over the prediction"
    elif fraction < -below:
        short = format_bytes(-(total.difference or 0))
        verdict, sentence = "below", f"{short} below the prediction; its peak: {phase}"
    if total.difference is None:
        sentence = f"predicted to peak at {format_bytes(total.predicted)} in {phase}"
    return Comparison(
        preset=preset,
        method=estimate.method,
        rows=compare_ledgers(estimate.ledger, observed),
        predicted=estimate.process,
        now=now,
        peak=observed.process,
        fraction=fraction,
        verdict=verdict,
        sentence=sentence,
    )


def compare_ledgers(predicted: Ledger, observed: Ledger) -> tuple[ComparisonRow, ...]:
    """Every line that either side knows, outermost totals last."""
    within: dict[Line, Line] = {}  # lines whose bytes are observed with those of another
    known = {line: observed.bytes_of(line) for line in CATEGORIES}
    if observed.activations is not None and observed.allocated == sum(size or 0 for size in known.values()):
        within |= {line: "activations" for line, size in known.items() if size is None}
    outer = (observed.reserved, observed.context)
    if None not in outer and observed.other is None and observed.process == sum(size or 0 for size in outer):
        within["other"] = "context"
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
        is_part: it is observed only together with other lines, in their subtotal.
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
    """The lines for a table, in the words of the GPU's vendor. Lines that are observed together get one subtotal, with
    their only Δ.
    """
    every = tuple(rows)
    outer_of: dict[Line, Line] = {}
    for row in every:
        if row.within is not None and row.observed is None:
            outer_of |= {row.line: row.within, row.within: row.within}
    shown = []
    for at, row in enumerate(every):
        outer, title = outer_of.get(row.line), title_of(row.line, vendor)
        if outer is None:
            shown.append(
                ShownRow(
                    line=row.line,
                    title=title,
                    predicted=row.predicted,
                    observed=row.observed,
                    difference=row.difference,
                    fraction=row.fraction,
                )
            )
            continue
        shown.append(ShownRow(line=row.line, title=title, predicted=row.predicted, is_part=True))
        if any(outer_of.get(later.line) == outer for later in every[at + 1 :]):
            continue
        group = [one for one in every if outer_of.get(one.line) == outer]
        seen = next(one for one in group if one.line == outer)
        *names, last = (TITLES[one.line] for one in group)
        shown.append(
            ShownRow(
                line=outer,
                title=f"{', '.join(names)} and {last}",
                predicted=sum(one.predicted or 0 for one in group),
                observed=seen.observed,
                difference=seen.difference,
                fraction=seen.fraction,
                is_subtotal=True,
            )
        )
    return tuple(shown)


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
