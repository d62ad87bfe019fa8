"""A map of predicted memory over two axes, with the limit of what fits.

Drawn cell by cell and not by plotext, whose heatmap shades a matrix between its own least and largest value: it knows
no figures in cells, no edge, no cursor, and no colours of ours, nor does it do without colours.
"""

from functools import lru_cache

from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.color import Color as Blendable
from textual.strip import Strip

from vramtui.app.messages import CellChosen, CellMoved
from vramtui.app.plan.axes import Axis
from vramtui.app.plan.axis_kinds import Amount
from vramtui.app.plan.view import MapView, PlanView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, Wheeled, fit, paragraph, right, scrolled, strip
from vramtui.core.base.units import GIB, TIB, UNKNOWN, format_bytes
from vramtui.estimators.planner.planner import NEAR, FitResult

# Up to which share of the card, the theme's colour, and how much of it is mixed into the background.
BANDS = ((0.25, "success", 0.14), (0.5, "success", 0.26), (0.75, "success", 0.4), (0.9, "warning", 0.34))
FULL, OVER, FAR_OVER = ("warning", 0.55), ("error", 0.42), ("error", 0.2)
FAR = 2.0
FARTHEST = 20  # times the card: a figure says no more than that it does not fit
CURSOR, BOLD, UNDER = Style(reverse=True, bold=True), Style(bold=True), Style(underline=True)
EDGE, MARK = "┃", "●"
LEAST, MOST, TALLEST = 5, 12, 2
# Columns of a cell whose heading is a word: with fewer, cut words are not told apart.
WORD = 10
ROOM_FOR_SIGN = 7
# Lines that are no cells: the columns' values above, the key below.
AROUND = 2
LONG_KEY = 100
ROOM_AROUND = 4


def heat(palette: Palette, answer: FitResult | None, room: int) -> Style:
    """The style of a cell: the fuller, the stronger; what is over is another colour.

    In a theme of the terminal's own sixteen colours, which cannot be mixed, the figure is coloured instead.
    """
    if answer is None or answer.process is None:
        return palette.dim
    return _mixed(palette, *_band(answer, room))


@lru_cache(maxsize=64)
def _mixed(palette: Palette, name: str, share: float) -> Style:
    colour, ground = palette.ink(name).color, palette.text.bgcolor
    if colour is None or ground is None or colour.triplet is None or ground.triplet is None:
        return palette.ink(name)
    mixed = Blendable(*ground.triplet).blend(Blendable(*colour.triplet), share)
    return palette.text + Style(bgcolor=Color.from_rgb(*mixed.rgb))


def _band(answer: FitResult, room: int) -> tuple[str, float]:
    share = (answer.process or 0) / room
    if not answer.fits:
        return FAR_OVER if share >= FAR else OVER
    return next(((name, mixed) for most, name, mixed in BANDS if share <= most), FULL)


def figure(count: int, width: int) -> str:
    """A size in at most `width` characters (four are enough for any): GiB with a decimal where there is room, else
    without; TiB with a T.
    """
    gib = count / GIB
    for text in (f"{gib:.1f}", f"{gib:.0f}", f"{count / TIB:.1f}T", f"{count / TIB:.0f}T"):
        if len(text) <= width:
            return text
    return ">" * width


