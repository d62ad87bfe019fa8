"""What the terminal shows now, so that only the cells that differ are sent to it.

Textual sends whole stretches of lines again when a part of them is refreshed. Every update passes here first: it is
laid over the remembered cells, and what is left is cursor moves, changes of style and changed characters.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, count, repeat
from operator import ne
from typing import NamedTuple

from rich.cells import get_character_cell_size
from rich.color import Color, ColorSystem
from rich.console import Console
from rich.segment import Segment
from rich.style import Style

from vramtui.app.terminal.moved_cells import find_move
from vramtui.app.terminal.style_codes import PLAIN, Codes, codes_of, transition_of_codes
from vramtui.app.terminal.textual_private import ChopsUpdate, CompositorUpdate, LayoutUpdate

Piece = tuple[int, int, Iterable[Segment]]
Cell = tuple[str, Style | None]
NOTHING: Cell = ("\0", None)
# The last gate: whatever a widget was given to show, these never reach the terminal as text. They have no width.
OBEYED = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
# Unchanged cells of up to so many bytes are shorter than the escape sequence that jumps over them.
JUMP = 4
# As many stretches of one style are put in order by their styles.
FEW = 500
# Up to so many a move is shorter as single characters than as a sequence.
MOST_TABS, MOST_BACK = 3, 5
# Of bars and graphs. All that is drawn here takes them for one column each.
BLOCKS = "".join(map(chr, range(0x2580, 0x25A0)))
# What else stands on nearly every line: of text that has nothing beyond these each character is a cell.
NARROW = "".join((*map(chr, range(0x20, 0x7F)), BLOCKS, *map(chr, range(0x2500, 0x2580)), "·–…°Δ▸●"))


class Frame:
    """The cells on the terminal. One per terminal, whatever screens are stacked on it.

    Attributes:
        size: columns and rows of the last update; (0, 0) where nothing is taken for granted.
    """

    __slots__ = ("_codes", "_lines", "size")

    def __init__(self) -> None:
        self._lines: list[list[Cell]] = []
        self.size = (0, 0)
        self._codes: Codes | None = None  # what the terminal writes in; None where somebody else may have set that

    def forget(self) -> None:
        """Take nothing for granted: the next update is sent whole."""
        self._lines = []
        self.size = (0, 0)
        self._codes = None

    def update(self, update: CompositorUpdate, size: tuple[int, int], console: Console) -> CompositorUpdate | None:
        """What has to be sent so that a terminal of `size` (columns, rows) shows `update`; None when nothing has."""
        if size != self.size:
            self.size = size
            self._lines = [[NOTHING] * size[0] for _ in range(size[1])]
        if isinstance(update, LayoutUpdate):
            pieces = _layout_pieces(update)
        elif isinstance(update, ChopsUpdate):
            pieces = _chop_pieces(update)
        elif isinstance(update, Pieces):
            pieces = iter(update.pieces)
        else:
            self._codes = None
            return update
        writer = _Writer(console._color_system or ColorSystem.TRUECOLOR, size[0])  # noqa: SLF001 - its public name is a string
        for y, x, strip in pieces:
            if 0 <= y < size[1]:
                self._lay(writer, y, x, _cells(strip))
        text, self._codes = writer.finish(self._codes)
        return Ready(text) if text else None

    def _lay(self, writer: "_Writer", y: int, x: int, cells: list[Cell]) -> None:
        line = self._lines[y]
        x, cells = _within(x, cells, len(line))
        stop = x + len(cells)
        if not cells or line[x:stop] == cells:
            return
        if line[x] is not NOTHING:
            self._move(writer, y, x, cells)
        # What is written over one half of a wide character takes the other half with it.
        if x > 0 and not line[x][0]:
            line[x - 1] = NOTHING
        if stop < len(line) and not line[stop][0]:
            line[stop] = NOTHING
        for first, last in _changed_runs(line, x, cells):
            writer.write(y, x + first, cells[first:last])
        line[x:stop] = cells

    def _move(self, writer: "_Writer", y: int, x: int, cells: list[Cell]) -> None:
        """Where `cells` are what stands at column `x` of a line, moved to the left, let the terminal move them: what is
        right of them goes to the left with them, and is put back to its place.
        """
        line = self._lines[y]
        moved = find_move(line[x : x + len(cells)], cells, writer.moved_by)
        if moved is None or writer.writes_on(y) or any(not character for character, _ in line[x + moved.start :]):
            return
        start, stop, by = x + moved.start, x + moved.stop, moved.by
        writer.move(y, start, stop, by)
        line[start:stop] = [*line[start + by : stop], *by * [NOTHING]]


class _Stretch(NamedTuple):
    """Text of one style that is to be written from one place on."""

    y: int
    x: int
    columns: int
    text: str
    codes: "Codes"


class _Writer:
    """Collects what is sent, and sends it in the order that takes the fewest bytes.

    A true colour takes 20 bytes and a move of the cursor at most 9: where few cells change, all of one style are
    written before those of the next, begun with the style that the last update ended in. More of them are written line
    by line, as they are seen.

    Attributes:
        moved_by: by how many columns the latest line was moved that was; 0 for none.
    """

    __slots__ = ("_color_system", "_moves", "_stretches", "_width", "moved_by")

    def __init__(self, color_system: ColorSystem, width: int) -> None:
        self.moved_by = 0
        self._color_system = color_system
        self._width = width
        self._stretches: list[_Stretch] = []
        self._moves: list[str] = []

    def writes_on(self, y: int) -> bool:
        """Whether something is to be written on that line."""
        return any(one.y == y for one in self._stretches)

    def move(self, y: int, start: int, stop: int, by: int) -> None:
        """Move the cells of a line from column `start` to before `stop` to the left by so many, before anything is
        written: the first of them go, and as many are put in at the end.
        """
        self.moved_by = by
        self._moves.append(f"\x1b[{y + 1};{start + 1}H\x1b[{by}P\x1b[{stop - by + 1}G\x1b[{by}@")

    def write(self, y: int, x: int, cells: list[Cell]) -> None:
        start = 0
        for at in range(1, len(cells) + 1):
            if at == len(cells) or (cells[at][1] is not cells[start][1] and cells[at][0]):
                text = "".join(character for character, _ in cells[start:at])
                codes = codes_of(cells[start][1], self._color_system)
                self._stretches.append(_Stretch(y, x + start, at - start, text, codes))
                start = at

    def finish(self, codes: Codes | None) -> tuple[str, Codes | None]:
        """What is sent to a terminal that writes in `codes`, and in what it writes then."""
        if not self._stretches:
            return "", codes
        begun = PLAIN if codes is None else codes
        if len(self._stretches) <= FEW:
            text, ended = self._by_style(begun)
        else:
            text, ended = self._text(self._stretches, _Place(None, is_sure=False), begun)[0], self._stretches[-1].codes
        return "".join(("\x1b[m" if codes is None else "", *self._moves, text)), ended

    def _by_style(self, codes: Codes) -> tuple[str, Codes]:
        by_codes: dict[Codes, list[_Stretch]] = {}
        for stretch in self._stretches:
            by_codes.setdefault(stretch.codes, []).append(stretch)
        out: list[str] = []
        place = _Place(None, is_sure=False)
        while by_codes:
            # The nearest next: between those with one background and the same attributes only the colour changes.
            nearest = min(by_codes, key=lambda wanted: len(transition_of_codes(codes, wanted)))
            of_style = by_codes.pop(nearest)
            orders = (of_style, _by_column(of_style))
            text, place = min((self._text(order, place, codes) for order in orders), key=lambda pair: len(pair[0]))
            out.append(text)
            codes = nearest
        return "".join(out), codes

    def _text(self, stretches: Iterable[_Stretch], place: "_Place", codes: Codes) -> tuple[str, "_Place"]:
        """These stretches in their order, from where the cursor is, and where it is then."""
        out: list[str] = []
        at, is_sure = place
        for stretch in stretches:
            if at != (stretch.y, stretch.x):
                move = _move(at, stretch, is_sure=is_sure)
                is_sure = is_sure or move.endswith("H")
                out.append(move)
            if stretch.codes != codes:
                out.append(transition_of_codes(codes, stretch.codes))
                codes = stretch.codes
            out.append(stretch.text)
            at = (stretch.y, stretch.x + stretch.columns)
            # Terminals disagree about how wide some characters are, and at the margin a cursor stays in the last one.
            is_sure = is_sure and at[1] < self._width and (stretch.text.isascii() or not stretch.text.strip(BLOCKS))
        return "".join(out), _Place(at, is_sure=is_sure)


def _by_column(stretches: Iterable[_Stretch]) -> list[_Stretch]:
    """What stands in one column of a table together, from the top down: the cursor goes down by one byte. Of some
    figures all digits have changed and of some the last.
    """
    columns: list[list[_Stretch]] = []
    reached = -1
    for stretch in sorted(stretches, key=lambda stretch: stretch.x):
        if stretch.x > reached:
            columns.append([])
        columns[-1].append(stretch)
        reached = max(reached, stretch.x + stretch.columns)
    return [stretch for column in columns for stretch in sorted(column, key=lambda stretch: (stretch.y, stretch.x))]


class _Place(NamedTuple):
    """Row and column of the cursor, None where nobody knows, and whether every terminal has it there."""

    at: tuple[int, int] | None
    is_sure: bool


def _move(at: tuple[int, int] | None, to: _Stretch, *, is_sure: bool) -> str:
    """The shortest way to where a stretch begins; over lines from where the cursor is only where that `is_sure`."""
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
        # A vertical tab is a line feed that stays in its column, also where the kernel adds a return to line feeds.
        below = "\v" * down if down <= MOST_TABS else f"\x1b[{down}B"
    across = "\b" * -ahead if -MOST_BACK <= ahead <= 0 else f"\x1b[{to.x + 1}G"
    if ahead > 0:
        across = min(across, f"\x1b[{ahead}C", key=len)
    return min(absolute, across + below, key=len)


class Pieces(CompositorUpdate):
    """Stretches of lines, each with its row and first column, that nothing lies in front of."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = pieces


