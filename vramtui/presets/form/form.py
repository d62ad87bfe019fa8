"""The form of a preset: its tables and keys as the core's types have them, with what a text says of each."""

import re
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import inspect

from vramtui.core.base.errors import UserError
from vramtui.presets.form.types import FormField, FormGroup, Kind, choice_helps, helps_of, summary_of
from vramtui.presets.schema import Key, dotted, options_of, preset_type, struct_for
from vramtui.presets.toml.edits import Readable, readable
from vramtui.presets.toml.item_edits import value_text
from vramtui.presets.toml.positions import key_lines

WHAT = {"model": "model", "run": "run", "rule": "published rule", "draft": "model"}
_STRING = re.compile(r'"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'')


class FieldMaker:
    """Makes the fields for one text."""

    def __init__(self, seen: Readable) -> None:
        self._seen = seen
        self.lines = key_lines(seen.text)
        self._places = {place.key: place for place in (*seen.layout.pairs, *seen.layout.elements)}

    def of_struct(
        self, key: Key, field: inspect.Field, struct: type, known: Mapping[str, object], *, required: bool
    ) -> FormField:
        """The field for one key of a Struct; `known` is what holds where the text says nothing, before the default."""
        default = known.get(field.encode_name, None if field.required else field.default)
        return self._make_field(
            key,
            field.type,
            about=helps_of(struct).get(field.encode_name, ""),
            default=None if default is msgspec.NODEFAULT else default,
            required=field.required and required and field.encode_name not in known,
            order=_orders(struct).get(field.name, ()),
        )

    def tag(
        self, key: Key, structs: list[inspect.StructType], *, default: str | None = None, required: bool = True
    ) -> FormField:
        """The field that chooses the kind of a table."""
        name = structs[0].tag_field or ""
        what = WHAT.get(str(key[-1]), "entry" if isinstance(key[-1], int) else str(key[-1]))
        return FormField(
            key=dotted((*key, name)),
            label=name,
            help=f"Which kind of {what} it is; the other keys follow from it.",
            kind="choice",
            choices=tuple(str(option.tag) for option in structs),
            choice_helps=tuple(summary_of(option.cls) for option in structs),
            default=default,
            required=required and default is None,
            **self.stands((*key, name), "choice"),
        )

    def stands(self, key: Key, kind: Kind) -> dict[str, Any]:
        """The fields `value`, `line` and `settable` of what stands at `key`."""
        place, line = self._places.get(key), self.lines.get(key)
        if place is None:
            present = self._value_at(key) if line is not None else None
            return {"value": None if present is None else value_text(present), "line": line, "settable": line is None}
        source = self._seen.text[place.value_start : place.value_end]
        if kind in {"text", "choice"}:
            present = self._value_at(key)
            source = present if isinstance(present, str) else source
            return {"value": source, "line": line}
        return {"value": source, "line": line, "settable": "\n" not in source or "#" not in _STRING.sub("", source)}

    def _value_at(self, key: Key) -> object:
        value: object = self._seen.tables
        for part in key:
            if isinstance(part, int):
                value = value[part] if isinstance(value, list) and part < len(value) else None
            else:
                value = value.get(part) if isinstance(value, Mapping) else None
        return value

    def _make_field(
        self,
        key: Key,
        kind: inspect.Type,
        *,
        about: str,
        default: object = None,
        required: bool = False,
        order: tuple[str, ...] = (),
    ) -> FormField:
        option, unit = _plain(kind)
        sort = kind_of(option)
        choices = tuple(map(str, option.values)) if isinstance(option, inspect.LiteralType) else ()
        many = isinstance(option, (inspect.VarTupleType, inspect.ListType))
        is_element = isinstance(key[-1], int)
        return FormField(
            key=dotted(key),
            label=f"[{key[-1]}]" if is_element else str(key[-1]).replace("_", " "),
            help=about,
            unit=unit,
            kind=sort,
            choices=order or choices,
            choice_helps=choice_helps(str(key[-1]), order or choices),
            default=None if default is None else spelt(default),
            required=required,
            many=many,
            items=self._elements(key, option, about, default) if many else self._keys(key, kind),
            **_bounds(option),
            **self.stands(key, sort),
        )

    def _elements(self, key: Key, option: inspect.Type, about: str, default: object) -> tuple[FormField, ...]:
        """A list's elements, those of its default where the text says nothing, and an empty one."""
        assert isinstance(option, (inspect.VarTupleType, inspect.ListType))
        present = self._value_at(key)
        unsaid = default if present is None and isinstance(default, (list, tuple)) else ()
        count = len(present) if isinstance(present, list) else len(unsaid)
        elements = [
            self._make_field(
                (*key, number), option.item_type, about=about, default=unsaid[number] if number < len(unsaid) else None
            )
            for number in range(count)
        ]
        new = self._make_field((*key, count), option.item_type, about=about)
        least = value_text(_least(option.item_type)) if new.kind in {"table", "list"} else None
        # One more `[[table]]` cannot be typed as a value: it is a copy of the last one.
        typed = self._places.get(key) is not None or self.lines.get(key) is None
        empty = msgspec.structs.replace(new, label="+ add", is_new=True, items=(), default=least, settable=typed)
        return (*elements, empty)

    def _free(self, key: Key, value: object) -> FormField:
        """A key of a table that may have any keys; it is what its value is."""
        sorts: dict[type, Kind] = {bool: "bool", int: "int", float: "float", str: "text", list: "list"}
        kind = sorts.get(type(value), "table")
        label = str(key[-1]).replace("_", " ")
        return FormField(key=dotted(key), label=label, help="One of its own keys.", kind=kind, **self.stands(key, kind))

    def _keys(self, key: Key, kind: inspect.Type) -> tuple[FormField, ...]:
        """The keys of a table within a list."""
        structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
        table = self._value_at(key)
        if not structs and isinstance(table, Mapping):
            return tuple(self._free((*key, name), value) for name, value in table.items())
        if not structs or not isinstance(key[-1], int) or not isinstance(table, Mapping):
            return ()
        struct = struct_for(table, kind)
        fields = []
        if structs[0].tag_field is not None and (len(structs) > 1 or structs[0].tag_field in table):
            fields.append(self.tag(key, structs))
        for field in struct.fields if struct is not None else ():
            assert struct is not None
            fields.append(self.of_struct((*key, field.encode_name), field, struct.cls, {}, required=True))
        return tuple(fields)


@lru_cache(maxsize=128)
def _orders(struct: type) -> dict[str, tuple[str, ...]]:
    """The choices of each key that has some, in the order of the type, which msgspec sorts."""
    orders = {}
    for name, hint in typing.get_type_hints(struct, include_extras=True).items():
        literal = next(filter(_is_literal, (hint, *typing.get_args(hint))), None)
        if literal is not None:
            orders[name] = tuple(map(str, typing.get_args(literal)))
    return orders


def _is_literal(hint: object) -> bool:
    return typing.get_origin(hint) is Literal


def spelt(value: object) -> str:
    """A value as a form shows it: text without quotes, the rest as TOML has it."""
    return value if isinstance(value, str) else value_text(msgspec.to_builtins(value))


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """The type of a key's value without what else it may be, and its unit."""
    unit = ""
    if isinstance(kind, inspect.Metadata):
        unit = str((kind.extra or {}).get("unit", ""))
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        inner = [_plain(part) for part in kind.types if not isinstance(part, inspect.NoneType)]
        kind, other = inner[0]
        unit = unit or other
    return kind, unit


def _least(kind: inspect.Type) -> object:
    """The least that a value can be: of a table, the keys that it needs."""
    option, _ = _plain(kind)
    if isinstance(option, inspect.StructType):
        tag: dict[str, object] = {option.tag_field: option.tag} if option.tag_field else {}
        return tag | {field.encode_name: _least(field.type) for field in option.fields if field.required}
    if isinstance(option, inspect.LiteralType):
        return option.values[0]
    if isinstance(option, (inspect.IntType, inspect.FloatType)):
        return max(int(option.ge or 0), int(option.gt or 0) + 1 if option.gt is not None else 0)
    if isinstance(option, inspect.BoolType):
        return False
    if isinstance(option, (inspect.VarTupleType, inspect.ListType)):
        return [_least(option.item_type)] if option.min_length else []
    return "" if isinstance(option, inspect.StrType) else {}


def kind_of(option: inspect.Type) -> Kind:
    """How a value is written."""
    if isinstance(option, inspect.LiteralType):
        return "choice"
    if isinstance(option, inspect.BoolType):
        return "bool"
    if isinstance(option, inspect.IntType):
        return "int"
    if isinstance(option, inspect.FloatType):
        return "float"
    if isinstance(option, (inspect.VarTupleType, inspect.ListType)):
        parts = options_of(option.item_type)
        deep = any(isinstance(part, (inspect.StructType, inspect.VarTupleType)) for part in parts)
        return "table" if deep else "list"
    return "text" if isinstance(option, inspect.StrType) else "table"


def _bounds(option: inspect.Type) -> dict[str, Any]:
    if not isinstance(option, (inspect.IntType, inspect.FloatType)):
        return {}
    low, high = (option.gt if option.ge is None else option.ge), (option.lt if option.le is None else option.le)
    return {
        "minimum": low,
        "maximum": high,
        "minimum_excluded": option.ge is None and option.gt is not None,
        "maximum_excluded": option.le is None and option.lt is not None,
    }


def form_of(text: str, folder: Path | None = None) -> tuple[FormGroup, ...]:
    """The form for the kinds of model and run that `text` says, with its values; lines that are no TOML are passed
    over.

    Args:
        text: TOML, right or not.
        folder: the preset's own, which a model's file (`model.config`) is looked for from.
    """
    return tuple(_Form(readable(text), folder).groups())


# What the reader of a model's file, `--image` and `--audio` fill; nobody types it, so it is offered only where it is.
FROM_FILES = {
    ("model", "tensors"), ("model", "caches"), ("model", "image_tokens"), ("model", "tower"), ("run", "image_tokens"),
    ("model", "audio_tower"), ("run", "audio_tokens"),
}  # fmt: skip


class _Form:
    def __init__(self, seen: Readable, folder: Path | None) -> None:
        self._seen = seen
        self._make = FieldMaker(seen)
        self._from_file = _model_from_file(seen.tables, folder)

    def groups(self) -> Iterator[FormGroup]:
        yield from self._table((), preset_type(), self._seen.tables, required=True)

    def _table(
        self, key: Key, kind: inspect.Type, present: object, *, required: bool, about: str = ""
    ) -> Iterator[FormGroup]:
        table = present if isinstance(present, Mapping) else {}
        known = self._from_file if key == ("model",) else {}
        structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
        struct = struct_for({**known, **table}, kind)
        fields: list[FormField] = []
        if structs[0].tag_field is not None and (len(structs) > 1 or structs[0].tag_field in table):
            default = str(struct.tag) if struct is not None and known else None
            fields.append(self._make.tag(key, structs, default=default, required=required))
        inner: list[FormGroup] = []
        helps = helps_of(struct.cls) if struct is not None else {}
        for field in struct.fields if struct is not None else ():
            whole = (*key, field.encode_name)
            if whole in FROM_FILES and field.encode_name not in table:
                continue
            if any(isinstance(option, inspect.StructType) for option in options_of(field.type)):
                value, help_text = table.get(field.encode_name), helps.get(field.encode_name, "")
                inner.extend(self._table(whole, field.type, value, required=field.required, about=help_text))
            elif struct is not None:
                needed = required or isinstance(present, Mapping)
                fields.append(self._make.of_struct(whole, field, struct.cls, known, required=needed))
        if key == ("model",) and "config" in table and all(field.key != "model.config" for field in fields):
            fields.append(self._file_field(key))
        title = str(key[-1]).replace("_", " ").capitalize() if key else "Preset"
        about = summary_of(struct.cls) if struct is not None else about
        line = self._make.lines.get(key) if key else None
        yield FormGroup(title=title, key=dotted(key), help=about, fields=tuple(fields), required=required, line=line)
        yield from inner

    def _file_field(self, key: Key) -> FormField:
        return FormField(
            key="model.config",
            label="config",
            help="The model's own file (config.json, *.safetensors or *.gguf), which says what is unsaid here.",
            kind="text",
            **self._make.stands((*key, "config"), "text"),
        )


def _model_from_file(tables: Mapping[str, object], folder: Path | None) -> dict[str, Any]:
    """What the file behind `model.config` says; empty without one, and where it cannot be read."""
    model = tables.get("model")
    if not isinstance(model, dict) or "config" not in model or model.get("kind") == "huggingface":
        return {}
    from vramtui.presets.model_config import filled  # noqa: PLC0415 - 7 ms that few presets need

    try:
        whole = filled({"model": {"config": model["config"]}}, folder)["model"]
    except UserError:
        return {}
    return dict(whole) if isinstance(whole, dict) else {}
