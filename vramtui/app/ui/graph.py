"""Graphs of memory over time: areas in braille, and the memory graph with stacked parts under a fixed scale.

The memory graph draws areas in eighths of a cell, with two colours in each, so that boundaries are at their places.
"""

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.state.rows import why
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Framed, Piece, paragraph, right, strip
from vramtui.app.ui.parts import colour_of
from vramtui.core.base.units import GIB, KIB, MIB, format_bytes, format_duration
from vramtui.core.estimate.estimate import LETTERS, TITLES

# Dots of a braille cell from the bottom up, left and right column.
_LEFT = (0x40, 0x04, 0x02, 0x01)
_RIGHT = (0x80, 0x20, 0x10, 0x08)
DOTS = 4
MOVES_EVERY = 20.0  # seconds; a move sends everything new, and between two moves only the end is sent
EIGHTHS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"
FULL = _BLOCKS[EIGHTHS]
AXIS = 6
LEGEND_FROM = 6
BUSY_FROM = 8  # rows from which on one shows the GPU's utilisation
NAMED_FROM = 200  # a layer is named from this fraction of the scale on
SIGNS: dict[str, str] = {**{str(name): letter for name, letter in LETTERS.items()}, "cached": "C", "context": "X"}
_TITLES = {str(line): title for line, title in TITLES.items()}


def buckets(series: Series, count: int, points: int | None = None) -> list[int | None]:
    """Return the largest value in each of `count` equal stretches of time, of the first `points` readings or of all;
    None before the first.
    """
    values = series.values[:points]
    places = fullest(series.times[:points], values, series.start, series.end, count)
    return [None if place is None else values[place] for place in places]


def last_stretch(start: float, end: float, count: int) -> tuple[int, float]:
    """Return the multiple of its length at which the last of `count` stretches begins, and that length."""
    length, together = _steps(start, end, count)
    return math.ceil(end / length / together) * together - 1, length


