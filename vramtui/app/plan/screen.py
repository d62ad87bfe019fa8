"""The Plan screen: a map of what fits a card, the parts of one cell, and the planner's advice."""

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

import msgspec
from rich.cells import cell_len
from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.color import Color as Blendable
from textual.containers import Container
from textual.strip import Strip

from vramtui.app.context import AppContext, CellChosen, CellMoved
from vramtui.app.keys import FIRST, PLAN_BINDINGS
from vramtui.app.plan.model import Axis, Cells, MapView, PlanView
from vramtui.app.state.view import View
from vramtui.app.themes import Palette, key_shown
from vramtui.app.ui.lines import Framed, Lines, Piece, Wheeled, fit, paragraph, right, scrolled, strip, wrap
from vramtui.app.ui.parts import Figures, part_lines, sizes
from vramtui.app.ui.view_screen import Header, KeyBar, ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, TIB, UNKNOWN, format_bytes, format_column, format_gib
from vramtui.core.estimate.devices import COMPARED
from vramtui.core.estimate.estimate import CUDA, LINES, title_of
from vramtui.core.estimate.fits import Fit, FitVerdict, ShownRow, unknown_of
from vramtui.estimators.planner.planner import NEAR, FitResult

if TYPE_CHECKING:
    from vramtui.app.plan.controller import PlanController
    from vramtui.app.plan.dialogs import PlanDialogs

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
        segments = [Segment(text, self._value_style(y, axis.present, 1) if first else self.palette.dim)]
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


LONG = 112
ASKS = {
    "plan.across": "choose_axis(True)",
    "plan.down": "choose_axis(False)",
    "plan.card": "choose_card",
    "plan.beside": "choose_beside",
}


