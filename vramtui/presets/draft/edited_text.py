"""A preset's text while it is edited from two sides, its form and the text itself, with undo in steps as a person would
count them.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset
from vramtui.presets.form.form import form_of
from vramtui.presets.form.types import FormField, FormGroup, fields_of
from vramtui.presets.reader import Parsed, PresetProblem
from vramtui.presets.schema import SHOWN, Key, dotted, find_faults
from vramtui.presets.toml.edits import one_value, put_value, quoted, readable, with_ends_of
from vramtui.presets.toml.item_edits import copy_item, has_item, put_item, swap_items, take_item
from vramtui.presets.toml.positions import key_of

MOST = 1000
NEEDED = {
    "int": "a whole number is needed",
    "float": "a number is needed",
    "bool": "true or false is needed",
    "list": "a list is needed, as in [1, 2]",
    "table": "TOML is needed, in brackets",
}
TryOut: TypeAlias = Callable[[Preset], object]


class Step(msgspec.Struct, frozen=True, gc=False):
    """At `start`, `removed` became `inserted`; `place` is the key it was done for, empty for typing in the text."""

    place: str
    start: int
    removed: str
    inserted: str

    def apply(self, text: str) -> str:
        """`text` after it."""
        return text[: self.start] + self.inserted + text[self.start + len(self.removed) :]

    def undone(self, text: str) -> str:
        """`text` before it."""
        return text[: self.start] + self.removed + text[self.start + len(self.inserted) :]


def step_between(before: str, after: str, place: str = "") -> Step:
    """What changed between two texts, as one replacement in one place."""
    start = _shared(before, after)
    tail = _shared(before[start:][::-1], after[start:][::-1])
    return Step(place, start, before[start : len(before) - tail], after[start : len(after) - tail])


def _shared(one: str, other: str) -> int:
    """The length of the beginning that both have."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class Steps:
    """What was done and can be undone: consecutive typing in one place is one step; at most `MOST` are kept."""

    def __init__(self) -> None:
        self._done: list[Step] = []
        self._undone: list[Step] = []
        self._closed = True

    @property
    def can_undo(self) -> bool:
        return bool(self._done)

    @property
    def can_redo(self) -> bool:
        return bool(self._undone)

    def close(self) -> None:
        """What comes next is a step of its own."""
        self._closed = True

    def add(self, before: str, after: str, place: str = "", *, alone: bool = False) -> None:
        """Remember that `before` became `after`; together with the last step where both are the same typing."""
        step = step_between(before, after, place)
        self._undone.clear()
        last = self._done[-1] if self._done and not self._closed and not alone else None
        if last is not None and _go_on(last, step):
            self._done.pop()
            step = step_between(last.undone(before), after, place)
        self._closed = alone
        if step.removed != step.inserted:
            self._done.append(step)
            del self._done[:-MOST]

    def undo(self, text: str) -> str:
        """`text` before the last step; as it is when there is none."""
        self._closed = True
        if not self._done:
            return text
        step = self._done.pop()
        self._undone.append(step)
        return step.undone(text)

    def redo(self, text: str) -> str:
        """`text` after the step that was undone last."""
        self._closed = True
        if not self._undone:
            return text
        step = self._undone.pop()
        self._done.append(step)
        return step.apply(text)


def _go_on(last: Step, step: Step) -> bool:
    """Whether `step` goes on with what `last` did: the same key's value, or typing where the other left off."""
    if last.place or step.place:
        return last.place == step.place
    if max(len(step.inserted), len(step.removed)) > 1 or "\n" in step.inserted:
        return False
    end = last.start + len(last.inserted)
    within = last.start <= step.start and step.start + len(step.removed) <= end
    backwards = step.start + len(step.removed) == last.start and not last.inserted
    forwards = step.start == last.start and not last.inserted
    return within or backwards or forwards


class RefusedError(Exception):
    """What was typed cannot stand in the text; the sentence begins with the key."""


