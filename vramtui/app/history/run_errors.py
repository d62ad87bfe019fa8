"""Errors of past predictions by method and kind of model."""

from textual.strip import Strip

from vramtui.app.history.model import Errors, HistoryView
from vramtui.app.themes import Palette
from vramtui.app.ui.graph.braille import DOTS, braille_rows
from vramtui.app.ui.lines import Framed, Piece, between, paragraph, strip
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_percent
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
