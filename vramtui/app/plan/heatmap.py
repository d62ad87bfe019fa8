"""A map of predicted memory over two axes, with the limit of what fits.

It is drawn cell by cell. plotext's heatmap shades a matrix between its own minimum and maximum, and has no figures in
cells, no limit, no cursor, no theme and no mode without colours.
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
from vramtui.app.plan.grid import Cells
from vramtui.app.plan.model import MapView, PlanView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, Wheeled, fit, paragraph, right, scrolled, strip
from vramtui.core.base.units import GIB, TIB, UNKNOWN, format_bytes
from vramtui.estimators.planner.planner import NEAR, FitResult

# Share of the card up to which a band goes, the theme's colour, and how much of it is mixed into the background.
BANDS = ((0.25, "success", 0.14), (0.5, "success", 0.26), (0.75, "success", 0.4), (0.9, "warning", 0.34))
FULL, OVER, FAR_OVER = ("warning", 0.55), ("error", 0.42), ("error", 0.2)
FAR = 2.0
FARTHEST = 20  # times the card: the cell shows only a mark, no figure
CURSOR, BOLD, UNDER = Style(reverse=True, bold=True), Style(bold=True), Style(underline=True)
EDGE, MARK = "┃", "●"
LEAST, MOST, TALLEST = 5, 12, 2
WORD = 10  # columns of a cell whose heading is a word: with fewer, cut words look the same
ROOM_FOR_SIGN = 7
AROUND = 2  # lines that are not cells: the columns' values above, the key below
LONG_KEY, ROOM_AROUND = 100, 4


@lru_cache(maxsize=64)
def _mixed(palette: Palette, name: str, share: float) -> Style:
    """The background of a band. In a theme of the terminal's sixteen colours, which cannot be mixed, the figure is
    coloured instead.
    """
    colour, ground = palette.ink(name).color, palette.text.bgcolor
    if colour is None or ground is None or colour.triplet is None or ground.triplet is None:
        return palette.ink(name)
    mixed = Blendable(*ground.triplet).blend(Blendable(*colour.triplet), share)
    return palette.text + Style(bgcolor=Color.from_rgb(*mixed.rgb))


def figure(count: int, width: int) -> str:
    """Bytes in at most `width` characters (four are always enough): GiB with a decimal if there is room, else without;
    TiB with a T.
    """
    gib = count / GIB
    for text in (f"{gib:.1f}", f"{gib:.0f}", f"{count / TIB:.1f}T", f"{count / TIB:.0f}T"):
        if len(text) <= width:
            return text
    return ">" * width


class Heatmap(Wheeled[PlanView], can_focus=True):
    """The map with index `which`; it scrolls to the cursor if it has no room for all cells."""

    BINDINGS = [
        Binding(keys, f"move({across}, {down})", name, id=f"map.{identity}", show=False, tooltip=tooltip)
        for keys, across, down, name, identity, tooltip in (
            ("left,h", -1, 0, "Left", "left", "Smaller horizontal value"),
            ("right,l", 1, 0, "Right", "right", "Larger horizontal value"),
            ("up,k", 0, -1, "Up", "up", "Smaller vertical value"),
            ("down,j", 0, 1, "Down", "down", "Larger vertical value"),
            ("pageup", 0, -6, "Page up", "page_up", "Six rows up"),
            ("pagedown", 0, 6, "Page down", "page_down", "Six rows down"),
            ("ctrl+left", -6, 0, "Far left", "far_left", "Six columns left"),
            ("ctrl+right", 6, 0, "Far right", "far_right", "Six columns right"),
        )
    ]

    def __init__(self, which: int, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._which = which
        self._first = (0, 0)
        self._layout = (0, LEAST, 1, 0, 0)

    def titles(self, plan: PlanView) -> tuple[str, str]:
        if plan.device is None or len(plan.maps) <= self._which:
            return "Plan", ""
        shown = plan.maps[self._which]
        star = "*" if plan.changed and not self._which else ""
        progress = f" · {shown.done} of {shown.total}" if shown.done < shown.total else ""
        card = f"{plan.where.replace('NVIDIA ', '')}, {format_bytes(plan.device.total_memory)}"
        notes = []
        *_, columns, rows = layout(shown, *self.content_size)
        sides = zip((shown.x, shown.y), self._first, plan.cursor, (columns, rows), strict=True)
        for axis, first, at, room in sides:
            last = axis.amounts[scrolled(first, at, room, len(axis.amounts)) + room - 1]
            if axis.own and isinstance(last, int) and last > axis.own:
                notes.append(f"{axis.name} beyond {axis.own:,}: longer than the model's own")
        estimate = plan.side.estimate if plan.side is not None else None
        if estimate is not None and estimate.method == "simulated":
            notes.append("simulated where it may fit" if shown.is_exact else "≈ grey: quick estimates; simulating …")
        return f"{shown.title}{star} · process in GiB on {card}{progress}", " · ".join(notes)

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The columns' values, the cells, and the key."""
        if plan.problem or len(plan.maps) <= self._which or plan.device is None:
            return paragraph(plan.problem, palette, width)[:height]
        shown = plan.maps[self._which]
        label, cell, tall, columns, rows = self._layout = layout(shown, width, height)
        x, y = self._first = (
            scrolled(self._first[0], plan.cursor[0], columns, len(shown.x.amounts)),
            scrolled(self._first[1], plan.cursor[1], rows, len(shown.y.amounts)),
        )
        drawn = _Drawn(plan, shown, palette, range(x, x + columns), range(y, y + rows), label, cell, width)
        lines = (drawn.line(row, last=at == tall - 1, first=at == 0) for row in drawn.rows for at in range(tall))
        return [drawn.heading(), *lines, drawn.key()][:height]

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


