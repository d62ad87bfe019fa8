"""The machine's clock, where Python cannot tell it."""

import time


def clock_problem() -> str:
    """What is wrong: it is beyond what `time.time` can say, 2262, 2^63 ns after 1970. Empty where nothing is."""
    try:
        time.time()
    except OverflowError:
        return "this machine's clock is beyond the year 2262, which Python cannot tell: set it"
    return ""
