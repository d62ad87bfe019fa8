"""Checks a preset's tables: each key is compared with the core's Structs, and each fault is a sentence."""

from __future__ import annotations  # msgspec.inspect, which only a file with an error needs, is loaded late

import datetime as dt
import operator
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import islice

import msgspec
from msgspec import inspect

from vramtui.core.base.errors import nearest
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset

SHOWN = 40
# Guessing a word takes a millisecond, and more than a hundred unknown keys help no person.
MOST_UNKNOWN, MOST_GUESSED, LONGEST_GUESSED = 100, 20, 80
Key = tuple[str | int, ...]  # a key of a preset: names of its tables, its own name, and numbers of items


class NotFinite:
    """Stands for `nan` and `inf`, which no key of a preset takes."""

    def __init__(self, text: str) -> None:
        self.text = text


class Fault(msgspec.Struct, frozen=True):
    """One fault: its key (of the table, if the key is `missing`), a sentence, and if the key is `unknown`."""

    key: Key
    sentence: str
    missing: bool = False
    unknown: bool = False


def dotted(key: Key) -> str:
    """Write a key as people do: `run.lora.target_modules[2]`."""
    text = ""
    for part in key:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return printable(text.removeprefix("."))


def find_faults(tables: Mapping[str, object], schema: type[msgspec.Struct] = Preset) -> list[Fault]:
    """Return all faults of `tables` as a preset (or as another Struct), in the schema's order."""
    return list(_check(tables, _type_of(schema), ()))


def preset_type() -> inspect.Type:
    return _type_of(Preset)