def layout(shown: MapView, width: int, height: int) -> tuple[int, int, int, int, int]:
    """Columns of the rows' values, columns and lines of a cell, and the columns and rows of cells that there is room
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


def fits(cells: Cells, x: int, y: int) -> bool | None:
    """Return whether a cell fits; None if unknown, not possible or outside the map."""
    if not (0 <= y < len(cells) and 0 <= x < len(cells[y])):
        return None
    answer = cells[y][x]
    return None if answer is None or answer.process is None else answer.fits


def edge_before(cells: Cells, x: int, y: int) -> bool:
    """Return whether the limit of what fits is between a cell and the one to its left."""
    return {fits(cells, x - 1, y), fits(cells, x, y)} == {True, False}


def edge_below(cells: Cells, x: int, y: int) -> bool:
    """Return whether the limit of what fits is between a cell and the one below."""
    return {fits(cells, x, y), fits(cells, x, y + 1)} == {True, False}


class _Drawn:
    """The lines of one map in one size."""

    __slots__ = ("_mixed", "cell", "columns", "label", "palette", "plan", "room", "rows", "shown", "strong", "width")

    def __init__(
        self, plan: PlanView, shown: MapView, palette: Palette, columns: range, rows: range, *sizes: int
    ) -> None:
        self.plan, self.shown, self.palette, self.columns, self.rows = plan, shown, palette, columns, rows
        self.label, self.cell, self.width = sizes
        self.strong = Style(color=palette.text.color, bold=True)
        self._mixed: dict[tuple[Style, Style], Style] = {}
        self.room = plan.device.total_memory if plan.device is not None else 1

    def heading(self) -> Strip:
        axis, wide = self.shown.x, self.cell - 1
        pieces: list[Piece] = [(fit(f" {self.shown.y.name}", self.label), self.palette.dim)]
        for x in self.columns:
            text = axis.labels[x]
            if cell_len(text) > wide:  # keep both ends: words of an axis often begin alike
                tail = (wide - 1) // 2
                text = f"{text[: wide - 1 - tail]}…{text[len(text) - tail :]}"
            text = (MARK if x == axis.present else "") + text
            pieces.append((right(text, self.cell), self._value_style(x, axis.present, 0)))
        return strip(pieces, self.width, self.palette.text)

    def _value_style(self, at: int, present: int | None, side: int) -> Style:
        if at == self.plan.cursor[side]:
            return self.palette.text + Style(reverse=True)
        return self.palette.ink("accent", bold=True) if at == present else self.palette.dim

    def line(self, y: int, *, first: bool, last: bool) -> Strip:
        """One line of a row of cells: the first has the figures, the last the limit below."""
        axis = self.shown.y
        mark = MARK if y == axis.present else ""
        text = right(f"{mark}{axis.labels[y]} ", self.label) if first else " " * self.label
        style = self._value_style(y, axis.present, 1) if first else self.palette.dim
        segments = [Segment(text, style)]
        for x in self.columns:
            segments += self._cell(x, y, first=first, last=last)
        return Strip(segments).adjust_cell_length(self.width, self.palette.text)

    def _cell(self, x: int, y: int, *, first: bool, last: bool) -> list[Segment]:
        cells, palette = self.shown.cells, self.palette
        answer = cells[y][x]
        is_quick = not self.shown.is_exact and (x, y) not in self.shown.exact_cells
        share = (answer.process or 0) / self.room if answer is not None else 0.0
        if answer is None or answer.process is None or (is_quick and share <= NEAR):
            style = palette.dim
        elif answer.fits:
            style = _mixed(palette, *next(((name, mixed) for most, name, mixed in BANDS if share <= most), FULL))
        else:
            style = _mixed(palette, *(FAR_OVER if share >= FAR else OVER))
        here = (x, y) == self.plan.cursor
        present = (x, y) == (self.shown.x.present, self.shown.y.present)
        slot = EDGE if edge_before(cells, x, y) else MARK if present and first else " "
        width, sign = self.cell - 1, self.cell >= ROOM_FOR_SIGN - 1
        text = " " * width
        if first and answer is not None and answer.process is None:
            text = right(f"{UNKNOWN} ", width)
        elif first and answer is not None and answer.process is not None:
            mark = (" " if answer.fits else "✗") if sign else ""  # a sign if there is room
            is_far = self._is_farthest(answer)
            text = right("✗" if is_far else figure(answer.process, width - sign) + mark, width)
        if here:
            style = self._both(palette.text, CURSOR)
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

    def _is_farthest(self, answer: FitResult | None) -> bool:
        """Return whether a cell has only a mark."""
        return (
            answer is not None
            and answer.process is not None
            and not answer.fits
            and answer.process >= FARTHEST * self.room
        )

    def key(self) -> Strip:
        """How to read the map, and which part of it is shown."""
        dim, strong = self.palette.dim, self.palette.strong
        shown, cells = self.shown, self.shown.cells
        short = self.width < LONG_KEY
        limit: list[Piece] = [(EDGE, strong), (" edge  " if short else " limit of what fits  ", dim)]
        verdicts = {fits(cells, x, y) for y in range(len(cells)) for x in range(len(cells[y]))} - {None}
        if len(verdicts) == 1 and shown.done == shown.total:
            limit = [("all of it fits  " if verdicts.pop() else "nothing here fits  ", strong)]
        pieces: list[Piece] = [
            *limit,
            (MARK, self.palette.ink("accent", bold=True)),
            (" preset  " if short else " current preset  ", dim),
            (UNKNOWN, strong),
            (" not possible", dim),
        ]
        if any(self._is_farthest(cells[y][x]) for y in self.rows for x in self.columns):
            pieces += [("  ✗", strong), (f" {FARTHEST}x card" if short else f" {FARTHEST}x the card or more", dim)]

        def span(axis: Axis, part: range) -> str:
            return f"{axis.name} {axis.labels[part.start]}–{axis.labels[part.stop - 1]}"

        sides = ((shown.x, self.columns), (shown.y, self.rows))
        parts = [(axis, part) for axis, part in sides if len(part) < len(axis.amounts)]
        hidden = ", ".join(f"{span(axis, part)} ({len(part)} of {len(axis.amounts)})" for axis, part in parts)
        if len(hidden) + sum(len(text) for text, _ in pieces) + ROOM_AROUND > self.width:
            hidden = ", ".join(span(axis, part) for axis, part in parts)
        pieces.insert(0, (f" {hidden}   " if hidden else " ", dim))
        return strip(pieces, self.width, self.palette.text)