def toml_of(field: FormField, raw: str, text: str) -> str | None:
    """The TOML for `raw` in `field`; None where the text says just that already.

    Raises:
        RefusedError: `raw` cannot stand there.
    """
    if raw == (field.value or "") and (raw or field.kind != "text"):
        return None
    if not field.settable:
        raise RefusedError(f"{field.key} is spread over tables of its own; change it in the text")
    there = readable(text).layout.pair(tuple(field.key.split(".")))
    source = text[there.value_start : there.value_end] if there is not None else ""
    if field.kind in {"text", "choice"}:
        return quoted(raw, source)
    typed = raw.strip()
    if field.kind == "list" and typed[:1] != "[":
        typed = _list_text(typed)
    if not typed:
        raise RefusedError(f"{field.key} is empty; {NEEDED[field.kind]}")
    if not one_value(typed) or ("\n" in typed and field.kind not in {"list", "table"}):
        raise RefusedError(f"{field.key} is {_short(typed)}; {NEEDED[field.kind]}")
    return None if source and _same(source, typed) else typed


def _list_text(typed: str) -> str:
    """`a, b` as a list, its parts in quotes where they are no TOML by themselves."""
    parts = [part.strip() for part in typed.split(",")]
    return "[" + ", ".join(part if one_value(part) else quoted(part) for part in parts if part) + "]"


def _same(one: str, other: str) -> bool:
    """Whether two TOML values are one and the same, however they are written."""
    first, second = (toml.loads(f"v = {value}")["v"] for value in (one, other))
    return type(first) is type(second) and bool(first == second)


def _short(text: str) -> str:
    safe = printable(text)
    return f"'{safe if len(safe) <= SHOWN else safe[: SHOWN - 1] + '…'}'"


