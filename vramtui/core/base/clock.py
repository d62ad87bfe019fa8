"""The machine's clock, where Python cannot tell it, and how far clocks may be apart."""

from collections.abc import Callable

# Seconds. Start times come from the system's uptime in one program and from a clock in another.
CLOCKS_APART = 2.0


def clock_problem(clock: Callable[[], float]) -> str:
    """A sentence if the clock is beyond `time.time` (2262, 2^63 ns after 1970); else empty."""
    try:
        clock()
    except OverflowError:
        return "this machine's clock is beyond the year 2262, which Python cannot tell: set it"
    return ""
