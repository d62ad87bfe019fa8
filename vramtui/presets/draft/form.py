"""The form of a preset: tables and keys of the core's types, with help from docstrings and the values of a text."""

import inspect as python_inspect
import re
import typing
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.presets.schema import Key, dotted, options_of, preset_type, struct_for
from vramtui.presets.toml_text import key_lines, value_text

Kind: TypeAlias = Literal["int", "float", "bool", "choice", "text", "list", "table"]

BEYOND = 1 << 24  # limits from here on only keep nonsense out, and are not shown
WHAT = {"model": "model", "run": "run", "draft": "model"}
# Keys that are filled by the reader of a model's file, `--image` and `--audio`. They are shown only if they are set.
FROM_FILES = {
    ("model", "tensors"), ("model", "caches"), ("model", "image_tokens"), ("model", "tower"), ("run", "image_tokens"),
    ("model", "audio_tower"), ("run", "audio_tokens"),
}  # fmt: skip
CONFIG_HELP = "The model's own file (config.json, *.safetensors or *.gguf); its values are the defaults here."


class FormField(msgspec.Struct, frozen=True, kw_only=True):
    """One key of a preset.

    Attributes:
        key: dotted, as in TOML: `run.batch_size`; `label` is its last part in words.
        kind: how it is written. `table` is anything with keys of its own, written as TOML.
        choice_helps: a sentence for each choice, or empty.
        default: the value if nothing is set, written as `value`; None if there is none.
        required: whether a preset needs it.
        value: the value in the text as `Draft.set_value` takes it (text without quotes, other values as TOML), and
            `line` where it is in the text, from 1; None if it is not set.
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

        def plain(bound: float) -> str:
            return f"{int(bound):,}" if bound == int(bound) else f"{bound}"

        ends = []
        if self.minimum is not None:
            ends.append(f"{'more than' if self.minimum_excluded else 'at least'} {plain(self.minimum)}")
        if self.maximum and self.maximum < BEYOND:
            ends.append(f"{'less than' if self.maximum_excluded else 'at most'} {plain(self.maximum)}")
        return ", ".join(ends)


class FormGroup(msgspec.Struct, frozen=True, kw_only=True):
    """One table of a preset; the field that chooses the kind is the first. The key is empty for the keys above all
    tables, and `line` None if the text does not have the table.
    """

    title: str
    key: str
    help: str = ""
    fields: tuple[FormField, ...]
    required: bool = False
    line: int | None = None


def fields_of(groups: tuple[FormGroup, ...]) -> dict[str, FormField]:
    """Return the fields of a form by their keys."""
    return {field.key: field for group in groups for field in group.fields}


def form_of(text: str, folder: Path | None = None) -> tuple[FormGroup, ...]:
    """Return the form for the kinds of model and run in a text, with its values. A text that is not TOML has no values.
    Model files (`model.config`) are searched in `folder`.
    """
    try:
        tables = toml.loads(text)
    except (ValueError, RecursionError):
        text, tables = "", {}
    return tuple(_Form(text, tables, folder).table((), preset_type(), tables, required=True))


class _Form:
    __slots__ = ("_from_file", "_lines", "_source", "_tables")

    def __init__(self, text: str, tables: Mapping[str, Any], folder: Path | None) -> None:
        self._source = text.split("\n")
        self._tables = tables
        self._lines = key_lines(text)
        self._from_file = _model_from_file(tables, folder)

    def table(
        self, key: Key, kind: inspect.Type, present: object, *, required: bool, about: str = ""
    ) -> Iterator[FormGroup]:
        table = present if isinstance(present, Mapping) else {}
        known = self._from_file if key == ("model",) else {}
        structs = [option for option in options_of(kind) if isinstance(option, inspect.StructType)]
        struct = struct_for({**known, **table}, kind)
        fields: list[FormField] = []
        tag = structs[0].tag_field
        if tag is not None and (len(structs) > 1 or tag in table):
            default = str(struct.tag) if struct is not None and known else None
            field = FormField(
                key=dotted((*key, tag)),
                label=tag,
                help=f"Which kind of {WHAT.get(str(key[-1]), str(key[-1]))} it is; the other keys follow from it.",
                kind="choice",
                choices=tuple(str(option.tag) for option in structs),
                choice_helps=tuple(summary_of(option.cls) for option in structs),
                default=default,
                required=required and default is None,
                **self._value((*key, tag), "choice"),
            )
            fields.append(field)
        inner: list[FormGroup] = []
        helps = helps_of(struct.cls) if struct is not None else {}
        for option in struct.fields if struct is not None else ():
            whole = (*key, option.encode_name)
            if whole in FROM_FILES and option.encode_name not in table:
                continue
            if any(isinstance(part, inspect.StructType) for part in options_of(option.type)):
                value, help_text = table.get(option.encode_name), helps.get(option.encode_name, "")
                inner.extend(self.table(whole, option.type, value, required=option.required, about=help_text))
            elif struct is not None:
                needed = required or isinstance(present, Mapping)
                fields.append(self._field(whole, option, struct.cls, known, required=needed))
        if key == ("model",) and "config" in table and all(field.key != "model.config" for field in fields):
            value = self._value((*key, "config"), "text")
            fields.append(FormField(key="model.config", label="config", help=CONFIG_HELP, kind="text", **value))
        yield FormGroup(
            title=str(key[-1]).replace("_", " ").capitalize() if key else "Preset",
            key=dotted(key),
            help=summary_of(struct.cls) if struct is not None else about,
            fields=tuple(fields),
            required=required,
            line=self._lines.get(key) if key else None,
        )
        yield from inner

    def _field(
        self, key: Key, field: inspect.Field, struct: type, known: Mapping[str, object], *, required: bool
    ) -> FormField:
        """Return the field of one key of a Struct. `known` has the values of the model's file."""
        default = known.get(field.encode_name, None if field.required else field.default)
        option, unit = _plain(field.type)
        kind = _kind_of(option)
        choices = _choices(struct).get(field.name, ())
        if not choices and isinstance(option, inspect.LiteralType):
            choices = tuple(map(str, option.values))
        bounds: dict[str, Any] = {}
        if isinstance(option, (inspect.IntType, inspect.FloatType)):
            bounds["minimum"] = option.gt if option.ge is None else option.ge
            bounds["maximum"] = option.lt if option.le is None else option.le
            bounds["minimum_excluded"] = option.ge is None and option.gt is not None
            bounds["maximum_excluded"] = option.le is None and option.lt is not None
        words = choice_words().get(field.encode_name, {})
        return FormField(
            key=dotted(key),
            label=str(key[-1]).replace("_", " "),
            help=helps_of(struct).get(field.encode_name, ""),
            unit=unit,
            kind=kind,
            choices=choices,
            choice_helps=tuple(words[choice] for choice in choices) if set(choices) <= set(words) else (),
            default=None if default is None or default is msgspec.NODEFAULT else spelt(default),
            required=field.required and required and field.encode_name not in known,
            **bounds,
            **self._value(key, kind),
        )

    def _value(self, key: Key, kind: Kind) -> dict[str, Any]:
        """Return the value of a key, its line, and whether it can be typed as one value. Text over lines cannot,
        nor can lists with comments between their lines or `[[tables]]`.
        """
        line = self._lines.get(key)
        if line is None:
            return {}
        value: Any = self._tables
        for part in key:
            value = value[part]
        last = max(number for whole, number in self._lines.items() if whole[: len(key)] == key)
        has_comments = last > line and "#" in "".join(self._source[line - 1 : last])
        is_header = self._source[line - 1].lstrip().startswith("[")
        spans_lines = isinstance(value, str) and "\n" in value
        text = spelt(value) if kind in {"text", "choice"} else value_text(value)
        return {"value": text, "line": line, "settable": not (has_comments or is_header or spans_lines)}


