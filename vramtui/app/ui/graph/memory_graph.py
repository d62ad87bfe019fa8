"""The memory of the chosen process over time, stacked by what it is made of, under a ceiling that stands still.

Areas are drawn in eighths of a cell: two colours in each, so that a boundary stands where it belongs.
"""

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from textual.strip import Strip

from vramtui.app.state.rows import why
from vramtui.app.state.view import Layers, Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.bars import colour_of
from vramtui.app.ui.graph.braille import buckets, fullest, last_stretch, moved_at
from vramtui.app.ui.lines import Framed, Piece, paragraph, right, strip
from vramtui.core.base.units import GIB, KIB, MIB, format_bytes, format_duration
from vramtui.core.estimate.ledger import LETTERS, TITLES

EIGHTHS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
AXIS = 6
LEGEND_FROM = 6
BUSY_FROM = 8  # rows in which there is one for the GPU's utilisation
NAMED_FROM = 200  # a layer has its name where it is at least this small a part of the scale
SIGNS: dict[str, str] = {**{str(name): letter for name, letter in LETTERS.items()}, "cached": "C", "context": "X"}
_TITLES = {str(line): title for line, title in TITLES.items()}


class AreaCell(NamedTuple):
    """A character, the layer that it is drawn in and the one behind it; None is nothing at all."""

    text: str
    layer: int | None
    behind: int | None = None


EMPTY = AreaCell(" ", None)


def tops(sizes: Sequence[int], whole: int, ceiling: int, height: int) -> tuple[int, ...]:
    """Where each layer ends, in eighths of a cell from below: those of `sizes`, then the rest of `whole` (bytes).

    Layers beyond `whole` are cut; any memory at all has an eighth.
    """
    most = height * EIGHTHS
    total = max(1, min(most, round(whole * most / ceiling))) if whole > 0 else 0
    edges, reached = [], 0
    for size in sizes:
        reached += size
        edges.append(min(total, round(reached * most / ceiling)))
    return (*edges, total)


@lru_cache(maxsize=1 << 12)
def column(ends: tuple[int, ...], height: int) -> tuple[AreaCell, ...]:
    """One column of cells, from the top down; `ends` are those that `tops` gives."""
    return tuple(_cell(ends, base) for base in range((height - 1) * EIGHTHS, -1, -EIGHTHS))


def _cell(ends: tuple[int, ...], base: int) -> AreaCell:
    """The cell from `base` eighths on: its lowest layer, before whichever other one has most of what is above that."""
    shares, before = [], base
    for layer, end in enumerate(ends):
        share = min(end, base + EIGHTHS) - before
        if share > 0:
            shares.append((layer, share))
            before += share
    if not shares:
        return EMPTY
    layer, share = shares[0]
    above: list[tuple[int | None, int]] = [*shares[1:], (None, base + EIGHTHS - before)]
    behind, most = max(above, key=lambda one: one[1])
    return AreaCell(_BLOCKS[share], layer, behind if most else None)


def middle(ends: tuple[int, ...], layer: int, height: int) -> int | None:
    """The row, from the top, in the middle of a layer in a column; None where it has less than half of a cell there."""
    begins = ends[layer - 1] if layer else 0
    row = (begins + ends[layer]) // 2 // EIGHTHS
    share = min(ends[layer], (row + 1) * EIGHTHS) - max(begins, row * EIGHTHS)
    return height - 1 - row if share >= EIGHTHS // 2 else None


