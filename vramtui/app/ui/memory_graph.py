"""The memory of the chosen process over time, in braille, under a ceiling that stands still."""

from textual.strip import Strip

from vramtui.app.state.row import why
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.braille import braille_rows, buckets, levels
from vramtui.app.ui.lines import Framed, Piece, paragraph, right, strip
from vramtui.core.base.units import GIB, KIB, MIB, format_bytes, format_duration

AXIS = 6
LEGEND_FROM = 6


class MemoryGraph(Framed[View]):
    """Filled braille for what was observed, dashed lines for the predicted peak and for the one of what is tried out,
    bytes at the left, time below.
    """

    DEFAULT_CSS = "MemoryGraph { height: 8; }"
    _plotted: tuple[object, list[Strip]] = (None, [])

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Rows of the plot and the time axis below them."""
        series = view.series
        if series is None or not len(series.values):
            return paragraph(_empty(view), palette, width)[:height]
        legend = [_legend(view, palette, width)] if height >= LEGEND_FROM else []
        plot_height, plot_width = max(1, height - 1 - len(legend)), max(2, width - AXIS)
        dots = levels(buckets(series, plot_width * 2), series.ceiling, plot_height)
        plot = (palette, width, plot_height, dots, series.ceiling, series.predicted, series.what_if, _ends(series))
        if self._plotted[0] != plot:
            self._plotted = (plot, _plot(series, dots, palette, width, plot_height))
        return [*legend, *self._plotted[1]]

    def titles(self, view: View) -> tuple[str, str]:
        """Whose memory it is."""
        return (f"Memory · {view.series.title}" if view.series is not None else "Memory", "")


def _plot(series: Series, dots: list[int], palette: Palette, width: int, height: int) -> list[Strip]:
    """`height` rows of the plot and the time axis."""
    rows = braille_rows(dots, height)
    marks = _marks(series, height, max(map(len, rows), default=0))
    labels = ticks(series.ceiling, height)
    lines_made = []
    for y, row in enumerate(rows):
        label = labels.get(y, "")
        axis: Piece = (right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)
        body = _marked(row, palette, *marks[y]) if y in marks else [(row, palette.ink("used"))]
        lines_made.append(strip([axis, *body], width, palette.text))
    lines_made.append(_time_axis(series, palette, width))
    return lines_made


def _marks(series: Series, height: int, width: int) -> dict[int, tuple[str, str]]:
    """Rows with a line through them: its label and its colour. The prediction's own is never hidden."""
    lines = (("what if", series.what_if, "accent"), ("predicted peak", series.predicted, "prediction"))
    found = ((_row_of(value, series.ceiling, height), name, value, colour) for name, value, colour in lines)
    return {row: (_label(name, value, width), colour) for row, name, value, colour in found if row is not None}


def _row_of(value: int | None, ceiling: int, height: int) -> int | None:
    if value is None or value > ceiling:
        return None
    return max(0, min(height - 1, height - 1 - int(value * height / ceiling - 1e-9)))


def ticks(ceiling: int, height: int) -> dict[int, str]:
    """Labels of the value axis by row: the top, the middle where there is one, and nothing else."""
    labels = {0: short(ceiling)}
    if height >= 4 and height % 2 == 0:
        labels[height // 2] = short(ceiling // 2)
    return labels


def short(count: int) -> str:
    """Bytes in few columns: `58G`, `512M`, `16K`."""
    if count >= GIB:
        text = f"{count / GIB:.0f}" if count >= 10 * GIB else f"{count / GIB:.1f}".removesuffix(".0")
        return f"{text}G"
    unit, letter = (MIB, "M") if count >= MIB else (KIB, "K")
    return f"{count // unit}{letter}"


def _legend(view: View, palette: Palette, width: int) -> Strip:
    """The figures behind the picture."""
    row = view.chosen
    if row is None:
        return strip([], width, palette.text)
    when, style = ("now", palette.strong) if row.age is None else (f"{format_duration(row.age)} ago", palette.dim)
    pieces: list[Piece] = [
        (f" {when} ", palette.dim),
        (format_bytes(row.now), style),
        ("  peak ", palette.dim),
        (format_bytes(row.peak), palette.strong),
    ]
    if row.predicted is not None:
        pieces += [("  predicted ", palette.dim), (format_bytes(row.predicted), palette.ink("prediction", bold=True))]
    if view.series is not None and view.series.what_if is not None:
        pieces += [("  what if ", palette.dim), (format_bytes(view.series.what_if), palette.ink("accent", bold=True))]
    return strip(pieces, width, palette.text)


def _label(name: str, value: int | None, width: int) -> str:
    text = f" {name} {format_bytes(value)} "
    return text if len(text) <= width // 2 else ""


def _marked(row: str, palette: Palette, label: str, colour: str) -> list[Piece]:
    """A row of the plot with a line through it: dashes where nothing is drawn, and a label."""
    dash = palette.ink(colour)
    at = len(row) - len(label) - 2
    pieces: list[Piece] = []
    for x, cell in enumerate(row):
        piece: Piece = ("┄", dash) if cell == " " else (cell, palette.ink("used"))
        if pieces and pieces[-1][1] is piece[1]:
            pieces[-1] = (pieces[-1][0] + piece[0], piece[1])
        else:
            pieces.append(piece)
        del x
    if not label:
        return pieces
    head = strip(pieces, at, dash)
    return [
        *((text, style or dash) for text, style, _ in head),
        (label, palette.ink(colour, bold=True)),
        ("┄┄", dash),
    ]


def _time_axis(series: Series, palette: Palette, width: int) -> Strip:
    start, end = _ends(series)
    line = "─" * max(0, width - AXIS - len(start) - len(end) - 5)
    return strip(
        [(right("0", AXIS - 1) + "┴", palette.dim), (f"─ {start} {line} {end}", palette.dim)], width, palette.text
    )


def _ends(series: Series) -> tuple[str, str]:
    """What stands at the ends of the time axis."""
    return series.ends or (f"{format_duration(series.end - series.start)} ago", "now")


def _empty(view: View) -> str:
    row = view.chosen
    if row is None:
        return "The selected process's memory over time appears here."
    if row.kind == "process" and row.process is not None and row.now is None:
        return f"The driver does not report this process's memory: {why(row.process, 'used_memory')}."
    return "Select a process to see its memory over time."
