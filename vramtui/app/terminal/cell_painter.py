"""Drawing lines past Textual's compositor, and sending only the cells that differ from what the terminal shows."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import chain, compress, count, repeat
from operator import ne
from typing import NamedTuple

from rich.cells import get_character_cell_size
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Offset, Region, Size
from textual.widget import Widget

from vramtui.app.terminal.textual_private import ChopsUpdate, CompositorUpdate, LayoutUpdate
from vramtui.app.themes import Colours

Piece = tuple[int, int, Iterable[Segment]]
Cell = tuple[str, Style | None]
NOTHING: Cell = ("\0", None)
# Control characters never reach the terminal as text, whatever a widget shows. They have no width.
OBEYED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
JUMP = 4  # bytes of unchanged cells that are shorter than the escape sequence that jumps over them
FEW = 500  # stretches that are sorted by their styles
WIDEST_FIGURE = 5  # columns; a wider stretch belongs to a graph or a text
BRIEF = 512  # bytes that a terminal shows at once anyway
MOST_TABS, MOST_BACK = 3, 5  # moves that are shorter as single characters than as a sequence
LEAST_ERASED = 8  # blank columns that are erased in fewer bytes than they are written
# GNU screen erases in the terminal's own background, unless told otherwise (`defbce`); others in the present one.
ERASES = not os.environ.get("TERM", "").startswith("screen")
# A line that moved is moved on the terminal if that saves so many bytes; it takes 21 and more itself.
LEAST_SAVED, MOST_MOVED = 24, 32
BLOCKS = "".join(map(chr, range(0x2580, 0x25A0)))  # bars and graphs; one column each
# Other usual characters of one column each: text of only these has one character a cell.
NARROW = "".join((*map(chr, range(0x20, 0x7F)), BLOCKS, *map(chr, range(0x2500, 0x2580)), "·–…°Δ▸●"))


At = tuple[int, int] | None  # row and column of the cursor, if they are known
Moved = tuple[int, int, int]  # the first column of cells, the one behind them, and by how many columns they moved
Codes = tuple[str, str, str]  # SGR codes for attributes, foreground and background
PLAIN: Codes = ("", "", "")
_OFF = {"1": "22", "2": "22", "3": "23", "4": "24", "5": "25", "7": "27", "9": "29"}
_ATTRIBUTES = {"bold": "1", "dim": "2", "italic": "3", "underline": "4", "blink": "5", "reverse": "7", "strike": "9"}


@lru_cache(maxsize=512)
def codes_of(style: Style | None, color_system: ColorSystem) -> Codes:
    if style is None:
        return PLAIN
    attributes = ";".join(code for name, code in _ATTRIBUTES.items() if getattr(style, name))
    foreground = background = ""
    if style.color is not None:
        foreground = ";".join(style.color.downgrade(color_system).get_ansi_codes())
    if style.bgcolor is not None:
        background = ";".join(style.bgcolor.downgrade(color_system).get_ansi_codes(foreground=False))
    return (attributes, "" if foreground == "39" else foreground, "" if background == "49" else background)


# By codes, not styles: Textual gives a style to each place where text begins, so there are ten times as many styles as
# looks, and no end of pairs of styles.
@lru_cache(maxsize=1024)
def transition_of_codes(old: Codes, new: Codes) -> str:
    if old == new:
        return ""
    if new == PLAIN:
        return "\x1b[m"
    before, after = set(filter(None, old[0].split(";"))), set(filter(None, new[0].split(";")))
    off = {_OFF[code] for code in before - after}
    # Bold and dim share the code that turns them off.
    changes = [*sorted(off), *sorted(after - before | ({"1", "2"} & after if "22" in off else set()))]
    if old[1] != new[1]:
        changes.append(new[1] or "39")
    if old[2] != new[2]:
        changes.append(new[2] or "49")
    return f"\x1b[{';'.join(changes)}m"


def find_move(before: Sequence[tuple[str, object]], after: Sequence[tuple[str, object]], usual: int) -> Moved | None:
    """Return how moving cells of `before` to the left gives `after`; None if that saves little.

    The terminal can move a picture's line itself. The lines of a picture move together: `usual` columns, by which
    another line moved (0: none), are tried first, because trying all takes longer than everything else done to a line.
    """
    differ = list(map(ne, before, after))
    changed = sum(differ)
    if 3 * changed <= LEAST_SAVED:
        return None
    start, stop = differ.index(True), len(differ) - differ[::-1].index(True)
    sizes = [1 if character.isascii() else 3 for character, _ in after[start:stop]]
    whole = sum(compress(sizes, differ[start:stop]))
    if 3 * (whole - changed) <= 2 * LEAST_SAVED:
        return None  # text, replaced by other text
    most = min(MOST_MOVED, stop - start)
    for ways in ((usual,) if 0 < usual < most else (), range(1, most)):
        best: Moved | None = None
        least = whole - LEAST_SAVED
        for by in ways if least > 0 else ():
            others = map(ne, before[start + by : stop], after[start : stop - by])
            cost = sum(sizes[-by:]) + sum(compress(sizes, others))
            best, least = ((start, stop, by), cost) if cost < least else (best, least)
        if best is not None:
            return best
    return None


class Frame:
    """The cells on the terminal, and the `size` of the last update; (0, 0) if nothing is known."""

    __slots__ = ("_codes", "_lines", "at", "size")

    def __init__(self) -> None:
        self._lines: list[list[Cell]] = []
        self.size = (0, 0)
        self._codes: Codes | None = None  # the terminal's present look; None if something else may have set it
        self.at: At = None  # likewise

    def forget(self) -> None:
        self._lines = []
        self.size = (0, 0)
        self._codes = self.at = None

    def update(self, update: CompositorUpdate, size: tuple[int, int], console: Console) -> CompositorUpdate | None:
        """Return what to send so that a terminal of `size` (columns, rows) shows `update`; None for nothing."""
        if size != self.size:
            self.size = size
            self._lines = [[NOTHING] * size[0] for _ in range(size[1])]
        pieces: list[Piece] = []
        if isinstance(update, LayoutUpdate):
            for y, strips in enumerate(update.strips, update.region.y):
                x = update.region.x
                for strip in strips:
                    pieces.append((y, x, strip))
                    x += strip.cell_length
        elif isinstance(update, ChopsUpdate):
            for y, x1, x2 in update.spans:
                chops = zip(update.chop_ends[y], update.chops[y].items(), strict=False)
                pieces += [(y, x, part) for end, (x, part) in chops if part is not None and x < x2 and end > x1]
        elif isinstance(update, Pieces):
            pieces += update.pieces
        else:
            self._codes = self.at = None
            return update
        writer = _Writer(console._color_system or ColorSystem.TRUECOLOR, size[0])  # noqa: SLF001 - its public name is a string
        for y, x, segments in pieces:
            if 0 <= y < size[1]:
                self._lay(writer, y, x, _cells(segments))
        text, self._codes, self.at = writer.finish(self._codes, self.at)
        return Ready(text) if text else None

    def _lay(self, writer: "_Writer", y: int, x: int, cells: list[Cell]) -> None:
        """Write the part of `cells` that the line has room for: the terminal may be narrower than at layout. Half of a
        wide character at either edge becomes a space.
        """
        line = self._lines[y]
        if x < 0:
            x, cells = 0, cells[-x:]
            if cells and not cells[0][0]:
                cells = [(" ", cells[0][1]), *cells[1:]]
        room = max(0, len(line) - x)
        if len(cells) > room:
            is_cut = room > 0 and not cells[room][0]
            cells = cells[:room]
            if is_cut:
                cells[-1] = (" ", cells[-1][1])
        stop = x + len(cells)
        if not cells or line[x:stop] == cells:
            return
        if line[x] is not NOTHING:
            self._move(writer, y, x, cells)
        # Writing over one half of a wide character removes the other half.
        if x > 0 and not line[x][0]:
            line[x - 1] = NOTHING
        if stop < len(line) and not line[stop][0]:
            line[stop] = NOTHING
        for first, last in _changed_runs(line, x, cells):
            writer.write(y, x + first, cells[first:last])
        line[x:stop] = cells

    def _move(self, writer: "_Writer", y: int, x: int, cells: list[Cell]) -> None:
        """Let the terminal move cells to the left if `cells` are those at column `x`, moved; the rest is put back."""
        line = self._lines[y]
        moved = find_move(line[x : x + len(cells)], cells, writer.moved_by)
        written = any(one.y == y for one in writer.stretches)
        if moved is None or written or any(not character for character, _ in line[x + moved[0] :]):
            return
        start, stop, by = x + moved[0], x + moved[1], moved[2]
        writer.move(y, start, stop, by)
        line[start:stop] = [*line[start + by : stop], *by * [NOTHING]]


class _Stretch(NamedTuple):
    """Text of one style, and its place."""

    y: int
    x: int
    columns: int
    text: str
    codes: Codes


class _Writer:
    """Collects output, and orders it to take the fewest bytes.

    A true colour takes 20 bytes and a move of the cursor up to 9: if few cells change, all of one style are written
    before those of the next, beginning with the style that the last update ended in. Many are written line by line.
    `moved_by` is the number of columns by which the last moved line was moved.
    """

    __slots__ = ("_color_system", "_moved_at", "_moves", "_width", "moved_by", "stretches")

    def __init__(self, color_system: ColorSystem, width: int) -> None:
        self.moved_by = 0
        self._color_system = color_system
        self._width = width
        self.stretches: list[_Stretch] = []
        self._moves: list[str] = []
        self._moved_at: At = None

    def move(self, y: int, start: int, stop: int, by: int) -> None:
        """Delete `by` cells of a line at `start` and insert as many before `stop`, before anything is written."""
        self.moved_by = by
        self._moves.append(f"\x1b[{y + 1};{start + 1}H\x1b[{by}P\x1b[{stop - by + 1}G\x1b[{by}@")
        self._moved_at = (y, stop - by)

    def write(self, y: int, x: int, cells: list[Cell]) -> None:
        start = 0
        for at in range(1, len(cells) + 1):
            if at == len(cells) or (cells[at][1] is not cells[start][1] and cells[at][0]):
                text = "".join(character for character, _ in cells[start:at])
                codes = codes_of(cells[start][1], self._color_system)
                self.stretches.append(_Stretch(y, x + start, at - start, text, codes))
                start = at

    def finish(self, codes: Codes | None, at: At) -> tuple[str, Codes | None, At]:
        """Return the output for a terminal with the look `codes` and its cursor `at` a place, and both afterwards."""
        if not self.stretches:
            return "", codes, at
        out = ["\x1b[m" if codes is None else "", *self._moves]
        now, at = PLAIN if codes is None else codes, self._moved_at or at
        is_sure = at is not None
        if len(self.stretches) > FEW:
            out.append(self._text(self.stretches, at, now, is_sure=is_sure)[0])
            return "".join(out), self.stretches[-1].codes, None
        by_codes: dict[Codes, list[_Stretch]] = {}
        for stretch in self.stretches:
            by_codes.setdefault(stretch.codes, []).append(stretch)
        while by_codes:
            # The nearest next: between looks with the same background and attributes only the colour changes.
            nearest = min(by_codes, key=lambda wanted: len(transition_of_codes(now, wanted)))
            of_style = by_codes.pop(nearest)
            # Also column by column from the top down, because moving down takes one byte. Digits of one column of
            # figures may begin at different places.
            columns: list[list[_Stretch]] = []
            reached = -1
            figures = (one for one in of_style if one.columns <= WIDEST_FIGURE)
            for stretch in sorted(figures, key=lambda stretch: stretch.x):
                if stretch.x > reached:
                    columns.append([])
                columns[-1].append(stretch)
                reached = max(reached, stretch.x + stretch.columns)
            columns = [sorted(column, key=lambda one: (one.y, one.x)) for column in columns]
            wide = [one for one in of_style if one.columns > WIDEST_FIGURE]
            orders = (of_style, [*chain(*columns), *wide], [*chain(*reversed(columns)), *wide])
            texts = [self._text(order, at, now, is_sure=is_sure) for order in orders]
            text, at, is_sure = min(texts, key=lambda one: len(one[0]))
            out.append(text)
            now = nearest
        return "".join(out), now, at if is_sure else None

    def _text(self, stretches: Iterable[_Stretch], at: At, codes: Codes, *, is_sure: bool) -> tuple[str, At, bool]:
        """Return the output for these stretches in their order, the cursor's place afterwards, and whether every
        terminal has it there.
        """
        out: list[str] = []
        for stretch in stretches:
            if at != (stretch.y, stretch.x):
                move = _move(at, stretch, is_sure=is_sure)
                is_sure = is_sure or move.endswith("H")
                out.append(move)
            if stretch.codes != codes:
                out.append(transition_of_codes(codes, stretch.codes))
                codes = stretch.codes
            if ERASES and stretch.columns >= LEAST_ERASED and not codes[0] and not stretch.text.strip(" "):
                out.append(f"\x1b[{stretch.columns}X")
                at = (stretch.y, stretch.x)
                continue
            out.append(stretch.text)
            at = (stretch.y, stretch.x + stretch.columns)
            # Terminals disagree about the width of some characters, and at the margin the cursor stays in the last one.
            is_sure = is_sure and at[1] < self._width and (stretch.text.isascii() or not stretch.text.strip(BLOCKS))
        return "".join(out), at, is_sure


def _move(at: At, to: _Stretch, *, is_sure: bool) -> str:
    """Return the shortest move to the place of a stretch; relative to another line only if the cursor's `is_sure`."""
    absolute = f"\x1b[{to.y + 1};{to.x + 1}H"
    if at is None:
        return absolute
    down, ahead = to.y - at[0], to.x - at[1]
    if down == 0 and ahead > 0:
        return f"\x1b[{ahead}C" if ahead > 1 else "\x1b[C"
    if not is_sure:
        return absolute
    if down < 0:
        below = f"\x1b[{-down}A" if down < -1 else "\x1b[A"
    else:
        # A vertical tab is a line feed that stays in its column, even if the kernel adds a return to line feeds.
        below = "\v" * down if down <= MOST_TABS else f"\x1b[{down}B"
    across = "\b" * -ahead if -MOST_BACK <= ahead <= 0 else f"\x1b[{to.x + 1}G"
    if ahead > 0:
        across = min(across, f"\x1b[{ahead}C" if ahead > 1 else "\x1b[C", key=len)
    return min(absolute, across + below, key=len)


