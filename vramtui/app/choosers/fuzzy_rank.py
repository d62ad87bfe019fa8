"""How well a name answers what was typed: what every list with a filter is put in order by.

A name comes before a description, a beginning before a middle, and letters that only follow each other come last.
"""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

One = TypeVar("One")
_WORDS = re.compile(r"[^a-z0-9.]+")
_PARTS = re.compile(r"[^a-z0-9.]+|(?<=[a-z])(?=\d)|(?<=\d)(?=[a-z])")  # of `gpt2`: gpt and 2


def rank(wanted: str, name: str, about: str = "") -> int | None:
    """How well `name` answers `wanted`, the best 0; None where it does not.

    Args:
        wanted: words; every name answers none of them equally well.
        name: what a thing is called.
        about: what else is said of it; a word may stand there in place of the name.
    """
    words = wanted.lower().split()
    name, about = name.lower(), about.lower()
    if not words:
        return 0
    if name == wanted.lower().strip():
        return 0
    if _in_order(words, _WORDS.split(name)) or _in_order(words, _PARTS.split(name)):
        return 1 if name.startswith(words[0]) else 2
    if all(word in name for word in words):
        return 3 if name.startswith(words[0]) else 4
    if all(word in name or word in about for word in words):
        return 5 if any(word in name for word in words) else 6
    letters = iter(re.sub(r"[^a-z0-9]", "", name))
    # Of two letters every second name has both.
    return 7 if len("".join(words)) > 2 and all(letter in letters for letter in "".join(words)) else None


def ranked(
    wanted: str, items: Iterable[One], text: Callable[[One], tuple[str, str]], order: Callable[[One], object]
) -> list[One]:
    """The items that answer `wanted`, the best first.

    Args:
        wanted: words.
        items: what there is.
        text: of each, its name and what else is said of it.
        order: what those of one rank are sorted by.
    """
    found = [(rank(wanted, *text(item)), item) for item in items]
    answers = [(place, item) for place, item in found if place is not None]
    # Letters that merely follow each other are only asked for where nothing else was meant.
    best = min((place for place, _ in answers), default=0)
    kept = [(place, item) for place, item in answers if place < 7 or best == 7]
    return [item for _, item in sorted(kept, key=lambda one: (one[0], order(one[1])))]


def _in_order(words: list[str], parts: list[str]) -> bool:
    """Whether each word begins a part of a name, one after the other."""
    rest = iter(parts)
    return all(any(_begins(part, word) for part in rest) for word in words)


def _begins(part: str, word: str) -> bool:
    # `3` means a 3, not the 32 of 32 billion.
    return part == word if word.isdigit() and part.replace(".", "").isdigit() else part.startswith(word)
