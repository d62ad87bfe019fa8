"""What a person types into a field of the form, as the TOML that goes into the text."""

from vramtui.core.base.text import printable
from vramtui.presets.form.types import FormField
from vramtui.presets.schema import SHOWN
from vramtui.presets.toml import reader as toml
from vramtui.presets.toml.edits import one_value, quoted, readable

NEEDED = {
    "int": "a whole number is needed",
    "float": "a number is needed",
    "bool": "true or false is needed",
    "list": "a list is needed, as in [1, 2]",
    "table": "TOML is needed, in brackets",
}


class Refused(Exception):
    """What was typed cannot stand in the text; the sentence begins with the key."""


def toml_of(field: FormField, raw: str, text: str) -> str | None:
    """The TOML for `raw` in `field`; None where the text says just that already.

    Raises:
        Refused: `raw` cannot stand there.
    """
    if raw == (field.value or "") and (raw or field.kind != "text"):
        return None
    if not field.settable:
        raise Refused(f"{field.key} is spread over tables of its own; change it in the text")
    there = readable(text).layout.pair(tuple(field.key.split(".")))
    source = text[there.value_start : there.value_end] if there is not None else ""
    if field.kind in {"text", "choice"}:
        return quoted(raw, source)
    typed = raw.strip()
    if field.kind == "list" and typed[:1] != "[":
        typed = _listed(typed)
    if not typed:
        raise Refused(f"{field.key} is empty; {NEEDED[field.kind]}")
    if not one_value(typed) or ("\n" in typed and field.kind not in {"list", "table"}):
        raise Refused(f"{field.key} is {_short(typed)}; {NEEDED[field.kind]}")
    return None if source and _same(source, typed) else typed


def _listed(typed: str) -> str:
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
