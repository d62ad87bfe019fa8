"""Whether a line of a picture is the one before, moved to the left: then the terminal can move it itself."""

from collections.abc import Sequence
from itertools import compress
from operator import ne
from typing import NamedTuple

# A picture that moved is moved on the terminal where that saves so many bytes; it takes 21 and more itself.
LEAST_SAVED, MOST_MOVED = 24, 16


class Moved(NamedTuple):
    """Which cells of a line have moved to the left, and by how many columns."""

    start: int
    stop: int
    by: int


def find_move(before: Sequence[tuple[str, object]], after: Sequence[tuple[str, object]], usual: int) -> Moved | None:
    """How the cells of `after` come from `before` by moving them; None where that saves little.

    Args:
        before: what stands there.
        after: what is to stand there, as many cells.
        usual: by how many columns another line has moved, which is tried before all others: the lines of a picture move
            together, and to try them all takes longer than everything else that is done to a line. 0 for none.
    """
    differ = list(map(ne, before, after))
    changed = sum(differ)
    if 3 * changed <= LEAST_SAVED:
        return None
    start, stop = differ.index(True), len(differ) - differ[::-1].index(True)
    sizes = [1 if character.isascii() else 3 for character, _ in after[start:stop]]
    whole = sum(compress(sizes, differ[start:stop]))
    if 3 * (whole - changed) <= 2 * LEAST_SAVED:
        return None  # text, whose place other text has taken
    most = min(MOST_MOVED, stop - start)
    for ways in ((usual,) if 0 < usual < most else (), range(1, most)):
        best: Moved | None = None
        least = whole - LEAST_SAVED
        for by in ways if least > 0 else ():
            others = map(ne, before[start + by : stop], after[start : stop - by])
            cost = sum(sizes[-by:]) + sum(compress(sizes, others))
            best, least = (Moved(start, stop, by), cost) if cost < least else (best, least)
        if best is not None:
            return best
    return None
