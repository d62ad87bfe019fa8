"""Words that a text has to hold for a regular expression to be found in it: looking for those first costs little."""

import re
from functools import lru_cache

_PIECE = re.compile(
    r"\((?P<opened>\?(?::|=|!|<=|<!|P<\w+>|[aiLmsu]+:)|\?[aiLmsu]+\)|(?!\?))"
    r"|\\(?P<escaped>.)|(?P<class>\[\^?\]?(?:\\.|[^\]\\])*\])|(?P<repeat>[?*+]|\{\d*,?\d*\})|(?P<other>.)",
    re.DOTALL,
)
_CLASSES = "AbBdDsSwWZ"
SHORTEST = 2
REMEMBERED = 4096  # patterns: a matcher is made anew whenever presets are read, mostly of the same ones


class _Group:
    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.words: list[str] = []
        self.run = ""
        self.last: list[str] = []

    def end_run(self) -> None:
        """What was read last is required after all: no repetition of it followed."""
        self.words += [self.run, *self.last]
        self.run, self.last = "", []

    def repeat(self, *, at_least_once: bool) -> None:
        """A repetition of what was read last."""
        if not at_least_once:
            self.run, self.last = self.run[:-1], []
        self.end_run()

    def read(self, character: str, *, literally: bool) -> None:
        """A character, or where it is not meant `literally` something that is no word."""
        if self.last or not literally or not character.isascii():
            self.end_run()
        if literally and character.isascii():
            self.run += character.lower()


@lru_cache(REMEMBERED)
def required_words(pattern: str) -> tuple[str, ...]:
    """Words of two characters or more, in lower case, that every ASCII text in which `pattern` is found holds, the
    longest first. Some of them: where the pattern is not understood there are none.
    """
    groups = [_Group(counts=True)]
    at = 0
    while at < len(pattern):
        piece = _PIECE.match(pattern, at)
        if piece is None:
            return ()
        at = piece.end()
        if not _take(groups, piece):
            return ()
    if len(groups) != 1 or not groups[0].counts:
        return ()
    groups[0].end_run()
    words = {word for word in groups[0].words if len(word) >= SHORTEST}
    return tuple(sorted(words, key=lambda word: (-len(word), word)))


def _take(groups: list[_Group], piece: re.Match[str]) -> bool:
    """Read one piece; False where it is not understood."""
    group, kind, text = groups[-1], piece.lastgroup, piece[0]
    if kind == "opened":
        group.end_run()
        if not text.endswith(")"):
            groups.append(_Group(counts=text not in ("(?!", "(?<!")))
    elif kind == "repeat":
        group.repeat(at_least_once=text == "+")
    elif kind == "escaped":
        if text[1] not in _CLASSES and text[1].isalnum():
            return False
        group.read(text[1], literally=not text[1].isalnum())
    elif kind == "other":
        return _take_other(groups, text)
    else:
        group.end_run()
    return True


def _take_other(groups: list[_Group], character: str) -> bool:
    if character == ")" and len(groups) > 1:
        closed = groups.pop()
        closed.end_run()
        groups[-1].last = closed.words if closed.counts else []
    elif character == "|":
        groups[-1].counts = False
    else:
        groups[-1].read(character, literally=character not in ".^$")
    return character != "("