def spelt(value: object) -> str:
    """Return a value as the form shows it: text without quotes, other values as TOML."""
    return value if isinstance(value, str) else value_text(msgspec.to_builtins(value))


@lru_cache(maxsize=128)
def _choices(struct: type) -> dict[str, tuple[str, ...]]:
    """Return the choices of each key in the order of its type. msgspec sorts them."""
    orders: dict[str, tuple[str, ...]] = {}
    for name, hint in typing.get_type_hints(struct, include_extras=True).items():
        for part in (hint, *typing.get_args(hint)):
            if typing.get_origin(part) is Literal:
                orders.setdefault(name, tuple(map(str, typing.get_args(part))))
    return orders


def _plain(kind: inspect.Type) -> tuple[inspect.Type, str]:
    """Return a type without its other options, and its unit."""
    unit = ""
    if isinstance(kind, inspect.Metadata):
        unit = str((kind.extra or {}).get("unit", ""))
        kind = kind.type
    if isinstance(kind, inspect.UnionType):
        kind, other = next(_plain(part) for part in kind.types if not isinstance(part, inspect.NoneType))
        unit = unit or other
    return kind, unit


def _kind_of(option: inspect.Type) -> Kind:
    """Return how values of a type are written."""
    kinds: tuple[tuple[type[inspect.Type], Kind], ...] = (
        (inspect.LiteralType, "choice"),
        (inspect.BoolType, "bool"),
        (inspect.IntType, "int"),
        (inspect.FloatType, "float"),
        (inspect.StrType, "text"),
    )
    if isinstance(option, (inspect.VarTupleType, inspect.ListType)):
        parts = options_of(option.item_type)
        return "table" if any(isinstance(p, (inspect.StructType, inspect.VarTupleType)) for p in parts) else "list"
    return next((name for kind, name in kinds if isinstance(option, kind)), "table")