def _steps(start: float, end: float, count: int) -> tuple[float, int]:
    """Return the length of each of `count` stretches, and the number of them by which the picture moves at once."""
    length = (end - start) / count
    # Each move costs some bytes a line, and so does each column that repeats the latest value.
    return length, max(1, min(round(MOVES_EVERY / length), count // 8))


def _last_move(series: Series, count: int) -> float:
    """Return when the picture moved last; the end if it moves too seldom to wait for that."""
    length, together = _steps(series.start, series.end, count)
    last = (math.ceil(series.end / length / together) - 1) * together * length
    return last if length * together <= 1.5 * MOVES_EVERY else series.end


def fullest(times: Sequence[float], values: Sequence[int], start: float, end: float, count: int) -> list[int | None]:
    """Return the point with the largest value in each of `count` equal stretches from `start` to `end` (seconds since
    the epoch); None before the first point.

    Stretches begin at whole multiples of their length, so that the picture moves in steps and never trembles. It moves
    by several of them at once if they are short: until then the last ones repeat the latest value.
    """
    last, length = last_stretch(start, end, count)
    # While no point is in the last ones, nothing changes with the end.
    is_still = not len(times) or times[-1] <= (last + 1 - _steps(start, end, count)[1]) * length
    points = array("d", times).tobytes(), array("q", values).tobytes()
    return _fullest(*points, last, length, math.inf if is_still else end, count)


@lru_cache(4)  # the memory and the GPU's utilisation, which move seldom
def _fullest(at: bytes, numbers: bytes, last: int, length: float, end: float, count: int) -> list[int | None]:
    times, values, most = array("d", at), array("q", numbers), list[int | None]()
    points = len(times)
    # The latest point at or before the stretch, which is the answer for most stretches.
    point = bisect_right(times, (last - count + 1) * length) - 1
    for k in range(last - count + 1, last + 1):
        stop_at = min((k + 1) * length, end)
        later = point + 1
        if later == points or times[later] > stop_at:
            most.append(point if point >= 0 else None)
            continue
        stop = bisect_right(times, stop_at, later)
        inside = range(max(point, 0), stop if stop_at == end else bisect_left(times, stop_at, later))
        most.append(max(inside, key=values.__getitem__, default=None))
        point = stop - 1
    return most


def levels(values: Sequence[int | None], ceiling: int, height: int) -> list[int]:
    """Return the dots from the bottom for each value: one or more for any memory, up to the full height."""
    most = height * DOTS
    known = {value: max(1, min(most, round(value * most / ceiling))) if value else 0 for value in set(values)}
    return [known[value] for value in values]


def braille_rows(dots: Sequence[int], height: int) -> list[str]:
    """Return the filled area under `dots` (two for each column) as rows of braille, the top one first."""
    columns = [_braille_column(left, right, height) for left, right in zip(dots[::2], dots[1::2], strict=False)]
    return ["".join(row) for row in zip(*columns, strict=True)]


@lru_cache(maxsize=1 << 12)
def _braille_column(left: int, right: int, height: int) -> str:
    cells = []
    for base in range((height - 1) * DOTS, -1, -DOTS):
        code = sum(_LEFT[: max(0, left - base)]) + sum(_RIGHT[: max(0, right - base)])
        cells.append(chr(0x2800 + code) if code else " ")
    return "".join(cells)


class AreaCell(NamedTuple):
    """A character, its layer and the layer behind it; None for the background."""

    text: str
    layer: int | None
    behind: int | None = None


def tops(sizes: Sequence[int], whole: int, ceiling: int, height: int) -> tuple[int, ...]:
    """Return the end of each layer in eighths of a cell from below: those of `sizes`, then the rest of `whole` (bytes).

    Layers beyond `whole` are cut; any memory has at least one eighth.
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
    """Return one column of cells from the top down for the `ends` of `tops`: in each its lowest layer, before the layer
    that has most of the rest.
    """
    cells = []
    for base in range((height - 1) * EIGHTHS, -1, -EIGHTHS):
        shares: list[tuple[int | None, int]] = []
        before = base
        for layer, end in enumerate(ends):
            share = min(end, base + EIGHTHS) - before
            if share > 0:
                shares.append((layer, share))
                before += share
        if not shares:
            cells.append(AreaCell(" ", None))
            continue
        layer_below, share = shares[0]
        behind, most = max((*shares[1:], (None, base + EIGHTHS - before)), key=lambda one: one[1])
        cells.append(AreaCell(_BLOCKS[share], layer_below, behind if most else None))
    return tuple(cells)


def middle(ends: tuple[int, ...], layer: int, height: int) -> int | None:
    """Return the row, from the top, in the middle of a layer; None if it has less than half of a cell there."""
    begins = ends[layer - 1] if layer else 0
    row = (begins + ends[layer]) // 2 // EIGHTHS
    share = min(ends[layer], (row + 1) * EIGHTHS) - max(begins, row * EIGHTHS)
    return height - 1 - row if share >= EIGHTHS // 2 else None


class Line(NamedTuple):
    """A line through the plot: its row in each column (None: outside), and its colour."""

    rows: tuple[int | None, ...]
    colour: str


class Picture(NamedTuple):
    """The plot before it is painted: `ends` are those of the layers of each column, in eighths of a row."""

    height: int
    ends: list[tuple[int, ...]]
    lines: tuple[Line, ...]
    colours: tuple[str, ...]


class MemoryGraph(Framed[View]):
    """Stacked areas for observed memory, in one colour if its parts are unknown; dashed lines for the prediction, by
    phase if the job reported phases, and for the peak of a variant. The GPU's utilisation is below the time axis.
    """

    _plotted: tuple[object, list[Strip]] = (None, [])

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        series, row = view.series, view.chosen
        if series is None or not len(series.values):
            words = "Select a process to see its memory over time."
            if row is None:
                words = "The selected process's memory over time appears here."
            elif row.kind == "process" and row.process is not None and row.now is None:
                words = f"The driver does not report this process's memory: {why(row.process, 'used_memory')}."
            return paragraph(words, palette, width)[:height]
        busy = [_busy_row(series, palette, width)] if height >= BUSY_FROM and series.busy is not None else []
        legend = [_legend(view, palette, width, names_busy=not busy)] if height >= LEGEND_FROM else []
        plot_height, plot_width = max(1, height - 1 - len(legend) - len(busy)), max(2, width - AXIS)
        layers = series.layers
        colours = ("used",) if layers is None else (*map(colour_of, layers.names), layers.rest)
        ends, lines = layer_ends(series, plot_width, plot_height), _lines(series, plot_width, plot_height)
        picture = Picture(plot_height, ends, lines, colours)
        plot = (palette, width, picture, series.ceiling, _ends(series))
        if self._plotted[0] != plot:
            self._plotted = (plot, _plot(series, picture, palette, width))
        return [*legend, *self._plotted[1], *busy]

    def titles(self, view: View) -> tuple[str, str]:
        """Return the process, and the letters of the layers that are large enough to be seen."""
        if view.series is None:
            return "Memory", ""
        title, layers = f"Memory · {view.series.title}", view.series.layers
        if layers is None:
            return title, ""
        least = view.series.ceiling // NAMED_FROM
        key = [
            f"{SIGNS[name]} {_TITLES[name]}"
            for name, values in zip(layers.names, layers.values, strict=True)
            if len(values) and max(values) >= least
        ]
        return title, f"{' · '.join(key)} {layers.source}" if key else ""


def layer_ends(series: Series, width: int, height: int) -> list[tuple[int, ...]]:
    """Return the ends of the layers of each column, in eighths of a row. Memory that has trembled by less than half a
    row since is left to the picture's next move: the legend has the present value.
    """
    values = series.values
    # A picture of the past never moves again.
    shown = bisect_right(series.times, _last_move(series, width)) if series.ends is None else len(values)
    for at in range(shown, len(values)):
        if not shown or 2 * height * abs(values[at] - values[shown - 1]) >= series.ceiling:
            shown = at + 1
    layers, seen = series.layers, buckets(series, width, shown)
    if layers is None:
        ends = {value: tops((), value or 0, series.ceiling, height) for value in set(seen)}
        return [ends[value] for value in seen]
    sums = [sum(point) for point in zip(*layers.values, strict=True)]
    places = fullest(layers.times, sums, series.start, series.end, width)
    none = (0,) * len(layers.names)
    stacks = []
    for value, place in zip(seen, places, strict=True):
        sizes = none if place is None else tuple(values[place] for values in layers.values)
        stacks.append(tops(sizes, value or 0, series.ceiling, height))
    return stacks


def _lines(series: Series, width: int, height: int) -> tuple[Line, ...]:
    """Return the line of the variant, then that of the prediction, which is never hidden."""

    def row(value: int | None) -> int | None:
        if value is None or value > series.ceiling:
            return None
        return max(0, min(height - 1, height - 1 - int(value * height / series.ceiling - 1e-9)))

    lines = []
    if series.what_if is not None:
        lines.append(Line((row(series.what_if),) * width, "accent"))
    if series.predicted is not None:
        rows: tuple[int | None, ...] = (row(series.predicted),) * width
        if series.expected:
            rows = tuple(row(value) for value in expected(series, width))
        lines.append(Line(rows, "prediction"))
    return tuple(lines)


def expected(series: Series, width: int) -> list[int | None]:
    """Return the predicted bytes in each column; None before the process was there."""
    times = [at for at, _ in series.expected]
    last, each = last_stretch(series.start, series.end, width)
    places = (bisect_right(times, min((last - width + x + 2) * each, series.end)) - 1 for x in range(width))
    return [series.expected[place][1] if place >= 0 else None for place in places]


def _plot(series: Series, picture: Picture, palette: Palette, width: int) -> list[Strip]:
    height, ends, colours, layers = picture.height, picture.ends, picture.colours, series.layers
    columns = [column(one, height) for one in ends]
    labels = ticks(series.ceiling, height)
    letters: dict[int, str] = {}  # of a layer by row, near the right end, if the layer has a whole cell
    x = len(ends) - 3
    for layer, name in enumerate(layers.names if layers is not None and x > 0 else ()):
        row = middle(ends[x], layer, height)
        if row is not None and name in SIGNS:
            letters[row] = name
    strips = []
    for y in range(height):
        drawn = [cells[y] for cells in columns]
        lines = [line for line in picture.lines if y in line.rows]
        if palette.is_plain or y in letters or lines:
            cells = [_painted(cell, colours, palette) for cell in drawn]
        else:  # equal neighbours are painted once
            alike = ((_painted(cell, colours, palette), len(list(same))) for cell, same in groupby(drawn))
            cells = [(text * times, style) for (text, style), times in alike]
        if palette.is_plain:
            for at, cell in enumerate(drawn):  # without colours each cell of a layer is its letter
                if layers is not None and cell.layer is not None and cell.layer < len(layers.names):
                    cells[at] = (SIGNS[layers.names[cell.layer]], cells[at][1])
        elif y in letters:
            cells[x] = (SIGNS[letters[y]], palette.ink("background", colour_of(letters[y]), bold=True))
        for line in lines:
            on = ["background" if cell.layer is None else colours[cell.layer] for cell in drawn]
            for at, line_row in enumerate(line.rows):
                if line_row == y:
                    cells[at] = ("┄" if on[at] == "background" else "─", palette.ink(line.colour, on[at]))
        label = labels.get(y, "")
        pieces: list[Piece] = [(right(label, AXIS - 1) + ("┤" if label else "│"), palette.dim)]
        for text, style in cells:
            if len(pieces) > 1 and pieces[-1][1] is style:
                pieces[-1] = (pieces[-1][0] + text, style)
            else:
                pieces.append((text, style))
        strips.append(strip(pieces, width, palette.text))
    begin, end = _ends(series)
    rule = "─" * max(0, width - AXIS - len(begin) - len(end) - 5)
    axis = [(right("0", AXIS - 1) + "┴", palette.dim), (f"─ {begin} {rule} {end}", palette.dim)]
    return [*strips, strip(axis, width, palette.text)]


def _painted(cell: AreaCell, colours: Sequence[str], palette: Palette) -> Piece:
    if cell.layer is None:
        return (" ", palette.text)
    if cell.text == FULL and palette.is_true:  # a byte instead of three, and no gaps between lines
        return (" ", palette.ink(colours[cell.layer], colours[cell.layer]))
    behind = "background" if cell.behind is None else colours[cell.behind]
    return (cell.text, palette.ink(colours[cell.layer], behind))


def _busy_row(series: Series, palette: Palette, width: int) -> Strip:
    """Return the GPU's utilisation over the same time, up to the picture's last move: its present value, which
    trembles, is in the GPU's bar.
    """
    times, (values,) = series.busy or ((), ((),))
    count = max(2, width - AXIS)
    moved = bisect_right(times, _last_move(series, count))
    places = fullest(times[:moved], values[:moved], series.start, series.end, count)
    shares = [0 if place is None else values[place] for place in places]
    cells = {share: column(tops((), share, 100, 1), 1)[0].text for share in set(shares)}
    text = "".join(map(cells.__getitem__, shares))
    return strip([("GPU %│", palette.dim), (text, palette.dim)], width, palette.text)


def ticks(ceiling: int, height: int) -> dict[int, str]:
    """Return the labels of the value axis by row: the top, and the middle if a row is there."""
    labels = {0: short(ceiling)}
    if height >= 4 and height % 2 == 0:
        labels[height // 2] = short(ceiling // 2)
    return labels


def short(count: int) -> str:
    """Return bytes in few columns: `58G`, `512M`, `16K`."""
    if count >= GIB:
        text = f"{count / GIB:.0f}" if count >= 10 * GIB else f"{count / GIB:.1f}".removesuffix(".0")
        return f"{text}G"
    unit, letter = (MIB, "M") if count >= MIB else (KIB, "K")
    return f"{count // unit}{letter}"


def _legend(view: View, palette: Palette, width: int, *, names_busy: bool) -> Strip:
    row, series = view.chosen, view.series
    pieces: list[Piece] = []
    if row is not None:
        # As the figures of the GPUs, which change as often: another weight takes nine bytes.
        when, style = ("now", palette.text) if row.age is None else (f"{format_duration(row.age)} ago", palette.dim)
        pieces += [(f" {when} ", palette.dim), (format_bytes(row.now), style)]
        pieces += [("  peak ", palette.dim), (format_bytes(row.peak), palette.text), (" ", palette.dim)]
    predicted = row.predicted if row is not None else series.predicted if series is not None else None
    if predicted is not None:
        size = ("" if row is None else row.mark) + format_bytes(predicted)
        pieces += [(" predicted peak ", palette.dim), (size, palette.ink("prediction", bold=True))]
    if series is not None and series.what_if is not None:
        size = series.mark + format_bytes(series.what_if)
        pieces += [("  what if ", palette.dim), (size, palette.ink("accent", bold=True))]
    busy = row.gpu.utilization if row is not None else None
    if busy is not None and names_busy:
        pieces += [("  GPU ", palette.dim), (f"{busy} %", palette.text)]
    if sum(cell_len(text) for text, _ in pieces) > width:
        pieces = [(text.removesuffix(" GiB"), style) for text, style in pieces]
    return strip(pieces, width, palette.text)


def _ends(series: Series) -> tuple[str, str]:
    return series.ends or (f"{format_duration(series.end - series.start)} ago", "now")
