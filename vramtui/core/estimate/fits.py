"""Fits: the verdict on a GPU with its sentence, comparisons with what was observed, and the largest value that fits."""

from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Literal

import msgspec

from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.estimate.devices import Device, emulation_note
from vramtui.core.estimate.estimate import (
    CATEGORIES,
    CUDA,
    LINES,
    PHASE_TITLES,
    TITLES,
    USUAL_ERROR,
    Estimate,
    Ledger,
    Line,
    title_of,
)
from vramtui.core.schema.workload import Workload

Verdict = Literal["unknown", "below", "as predicted", "over"]


class ComparisonRow(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the tree on both sides, in bytes. `fraction` is observed over predicted, less one.

    A job reports weights, gradients and optimizer states, and the rest as one figure, listed as activations; the other
    lines in it are `within` activations, and difference and fraction are those of all of them. In the same way
    other libraries are `within` the context: only their sum is seen from outside.
    """

    line: Line
    predicted: int | None
    observed: int | None = None
    difference: int | None = None
    fraction: float | None = None
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


def compare_ledgers(predicted: Ledger, observed: Ledger, before: Estimate | None = None) -> tuple[ComparisonRow, ...]:
    """Every line that either side knows, or an earlier prediction `before`; outermost totals last."""
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
        if predicted.bytes_of(line) or observed.bytes_of(line) is not None or (before and before.ledger.bytes_of(line))
    )


class ShownRow(ComparisonRow, frozen=True, kw_only=True):
    """A line as it is shown.

    Attributes:
        line: whose it is; of a subtotal the first of those that it is of.
        title: `activations`; of a subtotal the names of its lines.
        is_part: it is observed only together with other lines, in their subtotal.
        is_subtotal: the sum of lines above it.
    """

    title: str
    is_part: bool = False
    is_subtotal: bool = False


def shown_rows(rows: Iterable[ComparisonRow], vendor: str = CUDA) -> tuple[ShownRow, ...]:
    """The lines for a table, in the words of the GPU's vendor; those observed together get one subtotal and Δ."""
    every = tuple(rows)
    outer_of: dict[Line, Line] = {}
    for row in every:
        if row.within is not None and row.observed is None:
            outer_of |= {row.line: row.within, row.within: row.within}
    shown = []
    for at, row in enumerate(every):
        outer, title = outer_of.get(row.line), title_of(row.line, vendor)
        if outer is None:
            shown.append(ShownRow(**msgspec.structs.asdict(row), title=title))
            continue
        shown.append(ShownRow(line=row.line, title=title, predicted=row.predicted, is_part=True))
        if any(outer_of.get(later.line) == outer for later in every[at + 1 :]):
            continue
        group = [one for one in every if outer_of.get(one.line) == outer]
        seen = next(one for one in group if one.line == outer)
        *names, last = (TITLES[one.line] for one in group)
        subtotal = msgspec.structs.replace(seen, predicted=sum(one.predicted or 0 for one in group))
        title = f"{', '.join(names)} and {last}"
        shown.append(ShownRow(**msgspec.structs.asdict(subtotal), title=title, is_subtotal=True))
    return tuple(shown)


def _row(
    line: Line, predicted: int | None, observed: int | None, *, rest: int = 0, within: Line | None = None
) -> ComparisonRow:
    """A line; `rest` is what is predicted on the other lines that its observed bytes cover."""
    expected = None if predicted is None else predicted + rest
    row = ComparisonRow(line=line, predicted=predicted, observed=observed, within=within)
    if expected is None or observed is None:
        return row
    fraction = observed / expected - 1 if expected else None
    return msgspec.structs.replace(row, difference=observed - expected, fraction=fraction)


CEILING = 1 << 24
PROBES = 16  # numbers looked at beyond an edge: the allocator's rounding makes some sizes fit again
FAR = 8  # by that part and a GiB more no rounding makes one too large
STRIDE = 64  # the first step from a number is that part of it
MOST_LINES = 4  # straight lines that are drawn at most: the bytes of most keys lie nearly on one

Search = Generator[int, int | None, int]
"""Yields a number, is sent its bytes (None if it is refused), and returns the largest that fits, 0 if none does."""
Sizes = dict[int, int | None]
"""Bytes of numbers that were asked."""


def largest(needs: Callable[[int], int | None], search: Search) -> int:
    """The result of `search` with the answers of `needs`."""
    try:
        number = next(search)
        while True:
            number = search.send(needs(number))
    except StopIteration as ended:
        return int(ended.value)


def search_lines(room: int, first: int, second: int) -> Search:
    """Search for about the number whose bytes reach `room`, by lines through numbers that are asked: where to begin."""
    before, at = first, second
    for _ in range(MOST_LINES):
        low = yield before
        high = yield at
        if low is None or high is None or (high - low) * (at - before) <= 0:
            break
        before, at = at, min(max((at + (room - high) * (at - before) // (high - low)), 1), CEILING)
        if abs(at - before) <= 1:
            break
    return at


def search_largest(
    room: int, start: int = 1, *, most: int = CEILING, probes: int = 0, known: Mapping[int, int | None] | None = None
) -> Search:
    """Search for the largest number up to `most` that needs at most `room` bytes, with few questions near `start`.

    In steps that double from there, then between one that fits and one that does not. Memory grows with what is
    varied but for the allocator's rounding: of several edges one is found.

    Args:
        room: bytes that there are.
        start: the number that is asked first.
        most: no number beyond it is asked.
        probes: so many numbers are looked at beyond the edge; if one fits after all, the search goes on from there.
        known: bytes of numbers that were asked before; the edge is above the largest of them that fits.
    """
    start = min(max(start, 1), most)
    step = max(start // STRIDE, 1)
    sizes = dict(known or {})
    yield from _ask(start, sizes)
    below = max((number for number, size in sizes.items() if _fits(size, room)), default=0)
    above = min((number for number in sizes if number > below), default=0)
    if below:
        search = _between(room, below, above, sizes) if above else _above(room, below, step, most, sizes)
    elif above > 1 and _fits((yield from _ask(1, sizes)), room):
        # The edge below `above`, which does not fit, where 1 does.
        low = above - step
        while low > 1 and not _fits((yield from _ask(low, sizes)), room):
            above, step = low, 2 * step
            low = above - step
        search = _between(room, max(low, 1), above, sizes)
    else:
        return 0
    low = yield from search
    number = low + 2
    while number < min(low + 2 + probes, most + 1):
        size = yield from _ask(number, sizes)
        if size is not None and size > room + room // FAR + GIB:
            break
        if _fits(size, room):
            low = yield from _above(room, number, 1, most, sizes)
            number = low + 1
        number += 1
    return low


def _ask(number: int, sizes: Sizes) -> Generator[int, int | None, int | None]:
    """The bytes of `number`, which are noted."""
    sizes[number] = yield number
    return sizes[number]


def _above(room: int, low: int, step: int, most: int, sizes: Sizes) -> Search:
    """The edge above `low`, which fits."""
    while low + step <= most and _fits((yield from _ask(low + step, sizes)), room):
        low, step = low + step, 2 * step
    return (yield from _between(room, low, min(low + step, most + 1), sizes))


def _between(room: int, low: int, high: int, sizes: Sizes) -> Search:
    """The edge between one that fits and one that does not: by the line through both, or by halves where two questions
    brought it no nearer than one of these would.
    """
    wide = before = 2 * (high - low)
    while high - low > 1:
        middle = (low + high) // 2
        least, most = sizes.get(low), sizes.get(high)
        if 2 * (high - low) <= before and least is not None and most is not None and most > least:
            middle = min(max(low + (room - least) * (high - low) // (most - least), low + 1), high - 1)
        wide, before = high - low, wide
        low, high = (middle, high) if _fits((yield from _ask(middle, sizes)), room) else (low, middle)
    return low


def _fits(size: int | None, room: int) -> bool:
    return size is not None and size <= room


FitVerdict = Literal["fits", "tight", "does not fit", "unknown"]
# From here on a difference is written in GiB like the two sizes next to it; "0.0 GiB" would say nothing.
SMALLEST_IN_GIB = 0.05 * GIB
SIGNS: dict[FitVerdict, str] = {"fits": "✓", "tight": "!", "does not fit": "✗", "unknown": "?"}


class Fit(msgspec.Struct, frozen=True, kw_only=True):
    """The need of a process compared with the memory of a card.

    Attributes:
        needs: bytes of the predicted process at its peak.
        has: bytes of the card that it can have.
        error: the stated relative error of `needs`, as a fraction; None when it was never measured.
        note: what else there is to say, a sentence without a full stop; may be empty.
        refused: the engine does not start with these settings, whatever the card holds.
        unknown: unknown properties of the job that prevent a verdict; may be empty.
    """

    needs: int
    has: int
    error: float | None = None
    note: str = ""
    refused: bool = False
    unknown: str = ""

    @property
    def verdict(self) -> FitVerdict:
        """`tight` where the stated error could take it beyond the card; `unknown` where nothing is known."""
        if self.unknown:
            return "unknown"
        if not self.is_enough:
            return "does not fit"
        return "tight" if self.needs * (1 + self._error) > self.has else "fits"

    @property
    def is_enough(self) -> bool:
        return not self.refused and fits_in(self.needs, self.has)

    @property
    def spare(self) -> int:
        """Bytes that are left; negative where it does not fit."""
        return self.has - self.needs

    @property
    def sign(self) -> str:
        """One character for the verdict, without a colour."""
        return SIGNS[self.verdict]

    @property
    def sentence(self) -> str:
        """`needs 80.0 GiB, has 79.2 GiB: 0.8 GiB short`, and why it is tight."""
        if self.refused:
            return self.note or "it does not start with these settings"
        size = abs(self.spare)
        text = f"{size / GIB:.1f} GiB" if size >= SMALLEST_IN_GIB else format_bytes(size)
        difference = f"{text} {'short' if self.spare < 0 else 'spare'}"
        words = f"needs {format_bytes(self.needs)}, has {format_bytes(self.has)}: {difference}"
        if self.unknown:
            return f"{words}, as far as it is read; {self.unknown}"
        if self.verdict == "tight":
            words += f", and it may need up to {self._error:.0%} more".replace("%", " %")
        return f"{words}; {self.note}" if self.note else words

    def line(self, where: str) -> str:
        """`✓ fits H100: needs …`: the verdict on the card called `where`, with its sign and sentence."""
        return f"{self.sign} {self.headline(where)}: {self.sentence}"

    def headline(self, where: str) -> str:
        """`fits H100`, `tight on H100`, `does not fit H100`, `unknown whether it fits H100`."""
        if self.verdict == "unknown":
            return f"unknown whether it fits {where}"
        return f"tight on {where}" if self.verdict == "tight" else f"{self.verdict} {where}"

    @property
    def _error(self) -> float:
        return USUAL_ERROR if self.error is None else self.error


PAGED = "paged optimizer states"  # a part outside PyTorch's allocator, in managed memory


def fit_on(estimate: Estimate, workload: Workload, device: Device) -> Fit:
    """The verdict on a job that has the card to itself; paged states move to the host where they do not fit."""
    needs, note = estimate.process, emulation_note(workload, device)
    paged = sum(part.bytes for part in estimate.parts if part.name == PAGED)
    if paged and needs > device.total_memory >= needs - paged:
        needs, note = needs - paged, f"{format_bytes(paged)} of paged optimizer states move to host memory"
    return Fit(
        needs=needs, has=device.total_memory, error=estimate.error, note=note, unknown=unknown_of(workload.model)
    )


def fit_beside_others(needs: int, total: int, free: int | None, error: float | None, where: str) -> Fit:
    """The verdict on a card that others hold some of.

    Args:
        needs: bytes of the predicted process.
        total: bytes of the card.
        free: bytes of it that others do not hold now; None when not known.
        error: the stated relative error of `needs`.
        where: the card as people call it, `GPU 0`.
    """
    empty = Fit(needs=needs, has=total, error=error)
    if free is None or free >= total:
        return empty
    now = Fit(needs=needs, has=free, error=error)
    if not empty.is_enough:
        return empty
    return now if now.is_enough else msgspec.structs.replace(now, note=f"would fit {where} if empty")


def fits_in(needs: int, has: int) -> bool:
    """Return whether so many bytes are enough, tight or not; used by exit codes and searches for the largest batch."""
    return needs <= has


def unknown_of(model: object) -> str:
    """Unknown properties of a model that prevent a verdict; may be empty."""
    return "its architecture or quantization is not known" if getattr(model, "basis", "") == "generic" else ""