class Ready(CompositorUpdate):
    """An update that is already text. Textual adds where the cursor is to be."""

    def __init__(self, text: str) -> None:
        self.text = text

    def render_segments(self, console: Console) -> str:
        """The text, whatever the console."""
        del console
        return self.text


def _layout_pieces(update: LayoutUpdate) -> Iterator[Piece]:
    for y, strips in enumerate(update.strips, update.region.y):
        x = update.region.x
        for strip in strips:
            yield y, x, strip
            x += strip.cell_length


def _chop_pieces(update: ChopsUpdate) -> Iterator[Piece]:
    for y, x1, x2 in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=False):
            if strip is not None and x < x2 and end > x1:
                yield y, x, strip


def _cells(segments: Iterable[Segment]) -> list[Cell]:
    """One entry a column: a wide character is followed by an empty one, a combining one joins its base."""
    cells: list[Cell] = []
    for text, style, control in segments:
        if control:
            continue
        if not text.strip(NARROW):
            cells.extend(zip(text, repeat(style)))
            continue
        if not text.isprintable():
            text = text.translate(OBEYED)  # noqa: PLW2901 - from here on it is what the terminal only shows
        for character in text:
            width = get_character_cell_size(character)
            if width == 0:
                _combine(cells, character)
                continue
            cells.append((character, style))
            if width == 2:
                cells.append(("", style))
    return cells