class Pieces(CompositorUpdate):
    """Stretches of lines that nothing covers, each with its row and first column."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces


class Ready(CompositorUpdate):
    """An update that is already text. Textual adds the cursor's place."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, console: Console) -> str:
        return self.text


def _cells(segments: Iterable[Segment]) -> list[Cell]:
    """Return one entry a column: an empty one follows a wide character, and a combining one joins its base."""
    cells: list[Cell] = []
    for text, style, control in segments:
        if control:
            continue
        if not text.strip(NARROW):
            # Most of a frame's thousands of cells are blank or lines.
            is_run, blank = text.count(text[:1]) == len(text), (" ", style)
            own = [] if is_run else [blank if character == " " else (character, style) for character in text]
            cells.extend(own or repeat((text[:1], style), len(text)))
            continue
        if not text.isprintable():
            text = text.translate(OBEYED)  # noqa: PLW2901 - from here on it is what the terminal only shows
        for character in text:
            width = get_character_cell_size(character)
            if width:
                cells.append((character, style))
                if width == 2:
                    cells.append(("", style))
                continue
            at = len(cells) - 1
            if at >= 0 and not cells[at][0]:
                at -= 1
            if at >= 0:  # without a base it would join the character written last
                cells[at] = (cells[at][0] + character, cells[at][1])
    return cells


