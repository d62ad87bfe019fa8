"""What a form is made of: tables with their keys, lists with their elements, and their help out of docstrings."""

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from vramtui.core.base import toml

Kind: TypeAlias = Literal["int", "float", "bool", "choice", "text", "list", "table"]

BEYOND = 1 << 24


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a preset.

    Attributes:
        key: dotted, as in TOML: `run.batch_size`.
        label: its last part as people read it: `batch size`.
        help: one sentence.
        unit: `bytes`, `tokens`, `pixels`, `MiB` and the like; empty where there is none.
        kind: how it is written; `table` is anything with keys of its own, to be written as TOML.
        choices: for `choice`, in their order; `choice_helps` has a sentence for each, or is empty.
        minimum: the least that is allowed, or the bound above which it has to be where `minimum_excluded`.
        maximum: as `minimum`.
        default: what holds when nothing is said, spelt as `value` is; None where nothing does.
        required: whether a preset without it is none.
        value: what the text says, spelt as `Draft.set_value` takes it: text without quotes, anything else as TOML has
            it; None when unsaid.
        line: where it stands, from 1; None when unsaid.
        settable: whether it can be typed as one value; what stands as `[[tables]]`, or over lines with comments
            between them, is changed element by element.
        many: whether it is a list.
        items: a list's elements, and behind them an empty one to type or make another into; the keys of a table
            within a list.
        is_new: it is that empty one.
    """

    key: str
    label: str
    help: str
    unit: str = ""
    kind: Kind
    choices: tuple[str, ...] = ()
    choice_helps: tuple[str, ...] = ()
    minimum: float | int | None = None
    maximum: float | int | None = None
    minimum_excluded: bool = False
    maximum_excluded: bool = False
    default: str | None = None
    required: bool = False
    value: str | None = None
    line: int | None = None
    settable: bool = True
    many: bool = False
    items: tuple["FormField", ...] = ()
    is_new: bool = False

    @property
    def range(self) -> str:
        """What a number may be, in words: `at least 1`; empty where it may be anything. Limits that only keep nonsense
        out are not told.
        """
        low = f"{'more than' if self.minimum_excluded else 'at least'} {_plainly(self.minimum)}"
        high = f"{'less than' if self.maximum_excluded else 'at most'} {_plainly(self.maximum)}"
        ends = (low if self.minimum is not None else "", high if (self.maximum or BEYOND) < BEYOND else "")
        return ", ".join(filter(None, ends))


class FormGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a preset.

    Attributes:
        title: for people: `Model`.
        key: dotted; empty for the keys before all tables.
        help: one sentence on the table.
        fields: in the order of the type; the one that chooses the kind first.
        required: whether a preset has to have it.
        line: where its header stands, from 1; None when the text has no such table.
    """

    title: str
    key: str
    help: str = ""
    fields: tuple[FormField, ...]
    required: bool = False
    line: int | None = None


def _plainly(bound: float | None) -> str:
    return f"{int(bound):,}" if bound is not None and bound == int(bound) else f"{bound}"


def fields_of(groups: tuple[FormGroup, ...]) -> dict[str, FormField]:
    """The fields of a form by their keys, the elements of lists among them."""
    return {field.key: field for group in groups for outer in group.fields for field in within(outer)}


def within(field: FormField) -> Iterator[FormField]:
    """A field, and behind it all that it holds."""
    yield field
    for item in field.items:
        yield from within(item)


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
