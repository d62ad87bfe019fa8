"""The parts of a form: tables and their keys, with help from docstrings."""

import inspect
import re
from collections.abc import Mapping, Sequence
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
        label: its last part in words: `batch size`.
        help: one sentence.
        unit: `bytes`, `tokens`, `pixels`, `MiB` and so on; empty if there is none.
        kind: how it is written. `table` is anything with keys of its own, written as TOML.
        choices: the allowed values of a `choice`, in their order.
        choice_helps: a sentence for each choice, or empty.
        minimum: the lower limit, excluded if `minimum_excluded`.
        maximum: the upper limit, excluded if `maximum_excluded`.
        default: the value if nothing is set, written as `value`; None if there is none.
        required: whether a preset needs it.
        value: the value in the text as `Draft.set_value` takes it (text without quotes, other values as TOML); None if
            it is not set.
        line: its line in the text, from 1; None if it is not set.
        settable: whether it can be typed as one value.
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

    @property
    def range(self) -> str:
        """Return the limits in words (`at least 1`), without those that only keep nonsense out."""
        low = f"{'more than' if self.minimum_excluded else 'at least'} {_plainly(self.minimum)}"
        high = f"{'less than' if self.maximum_excluded else 'at most'} {_plainly(self.maximum)}"
        ends = (low if self.minimum is not None else "", high if (self.maximum or BEYOND) < BEYOND else "")
        return ", ".join(filter(None, ends))


class FormGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a preset.

    Attributes:
        title: `Model`.
        key: dotted; empty for the keys above all tables.
        help: one sentence on the table.
        fields: in the order of the type; the field that chooses the kind is the first.
        required: whether a preset needs it.
        line: the line of its header, from 1; None if the text does not have the table.
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
    """Return the fields of a form by their keys."""
    return {field.key: field for group in groups for field in group.fields}


_ENTRY = re.compile(r"^    (?! )(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ENDS = re.compile(r"(?<=[.])(?<!al[.]) (?=[A-Z`])")
_NAMED = re.compile(r"`(\w+)`")


@lru_cache(maxsize=128)
def helps_of(struct: type) -> dict[str, str]:
    """Return the help of each key in the docstring of `struct`: its entry under "Attributes", or the sentence that
    names it in backquotes.
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
    """Return the first sentence of a docstring."""
    return _sentence(_ENDS.split(_one_line(inspect.getdoc(struct) or ""))[0])


@lru_cache(1)
def choice_words() -> Mapping[str, Mapping[str, str]]:
    """Return the help of each choice, by key and choice. A table of the file may serve several keys."""
    words: dict[str, dict[str, str]] = {}
    text = Path(__file__).with_name("choice_helps.toml").read_text(encoding="utf-8")
    for names, table in toml.loads(text).items():
        for name in names.split():
            words.setdefault(name, {}).update(table)
    return words


def choice_helps(name: str, choices: Sequence[str]) -> tuple[str, ...]:
    """Return the help of each choice of a key; empty if a choice has none."""
    words = choice_words().get(name, {})
    return tuple(words[choice] for choice in choices) if choices and all(one in words for one in choices) else ()


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".;")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