class Heatmap(Wheeled[PlanView], can_focus=True):
    """The map at place `which`; it scrolls to the cursor where there is no room for all of it."""

    BINDINGS = [
        Binding("left,h", "move(-1, 0)", "Left", id="map.left", show=False, tooltip="Smaller horizontal value"),
        Binding("right,l", "move(1, 0)", "Right", id="map.right", show=False, tooltip="Larger horizontal value"),
        Binding("up,k", "move(0, -1)", "Up", id="map.up", show=False, tooltip="Smaller vertical value"),
        Binding("down,j", "move(0, 1)", "Down", id="map.down", show=False, tooltip="Larger vertical value"),
        Binding("pageup", "move(0, -6)", "Page up", id="map.page_up", show=False, tooltip="Six rows up"),
        Binding("pagedown", "move(0, 6)", "Page down", id="map.page_down", show=False, tooltip="Six rows down"),
        Binding("ctrl+left", "move(-6, 0)", "Far left", id="map.far_left", show=False, tooltip="Six columns left"),
        Binding("ctrl+right", "move(6, 0)", "Far right", id="map.far_right", show=False, tooltip="Six columns right"),
    ]

    def __init__(self, which: int, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._which = which
        self._first = (0, 0)
        self._layout = (0, LEAST, 1, 0, 0)

    def titles(self, plan: PlanView) -> tuple[str, str]:
        """Whose map, in what, on which card; how far it is, and what is not shown."""
        if plan.device is None or len(plan.maps) <= self._which:
            return "Plan", ""
        shown = plan.maps[self._which]
        star = "*" if plan.changed and not self._which else ""
        progress = f" · {shown.done} of {shown.total}" if shown.done < shown.total else ""
        card = f"{plan.where.replace('NVIDIA ', '')}, {format_bytes(plan.device.total_memory)}"
        beyond = [
            f"{axis.name} beyond {axis.own:,}: longer than the model's own"
            for axis, last in zip((shown.x, shown.y), self._last(plan, shown), strict=True)
            if axis.own and isinstance(last, int) and last > axis.own
        ]
        return f"{shown.title}{star} · process in GiB on {card}{progress}", " · ".join([*beyond, *_nearer(plan, shown)])

    def _last(self, plan: PlanView, shown: MapView) -> list[Amount]:
        """The last values of the axes of which there is room for a cell."""
        *_, columns, rows = layout(shown, *self.content_size)
        rooms = zip((shown.x, shown.y), self._first, plan.cursor, (columns, rows), strict=True)
        return [
            axis.amounts[scrolled(first, at, room, len(axis.amounts)) + room - 1] for axis, first, at, room in rooms
        ]

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The columns' values, the cells, and a line that says how it is read."""
        if plan.problem or len(plan.maps) <= self._which or plan.device is None:
            return paragraph(plan.problem, palette, width)[:height]
        shown = plan.maps[self._which]
        label, cell, tall, columns, rows = self._layout = layout(shown, width, height)
        x, y = self._first = (
            scrolled(self._first[0], plan.cursor[0], columns, len(shown.x.amounts)),
            scrolled(self._first[1], plan.cursor[1], rows, len(shown.y.amounts)),
        )
        drawn = _Drawn(plan, self._which, palette, range(x, x + columns), label, cell, width)
        strips = [drawn.heading()]
        for row in range(y, y + rows):
            strips += [drawn.line(row, last=at == tall - 1, first=at == 0) for at in range(tall)]
        strips.append(drawn.key((x, columns), (y, rows)))
        return strips[:height]

    def action_move(self, across: int, down: int) -> None:
        self.post_message(CellMoved(across, down))

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        label, cell, tall, columns, rows = self._layout
        if at is None or at.x < label or at.y < 1 or not columns:
            return
        x, y = (at.x - label) // cell, (at.y - 1) // tall
        if x < columns and y < rows:
            self.post_message(CellChosen(self._first[0] + x, self._first[1] + y))

    def wheel(self, direction: int) -> None:
        self.action_move(0, direction)


def _nearer(plan: PlanView, shown: MapView) -> list[str]:
    """How far simulation has come, where the sentence below goes by it: hundreds of cells cannot wait for that."""
    estimate = plan.side.estimate if plan.side is not None else None
    if estimate is None or estimate.method != "simulated":
        return []
    return ["simulated where it may fit" if shown.is_exact else "≈ grey: quick estimates; simulating …"]


def layout(shown: MapView, width: int, height: int) -> tuple[int, int, int, int, int]:
    """Columns of the rows' values, columns and lines of a cell, and how many columns and rows of cells there is room
    for.
    """
    label = max(cell_len(text) for text in (*shown.y.labels, shown.y.name)) + 2
    count = len(shown.x.amounts)
    names = max(cell_len(text) for text in shown.x.labels) + 2
    words = any(isinstance(amount, str) for amount in shown.x.amounts)
    cell = max(min(WORD, names) if words else LEAST, min(MOST, max(names, ROOM_FOR_SIGN), (width - label) // count))
    columns = max(1, min(count, (width - label) // cell))
    rows = len(shown.y.amounts)
    tall = max(1, min(TALLEST, (height - AROUND) // rows))
    return label, cell, tall, columns, max(1, min(rows, (height - AROUND) // tall))


def fits(cells: tuple[tuple[FitResult | None, ...], ...], x: int, y: int) -> bool | None:
    """Whether a cell fits; None where it is not known, cannot be, or is none."""
    if not (0 <= y < len(cells) and 0 <= x < len(cells[y])):
        return None
    answer = cells[y][x]
    return None if answer is None or answer.process is None else answer.fits


def edge_before(cells: tuple[tuple[FitResult | None, ...], ...], x: int, y: int) -> bool:
    """Whether the limit of what fits runs between a cell and the one to its left."""
    return {fits(cells, x - 1, y), fits(cells, x, y)} == {True, False}


def edge_below(cells: tuple[tuple[FitResult | None, ...], ...], x: int, y: int) -> bool:
    """Whether the limit of what fits runs between a cell and the one below."""
    return {fits(cells, x, y), fits(cells, x, y + 1)} == {True, False}


def _both_ends(text: str, width: int) -> str:
    """`text`, of which the middle is left out where it is too long: words of an axis often begin alike."""
    if cell_len(text) <= width:
        return text
    tail = (width - 1) // 2
    return f"{text[: width - 1 - tail]}…{text[len(text) - tail :]}"


def _span(axis: Axis, first: int, count: int) -> str:
    """The values of an axis that are shown."""
    return f"{axis.name} {axis.labels[first]}–{axis.labels[first + count - 1]}"


class _Drawn:
    """The lines of one map in one size."""

    __slots__ = ("_mixed", "cell", "columns", "label", "palette", "plan", "room", "shown", "strong", "width")

    def __init__(self, plan: PlanView, which: int, palette: Palette, columns: range, *sizes: int) -> None:
        self.plan, self.shown, self.palette, self.columns = plan, plan.maps[which], palette, columns
        self.label, self.cell, self.width = sizes
        self.strong = Style(color=palette.text.color, bold=True)
        self._mixed: dict[tuple[Style, Style], Style] = {}
        self.room = plan.device.total_memory if plan.device is not None else 1

    def heading(self) -> Strip:
        axis = self.shown.x
        pieces: list[Piece] = [(fit(f" {self.shown.y.name}", self.label), self.palette.dim)]
        pieces += [
            (self._value(axis.labels[x], x == axis.present), self._value_style(x, axis.present, 0))
            for x in self.columns
        ]
        return strip(pieces, self.width, self.palette.text)

    def _value(self, text: str, present: bool) -> str:
        return right((MARK if present else "") + _both_ends(text, self.cell - 1), self.cell)

    def _value_style(self, at: int, present: int | None, side: int) -> Style:
        if at == self.plan.cursor[side]:
            return self.palette.text + Style(reverse=True)
        return self.palette.ink("accent", bold=True) if at == present else self.palette.dim

    def line(self, y: int, *, first: bool, last: bool) -> Strip:
        """One line of a row of cells: the figures stand in the first, and the edge below in the last."""
        axis = self.shown.y
        mark = MARK if y == axis.present else ""
        text = right(f"{mark}{axis.labels[y]} ", self.label) if first else " " * self.label
        style = self._value_style(y, axis.present, 1) if first else self.palette.dim
        segments = [Segment(text, style)]
        for x in self.columns:
            segments += self._cell(x, y, first=first, last=last)
        return Strip(segments).adjust_cell_length(self.width, self.palette.text)

    def _cell(self, x: int, y: int, *, first: bool, last: bool) -> list[Segment]:
        cells = self.shown.cells
        answer = cells[y][x]
        is_quick = not self.shown.is_exact and (x, y) not in self.shown.exact_cells
        style = (
            self.palette.dim
            if is_quick and answer is not None and (answer.process or 0) <= self.room * NEAR
            else heat(self.palette, answer, self.room)
        )
        here = (x, y) == self.plan.cursor
        present = (x, y) == (self.shown.x.present, self.shown.y.present)
        before = edge_before(cells, x, y)
        slot = EDGE if before else MARK if present and first else " "
        text = self._figure(answer) if first else " " * (self.cell - 1)
        if here:
            style = self._both(self.palette.text, CURSOR)
        elif present:
            style = self._both(style, BOLD)
        if last and edge_below(cells, x, y):
            style = self._both(style, UNDER)
        if slot == " " or here:
            return [Segment(slot + text, style)]
        return [Segment(slot, self._both(style, self.strong)), Segment(text, style)]

    def _both(self, style: Style, more: Style) -> Style:
        """Two styles in one; the same few come in every line."""
        both = self._mixed.get((style, more))
        if both is None:
            both = self._mixed[style, more] = style + more
        return both

    def _figure(self, answer: FitResult | None) -> str:
        """What stands in a cell after its first column; over the card it says so where there is room."""
        width = self.cell - 1
        if answer is None:
            return " " * width
        if answer.process is None:
            return right(f"{UNKNOWN} ", width)
        if self._is_farthest(answer):
            return right("✗", width)
        sign = self.cell >= ROOM_FOR_SIGN - 1
        text = figure(answer.process, width - sign)
        return right(text + ((" " if answer.fits else "✗") if sign else ""), width)

    def _is_farthest(self, answer: FitResult | None) -> bool:
        """Whether a cell has a mark alone, no figure."""
        return (
            answer is not None
            and answer.process is not None
            and not answer.fits
            and answer.process >= FARTHEST * self.room
        )

    def _has_farthest(self, rows: range) -> bool:
        """Whether a cell that is shown has a mark alone."""
        return any(self._is_farthest(self.shown.cells[y][x]) for y in rows for x in self.columns)

    def _all_fit(self) -> bool | None:
        """Whether all cells that are known fit, or none does: then there is no limit to draw. None: some do."""
        cells = self.shown.cells
        verdicts = {fits(cells, x, y) for y in range(len(cells)) for x in range(len(cells[y]))} - {None}
        return verdicts.pop() if len(verdicts) == 1 and self.shown.done == self.shown.total else None

    def key(self, across: tuple[int, int], down: tuple[int, int]) -> Strip:
        """How the map is read, and where in it one is."""
        dim, strong = self.palette.dim, self.palette.strong
        x, y = self.shown.x, self.shown.y
        short = self.width < LONG_KEY
        all_fit = self._all_fit()
        limit: list[Piece] = [(EDGE, strong), (" edge  " if short else " limit of what fits  ", dim)]
        if all_fit is not None:
            limit = [("all of it fits  " if all_fit else "nothing here fits  ", strong)]
        pieces: list[Piece] = [
            *limit,
            (MARK, self.palette.ink("accent", bold=True)),
            (" preset  " if short else " current preset  ", dim),
            (UNKNOWN, strong),
            (" not possible", dim),
        ]
        if self._has_farthest(range(down[0], sum(down))):
            pieces += [("  ✗", strong), (f" {FARTHEST}x card" if short else f" {FARTHEST}x the card or more", dim)]
        parts = [(axis, span) for axis, span in ((x, across), (y, down)) if span[1] < len(axis.amounts)]
        hidden = [f"{_span(axis, *span)} ({span[1]} of {len(axis.amounts)})" for axis, span in parts]
        if len(", ".join(hidden)) + sum(len(text) for text, _ in pieces) + ROOM_AROUND > self.width:
            hidden = [_span(axis, *span) for axis, span in parts]
        pieces.insert(0, (f" {', '.join(hidden)}   " if hidden else " ", dim))
        return strip(pieces, self.width, self.palette.text)
