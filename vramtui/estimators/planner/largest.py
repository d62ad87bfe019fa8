"""The largest whole number that fits, found with few questions."""

from collections.abc import Callable

CEILING = 1 << 24
PROBES = 16  # numbers looked at beyond an edge: the allocator's rounding makes some sizes fit again
STRIDE = 64  # the first step from a number is that part of it
LINES = 4  # straight lines that are drawn at most: the bytes of most keys lie nearly on one


def by_lines(needs: Callable[[int], int | None], room: int, first: int, second: int) -> int:
    """About the number whose bytes reach `room`, by lines through numbers that were asked: a start for a search."""
    before, at = first, second
    for _ in range(LINES):
        low, high = needs(before), needs(at)
        if low is None or high is None or (high - low) * (at - before) <= 0:
            break
        guess = at + (room - high) * (at - before) // (high - low)
        before, at = at, min(max(guess, 1), CEILING)
        if abs(at - before) <= 1:
            break
    return at


def largest_from(fits: Callable[[int], bool], start: int) -> int:
    """The largest number for which `fits` holds, which has to hold for 1, with few questions where it is near `start`.

    Halved between one that fits and one that does not; of several edges one is found.
    """
    low, high, step = 1, CEILING + 1, max(start // STRIDE, 1)
    if fits(start):
        low = start
        while low + step <= CEILING and fits(low + step):
            low, step = low + step, 2 * step
        high = min(low + step, high)
    else:
        high = start
        while high - step > 1 and not fits(high - step):
            high, step = high - step, 2 * step
        low = max(high - step, 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def largest_that(fits: Callable[[int], bool], start: int = 1) -> int:
    """The largest number up to CEILING for which `fits` holds, which has to hold for 1.

    Memory grows with what is varied but for the allocator's rounding, so the edge found by halving is looked
    beyond: if any of the next numbers fits after all, the search goes on from there.
    """
    low = start if fits(start) else 1
    while True:
        step = 1
        while low + step <= CEILING and fits(low + step):
            low += step
            step *= 2
        high = min(low + step, CEILING + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        later = next((n for n in range(low + 2, low + 2 + PROBES) if n <= CEILING and fits(n)), None)
        if later is None:
            return low
        low = later
