"""Stacked areas in eighths of a cell: two colours in each, so that a boundary stands where it belongs."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

EIGHTHS = 8
_BLOCKS = " ▁▂▃▄▅▆▇█"


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
    found, reached = [], 0
    for size in sizes:
        reached += size
        found.append(min(total, round(reached * most / ceiling)))
    return (*found, total)


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