def _model_from_file(tables: Mapping[str, object], folder: Path | None) -> dict[str, Any]:
    """Return the values of the file in `model.config`; empty if there is none or it cannot be read."""
    model = tables.get("model")
    if not isinstance(model, dict) or "config" not in model or model.get("kind") == "huggingface":
        return {}
    from vramtui.presets.model_presets import filled  # noqa: PLC0415 - 7 ms that few presets need

    try:
        whole = filled({"model": {"config": model["config"]}}, folder)["model"]
    except UserError:
        return {}
    return dict(whole) if isinstance(whole, dict) else {}


_ENTRY = re.compile(r"^    (?! )(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)
_ENDS = re.compile(r"(?<=[.])(?<!al[.]) (?=[A-Z`])")
_NAMED = re.compile(r"`(\w+)`")


@lru_cache(maxsize=128)
def helps_of(struct: type) -> dict[str, str]:
    """Return the help of each key in the docstring of `struct`: its entry under "Attributes", or the sentence that
    names it in backquotes.
    """
    head, _, rest = (python_inspect.getdoc(struct) or "").partition("Attributes:\n")
    helps: dict[str, str] = {}
    for name, text in _ENTRY.findall(rest):
        helps[name] = _sentence(text)
        for part in " ".join(text.split()).split("; ")[1:]:
            for other in _NAMED.findall(part):
                helps.setdefault(other, _sentence(part))
    for sentence in _ENDS.split(" ".join(head.split())):
        for other in _NAMED.findall(sentence):
            helps.setdefault(other, _sentence(sentence))
    return helps


@lru_cache(maxsize=128)
def summary_of(struct: type) -> str:
    """Return the first sentence of a docstring."""
    return _sentence(_ENDS.split(" ".join((python_inspect.getdoc(struct) or "").split()))[0])


@lru_cache(1)
def choice_words() -> Mapping[str, Mapping[str, str]]:
    """Return the help of each choice, by key and choice. A table of the file may serve several keys."""
    words: dict[str, dict[str, str]] = {}
    text = Path(__file__).with_name("choice_helps.toml").read_text(encoding="utf-8")
    for names, table in toml.loads(text).items():
        for name in names.split():
            words.setdefault(name, {}).update(table)
    return words


def _sentence(text: str) -> str:
    text = " ".join(text.split()).rstrip(".;")
    return f"{text[:1].upper()}{text[1:]}." if text else ""
