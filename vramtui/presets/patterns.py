"""Whether the regular expressions of `[match]` may be searched for in every command line of a host."""

import re

LONGEST = 512


def pattern_fault(pattern: str) -> str | None:
    """What is wrong with `pattern`, after "KEY is"; None when it may be used.

    A repetition within a repetition, such as `(a+)+`, can take longer than anybody waits on a command line that
    somebody else on the host chose.
    """
    if len(pattern) > LONGEST:
        return f"{len(pattern)} characters long; at most {LONGEST} are allowed"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"not a regular expression: {error}"
    if _nests_repetition(pattern):
        return "a pattern that repeats a repetition, which can take forever; take one of the two away"
    return None


_PIECE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|[*+]|\{\d*,\}|[()]|.", re.DOTALL)


def _nests_repetition(pattern: str) -> bool:
    groups = [False]
    closed: bool | None = None
    for piece in _PIECE.findall(pattern):
        repeats = piece in {"*", "+"} or piece.startswith("{")
        if repeats and closed:
            return True
        if repeats:
            groups[-1] = True
        if piece == "(":
            groups.append(False)
        closed = None
        if piece == ")":
            closed = groups.pop()
            groups[-1] = groups[-1] or closed
    return False
