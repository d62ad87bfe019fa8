"""The numbers of an axis: a ladder around what the preset says."""

DOUBLINGS = 40


def ladder(value: int, count: int, steps: int) -> tuple[int, ...]:
    """At most `count` rising numbers from 1 up, `value` among them with about a third of them below it.

    Args:
        value: what they stand around.
        count: how many.
        steps: rungs to each doubling: 4 gives 4, 5, 6, 7, 8, 10, 12, 14, 16 …; 2 gives 2, 3, 4, 6, 8, 12 …
    """
    low = set(range(1, steps))
    rungs = sorted(low | {(steps + part) << power for power in range(DOUBLINGS) for part in range(steps)} | {value})
    start = max(0, rungs.index(value) - count // 3)
    return tuple(rungs[start : start + count])


def with_present(rungs: tuple[int, ...], present: int | None) -> tuple[int, ...]:
    """`rungs` with one more where `present` is none of them; the one farthest from it gives way."""
    if present is None or present in rungs:
        return rungs
    more = sorted({*rungs, present})
    more.pop(-1 if present < rungs[-1] else 0)
    return tuple(more)


def short(number: int) -> str:
    """A number of at most five characters in a heading: 4096, 16k, 1M."""
    if number < 10_000:
        return str(number)
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if number >= unit and number % (unit // 2) == 0:
            return f"{number / unit:g}{letter}"
    return str(number)
