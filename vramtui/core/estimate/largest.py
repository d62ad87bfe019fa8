"""The largest whole number that fits, found with few questions: the one search for it that every part asks."""

from collections.abc import Callable, Generator, Mapping

from vramtui.core.base.units import GIB

CEILING = 1 << 24
PROBES = 16  # numbers looked at beyond an edge: the allocator's rounding makes some sizes fit again
FAR = 8  # by that part and a GiB more no rounding makes one too large
STRIDE = 64  # the first step from a number is that part of it
LINES = 4  # straight lines that are drawn at most: the bytes of most keys lie nearly on one

Search = Generator[int, int | None, int]
"""Yields a number, is sent its bytes (None if it is refused), and returns the largest that fits, 0 if none does."""
Sizes = dict[int, int | None]
"""Bytes of numbers that were asked."""


def largest(needs: Callable[[int], int | None], search: Search) -> int:
    """The result of `search` with the answers of `needs`."""
    try:
        number = next(search)
        while True:
            number = search.send(needs(number))
    except StopIteration as ended:
        return int(ended.value)


def search_lines(room: int, first: int, second: int) -> Search:
    """Search for about the number whose bytes reach `room`, by lines through numbers that are asked: where to begin."""
    before, at = first, second
    for _ in range(LINES):
        low = yield before
        high = yield at
        if low is None or high is None or (high - low) * (at - before) <= 0:
            break
        guess = at + (room - high) * (at - before) // (high - low)
        before, at = at, min(max(guess, 1), CEILING)
        if abs(at - before) <= 1:
            break
    return at


def search_largest(
    room: int, start: int = 1, *, most: int = CEILING, probes: int = 0, known: Mapping[int, int | None] | None = None
) -> Search:
    """Search for the largest number up to `most` that needs at most `room` bytes, with few questions near `start`.

    In steps that double from there, then between one that fits and one that does not. Memory grows with what is
    varied but for the allocator's rounding: of several edges one is found.

    Args:
        room: bytes that there are.
        start: the number that is asked first.
        most: no number beyond it is asked.
        probes: so many numbers are looked at beyond the edge; if one fits after all, the search goes on from there.
        known: bytes of numbers that were asked before; the edge is above the largest of them that fits.
    """
    start = min(max(start, 1), most)
    step = max(start // STRIDE, 1)
    sizes = dict(known or {})
    yield from _ask(start, sizes)
    below = max((number for number, size in sizes.items() if _fits(size, room)), default=0)
    above = min((number for number in sizes if number > below), default=0)
    if below:
        search = _between(room, below, above, sizes) if above else _above(room, below, step, most, sizes)
    elif above > 1 and _fits((yield from _ask(1, sizes)), room):
        # The edge below `above`, which does not fit, where 1 does.
        low = above - step
        while low > 1 and not _fits((yield from _ask(low, sizes)), room):
            above, step = low, 2 * step
            low = above - step
        search = _between(room, max(low, 1), above, sizes)
    else:
        return 0
    low = yield from search
    number = low + 2
    while number < min(low + 2 + probes, most + 1):
        size = yield from _ask(number, sizes)
        if size is not None and size > room + room // FAR + GIB:
            break
        if _fits(size, room):
            low = yield from _above(room, number, 1, most, sizes)
            number = low + 1
        number += 1
    return low


def _ask(number: int, sizes: Sizes) -> Generator[int, int | None, int | None]:
    """The bytes of `number`, which are noted."""
    sizes[number] = yield number
    return sizes[number]


def _above(room: int, low: int, step: int, most: int, sizes: Sizes) -> Search:
    """The edge above `low`, which fits."""
    while low + step <= most and _fits((yield from _ask(low + step, sizes)), room):
        low, step = low + step, 2 * step
    return (yield from _between(room, low, min(low + step, most + 1), sizes))


def _between(room: int, low: int, high: int, sizes: Sizes) -> Search:
    """The edge between one that fits and one that does not: by the line through both, or by halves where two questions
    brought it no nearer than one of these would.
    """
    wide = before = 2 * (high - low)
    while high - low > 1:
        middle = (low + high) // 2
        least, most = sizes.get(low), sizes.get(high)
        if 2 * (high - low) <= before and least is not None and most is not None and most > least:
            middle = min(max(low + (room - least) * (high - low) // (most - least), low + 1), high - 1)
        wide, before = high - low, wide
        low, high = (middle, high) if _fits((yield from _ask(middle, sizes)), room) else (low, middle)
    return low


def _fits(size: int | None, room: int) -> bool:
    return size is not None and size <= room
