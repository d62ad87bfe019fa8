"""One line of help for each key of a preset, from the docstrings of the core's Structs; and a few words for each choice
of a key, from `choice_helps.toml`, for types have no docstrings for their values.
"""

import inspect
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from vramtui.core.base import toml

_ENTRY = re.compile(r"^    (?! )(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ENDS = re.compile(r"(?<=[.])(?<!al[.]) (?=[A-Z`])")
_NAMED = re.compile(r"`(\w+)`")


@lru_cache(maxsize=128)
def helps_of(struct: type) -> dict[str, str]:
    """The help of each key that the docstring of `struct` tells of: its entry under "Attributes", or else the part of
    an entry or of the text above that names it in backquotes.
    """
    whole = inspect.getdoc(struct) or ""
    head, _, rest = whole.partition("Attributes:\n")
    helps: dict[str, str] = {}
    for name, text in _ENTRY.findall(rest):
        parts = [_sentence(part) for part in _one_line(text).split("; ")]
        helps[name] = _sentence(_one_line(text))
        for part in parts[1:]:
            for other in _NAMED.findall(part):
                helps.setdefault(other, part)
    for sentence in _ENDS.split(_one_line(head)):
        for other in _NAMED.findall(sentence):
            helps.setdefault(other, _sentence(sentence))
    return helps


@lru_cache(maxsize=128)
def summary_of(struct: type) -> str:
    """The first sentence of a docstring."""
    return _sentence(_ENDS.split(_one_line(inspect.getdoc(struct) or ""))[0])


@lru_cache(1)
def choice_words() -> Mapping[str, Mapping[str, str]]:
    """What each choice means, by the key and the choice; a table of the file may be that of several keys."""
    words: dict[str, dict[str, str]] = {}
    text = Path(__file__).with_name("choice_helps.toml").read_text(encoding="utf-8")
    for names, table in toml.loads(text).items():
        for name in names.split():
            words.setdefault(name, {}).update(table)
    return words


def choice_helps(name: str, choices: Sequence[str]) -> tuple[str, ...]:
    """A few words on each of the `choices` of the key called `name`; empty where there is nothing on one of them."""
    words = choice_words().get(name, {})
    return tuple(words[choice] for choice in choices) if choices and all(one in words for one in choices) else ()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".;")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
