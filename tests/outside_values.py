"""Values that somebody may put where a program expects another one, for each field of a Struct or key of a document."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

Key = tuple[str | int, ...]
ABSENT = object()
TEXT = "x" * (1 << 20)
VALUES: tuple[object, ...] = (
    ABSENT, None, 0, -1, 1, 10**5, 10**12, 2**63, -(2**63), 1.5, float("nan"), float("inf"), True, "", "4",
    "\x1b[2J\x00\u202e", TEXT, [], [0], [1] * 10_000, {}, {"a": 1},
)  # fmt: skip
LARGEST: tuple[object, ...] = (-1, 10**12, 2**63)
MILLION = [1] * 10**6


def keys_of(document: object, above: Key = ()) -> Iterator[Key]:
    """The place of everything in a document of tables and lists; of a list's items the first stands for all."""
    if isinstance(document, Mapping):
        for name, value in document.items():
            yield (*above, name)
            yield from keys_of(value, (*above, name))
    elif isinstance(document, Sequence) and not isinstance(document, str):
        for value in document[:1]:
            yield (*above, 0)
            yield from keys_of(value, (*above, 0))


def changed(document: Any, key: Key, value: object) -> Any:
    whole = copy.deepcopy(document)
    table = whole
    for part in key[:-1]:
        table = table[part]
    if value is ABSENT:
        del table[key[-1]]
    else:
        table[key[-1]] = value
    return whole


def every_field(document: dict[str, Any], schema: type[msgspec.Struct]) -> dict[str, Any]:
    """The document with each optional field of its tables that it leaves out, as null: so each has a key."""
    return dict(_filled(document, _type_of(schema)))


@cache
def _type_of(schema: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(schema)


def _filled(value: object, kind: inspect.Type) -> Any:
    if isinstance(kind, inspect.Metadata):
        return _filled(value, kind.type)
    if isinstance(kind, inspect.UnionType):
        structs = [one for one in kind.types if isinstance(one, inspect.StructType)]
        tag = value.get(structs[0].tag_field or "") if structs and isinstance(value, dict) else None
        kind = next((one for one in structs if one.tag == tag or len(structs) == 1), kind)
    if not isinstance(kind, inspect.StructType) or not isinstance(value, dict):
        return value
    fields = {field.encode_name: field for field in kind.fields}
    filled = {name: _filled(part, fields[name].type) if name in fields else part for name, part in value.items()}
    for name, field in fields.items():
        if name not in filled and not field.required and field.default is None:
            filled[name] = None
    return filled


def bounds_of(key: Key, schema: type[msgspec.Struct], document: dict[str, Any]) -> tuple[int, ...]:
    """The largest value that a whole number may have there, where its type says one."""
    kind: inspect.Type = _type_of(schema)
    value: object = document
    for part in key:
        kind = _inside(kind, value, part)
        inside: Any = value
        value = None if inside is None else inside[part]
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return tuple(one.le for one in options if isinstance(one, inspect.IntType) and one.le is not None)


def _inside(kind: inspect.Type, value: object, part: str | int) -> inspect.Type:
    if isinstance(kind, inspect.Metadata):
        return _inside(kind.type, value, part)
    options = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    structs = [one for one in options if isinstance(one, inspect.StructType)]
    tag = value.get(structs[0].tag_field or "") if structs and isinstance(value, dict) else None
    for one in structs:
        if one.tag == tag or len(structs) == 1:
            return next((field.type for field in one.fields if field.encode_name == part), inspect.AnyType())
    lists = (inspect.VarTupleType, inspect.ListType)
    return next((one.item_type for one in options if isinstance(one, lists)), inspect.AnyType())
