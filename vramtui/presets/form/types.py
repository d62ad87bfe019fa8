"""What a form is made of: tables with their keys, and lists with their elements."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

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
        told = (low if self.minimum is not None else "", high if (self.maximum or BEYOND) < BEYOND else "")
        return ", ".join(filter(None, told))


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
