"""How far predictions were off by method and kind of model, and what the runs teach about constants."""

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.history.model import Errors, HistoryView
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import short_name
from vramtui.app.ui.graph.braille import DOTS, braille_rows
from vramtui.app.ui.lines import Framed, Piece, between, fit, paragraph, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_gib, format_percent
from vramtui.core.runs.calibration import ENOUGH, Calibration, Learned
from vramtui.core.runs.run_list import EDGES

BAR, ROWS = 3, 2  # columns of a bar, beside which is a gap of one; rows of a histogram
EACH = 2 + ROWS


class RunErrors(Framed[HistoryView]):
    """The number of runs, the median, the extremes and a histogram for each method and kind of model."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A histogram for each group of runs, as many as fit, and one axis below them."""
        errors = view.errors
        if not errors:
            words = "No finished run has both a prediction and an observation yet."
            return paragraph(words, palette, width)[:height]
        lines: list[Strip] = []
        for group in sorted(errors, key=lambda group: -group.spread.runs):
            if lines and len(lines) + EACH + 1 > height:
                break
            lines += _spread(group, palette, width)
        return [*lines[: height - 1], _axis(palette, width)]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        count = len(view.errors)
        room = (self.scrollable_content_region.height - 1) // EACH
        return ("Observed over predicted", f"{room} of {count} kinds" if 0 < room < count else "")


def _spread(group: Errors, palette: Palette, width: int) -> list[Strip]:
    spread = group.spread
    count = f"{spread.runs} run{'s' if spread.runs > 1 else ''} "
    name = f" {printable(spread.method)} · {printable(spread.model_kind) or 'any model'}"
    widest = f"{format_percent(spread.lowest)} to {format_percent(spread.highest)} "
    median: list[Piece] = [("   median ", palette.dim), (format_percent(spread.median), palette.strong)]
    return [
        between([(name, palette.text)], [(count, palette.dim)], width, palette.text),
        between(median, [(widest, palette.dim)], width, palette.text),
        *(strip([("  " + row, palette.ink("used"))], width, palette.text) for row in bars(group.counts)),
    ]


def bars(counts: tuple[int, ...]) -> list[str]:
    """A histogram in rows of braille: at least a dot for any run at all."""
    most = max(counts) or 1
    dots: list[int] = []
    for count in counts:
        level = max(1, round(count / most * ROWS * DOTS)) if count else 0
        dots += [level] * (2 * BAR) + [0, 0]
    return braille_rows(dots, ROWS)


def _axis(palette: Palette, width: int) -> Strip:
    """The edges in per cent, each under the gap between two bars."""
    cells = [" "] * (len(EDGES) + 1) * (BAR + 1)
    for at, edge in enumerate(EDGES):
        label = f"{edge * 100:+.0f}".replace("-", "−")
        gap = (at + 1) * (BAR + 1) - 1
        start = gap - len(label) // 2
        cells[start : start + len(label)] = label
    return strip([("  " + "".join(cells) + "%", palette.dim)], width, palette.text)


class RunCalibration(Framed[HistoryView]):
    """The calibrated constants, from how many runs and with which spread; and whether they are applied."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        calibration = view.calibration
        if calibration is None or not (calibration.contexts or calibration.shares):
            words = (
                "Finished runs with a probe (vramtui run) calibrate the CUDA context's size and how much PyTorch keeps"
                f" cached; {ENOUGH} of a kind are needed."
            )
            return paragraph(words, palette, width)[:height]
        return _learned(calibration, palette, width)[:height]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        """Whether it is applied, and the key that changes that."""
        applied = view.applied
        return ("Calibration", "applied to estimates · K turns off" if applied else "off · K applies it to estimates")


def _learned(calibration: Calibration, palette: Palette, width: int) -> list[Strip]:
    """Two lines for each constant: the figure, its spread and the number of runs; and what it holds for."""
    lines: list[Strip] = []
    for context in calibration.contexts:
        median, low, high = (format_gib(round(size), 2) for size in _spread_of(context.seen))
        of = f"{short_name(printable(context.gpu_name))} · driver {printable(context.driver)}"
        lines += _constant("context", f"{median} GiB ({low}–{high})", of, context.seen, palette, width)
    for share in calibration.shares:
        middle, least, most = (round(100 * (ratio - 1)) for ratio in _spread_of(share.seen))
        of = printable(f"{share.method} · {share.model_kind} {share.run_kind}")
        lines += _constant("cached/allocated", f"{middle} % ({least}–{most})", of, share.seen, palette, width)
    return lines


def _spread_of(seen: Learned) -> tuple[float, float, float]:
    return seen.median, seen.lowest, seen.highest


def _constant(name: str, figure: str, of: str, seen: Learned, palette: Palette, width: int) -> list[Strip]:
    count = f"{seen.runs} run{'s' if seen.runs > 1 else ''}"
    count_text = f"{count} " if seen.enough else f"{count}, {ENOUGH} needed "
    start: list[Piece] = [(f" {name} ", palette.text), (figure, palette.strong if seen.enough else palette.dim)]
    below: list[Piece] = [(f"   {fit(of, width - 4)}", palette.dim)]
    if sum(cell_len(text) for text, _ in start) + cell_len(count_text) < width:
        return [between(start, [(count_text, palette.dim)], width, palette.text), strip(below, width, palette.text)]
    # Beside a long figure there is no room for the count.
    below = [(f"   {fit(of, width - 4 - cell_len(count_text))}", palette.dim)]
    return [strip(start, width, palette.text), between(below, [(count_text, palette.dim)], width, palette.text)]