@lru_cache(maxsize=4)
def _type_of(schema: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(schema)


def schema_at(key: Key, tables: Mapping[str, object]) -> inspect.Field | None:
    """Return the schema's field of `key`, with the kinds of `tables`; None if there is no such key."""
    kind = preset_type()
    value: object = tables
    field = None
    for part in key:
        struct = struct_for(value, kind)
        field = next((f for f in struct.fields if f.encode_name == part), None) if struct else None
        if field is None:
            return None
        kind = field.type
        value = value.get(part, {}) if isinstance(value, Mapping) else {}
    return field


def describe(value: object) -> str:
    """Describe a value for a sentence: `text`, `a list`, `1.5`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return short(str(value)) if not isinstance(value, int) or abs(value) < 10**SHOWN else "a number too large"
    if isinstance(value, NotFinite):
        return short(value.text)
    names = {str: "text", list: "a list", dict: "a table", type(None): "empty"}
    return "a date" if isinstance(value, (dt.date, dt.time)) else names.get(type(value), "something else")


def short(text: str) -> str:
    safe = printable(text)
    return safe if len(safe) <= SHOWN else safe[: SHOWN - 1] + "…"


def _check(value: object, kind: inspect.Type, key: Key) -> Iterator[Fault]:
    every = options_of(kind)
    options = [option for option in every if not isinstance(option, inspect.NoneType)]
    if value is None and len(options) < len(every):
        return
    if any(isinstance(option, inspect.StructType) for option in options):
        if not isinstance(value, Mapping):
            yield Fault(key, f"{dotted(key)} is {describe(value)}; write {dotted(key)}.KEY = VALUE")
            return
        struct = struct_for(value, kind)
        if struct is None:
            structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
            tags, name = [str(option.tag) for option in structs], structs[0].tag_field or ""
            full = dotted((*key, name))
            if name in value:
                yield Fault((*key, name), _not_one_of(full, value[name], tags))
            else:
                yield Fault(key, f"{full} is missing; it is one of: {', '.join(tags)}", missing=True)
            return
        fields = {field.encode_name: field for field in struct.fields}
        known = [*fields, *([struct.tag_field] if struct.tag_field else [])]
        title = _title(struct, key)
        unknown = [name for name in value if name not in known]
        for number, name in enumerate(unknown[:MOST_UNKNOWN]):
            meant = ""
            if number < MOST_GUESSED and len(name) < LONGEST_GUESSED:
                parts = ((field, options_of(field.type)) for field in struct.fields)
                tables = (
                    (field, kind) for field, kinds in parts for kind in kinds if isinstance(kind, inspect.StructType)
                )
                has_it = (field for field, kind in tables if any(name == one.encode_name for one in kind.fields))
                inner = next((field.encode_name for field in has_it), None)
                meant = nearest(name, known) if inner is None else f" (did you mean {dotted((*key, inner, name))}?)"
            sentence = f"{dotted((*key, name))} is not a key of {title}{meant}"
            if (*key, name) == ("match", "command"):
                sentence = 'match.command was removed; list words instead: all = [["train", "tune"], ["llama"]]'
            yield Fault((*key, name), sentence, unknown=True)
        for name, field in fields.items():
            if name in value:
                yield from _check(value[name], field.type, (*key, name))
            elif field.required:
                yield Fault(key, f"{dotted((*key, name))} is missing; {title} needs it", missing=True)
        return
    faults: list[Fault] = []
    for option in options:
        faults = list(_check_plain(value, option, key))
        if not faults:
            return
    yield from faults


def options_of(kind: inspect.Type) -> list[inspect.Type]:
    if isinstance(kind, inspect.Metadata):
        return options_of(kind.type)
    if isinstance(kind, inspect.UnionType):
        return [option for part in kind.types for option in options_of(part)]
    return [kind]


def struct_for(value: object, kind: inspect.Type) -> inspect.StructType | None:
    """Return the Struct that `value`'s tag chooses; a single Struct needs no tag."""
    structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
    tag_field = structs[0].tag_field if structs else None
    if tag_field is None:
        return structs[0] if structs else None
    tag = value.get(tag_field) if isinstance(value, Mapping) else None
    if tag is None and len(structs) == 1:
        return structs[0]
    return next((struct for struct in structs if struct.tag == tag), None)


def _title(struct: inspect.StructType, key: Key) -> str:
    if not key:
        return "a preset" if struct.cls is Preset else "this file"
    if struct.tag is None:
        return f"[{dotted(key)}]"
    titles = {"train": "a training run", "infer": "an inference run", "serve": "a serving run"}
    if key == ("run",):
        return titles.get(str(struct.tag), f"a {struct.tag} run")
    if key == ("model",):
        return f"{'an' if str(struct.tag)[0] in 'aeiou' else 'a'} {struct.tag} model"
    return f"[{dotted(key)}] with {struct.tag_field} = {str(struct.tag)!r}"


def _check_plain(value: object, kind: inspect.Type, key: Key) -> Iterator[Fault]:
    name = dotted(key)
    if isinstance(kind, inspect.LiteralType):
        if value not in kind.values or isinstance(value, bool):
            yield Fault(key, _not_one_of(name, value, [str(known) for known in kind.values]))
    elif isinstance(kind, (inspect.VarTupleType, inspect.ListType)):
        if not isinstance(value, (list, tuple)):
            yield Fault(key, f"{name} is {describe(value)}, a list is needed, as in [1, 2]")
            return
        if kind.min_length is not None and len(value) < kind.min_length:
            yield Fault(key, f"{name} has {len(value)} entries; it must have at least {kind.min_length}")
        if kind.max_length is not None and len(value) > kind.max_length:
            yield Fault(key, f"{name} has {len(value)} entries; it must have at most {kind.max_length}")
        wrong = (fault for at, part in enumerate(value) for fault in _check(part, kind.item_type, (*key, at)))
        yield from islice(wrong, MOST_UNKNOWN)
    elif isinstance(kind, inspect.DictType):
        if not isinstance(value, Mapping):
            yield Fault(key, f"{name} is {describe(value)}; write {name}.KEY = VALUE")
            return
        for part, inner in value.items():
            yield from _check(inner, kind.value_type, (*key, part))
    elif isinstance(kind, (inspect.IntType, inspect.FloatType)):
        whole = isinstance(kind, inspect.IntType)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or (whole and isinstance(value, float)):
            yield Fault(key, f"{name} is {describe(value)}, a {'whole ' if whole else ''}number is needed")
            return
        for bound, is_beyond, words in (
            (kind.ge, operator.lt, "at least"),
            (kind.gt, operator.le, "more than"),
            (kind.le, operator.gt, "at most"),
            (kind.lt, operator.ge, "less than"),
        ):
            if bound is not None and is_beyond(value, bound):
                yield Fault(key, f"{name} is {describe(value)}; it must be {words} {bound}")
                return
    elif isinstance(kind, inspect.BoolType) and not isinstance(value, bool):
        yield Fault(key, f"{name} is {describe(value)}, true or false is needed")
    elif isinstance(kind, inspect.StrType):
        if not isinstance(value, str):
            yield Fault(key, f"{name} is {describe(value)}, text in quotes is needed")
        elif len(value) < (kind.min_length or 0):
            yield Fault(key, f"{name} is empty")
        elif kind.max_length is not None and len(value) > kind.max_length:
            yield Fault(key, f"{name} is {len(value)} characters long; at most {kind.max_length} are allowed")


def _not_one_of(full: str, value: object, known: list[str]) -> str:
    shown = repr(short(value)) if isinstance(value, str) else describe(value)
    guess = nearest(value, known) if isinstance(value, str) else ""
    return f"{full} is {shown}{guess}; it is one of: {', '.join(known)}"
