"""Where the form's cursor stands when a draft is opened: at what is wrong, or at the value that people change first."""

from collections.abc import Iterable

from vramtui.presets.form.types import FormField, FormGroup, fields_of
from vramtui.presets.reader import PresetProblem

FIRST = "batch_size"
NUMBERS = {"int", "float"}


def first_key(groups: tuple[FormGroup, ...], problems: Iterable[PresetProblem] = ()) -> str:
    """The key of the field to begin at; empty where there is none."""
    tables = {group.key: group for group in groups}
    fields = fields_of(groups)
    for problem in problems:
        if problem.key in fields:
            return _needed(fields[problem.key].items) or problem.key
        if problem.key in tables and (needed := _needed(tables[problem.key].fields)):
            return needed
    rule = tables.get("rule")
    tries = [rule] if rule is not None and rule.line is not None else []
    return next((found for table in (*tries, tables.get("run")) if table is not None and (found := _best(table))), "")


def _needed(fields: Iterable[FormField]) -> str:
    """The first field of a table that has to be said and is not."""
    return next((field.key for field in fields if field.required and field.value is None), "")


def _best(group: FormGroup) -> str:
    """The batch size; else the first number that is said, or could be; else the first field at all."""
    fields: list[FormField] = [*group.fields[1:], *group.fields[:1]]
    numbers = [field for field in fields if field.kind in NUMBERS]
    order = [
        *(field for field in fields if field.label.replace(" ", "_") == FIRST),
        *(field for field in numbers if field.value is not None),
        *numbers,
        *fields,
    ]
    return order[0].key if order else ""