class PlanBar(Lines[PlanView]):
    """Columns, rows, card and comparison of the map, each with its key; each can be clicked."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._spots: list[tuple[int, int, str]] = []

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        self._spots = []
        if not plan.maps or plan.device is None:
            return [strip([], width, palette.text)]
        shown = plan.maps[0]
        long = width >= LONG
        card = f"{plan.where} {format_bytes(plan.device.total_memory)}" if long else plan.where.partition(",")[0]
        compared = plan.other.what if plan.other is not None else UNKNOWN
        compare = "compare with" if long else "compare"
        settings = (("columns", shown.x.name), ("rows", shown.y.name), ("card", card), (compare, compared))
        keys = {
            active.binding.id: key_shown(self.app, active.binding) for active in self.screen.active_bindings.values()
        }
        pieces: list[Piece] = [(" ", palette.text)]
        x = 1
        for (name, text), identity in zip(settings, ASKS, strict=True):
            part: list[Piece] = [
                (f"{name}: ", palette.dim),
                (text, palette.strong),
                (" (", palette.dim),
                (keys.get(identity, ""), palette.ink("primary", bold=True)),
                (")", palette.dim),
                (" · ", palette.dim),
            ]
            length = sum(cell_len(piece) for piece, _ in part)
            self._spots.append((x, x + length - 3, ASKS[identity]))
            pieces += part
            x += length
        return [strip(pieces[:-1], width, palette.text)]

    async def on_click(self, event: events.Click) -> None:
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)


SIDE = 10
NOT_YET = "Parts are shown for possible cells only."


class PlanParts(Framed[PlanView]):
    """A line for each part, and the totals; in a comparison also the other side and the difference."""

    def titles(self, plan: PlanView) -> tuple[str, str]:
        if plan.side is None:
            return "Cell", ""
        other_title = f"{plan.other.what}: {plan.other.how}" if plan.other is not None else ""
        return f"Cell · {plan.side.how}", other_title

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        if plan.side is None or plan.side.estimate is None:
            return paragraph(NOT_YET, palette, width)
        side, other = plan.side.estimate, None if plan.other is None else plan.other.estimate
        vendor = CUDA if plan.device is None else plan.device.vendor
        rows = []
        for line in LINES:
            mine, theirs = side.ledger.bytes_of(line), None if other is None else other.ledger.bytes_of(line)
            more, title = (mine or 0) - (theirs or 0) if None not in (mine, theirs) else None, title_of(line, vendor)
            if mine or theirs:
                rows.append(ShownRow(line=line, title=title, predicted=mine, observed=theirs, difference=more))

        def difference(row: ShownRow, unit: int) -> tuple[str, Style | None]:
            if not row.difference:
                return UNKNOWN if row.difference is None else "same", palette.dim
            sign, ink = ("+", "warning") if row.difference > 0 else ("−", "success")
            return sign + format_column(abs(row.difference), unit), palette.ink(ink)

        figures = [sizes("predicted" if plan.other is None else "cell", SIDE, lambda row: row.predicted)]
        if plan.other is not None:
            figures.append(sizes(fit(plan.other.what, SIDE - 1).rstrip(), SIDE, lambda row: row.observed))
            figures.append(Figures("Δ", SIDE, difference))
        return part_lines(
            rows, figures, palette, width, height, weight=lambda row: max(row.predicted or 0, row.observed or 0)
        )[:height]


NAMES, SIZE, COST = (14, 46), 11, 24
NAME_COLUMNS = 30  # names are cut to this for their costs
Row = tuple[Strip, int | None]


def change_lines(plan: PlanView, palette: Palette, width: int, height: int, *, chosen: bool) -> list[Row]:
    """At most `height` lines, each with the index of its change. If `chosen`, one is marked, and what its line has no
    room for is shown below.
    """
    changes = plan.advice.changes
    if height < 1 or not changes:
        return []
    least, most = NAMES
    names = max(least, min(most, max(len(change.mitigation) for change in changes)))
    rest = width - 3 - 2 * SIZE - 3
    narrow = min(names, NAME_COLUMNS)
    names, costs = next(
        ((wide, rest - wide) for wide in (names, narrow) if rest - wide >= COST), (max(1, min(names, rest)), 0)
    )
    rows: list[Row] = []
    if chosen or height > 2:
        then = "then up to" if any(change.largest is not None for change in changes) else "then"
        text = f"   {fit('one change', names)}{right('frees', SIZE)}{right(then, SIZE)}  "
        rows.append((strip([(text + ("  cost" if costs else ""), palette.dim)], width, palette.text), None))
    cost_lines: list[Row] = []
    change = changes[plan.change]
    if chosen and len(change.cost) >= costs:
        text = change.cost if len(change.mitigation) <= names else f"{change.mitigation}: {change.cost}"
        cost_lines = [
            (strip([(f"   {line}", palette.dim)], width, palette.text), None) for line in wrap(text, width - 4)
        ]
    cost_lines = cost_lines[: max(0, height - len(rows) - 1)]
    room = height - len(rows) - len(cost_lines)
    first = max(0, min(plan.change - room // 2, len(changes) - room)) if chosen else 0
    for at, change in enumerate(changes[first : first + room], first):
        ink = palette.text + Style(reverse=True) if chosen and at == plan.change else None
        then = f"{change.largest:,}" if change.largest is not None else f"{format_gib(change.process)} GiB"
        # Below a tenth of a GiB, more digits.
        freed = format_gib(change.frees) if change.frees >= GIB // 10 else format_column(change.frees, GIB)
        pieces: list[Piece] = [
            (" › " if ink else "   ", ink or palette.ink("primary")),
            (fit(change.mitigation, names), ink or palette.text),
            (right(f"−{freed} GiB" if change.frees > 0 else "–", SIZE), ink or palette.strong),
            (right(then, SIZE), ink or palette.text),
            (" ✓" if change.fits else " ✗", ink or palette.ink("success" if change.fits else "error")),
        ]
        if costs:
            pieces.append(("  " + fit(change.cost, costs - 1), ink or palette.dim))
        rows.append((strip(pieces, width, ink or palette.text), at))
    return [*rows, *cost_lines]


Tone = Literal["good", "tight", "bad", "plain", "dim"]
TONES: dict[FitVerdict, Tone] = {"fits": "good", "tight": "tight", "does not fit": "bad", "unknown": "tight"}
INK: dict[Tone, str] = {"good": "success", "tight": "warning", "bad": "error", "plain": "foreground", "dim": "muted"}
SIZES = {
    "run.batch_size": "batch",
    "run.sequence_length": "sequence",
    "run.max_num_seqs": "number of sequences",
    "run.max_model_len": "context",
}
NAMED = 4


def sentences(plan: PlanView) -> list[tuple[Tone, str]]:
    """Return whether the selected cell fits, the largest sizes, what would make it fit, and which cards hold it."""
    side, advice = plan.side, plan.advice
    if side is None or plan.device is None:
        return []
    texts: list[tuple[Tone, str]] = [("tight", f"assumed: {plan.assumed}")] if plan.assumed else []
    answer, estimate, where = side.answer, side.estimate, plan.where.partition(",")[0]
    if answer is not None and answer.process is None:
        return [*texts, ("bad", f"– not possible: {printable(answer.reason)}")]
    if side.process is None:
        return [*texts, ("dim", "… calculating")]
    if answer is not None and answer.reason:
        texts.append(("bad", f"✗ does not start on {where}: {printable(answer.reason)}"))
    else:
        error = estimate.error if estimate is not None else answer and answer.error
        unknown = "" if side.workload is None else unknown_of(side.workload.model)
        verdict = Fit(needs=side.process, has=plan.device.total_memory, error=error, unknown=unknown)
        texts.append((TONES[verdict.verdict], verdict.line(where)))
    for edge in advice.edges:
        text = f"none, {edge.reason}"
        if edge.largest is not None:
            text = f"{edge.largest:,} ({format_bytes(edge.process)}); {printable(edge.reason)}"
        texts.append(("plain", f"largest {SIZES.get(edge.key, edge.key)}: {text}"))
    if advice.mitigations:
        names = " and ".join(name for name, _ in advice.mitigations)
        several = len(advice.mitigations) > 1
        costs = "; ".join(f"{name}: {cost}" if several else cost for name, cost in advice.mitigations)
        texts.append(("plain", f"cheapest to make it fit: {names}, then {format_bytes(advice.with_them)} ({costs})"))
    elif advice.mitigations is not None:
        texts.append(("plain", "no set of changes makes it fit this card"))
    if advice.cards:
        first = (f"{card.name} {format_bytes(card.total_memory)}" for card in advice.cards[:NAMED])
        more = f" and {len(advice.cards) - NAMED} more" if len(advice.cards) > NAMED else ""
        texts.append(("plain", f"cards that fit it, smallest first: {', '.join(first)}{more}"))
    elif advice.is_whole:
        texts.append(("plain", f"none of the {len(COMPARED)} known cards fits it"))
    else:
        texts.append(("dim", "checking which cards fit it …"))
    return texts


LOW = 9  # lines; with fewer, focused changes take them all


class PlanWords(Framed[PlanView], can_focus=True):
    """The planner's sentences, and each change that frees memory below. With focus, the changes take the room."""

    BINDINGS = [
        Binding(keys, f"screen.{action}", name, id=f"changes.{identity}", show=False, tooltip=tooltip)
        for keys, action, name, identity, tooltip in (
            ("up,k", "move_change(-1)", "Up", "up", "Previous change"),
            ("down,j", "move_change(1)", "Down", "down", "Next change"),
            ("pageup", "move_change(-5)", "Page up", "page_up", "Five changes up"),
            ("pagedown", "move_change(5)", "Page down", "page_down", "Five changes down"),
            ("enter", "take_change", "Take", "take", "Apply the change to the cell"),
            ("escape", "changes", "Map", "leave", "Back to the map"),
        )
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._places: list[int | None] = []

    def titles(self, plan: PlanView) -> tuple[str, str]:
        if plan.side is None:
            return "Planner", ""
        title = f"Planner · {plan.side.how}"
        if self.has_focus:
            save = "" if plan.view_only else "w save the cell · "
            return title, f"Enter apply the change · {save}Esc map"
        if plan.side.workload is None:
            return title, ""
        changes = "t changes · " if plan.advice.changes else ""
        return title, f"{changes}Enter apply the cell{'' if plan.view_only else ' · w save'}"

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        strips: list[Strip] = []
        chosen = self.has_focus and bool(plan.advice.changes)
        for tone, text in sentences(plan)[: int(height > LOW) if chosen else None]:
            style = palette.ink(INK[tone], bold=tone in {"good", "tight", "bad"})
            for at, line in enumerate(wrap(text, width - 4)):
                strips.append(strip([("   " if at else " ", style), (line, style)], width, palette.text))
        rows = change_lines(plan, palette, width, height - len(strips), chosen=chosen)
        self._places = [*(None for _ in strips), *(place for _, place in rows)]
        return [*strips, *(line for line, _ in rows)][:height]

    def on_focus(self) -> None:
        self._again()

    def on_blur(self) -> None:
        self._again()

    def _again(self) -> None:
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    async def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and at.y < len(self._places) and self._places[at.y] is not None:
            await self.run_action(f"screen.choose_change({self._places[at.y]})")


WIDE, WIDEST = 112, 170


class PlanScreen(ViewScreen):
    """A map of what fits. Two maps are next to each other if there is room; else `v` turns pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (WIDEST, "-widest")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    CSS_PATH = "plan.tcss"
    BINDINGS = PLAN_BINDINGS
    PLACE = "plan"
    PAGES = ("map", "parts", "second")
    FIRST_FOCUS = "#map"

    def __init__(self, shared: AppContext, plan: "PlanController") -> None:
        super().__init__()
        self._shared, self._plan, self._model = shared, plan, plan.model
        self.shown = PlanView()

    def compose(self) -> ComposeResult:
        yield Header("Plan")
        yield PlanBar()
        with Container(id="maps"):
            yield Heatmap(0, id="map")
            yield Heatmap(1, id="second")
        with Container(id="lower"):
            yield PlanParts(id="parts")
            yield PlanWords(id="words")
        yield KeyBar()

    def panels_view(self, view: View) -> PlanView:
        """The maps as they are now; a second map gets its room."""
        self.shown = self._plan.view()
        if view.view_only:
            self.shown = msgspec.structs.replace(self.shown, view_only=True)
        has_second = len(self.shown.maps) > 1
        if has_second != self.has_class("-beside"):
            self.set_class(has_second, "-beside")
            if not has_second and self.has_class("page-second"):
                self._turn_to("map")
            self.call_after_refresh(self.watch_view, view)
        return self.shown

    def put_away(self) -> None:
        self._plan.put_away()

    @property
    def pages(self) -> tuple[str, ...]:
        if self.has_class("-widest"):
            return ("map",)
        parts = ("parts",) if self.has_class("-narrow") else ()
        return ("map", *parts, *(("second",) if self.has_class("-beside") else ()))

    def action_page(self) -> None:
        at = next((at for at, page in enumerate(self.pages) if self.has_class(f"page-{page}")), 0)
        self._turn_to(self.pages[(at + 1) % len(self.pages)])
        self.call_after_refresh(self.watch_view, self.view)

    def action_changes(self) -> None:
        """Focus the changes that free memory, or the map."""
        words = self.query_one(PlanWords)
        if words.has_focus:
            self.query_one("#second" if self.has_class("page-second") else "#map").focus()
            return
        if not words.display:
            self._turn_to("map")
            self.call_after_refresh(self.watch_view, self.view)
        words.focus()

    def _turn_to(self, page: str) -> None:
        self.remove_class(*(f"page-{name}" for name in self.PAGES))
        self.add_class(f"page-{page}")
        self.query_one("#second" if page == "second" else "#map").focus()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the page key only if there are several pages."""
        return bool(self.shown.maps) if action == "changes" else action != "page" or len(self.pages) > 1

    def on_cell_moved(self, message: CellMoved) -> None:
        x, y = self._model.cursor
        self._model.go(x + message.across, y + message.down)
        self._shared.redraw.for_key()

    def on_cell_chosen(self, message: CellChosen) -> None:
        self._model.go(message.x, message.y)
        self._shared.redraw.for_key()

    def action_plan_home(self) -> None:
        self._model.go_home()
        self._shared.redraw.now()

    def action_plan_edge(self) -> None:
        if not self._model.go_to_edge():
            self.notify("Nothing in this row fits.", timeout=2)
        self._shared.redraw.now()

    def action_move_change(self, down: int) -> None:
        self.action_choose_change(self._model.change + down)

    def action_choose_change(self, at: int) -> None:
        self._model.choose_change(at)
        self._shared.redraw.for_key()

    def action_leave_plan(self) -> None:
        self._shared.screens.show(FIRST)

    def action_swap_axes(self) -> None:
        if self._model.axes:
            self._model.swap()
            self._shared.redraw.now()

    @property
    def _dialogs(self) -> "PlanDialogs":
        from vramtui.app.plan.dialogs import PlanDialogs  # loads Textual's lists and inputs

        return PlanDialogs(self._shared, self._model)

    def action_choose_axis(self, across: bool) -> None:
        self._dialogs.choose_axis(across)

    def action_choose_card(self) -> None:
        self._dialogs.choose_card()

    def action_choose_beside(self) -> None:
        self._dialogs.choose_second()

    def action_take_variant(self) -> None:
        self._dialogs.take_variant()

    def action_take_change(self) -> None:
        self._dialogs.take_change()

    def action_save_variant(self) -> None:
        self._dialogs.save_variant()

    def action_run_on_cards(self) -> None:
        from vramtui.app.plan.dialogs import ask_cards

        ask_cards(self._shared, self._plan.runner)