class MemoryGraph(Framed[View]):
    """Stacked areas for what was observed, in one colour where nobody knows its parts; dashed lines for what was
    predicted, phase by phase where the job told of phases, and for the peak of what is tried out. Below the time axis
    the GPU's utilisation.
    """

    DEFAULT_CSS = "MemoryGraph { height: 8; }"
    _plotted: tuple[object, list[Strip]] = (None, [])

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Rows of the plot, the time axis and the utilisation below them."""
        series = view.series
        if series is None or not len(series.values):
            return paragraph(_empty(view), palette, width)[:height]
        busy = [_busy_row(series, palette, width)] if height >= BUSY_FROM and series.busy is not None else []
        legend = [_legend(view, palette, width, names_busy=not busy)] if height >= LEGEND_FROM else []
        plot_height, plot_width = max(1, height - 1 - len(legend) - len(busy)), max(2, width - AXIS)
        ends, lines = _stacked(series, plot_width, plot_height), _lines(series, plot_width, plot_height)
        picture = Picture(plot_height, ends, lines, _colours(series))
        plot = (palette, width, picture, series.ceiling, _ends(series))
        if self._plotted[0] != plot:
            self._plotted = (plot, _plot(series, picture, palette, width))
        return [*legend, *self._plotted[1], *busy]

    def titles(self, view: View) -> tuple[str, str]:
        """Whose memory it is, and what the letters in the picture mean."""
        if view.series is None:
            return "Memory", ""
        key = [f"{SIGNS[name]} {_TITLES[name]}" for name in _visible_layers(view.series)]
        layers = view.series.layers
        return (
            f"Memory · {view.series.title}",
            f"{' · '.join(key)} {layers.source}" if layers is not None and key else "",
        )


def _visible_layers(series: Series) -> list[str]:
    """The layers that are large enough to be seen."""
    layers = series.layers
    if layers is None:
        return []
    least = series.ceiling // NAMED_FROM
    return [
        name for name, values in zip(layers.names, layers.values, strict=True) if len(values) and max(values) >= least
    ]


def _colours(series: Series) -> tuple[str, ...]:
    """The colour of each layer, from below."""
    layers = series.layers
    return ("used",) if layers is None else (*map(colour_of, layers.names), layers.rest)


def _stacked(series: Series, width: int, height: int) -> list[tuple[int, ...]]:
    """Where the layers of each column end, in eighths of a row."""
    layers, seen = series.layers, buckets(series, width)
    if layers is None:
        return [tops((), value or 0, series.ceiling, height) for value in seen]
    places = _fullest_of(layers, series, width)
    none = (0,) * len(layers.names)
    stacks = []
    for value, place in zip(seen, places, strict=True):
        sizes = none if place is None else tuple(values[place] for values in layers.values)
        stacks.append(tops(sizes, value or 0, series.ceiling, height))
    return stacks


def _fullest_of(layers: Layers, series: Series, width: int) -> list[int | None]:
    """The point of each column at which the layers held most."""
    sums = [sum(point) for point in zip(*layers.values, strict=True)]
    return fullest(layers.times, sums, series.start, series.end, width)


class Line(NamedTuple):
    """A line through the plot: its row in each column (None: outside of it), its words and its colour."""

    rows: tuple[int | None, ...]
    label: str
    colour: str


class Picture(NamedTuple):
    """The plot, before it is painted: `ends` says for each column where its layers end, in eighths of a row."""

    height: int
    ends: list[tuple[int, ...]]
    lines: tuple[Line, ...]
    colours: tuple[str, ...]


def _lines(series: Series, width: int, height: int) -> tuple[Line, ...]:
    """What is tried out, then the prediction, which is never hidden."""
    lines = []
    if series.what_if is not None:
        row = _row_of(series.what_if, series.ceiling, height)
        lines.append(Line((row,) * width, _label("what if", series.what_if, series.marks[1], width), "accent"))
    if series.predicted is not None:
        rows: tuple[int | None, ...] = (_row_of(series.predicted, series.ceiling, height),) * width
        if series.expected:
            rows = tuple(_row_of(value, series.ceiling, height) for value in expected(series, width))
        lines.append(Line(rows, _label("predicted peak", series.predicted, series.marks[0], width), "prediction"))
    return tuple(lines)


def expected(series: Series, width: int) -> list[int | None]:
    """What was predicted to be held in each column; None before the process was there."""
    times = [at for at, _ in series.expected]
    last, each = last_stretch(series.start, series.end, width)
    places = (bisect_right(times, min((last - width + x + 2) * each, series.end)) - 1 for x in range(width))
    return [series.expected[place][1] if place >= 0 else None for place in places]


def _plot(series: Series, picture: Picture, palette: Palette, width: int) -> list[Strip]:
    """The rows of the plot and the time axis."""
    height = picture.height
    columns = [column(one, height) for one in picture.ends]
    labels = ticks(series.ceiling, height)
    letters = _letters(series, picture.ends, height)
    strips = []
    for y in range(height):
        drawn = [cells[y] for cells in columns]
        lines = [line for line in picture.lines if y in line.rows]
        if palette.is_plain or y in letters or lines:
            cells = [_painted(cell, picture.colours, palette) for cell in drawn]
        else:
            cells = _painted_alike(drawn, picture.colours, palette)
        if palette.is_plain:
            cells = [_lettered(cell, piece, series.layers) for cell, piece in zip(drawn, cells, strict=True)]
        elif y in letters:
            x, name = letters[y]
            cells[x] = (SIGNS[name], palette.ink("background", colour_of(name), bold=True))
        for line in lines:
            on = ["background" if cell.layer is None else picture.colours[cell.layer] for cell in drawn]
            _draw(line, y, cells, on, palette)
        label = labels.get(y, "")
        axis: Piece = (right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)
        strips.append(strip([axis, *_merged(cells)], width, palette.text))
    strips.append(_time_axis(series, palette, width))
    return strips


def _painted_alike(cells: Sequence[AreaCell], colours: Sequence[str], palette: Palette) -> list[Piece]:
    """Neighbours that are alike as one piece, painted once."""
    pieces = ((_painted(cell, colours, palette), len(list(alike))) for cell, alike in groupby(cells))
    return [(text * times, style) for (text, style), times in pieces]


def _painted(cell: AreaCell, colours: Sequence[str], palette: Palette) -> Piece:
    if cell.layer is None:
        return (" ", palette.text)
    behind = "background" if cell.behind is None else colours[cell.behind]
    return (cell.text, palette.ink(colours[cell.layer], behind))


def _lettered(cell: AreaCell, piece: Piece, layers: Layers | None) -> Piece:
    """Without colours each cell of a layer is its letter."""
    if layers is None or cell.layer is None or cell.layer >= len(layers.names):
        return piece
    return (SIGNS[layers.names[cell.layer]], piece[1])


def _letters(series: Series, ends: Sequence[tuple[int, ...]], height: int) -> dict[int, tuple[int, str]]:
    """The column of a layer's letter by row: near the right end, where the layer has a whole cell."""
    layers = series.layers
    if layers is None or len(ends) < 4:
        return {}
    x = len(ends) - 3
    letters = {}
    for layer, name in enumerate(layers.names):
        row = middle(ends[x], layer, height)
        if row is not None and name in SIGNS:
            letters[row] = (x, name)
    return letters


