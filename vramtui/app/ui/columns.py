"""What lists with columns have in common: widths, headings, cells, and the column under the pointer."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, fit, right, strip
from vramtui.core.base.units import format_percent
from vramtui.core.estimate.estimate import USUAL_ERROR

Name = TypeVar("Name", bound=str)
WITHOUT_TENTHS = 0.9995  # 99.95 % is written 100.0 %


class Column(msgspec.Struct, Generic[Name], frozen=True):
    """One column; `width` 0 takes what is left."""

    name: Name
    title: str
    width: int
    numeric: bool = False


Columns = tuple[Column[Name], ...]


class ColumnSort(Generic[Name]):
    """The column that a list is sorted by, and whether the other way round. Who derives from it says which there are.

    Attributes:
        COLUMNS: all, from left to right.
        FROM_THE_LARGEST: those that begin with the largest.
    """

    __slots__ = ("reverse", "sort")

    COLUMNS: ClassVar[tuple[str, ...]]
    FROM_THE_LARGEST: ClassVar[Collection[str]]

    def __init__(self, sort: Name) -> None:
        self.sort = sort
        self.reverse = False

    @property
    def falls(self) -> bool:
        """Whether the largest comes first."""
        return (self.sort in self.FROM_THE_LARGEST) != self.reverse

    def sort_by(self, column: Name) -> None:
        """Sort by it; by the same one again: the other way round."""
        self.reverse = not self.reverse if column == self.sort else False
        self.sort = column

    def sort_next(self, direction: int) -> None:
        """Sort by the column to the right (1) or left (-1) of the present one."""
        at = self.COLUMNS.index(self.sort) + direction
        self.sort_by(cast("Name", self.COLUMNS[at % len(self.COLUMNS)]))


def narrowed(
    columns: Columns[Name], widths: Mapping[Any, int], titles: Mapping[Any, str] | None = None
) -> Columns[Name]:
    """The columns where there is less room: only those named in `widths`, so wide, some with a shorter title."""
    shorter = titles or {}
    return tuple(
        Column(column.name, shorter.get(column.name, column.title), widths[column.name], column.numeric)
        for column in columns
        if column.name in widths
    )


def filled(columns: Iterable[Column[Name]], width: int, least: int = 0) -> tuple[Column[Name], ...]:
    """The columns of a list `width` wide: the one without a width of its own has what is left, `least` or more."""
    columns = tuple(columns)
    rest = max(least, width - sum(column.width for column in columns))
    return tuple(column if column.width else msgspec.structs.replace(column, width=rest) for column in columns)


def cell(text: str, column: Column[Name]) -> str:
    """What stands in a column."""
    return right(text, column.width) if column.numeric else " " + fit(text, column.width - 1)


def heading(columns: Iterable[Column[Name]], sort: Name, *, falls: bool, palette: Palette, width: int) -> Strip:
    """The names of the columns, the one that sorts marked; it `falls` where the largest comes first."""
    pieces: list[Piece] = []
    for column in columns:
        sorts = column.name == sort
        title = column.title + ("▾" if falls else "▴") if sorts else column.title
        pieces.append((cell(title, column), palette.ink("primary" if sorts else "muted", bold=True)))
    return strip(pieces, width, palette.text)


def column_at(columns: Iterable[Column[Name]], x: int) -> Name | None:
    """The column at position `x` of a line."""
    start = 0
    for column in columns:
        start += column.width
        if x < start:
            return column.name
    return None


def under_cursor(pieces: list[Piece], cursor: str | None) -> list[Piece]:
    """The pieces of a row, its first column given over to the mark of the cursor where that is on it."""
    if cursor is None:
        return pieces
    (text, style), *others = pieces
    return [("▸" + text[1:], style), *others]


def short_name(card: str) -> str:
    """A card's name without what most of them share: as people call it."""
    return card.removeprefix("NVIDIA ").removeprefix("GeForce ")


def delta_colour(fraction: float) -> str:
    """Red beyond the prediction, green near it, plain below: a larger miss is never dimmer than a smaller one."""
    if fraction > USUAL_ERROR:
        return "error"
    return "success" if fraction >= -USUAL_ERROR else "foreground"


def delta_text(fraction: float | None) -> str:
    """A difference, from 100 % on without its tenths, which would take the gap before it."""
    return format_percent(fraction, 0 if abs(fraction or 0) >= WITHOUT_TENTHS else 1)
