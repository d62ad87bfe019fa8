"""The form of a preset: its tables and keys as the core's types have them, with what a text says of each."""

import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from vramtui.core.errors import UserError
from vramtui.presets.edits import Readable, quoted, readable
from vramtui.presets.help_texts import helps_of, summary_of
from vramtui.presets.positions import key_lines
from vramtui.presets.schema import options_of, preset_type, struct_for

Kind: TypeAlias = Literal["int", "float", "bool", "choice", "text", "list", "table"]
Parts: TypeAlias = tuple[str, ...]


BEYOND = 1 << 40


class Field(msgspec.Struct, frozen=True, kw_only=True):
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
        settable: whether the form can change it; what stands as `[[tables]]` only the text can.
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
        """What a number may be, in words: `at least 1`; empty where it may be anything. Limits that only keep nonsense
        out are not told.
        """
        low = f"{'more than' if self.minimum_excluded else 'at least'} {_plainly(self.minimum)}"
        high = f"{'less than' if self.maximum_excluded else 'at most'} {_plainly(self.maximum)}"
        told = (low if self.minimum is not None else "", high if (self.maximum or BEYOND) < BEYOND else "")
        return ", ".join(filter(None, told))


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a preset.

    Attributes:
        title: for people: `Model`.
        key: dotted; empty for the keys above all tables.
        help: one sentence on the table.
        fields: in the order of the type; the one that chooses the kind first.
        required: whether a preset has to have it.
        line: where its header stands, from 1; None when the text has no such table.
    """

    title: str
    key: str
    help: str = ""
    fields: tuple[Field, ...]
    required: bool = False
    line: int | None = None


def form_of(text: str, folder: Path | None = None) -> tuple[Group, ...]:
    """The form for the kinds of model and run that `text` says, with its values; lines that are no TOML are passed
    over.

    Args:
        text: TOML, right or not.
        folder: the preset's own, which a model's file (`model.config`) is looked for from.
    """
    return tuple(_Form(readable(text), folder).groups())


def _plainly(bound: float | None) -> str:
    return f"{int(bound):,}" if bound is not None and bound == int(bound) else f"{bound}"


def fields_of(groups: tuple[Group, ...]) -> dict[str, Field]:
    """The fields of a form by their keys."""
    return {field.key: field for group in groups for field in group.fields}


class _Form:
    def __init__(self, seen: Readable, folder: Path | None) -> None:
        self._seen = seen
        self._lines = key_lines(seen.text)
        self._pairs = {pair.key: pair for pair in seen.layout.pairs}
        self._from_file = _model_from_file(seen.tables, folder)

    def groups(self) -> Iterator[Group]:
        yield from self._table((), preset_type(), self._seen.tables, required=True)

    def _table(
        self, key: Parts, kind: inspect.Type, said: object, *, required: bool, about: str = ""
    ) -> Iterator[Group]:
        table = said if isinstance(said, Mapping) else {}
        known = self._from_file if key == ("model",) else {}
        structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
        struct = struct_for({**known, **table}, kind)
        fields: list[Field] = []
        if structs[0].tag_field is not None and (len(structs) > 1 or structs[0].tag_field in table):
            fields.append(self._tag(key, structs, struct, known, required=required))
        inner: list[Group] = []
        helps = helps_of(struct.cls) if struct is not None else {}
        for field in struct.fields if struct is not None else ():
            whole = (*key, field.encode_name)
            value = table.get(field.encode_name)
            if any(isinstance(option, inspect.StructType) for option in options_of(field.type)):
                about = helps.get(field.encode_name, "")
                inner.extend(self._table(whole, field.type, value, required=field.required, about=about))
            else:
                needed = required or isinstance(said, Mapping)
                made = self._field(whole, field, helps.get(field.encode_name, ""), known, required=needed)
                order = _orders(struct.cls).get(field.name) if struct is not None else None
                fields.append(msgspec.structs.replace(made, choices=order) if order else made)
        if key == ("model",) and "config" in table and all(field.key != "model.config" for field in fields):
            fields.append(self._file_field(key))
        title = key[-1].replace("_", " ").capitalize() if key else "Preset"
        about = summary_of(struct.cls) if struct is not None else about
        line = self._lines.get(key) if key else None
        yield Group(title=title, key=".".join(key), help=about, fields=tuple(fields), required=required, line=line)
        yield from inner

    def _tag(
        self,
        key: Parts,
        structs: list[inspect.StructType],
        struct: inspect.StructType | None,
        known: Mapping[str, object],
        *,
        required: bool,
    ) -> Field:
        name = structs[0].tag_field or ""
        default = str(struct.tag) if struct is not None and known else None
        what = {"model": "model", "run": "run", "rule": "published rule", "draft": "model"}.get(key[-1], key[-1])
        return Field(
            key=".".join((*key, name)),
            label=name,
            help=f"Which kind of {what} it is; the other keys follow from it.",
            kind="choice",
            choices=tuple(str(option.tag) for option in structs),
            choice_helps=tuple(summary_of(option.cls) for option in structs),
            default=default,
            required=required and default is None,
            **self._stands((*key, name), "choice"),
        )

    def _field(
        self, key: Parts, field: inspect.Field, said_help: str, known: Mapping[str, object], *, required: bool
    ) -> Field:
        option, unit = _plain(field.type)
        kind = _kind_of(option)
        default = known.get(field.encode_name, None if field.required else field.default)
        return Field(
            key=".".join(key),
            label=key[-1].replace("_", " "),
            help=said_help,
            unit=unit,
            kind=kind,
            choices=tuple(map(str, option.values)) if isinstance(option, inspect.LiteralType) else (),
            default=None if default is None or default is msgspec.NODEFAULT else spelt(default),
            required=field.required and required and field.encode_name not in known,
            **_bounds(option),
            **self._stands(key, kind),
        )

    def _file_field(self, key: Parts) -> Field:
        return Field(
            key="model.config",
            label="config",
            help="The model's own file (config.json, *.safetensors or *.gguf), which says what is unsaid here.",
            kind="text",
            **self._stands((*key, "config"), "text"),
        )

    def _stands(self, key: Parts, kind: Kind) -> dict[str, Any]:
        """The fields `value`, `line` and `settable` of what stands at `key`."""
        pair, line = self._pairs.get(key), self._lines.get(key)
        if pair is None:
            there = line is not None
            return {"value": "[…]" if there else None, "line": line, "settable": not there}
        source = self._seen.text[pair.value_start : pair.value_end]
        if kind in {"text", "choice"}:
            value: object = self._seen.tables
            for part in key:
                value = value.get(part) if isinstance(value, Mapping) else None
            source = value if isinstance(value, str) else source
        return {"value": source, "line": line}


@lru_cache(maxsize=128)
def _orders(struct: type) -> dict[str, tuple[str, ...]]:
    """The choices of each key that has some, in the order of the type, which msgspec sorts."""
    found = {}
    for name, hint in typing.get_type_hints(struct, include_extras=True).items():
        literal = next(filter(_is_literal, (hint, *typing.get_args(hint))), None)
        if literal is not None:
            found[name] = tuple(map(str, typing.get_args(literal)))
    return found


def _is_literal(hint: object) -> bool:
    return typing.get_origin(hint) is Literal


def spelt(value: object) -> str:
    """A value as a form shows it: text without quotes, the rest as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(quoted(part) if isinstance(part, str) else spelt(part) for part in value) + "]"
    return str(value)


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


def _kind_of(option: inspect.Type) -> Kind:
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


def _model_from_file(tables: Mapping[str, object], folder: Path | None) -> dict[str, Any]:
    """What the file behind `model.config` says; empty without one, and where it cannot be read."""
    model = tables.get("model")
    if not isinstance(model, dict) or "config" not in model or model.get("kind") == "huggingface":
        return {}
    from vramtui.presets.model_files.filling import filled  # noqa: PLC0415 - 7 ms that few presets need

    try:
        whole = filled({"model": {"config": model["config"]}}, folder)["model"]
    except UserError:
        return {}
    return dict(whole) if isinstance(whole, dict) else {}
