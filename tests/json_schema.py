"""What a document breaks of its JSON Schema; a key that the schema does not name is an error too."""

from collections.abc import Iterator
from typing import Any

KINDS: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float),
    "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
KNOWN = {
    *("$schema", "$id", "$defs", "$ref", "title", "description", "default", "format", "pattern", "contentEncoding"),
    *("anyOf", "enum", "const", "type", "properties", "required", "additionalProperties", "items", "prefixItems"),
    *("minItems", "maxItems", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength"),
    *("discriminator", "minProperties", "maxProperties", "propertyNames"),
}


def problems(value: Any, schema: dict[str, Any], defs: dict[str, Any] | None = None, at: str = "$") -> list[str]:
    """Where `value` is not what `schema` says, a line each; `defs` are those of the whole schema."""
    defs = schema.get("$defs", {}) if defs is None else defs
    assert schema.keys() <= KNOWN, schema.keys() - KNOWN
    if "$ref" in schema:
        return problems(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, at)
    if "anyOf" in schema:
        tries = [problems(value, one, defs, at) for one in schema["anyOf"]]
        return min(tries, key=len)
    return list(_of_kind(value, schema, defs, at))


def _of_kind(value: Any, schema: dict[str, Any], defs: dict[str, Any], at: str) -> Iterator[str]:
    kind = schema.get("type")
    words = schema.get("enum", [schema["const"]] if "const" in schema else [value])
    if value not in words:
        yield f"{at}: {value!r} is none of {words}"
    elif kind is not None and (not isinstance(value, KINDS[kind]) or (isinstance(value, bool) and kind != "boolean")):
        yield f"{at}: {value!r} is no {kind}"
    elif kind == "object":
        yield from _of_object(value, schema, defs, at)
    elif kind == "array":
        yield from _of_array(value, schema, defs, at)
    elif kind in {"integer", "number"} and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at}: {value} is out of bounds"


def _of_object(value: dict[str, Any], schema: dict[str, Any], defs: dict[str, Any], at: str) -> Iterator[str]:
    named, rest = schema.get("properties", {}), schema.get("additionalProperties", "properties" not in schema)
    yield from (f"{at}: {key} is missing" for key in schema.get("required", ()) if key not in value)
    for key, one in value.items():
        if key in named:
            yield from problems(one, named[key], defs, f"{at}.{key}")
        elif isinstance(rest, dict):
            yield from problems(one, rest, defs, f"{at}.{key}")
        elif not rest:
            yield f"{at}: {key} is not in the schema"


def _of_array(value: list[Any], schema: dict[str, Any], defs: dict[str, Any], at: str) -> Iterator[str]:
    first, rest = schema.get("prefixItems", []), schema.get("items", {})
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{at}: {len(value)} values"
    for number, one in enumerate(value):
        each = first[number] if number < len(first) else rest
        if each is False:
            yield f"{at}[{number}] is too many"
        elif isinstance(each, dict):
            yield from problems(one, each, defs, f"{at}[{number}]")
