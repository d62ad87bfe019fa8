"""Whether the regular expressions of `[match]` may be searched for in every command line of a host."""

import re

from vramtui.core.observation.linear_regex import UnsupportedPattern, searcher

LONGEST = 512


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with `pattern`, after "KEY is"; None when it may be used.

    What is left takes a time in proportion to the text: somebody else on the host may have chosen that.
    """
    if len(pattern) > LONGEST:
        return f"{len(pattern)} characters long; at most {LONGEST} are allowed"
    try:
        searcher(pattern)
    except UnsupportedPattern as fault:
        return f"{fault}; a pattern has to be one that is searched in linear time"
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    return None