def _combine(cells: list[Cell], character: str) -> None:
    """Join a character without a width to the one before; without one it would sit on whatever was written last."""
    at = len(cells) - 1
    if at >= 0 and not cells[at][0]:
        at -= 1
    if at >= 0:
        text, style = cells[at]
        cells[at] = (text + character, style)


def _within(x: int, cells: list[Cell], width: int) -> tuple[int, list[Cell]]:
    """The part of a piece that a line of `width` columns has room for, and its column.

    An update is laid out for the size that the terminal had then; it may have become narrower since. Half of a wide
    character at either edge is a space.
    """
    if x < 0:
        x, cells = 0, cells[-x:]
        if cells and not cells[0][0]:
            cells = [(" ", cells[0][1]), *cells[1:]]
    room = max(0, width - x)
    if len(cells) > room:
        is_cut = room > 0 and not cells[room][0]
        cells = cells[:room]
        if is_cut:
            cells[-1] = (" ", cells[-1][1])
    return x, cells


def _changed_runs(line: list[Cell], x: int, cells: list[Cell]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    before = line[x : x + len(cells)]
    for i in _changed(before, cells):
        if cells[i][0] == before[i][0] == " " and _ground(cells[i][1]) == _ground(before[i][1]):
            continue
        start = i
        while start > 0 and not cells[start][0]:
            start -= 1
        if runs and _is_short(cells, runs[-1][1], start) and _is_plain(cells, runs[-1][1] - 1, start + 1):
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((start, i + 1))
    return [(start, _whole(cells, stop)) for start, stop in runs]


def _changed(before: list[Cell], after: list[Cell]) -> list[int]:
    """Where the cells of two stretches of one length differ."""
    return list(compress(count(), map(ne, before, after)))


@lru_cache(maxsize=512)
def _ground(style: Style | None) -> Style | Color | None:
    """What is seen of a style where no character stands: its ground alone, as figures take the room before them into
    their own colour; all of it where a line is drawn, where the colours change places, and of a link.
    """
    if style is None:
        return None
    lines = style.underline or style.underline2 or style.overline or style.strike
    return style if lines or style.reverse or style.link else style.bgcolor


def _is_short(cells: list[Cell], start: int, stop: int) -> bool:
    """Whether all of these cells take no more bytes than a jump over them."""
    return stop - start <= JUMP and sum(len(cells[at][0].encode()) for at in range(start, stop)) <= JUMP


def _is_plain(cells: list[Cell], start: int, stop: int) -> bool:
    """Whether all of these cells have one style."""
    style = cells[start][1]
    return all(cells[at][1] is style or cells[at][1] == style for at in range(start + 1, stop))


def _whole(cells: list[Cell], stop: int) -> int:
    """`stop`, moved past the second half of a wide character."""
    while stop < len(cells) and not cells[stop][0]:
        stop += 1
    return stop