class EditedText:
    """A text and what it says: `preset` is the last one that was right, `is_current` whether the text still says it.

    Args:
        text: as it is to begin with.
        folder: the preset's own, which model files are looked for from.
        try_out: what else a preset has to go through (an estimator); it raises UserError with a sentence that begins
            with the key it is about. It runs at each change.
    """

    def __init__(self, text: str, folder: Path | None = None, try_out: TryOut | None = None) -> None:
        self.text = text
        self.folder = folder
        self.preset: Preset | None = None
        self._is_current = False
        self._try_out = try_out
        self._problems: tuple[PresetProblem, ...] = ()
        self._refused: dict[str, tuple[str, PresetProblem]] = {}
        self._steps = Steps()
        self._form: tuple[tuple[str, Path | None], tuple[FormGroup, ...]] | None = None
        self._look()

    @property
    def is_current(self) -> bool:
        """Whether `preset` is what the text says; otherwise it is the last one that was right."""
        return self._is_current

    @property
    def problems(self) -> tuple[PresetProblem, ...]:
        """Everything that is wrong, in the order of lines; then what the form refused, which stands for what the text
        has there.
        """
        problems_left = (problem for problem in self._problems if problem.key not in self._refused)
        return (*problems_left, *(problem for _, problem in self._refused.values()))

    @property
    def refused(self) -> dict[str, str]:
        """What was typed and cannot stand in the text, by key, until something else is typed there."""
        return {key: raw for key, (raw, _) in self._refused.items()}

    @property
    def refusals(self) -> tuple[PresetProblem, ...]:
        """Why each of those cannot stand in the text."""
        return tuple(problem for _, problem in self._refused.values())

    @property
    def form(self) -> tuple[FormGroup, ...]:
        """The form as the text fills it; see `form_of`."""
        if self._form is None or self._form[0] != (self.text, self.folder):
            self._form = (self.text, self.folder), form_of(self.text, self.folder)
        return self._form[1]

    @property
    def can_undo(self) -> bool:
        return self._steps.can_undo

    @property
    def can_redo(self) -> bool:
        return self._steps.can_redo

    def set_text(self, text: str) -> None:
        """Take `text` as typed. A text field may have made all line ends the same: lines that did not change keep
        theirs, so that `self.text` may differ from `text` in line ends only.
        """
        after = with_ends_of(self.text, text)
        if after != self.text:
            self._refused.clear()
            self._become(after)

    def set_value(self, key: str, raw: str) -> None:
        """Take `raw` as typed into the form for the dotted `key`. What cannot stand in TOML is refused: `problems` has
        the reason at that key and the text stays. What can stand is put into the text, right or wrong.
        """
        field = fields_of(self.form).get(key)
        try:
            value = toml_of(_require_field(field, key), raw, self.text)
        except RefusedError as error:
            self._refused[key] = raw, PresetProblem(field.line if field else None, key, str(error))
            return
        self._refused.pop(key, None)
        if value is not None:
            self._become(self._with(key_of(key), value), key)

    def unset(self, key: str) -> None:
        """Take the dotted `key` out of the text, with its line; a table's key takes the whole table, and that of an
        element, as in `model.stages[1]`, that element.
        """
        self._refused.pop(key, None)
        self._become(take_item(self._with_default(key_of(key)), key_of(key)), key, alone=True)

    def add_item(self, key: str) -> str:
        """One more element of a list, as one step: behind the one at the dotted `key` and just like it; where `key` is
        the first number that the list does not have, like its last one. Returns the new one's key.
        """
        *outer, number = key_of(key)
        field = fields_of(self.form).get(key)
        if field is None or not isinstance(number, int):
            return key
        if field.is_new and number:
            number -= 1
        text = self._with_default((*outer, number))
        if has_item(text, (*outer, number)):
            after, key = copy_item(text, (*outer, number)), dotted((*outer, number + 1))
        else:
            after = put_item(text, tuple(outer), field.default or '""')
        self._become(after, alone=True)
        return key

    def move_item(self, key: str, by: int) -> str:
        """Change the element at the dotted `key` with the one behind it (1) or before it (-1). Returns where it is
        then: the same key where it cannot go there.
        """
        whole = key_of(key)
        *outer, number = whole
        if not isinstance(number, int) or number + min(by, 0) < 0:
            return key
        before = self._with_default(whole)
        after = swap_items(before, (*outer, number + min(by, 0)))
        if after == before:
            return key
        self._become(after, alone=True)
        return dotted((*outer, number + by))

    def _with(self, key: Key, value: str) -> str:
        """The text with `value` at `key`, which may be that of a list's next element."""
        text = self._with_default(key)
        if isinstance(key[-1], int) and not has_item(text, key):
            return put_item(text, key[:-1], value)
        return put_value(text, key, value)

    def _with_default(self, key: Key) -> str:
        """The text with the list said that holds where nothing is said, if `key` is one of its elements."""
        if not isinstance(key[-1], int):
            return self.text
        field = fields_of(self.form).get(dotted(key[:-1]))
        if field is None or field.value is not None or not field.default:
            return self.text
        return put_value(self.text, key[:-1], field.default)

    def drop_unknown(self) -> tuple[str, ...]:
        """Take out what the kinds of model and run do not have, in one step: after another kind was chosen, say.
        Returns the dotted keys.
        """
        tables = readable(self.text).tables
        keys = [
            fault.key for fault in find_faults(tables) if fault.unknown and all(isinstance(p, str) for p in fault.key)
        ]
        text = self.text
        for key in keys:
            text = take_item(text, key)
        self._become(text, alone=True)
        return tuple(map(dotted, keys))

    def end_step(self) -> None:
        """What is typed next is undone by itself: call it when the focus leaves a field."""
        self._steps.close()

    def replace_text(self, text: str) -> None:
        """Take another text as one step that can be undone; nothing is refused in it."""
        self._refused.clear()
        self._become(text, alone=True)

    def saved_in(self, folder: Path) -> None:
        """The text is kept in `folder` now, which its files are looked for from; the next change is another step."""
        self.folder = folder
        self._steps.close()
        self._look()

    def undo(self) -> None:
        self._refused.clear()
        self._show(self._steps.undo(self.text))

    def redo(self) -> None:
        self._refused.clear()
        self._show(self._steps.redo(self.text))

    def _become(self, text: str, place: str = "", *, alone: bool = False) -> None:
        if text != self.text:
            self._steps.add(self.text, text, place, alone=alone)
            self._show(text)

    def _show(self, text: str) -> None:
        if text != self.text:
            self.text = text
            self._look()

    def _look(self) -> None:
        parsed = Parsed(self.text, self.folder)
        if parsed.preset is not None and self._try_out is not None:
            parsed.go_through(self._try_out)
        self._problems = parsed.problems
        self._is_current = parsed.preset is not None and not parsed.problems
        if self._is_current:
            self.preset = parsed.preset


def _require_field(field: FormField | None, key: str) -> FormField:
    if field is None:
        raise RefusedError(f"{printable(key)} is not a key of this preset")
    return field