def _draw(line: Line, y: int, cells: list[Piece], on: Sequence[str], palette: Palette) -> None:
    """Lay a line over the cells of row `y`, whose colours are `on`: dashes over nothing, through whatever is drawn; its
    words at its end.
    """
    for x, row in enumerate(line.rows):
        if row == y:
            cells[x] = ("┄" if on[x] == "background" else "─", palette.ink(line.colour, on[x]))
    at = len(cells) - len(line.label) - 2
    if line.rows and line.rows[-1] == y and line.label and at >= 0:
        words = palette.ink(line.colour, bold=True)
        cells[at : at + len(line.label)] = [(letter, words) for letter in line.label]


def _merged(cells: Sequence[Piece]) -> list[Piece]:
    """Neighbours of one style as one piece."""
    pieces: list[Piece] = []
    for text, style in cells:
        if pieces and pieces[-1][1] is style:
            pieces[-1] = (pieces[-1][0] + text, style)
        else:
            pieces.append((text, style))
    return pieces


def _busy_row(series: Series, palette: Palette, width: int) -> Strip:
    """The GPU's utilisation over the same time: a row is a hundred per cent. It trembles: what it is now stands in the
    GPU's bar, and here with the picture's next move.
    """
    times, (values,) = series.busy or ((), ((),))
    count = max(2, width - AXIS)
    moved = bisect_right(times, moved_at(series.start, series.end, count))
    places = fullest(times[:moved], values[:moved], series.start, series.end, count)
    ends = [tops((), 0 if place is None else values[place], 100, 1) for place in places]
    text = "".join(column(one, 1)[0].text for one in ends)
    return strip([("GPU %│", palette.dim), (text, palette.dim)], width, palette.text)


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


def _legend(view: View, palette: Palette, width: int, *, names_busy: bool) -> Strip:
    """The figures behind the picture; the GPU's utilisation, which its bar has too, where no row shows it."""
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
        size = row.mark + format_bytes(row.predicted)
        pieces += [("  predicted ", palette.dim), (size, palette.ink("prediction", bold=True))]
    if view.series is not None and view.series.what_if is not None:
        size = view.series.marks[1] + format_bytes(view.series.what_if)
        pieces += [("  what if ", palette.dim), (size, palette.ink("accent", bold=True))]
    busy = row.gpu.utilization
    if busy is not None and names_busy:
        pieces += [("  GPU ", palette.dim), (f"{busy} %", palette.text)]
    return strip(pieces, width, palette.text)


def _label(name: str, value: int | None, mark: str, width: int) -> str:
    text = f" {name} {mark}{format_bytes(value)} "
    return text if len(text) <= width // 2 else ""


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