def _changed_runs(line: list[Cell], x: int, cells: list[Cell]) -> list[tuple[int, int]]:
    """Return the runs of cells to write: from the first changed one to the end of the last, with whole characters."""
    runs: list[tuple[int, int]] = []
    before = line[x : x + len(cells)]
    for i in compress(count(), map(ne, before, cells)):
        if cells[i][0] == before[i][0] == " " and _ground(cells[i][1]) == _ground(before[i][1]):
            continue
        start = i
        while start > 0 and not cells[start][0]:
            start -= 1
        if runs and _is_joined(cells, runs[-1][1], start):
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((start, i + 1))
    for at, (start, stop) in enumerate(runs):
        while stop < len(cells) and not cells[stop][0]:  # the second half of a wide character
            stop += 1  # noqa: PLW2901 - to the end of the character
        runs[at] = (start, stop)
    return runs


def _is_joined(cells: list[Cell], start: int, stop: int) -> bool:
    """Return whether the cells between two runs take no more bytes than a jump, and all have one style."""
    if stop - start > JUMP or sum(len(cells[at][0].encode()) for at in range(start, stop)) > JUMP:
        return False
    style = cells[start - 1][1]
    return all(cells[at][1] is style or cells[at][1] == style for at in range(start, stop + 1))


@lru_cache(maxsize=512)
def _ground(style: Style | None) -> Style | Color | None:
    """Return what shows of a style at a space: its background; all of it with a line, reverse or a link."""
    if style is None:
        return None
    lines = style.underline or style.underline2 or style.overline or style.strike
    return style if lines or style.reverse or style.link else style.bgcolor


