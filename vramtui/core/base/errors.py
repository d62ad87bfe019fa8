"""Errors that are meant for people: each carries one plain sentence, ready to be shown."""

import sys
from collections.abc import Iterable, Sequence

from vramtui.core.base.text import printable, shortened

MOST_SENTENCE = 2000  # characters: half a screen; only what is quoted of a file can be longer
# `time.time` ends at 2^63 ns after 1970.
CLOCK = "this machine's clock is beyond the year 2262, which Python cannot tell: set it"
LONGEST_GUESSED = 200  # characters; longer words are not typos


class Error(Exception):
    """Base of this package's errors: each has a sentence for the user."""


class UserError(Error):
    """Input that a person can mend: a preset, an option, a recording. Exit code 2, unless a kind of it says another.

    Args:
        message: what is wrong, in a sentence. It may quote what others wrote: nothing of it that a terminal would obey
            is left, but for line breaks; of a very long one the middle is left out.
    """

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__(_harmless(message))


class BeyondTraceError(UserError):
    """Code that a trace cannot follow; it need not be wrong."""


class SourceFailed(Error):  # noqa: N818 - a public name, which changes within a major version only by additions
    """A source cannot answer at all. Exit code 3 on the command line, a banner in the dashboard.

    Args:
        message: what failed, in a sentence, naming the call.
        hint: what to do next, or an empty string.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = _harmless(message)
        self.hint = _harmless(hint)

    @property
    def sentence(self) -> str:
        """The failure, and what to do next."""
        return " ".join(filter(None, (self.message, self.hint)))


def _harmless(text: str) -> str:
    return "\n".join(map(printable, shortened(text, MOST_SENTENCE).split("\n")))


def os_reason(error: OSError) -> str:
    """Why the system refused, to stand behind a colon: `no such file or directory`."""
    return printable(error.strerror or str(error)).lower()


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.lower()))


def nearest(word: str, known: Iterable[str], *, cutoff: float = 0.6, most: int = 1) -> str:
    """`" (did you mean X?)"` for up to `most` known names close to `word`, or else the shortest that begin with its
    letters and digits (qwen-3-8b for qwen3). `cutoff` is how alike they have to be, from 0 to 1.
    """
    from difflib import get_close_matches  # noqa: PLC0415 - every start would wait for it, few need it

    names, word = list(known), word[:LONGEST_GUESSED]
    matches = get_close_matches(word, names, n=most, cutoff=cutoff)
    if not matches and len(word) > 2:
        matches = sorted((name for name in names if _letters(name).startswith(_letters(word) or "-")), key=len)
    return did_you_mean(matches[:most])


def did_you_mean(names: Sequence[str]) -> str:
    """`" (did you mean A, B or C?)"`; an empty string without names."""
    if not names:
        return ""
    *others, last = names
    return f" (did you mean {', '.join(others)} or {last}?)" if others else f" (did you mean {last}?)"


def install_hint(extra: str) -> str:
    """The command that brings `vramtui[extra]`, for the environment of this very program and no other."""
    wanted = f"'vramtui[{extra}]'"
    if "/uv/tools/" in sys.prefix:
        return f"uv tool install {wanted}"
    if "/pipx/venvs/" in sys.prefix:
        return f"pipx inject vramtui {wanted}"
    import shlex  # noqa: PLC0415 - only in this sentence

    return f"{shlex.quote(sys.executable)} -m pip install {wanted}"