RESTING = Offset(0, 0)  # Textual's own, until a field for text has the focus
Visible = Mapping[Widget, tuple[Region, Region]]


class Spot(NamedTuple):
    """The place of a widget's content on the screen, and the `place` of all of it but the scroll bars; `is_free` if
    nothing covers any of that.
    """

    x: int
    y: int
    size: Size
    place: Region
    is_free: bool


class CellPainter:
    """Sends only the cells that differ. The app passes every update of the compositor through `reduced`."""

    __slots__ = ("_app", "_colours", "_pieces", "_spots", "_visible", "frame")

    def __init__(self, app: App[None], colours: Colours) -> None:
        self._app, self._colours = app, colours
        self.frame = Frame()
        self._pieces: list[Piece] | None = None
        self._visible: Visible | None = None
        self._spots: dict[Widget, Spot | None] = {}

    def reduced(self, renderable: object) -> object:
        """Reduce an update to the text of the cells that differ from the terminal's; return anything else unchanged."""
        app = self._app
        is_sent = app._running and not app._closed and not app.is_headless and not app._batch_count  # noqa: SLF001 - Textual has no other way
        if is_sent and app._driver is not None and isinstance(renderable, CompositorUpdate):  # noqa: SLF001 - as above
            update = self.frame.update(renderable, (app.size.width, app.size.height), app.console)
            # The cursor is hidden: its place matters only to an input method, and there is none at its rest.
            if isinstance(update, Ready) and app.cursor_position == RESTING:
                return update.text
            self.frame.at = None
            return update
        return renderable

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send everything painted in the block at once, at its end."""
        self._pieces = []
        try:
            yield
        finally:
            pieces, self._pieces = self._pieces, None
            if pieces:
                self._send(Pieces(pieces))

    def paint(self, widget: Widget, lines: Sequence[int]) -> bool:
        """Draw these lines of a widget's content, in order, without Textual's compositor, which would go through all
        widgets between the first change on the screen and the last.

        The lines of `render_line` must be finished, because the widget's own style is not applied. Lines outside the
        content are those of the frame. Return False, and draw nothing, if something covers the widget or the screen is
        about to change.
        """
        spot = self.spot(widget)
        if self._app._batch_count or spot is None or not spot.is_free:  # noqa: SLF001 - as below
            return False
        first, count = spot.y - spot.place.y + lines[0], lines[-1] - lines[0] + 1
        # The compositor will have to draw them too, when its turn comes; Widget.refresh would call it now.
        widget._styles_cache.set_dirty(Region(0, first, 1, count))  # noqa: SLF001 - Textual has no other way
        if lines[0] >= 0 and lines[-1] < spot.size.height:
            strips, width = [widget.render_line(y) for y in lines], spot.size.width
            palette = self._colours.palette
            is_true = palette is not None and palette.is_true  # no colour is left to make true
            for one in self._app._filters:  # noqa: SLF001 - as above
                if one.enabled and not (is_true and isinstance(one, ANSIToTruecolor)):
                    strips = [strip.apply_filter(one, widget.background_colors[1]) for strip in strips]
            pieces: list[Piece] = [
                (spot.y + y, spot.x, strip.adjust_cell_length(width)) for y, strip in zip(lines, strips, strict=True)
            ]
        else:
            strips = widget.render_lines(Region(0, first, spot.place.width, count))
            pieces = [(spot.y + y, spot.place.x, strips[y - lines[0]]) for y in lines]
        if self._pieces is None:
            self._send(Pieces(pieces))
        else:
            self._pieces += pieces
        return True

    def spot(self, widget: Widget) -> Spot | None:
        """Return the place of the widget's content on the screen; None if it is not shown, or is about to move."""
        screen = self._app.screen
        if screen._layout_required or screen._scroll_required:  # noqa: SLF001 - no other way
            return None
        # The foremost first; a new mapping whenever anything moves.
        visible = screen._compositor.visible_widgets  # noqa: SLF001 - as above
        if visible is not self._visible:
            self._visible, self._spots = visible, {}
        if widget not in self._spots:
            self._spots[widget] = _spot(widget, visible)
        return self._spots[widget]

    def forget_spots(self) -> None:
        self._visible, self._spots = None, {}

    def _send(self, renderable: object) -> None:
        self._app._display(self._app.screen, renderable)  # type: ignore[arg-type]  # noqa: SLF001 - rich's renderable


def _spot(widget: Widget, visible: Visible) -> Spot | None:
    if widget not in visible:
        return None
    place = visible[widget][0].shrink(widget.scrollbar_gutter)
    inside = place.shrink(widget.styles.gutter)  # `widget.gutter` includes the scroll bars
    if not inside:
        return None
    is_free = False
    for other, (region, clip) in visible.items():
        if other is widget:
            is_free = clip.contains_region(place)
            break
        if region.overlaps(place) and clip.overlaps(place):
            break
    return Spot(inside.x, inside.y, inside.size, place, is_free)
