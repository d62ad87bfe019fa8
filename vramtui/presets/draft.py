"""New presets, and one that is being edited: its text, its form, undo, and its file."""

import difflib
import inspect as python_inspect
import os
import re
import shlex
import shutil
import subprocess
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import inspect

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import Preset, PresetFile, explicit_values
from vramtui.core.schema.workload import Workload
from vramtui.models.named_files import Stamp, path_named, stamp_of
from vramtui.models.stores.local_models import find_model
from vramtui.presets import bundled_folder, config_dir
from vramtui.presets.importers.flags import whole
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import filled, preset_of
from vramtui.presets.named_presets import preset_named
from vramtui.presets.overrides import apply_overrides
from vramtui.presets.reader import OpenedFile, Parsed, PresetProblem, display_path, is_written, open_text, parse_preset
from vramtui.presets.schema import Key, dotted, find_faults, options_of, preset_type, short, struct_for
from vramtui.presets.toml_text import keep_line_ends, key_lines, same_ends, set_values, value_text
from vramtui.presets.whole_files import NotDurableError, write_preset_text

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
        self._from_file: Mapping[str, Any] = {}  # values of the file in `model.config`, if it can be read
        model = tables.get("model")
        if isinstance(model, dict) and "config" in model and model.get("kind") != "huggingface":
            with suppress(UserError):
                self._from_file = filled({"model": {"config": model["config"]}}, folder)["model"]

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
        kinds: tuple[tuple[type[inspect.Type], Kind], ...] = (
            (inspect.LiteralType, "choice"),
            (inspect.BoolType, "bool"),
            (inspect.IntType, "int"),
            (inspect.FloatType, "float"),
            (inspect.StrType, "text"),
        )
        kind: Kind = next((name for written, name in kinds if isinstance(option, written)), "table")
        if isinstance(option, (inspect.VarTupleType, inspect.ListType)):
            parts = options_of(option.item_type)
            has_tables = any(isinstance(part, (inspect.StructType, inspect.VarTupleType)) for part in parts)
            kind = "table" if has_tables else "list"
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


TryOut: TypeAlias = Callable[[Preset], object]

MOST_STEPS = 1000
EDITORS = ("nano", "vi")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
NEEDED = {
    "int": "a whole number is needed",
    "float": "a number is needed",
    "bool": "true or false is needed",
    "list": "a list is needed, as in [1, 2]",
    "table": "TOML is needed, in brackets",
}
_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._]+")
_SIZE = re.compile(r"(\w+) (\d\S*)")


class NameTakenError(UserError):
    """Another file has this name. Ask for another name, or save with `replace`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{display_path(path)} exists already; choose another name")
        self.path = path


class ChangedOnDiskError(UserError):
    """Another program changed the file. Show the difference, then `take_disk`, `keep_mine`, or save with `replace`."""

    def __init__(self, path: Path) -> None:
        super().__init__(f"{display_path(path)} was changed by another program since it was opened")
        self.path = path


class Draft:
    """One preset while it is edited. Only `save`, `rename` and `delete` change files; a bundled preset is saved into
    the user's own folder. `try_out` is another check of each valid preset; it raises UserError with a sentence that
    begins with the key it is about.

    Attributes:
        preset: the last valid preset of the text; None if there has been none.
        is_current: whether `preset` is what the text says now.
        folder: where model files of the preset are searched.
    """

    __slots__ = (
        "_done", "_first_text", "_form", "_mark", "_place", "_problems", "_readable", "_refused", "_stamp", "_try_out",
        "_undone", "brought", "bundled", "folder", "is_current", "name", "path", "preset", "saved_text", "text",
    )  # fmt: skip

    def __init__(
        self, text: str, name: str, *, path: Path | None = None, bundled: bool = False, try_out: TryOut | None = None
    ) -> None:
        self.text, self.name, self.path, self.bundled = text, name, path, bundled
        self.folder = path.parent if path is not None else None
        self.saved_text = text if path is not None else ""
        self.preset: Preset | None = None
        self.is_current = False
        self._first_text = text
        self.brought = ""  # the text with a running job's values: it is not asked about
        self._mark = ""
        self._stamp: Stamp | None = None
        self._try_out = try_out
        self._problems: tuple[PresetProblem, ...] = ()
        self._refused: dict[str, tuple[str, PresetProblem]] = {}
        # The last text that was TOML, which the form shows, and the form of it.
        self._readable = ""
        self._form: tuple[FormGroup, ...] | None = None
        # Texts before and after this one; changes in the same place are one step.
        self._done: list[str] = []
        self._undone: list[str] = []
        self._place = ""
        self._read()

    @classmethod
    def open(cls, preset_file: PresetFile, *, try_out: TryOut | None = None) -> "Draft":
        """Edit a preset that was found. A preset that was made from a model's file becomes a new draft. Raises
        UserError if the file cannot be read.
        """
        if not is_written(preset_file):
            name = name_for(preset_file.preset.name if preset_file.derived else preset_file.key)
            return cls(as_toml(preset_file.preset), name, try_out=try_out)
        return cls.at(Path(preset_file.path), bundled=preset_file.bundled, try_out=try_out)

    @classmethod
    def at(cls, path: Path, *, bundled: bool = False, try_out: TryOut | None = None) -> "Draft":
        """Edit the file at `path`, which may be wrong; raises UserError if the file cannot be read."""
        opened = open_text(path)
        bundled = bundled or path.resolve().is_relative_to(bundled_folder().resolve())
        draft = cls(opened.text, path.stem, path=path, bundled=bundled, try_out=try_out)
        draft._mark, draft._stamp = opened.mark, opened.stamp
        return draft

    @property
    def problems(self) -> tuple[PresetProblem, ...]:
        """Return all errors in the order of lines, then what was typed into the form and refused."""
        left = (problem for problem in self._problems if problem.key not in self._refused)
        return (*left, *(problem for _, problem in self._refused.values()))

    @property
    def refused(self) -> dict[str, str]:
        return {key: raw for key, (raw, _) in self._refused.items()}

    @property
    def form(self) -> tuple[FormGroup, ...]:
        """Return the form of the text, or of the last text that was TOML."""
        if self._form is None:
            self._form = form_of(self._readable, self.folder)
        return self._form

    @property
    def is_changed(self) -> bool:
        return self.text != self.saved_text or self.path is None

    @property
    def is_unsaved(self) -> bool:
        """Return whether closing it would lose anything, also what was typed and refused."""
        return (self.is_changed and self.text != self.brought) or bool(self._refused)

    def set_text(self, text: str) -> None:
        """Take the text of the text view. Line ends stay as they were in lines that did not change."""
        after = keep_line_ends(self.text, text)
        if after != self.text:
            self._refused.clear()
            old, new = self.text.split("\n"), after.split("\n")
            top, below = same_ends(old, new)
            in_one_line = len(old) == len(new) == top + below + 1
            self._become(after, f"line {top + 1}" if in_one_line else "")

    def set_value(self, key: str, raw: str) -> None:
        """Take what was typed into the form for a dotted key. If it cannot be in TOML, or is a number beyond limits,
        the text before it stays and `problems` has the reason; anything else goes into the text, even if it is wrong.
        """
        field, text, wrong = fields_of(self.form).get(key), self.text, ""
        try:
            if (item := self._item(key, field, raw)) is not None:
                text = set_values(self.text, {key: item})
                faults = find_faults(toml.loads(text)) if field and field.kind in {"int", "float"} else ()
                wrong = next((fault.sentence for fault in faults if dotted(fault.key) == key), "")
        except UserError as error:
            wrong = str(error)
        if wrong:
            if self._place == key and self._done:
                self.text, self._place = self._done.pop(), ""
                self._read()
            self._refused[key] = raw, PresetProblem(field.line if field else None, key, wrong)
            return
        self._refused.pop(key, None)
        self._become(text, key)

    def _item(self, key: str, field: FormField | None, raw: str) -> object:
        """Return the TOML value for `raw`; None if the text has that value already."""
        import tomlkit  # noqa: PLC0415 - 9 ms that only writing pays
        from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - comes with it

        if field is None:
            raise UserError(f"{printable(key)} is not a key of this preset")
        if raw == (field.value or "") and (raw or field.kind != "text"):
            return None
        if self._readable != self.text:
            line = self._problems[0].line if self._problems else None
            raise UserError(f"line {line} of the text is not valid TOML; correct it there first (F6)")
        if not field.settable:
            raise UserError(f"{key} spans several lines; change it in the text (F6)")
        if field.kind in {"text", "choice"}:
            return int(raw) if raw in field.choices and raw.isdecimal() else raw
        typed = raw.strip()
        if field.kind == "int" and not _is_value(typed):
            typed = whole(typed) or typed  # 32k, 1M, 32,768
        if field.kind == "list" and typed[:1] != "[":
            parts = [part.strip() for part in typed.split(",")]
            typed = "[" + ", ".join(part if _is_value(part) else value_text(part) for part in parts if part) + "]"
        if not typed:
            raise UserError(f"{key} is empty; {NEEDED[field.kind]}")
        if not _is_value(typed) or ("\n" in typed and field.kind not in {"list", "table"}):
            raise UserError(f"{key} is '{short(typed)}'; {NEEDED[field.kind]}")
        try:
            item = tomlkit.value(typed)
        except (TOMLKitError, ValueError):
            raise UserError(f"{key} cannot be '{short(typed)}'; {NEEDED[field.kind]}") from None
        return None if field.value is not None and value_text(item.unwrap()) == field.value else item

    def unset(self, key: str) -> None:
        """Remove a dotted key or a whole table from the text. Nothing happens while the text is not TOML."""
        self._refused.pop(key, None)
        self._change({key: None})

    def drop_unknown(self) -> tuple[str, ...]:
        """Remove the keys that the chosen kinds of model and run do not have, as one step. Return them."""
        keys = [fault.key for fault in find_faults(toml.loads(self._readable)) if fault.unknown]
        names = tuple(dotted(key) for key in keys if all(isinstance(part, str) for part in key))
        self._change(dict.fromkeys(names))
        return names

    def _change(self, values: dict[str, None]) -> None:
        if self._readable == self.text:
            self._become(set_values(self.text, values))

    def end_step(self) -> None:
        """Make the next change a step of its own."""
        self._place = ""

    def replace_text(self, text: str) -> None:
        """Take another text as one step."""
        self._refused.clear()
        self._become(text)

    def revert(self) -> None:
        """Return to the saved text, or to the first text of a new preset, as one step."""
        self.replace_text(self._first_text if self.path is None else self.saved_text)

    def undo(self) -> bool:
        """Undo the last step; return whether there was one. What was typed and refused goes first."""
        self._place = ""
        if self._refused:
            self._refused.clear()
            return True
        if not self._done:
            return False
        self._undone.append(self.text)
        self.text = self._done.pop()
        self._read()
        return True

    def redo(self) -> bool:
        self._refused.clear()
        self._place = ""
        if not self._undone:
            return False
        self._done.append(self.text)
        self.text = self._undone.pop()
        self._read()
        return True

    def _become(self, text: str, place: str = "") -> None:
        if text == self.text:
            return
        self._undone.clear()
        if not place or place != self._place:
            self._done.append(self.text)
            del self._done[:-MOST_STEPS]
        elif self._done and self._done[-1] == text:
            self._done.pop()
            place = ""
        self.text, self._place = text, place
        self._read()

    def _read(self) -> None:
        parsed = Parsed(self.text, self.folder)
        if parsed.preset is not None and self._try_out is not None:
            parsed.go_through(self._try_out)
        self._problems = parsed.problems
        self.is_current = parsed.preset is not None and not parsed.problems
        if self.is_current:
            self.preset = parsed.preset
        if parsed.is_toml:
            self._readable, self._form = self.text, None

    def difference(self) -> str:
        """Return a unified difference from the saved text; empty if nothing changed."""
        return difference_between(self.saved_text, self.text, "saved", "draft")

    def save(self, *, replace: bool = False) -> Path:
        """Write the text, whole or not at all, and return its path. A new or bundled preset goes to the user folder.

        Args:
            replace: also over another file, and over changes of another program.

        Raises:
            NameTakenError: another file is there.
            ChangedOnDiskError: another program changed its file.
            NotDurableError: it is saved, but may not survive a power cut.
            UserError: the text is not a preset, something typed was refused, or it cannot be written; the sentence
                says which text the file has.
        """
        for _, problem in self._refused.values():
            raise UserError(problem.sentence)
        target = self._place_of(self.name) if self.path is None or self.bundled else self.path
        same = self.path is not None and target.resolve() == self.path.resolve()
        if not same and not replace and (target.exists() or target.is_symlink()):
            raise NameTakenError(target)
        if same and not replace and self.changed_on_disk():
            raise ChangedOnDiskError(target)
        try:
            write_preset_text(target, self._mark + self.text)
        except NotDurableError:
            self._saved_at(target)
            raise
        self._saved_at(target)
        return target

    def _saved_at(self, target: Path) -> None:
        self.path, self.bundled, self.name, self.folder = target, False, target.stem, target.parent
        self.saved_text, self._stamp = self.text, stamp_of(target)
        self._place = ""
        self._read()

    def rename(self, name: str) -> None:
        """Give the preset another name, and its file if it has one of its own. Raises NameTakenError if another file
        has the name, and UserError if a file cannot have the name, or its file cannot be renamed.
        """
        own = self.path if not self.bundled else None
        target = self._place_of(name) if own is None else own.with_name(f"{checked_name(name)}.toml")
        if target == self.path or name == self.name:
            return
        if target.exists() or target.is_symlink():
            raise NameTakenError(target)
        if own is not None:
            try:
                own.rename(target)
            except OSError as error:
                raise UserError(f"{display_path(own)} cannot be renamed: {error.strerror}") from None
            self.path, self._stamp = target, stamp_of(target)
        self.name = name

    def delete(self) -> None:
        """Delete the file. The text stays, as that of a new preset. Raises UserError if the preset is bundled, or the
        file cannot be deleted.
        """
        if self.bundled:
            raise UserError(f"{printable(self.name)} is a bundled preset and cannot be deleted")
        if self.path is not None:
            try:
                self.path.unlink(missing_ok=True)
            except OSError as error:
                raise UserError(f"{display_path(self.path)} cannot be deleted: {error.strerror}") from None
        self.path, self.saved_text, self._stamp = None, "", None
        self._first_text = self.text

    def changed_on_disk(self) -> bool:
        """Return whether another program changed or deleted the file. One stat if nothing changed."""
        if self.path is None:
            return False
        stamp = stamp_of(self.path)
        if stamp == self._stamp:
            return False
        if self.disk_text == self.saved_text:
            self._stamp = stamp
            return False
        return True

    @property
    def disk_text(self) -> str | None:
        """Return the text of the file now; None if it cannot be read."""
        opened = self._opened()
        return opened.text if opened is not None else None

    def take_disk(self) -> None:
        """Take the text of the file as one step."""
        opened = self._opened()
        if opened is not None:
            self.saved_text, self._mark, self._stamp = opened.text, opened.mark, opened.stamp
            self.replace_text(opened.text)

    def keep_mine(self) -> None:
        """Keep the text; the difference is from the file's text now, and `save` replaces it."""
        opened = self._opened()
        self.saved_text = opened.text if opened is not None else ""
        self._stamp = opened.stamp if opened is not None else None

    def _opened(self) -> OpenedFile | None:
        with suppress(UserError):
            return open_text(self.path) if self.path is not None else None
        return None

    def _place_of(self, name: str) -> Path:
        return config_dir() / "presets" / f"{checked_name(name)}.toml"


def _is_value(raw: str) -> bool:
    """Return whether `raw` is one TOML value, without a comment or another line behind it."""
    try:
        return set(toml.loads(f"v = {raw}")) == {"v"} == set(toml.loads(f"v = [{raw}]"))
    except (ValueError, RecursionError):
        return False


def difference_between(before: str, after: str, before_name: str, after_name: str) -> str:
    """Return a unified difference of two texts; empty if they are the same."""
    lines = difflib.unified_diff(_LINE.findall(before), _LINE.findall(after), before_name, after_name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def name_for(title: str) -> str:
    name = "".join(c if c.isascii() and (c.isalnum() or c in "._-") else "-" for c in title).strip("-._")
    return name[:100] or "model"


def draft_from_model(name: str, *, try_out: TryOut | None = None) -> Draft:
    """Return a new draft from a model's file, a folder with one, or a name in a local store; UserError if it fails."""
    model = find_model(name)
    preset = preset_of(path_named(name)) if model is None else preset_of(model.path, model.name)
    return Draft(as_toml(preset), name_for(preset.name), try_out=try_out)


def draft_copy(preset_file: PresetFile, name: str, *, try_out: TryOut | None = None) -> Draft:
    """Return a new draft with the text of a preset, comments included; UserError as `checked_name`."""
    return Draft(text_of(preset_file), checked_name(name), try_out=try_out)


def proposed_name(preset_file: PresetFile, how: str) -> str:
    """Return a file name for a variant: the preset's name and what was varied."""
    parts = (_SIZE.sub(r"\1\2", part) if _SIZE.fullmatch(part) else part for part in how.replace(",", "").split(" · "))
    return _NOT_IN_NAMES.sub("-", "-".join((preset_file.key, *parts))).strip("-._")[:100]


def save_variant(preset_file: PresetFile, workload: Workload, name: str, how: str) -> PresetFile:
    """Write `workload` under `name` into the user's own folder, as the file of `preset_file` with other values.

    Its `[measured]` and `[match]` are left out: they are about the old preset. Raises UserError if the name is taken,
    the old file cannot be read, or the new one cannot be written.
    """
    values = {
        "name": f"{preset_file.preset.name} · {how}",
        "measured": None,
        "match": None,
        **differences(preset_file.preset.workload, workload),
    }
    text = set_values(draft_copy(preset_file, name).text, values)
    saved = Draft(text, name)
    if parse_preset(text, Path(preset_file.path)).workload != workload:
        raise UserError(
            f"{printable(preset_file.key)} cannot be saved with these values: its file writes them in another way"
        )
    try:
        path = saved.save()
    except NotDurableError:
        path = saved.path or Path(name)
    return PresetFile(key=path.stem, path=str(path), bundled=False, preset=parse_preset(text, path))


def differences(before: object, after: msgspec.Struct) -> dict[str, Any]:
    """Return the dotted keys whose values differ, with those of `after`; None removes one."""
    changed: dict[str, Any] = {}
    for field in msgspec.structs.fields(after):
        old, new = getattr(before, field.name, None), getattr(after, field.name)
        if old == new and type(old) is type(new):
            continue
        name = field.encode_name
        if isinstance(new, msgspec.Struct):
            alike = isinstance(old, msgspec.Struct) and type(old) is type(new)
            inner = (
                differences(old, new)
                if alike
                else {
                    part.encode_name: msgspec.to_builtins(getattr(new, part.name))
                    for part in msgspec.structs.fields(new)
                    if part.required or getattr(new, part.name) != part.default
                }
            )
            changed |= {f"{name}.{key}": value for key, value in inner.items()}
        else:
            changed[name] = msgspec.to_builtins(new)
    return changed


def create_preset(
    library: PresetLibrary, name: str, source: str, *, settings: Sequence[str] = (), hub: bool = False
) -> Path:
    """Write a preset from a model or another preset into the library's own folder. Without settings, the text is copied
    with its comments. `hub` allows the network to find the model. Raises UserError if a file cannot have the name, it
    is taken, the source cannot be read, or a setting is wrong.
    """
    checked_name(name)
    path = library.user_folder / f"{name}.toml"
    if path.exists() or path.is_symlink():
        raise UserError(f"{display_path(path)} exists already; choose another name")
    if name in set(library.keys()):
        raise UserError(f"a preset is called {name!r} already; choose another name")
    preset_file = preset_named(source, library, hub=hub)
    write_preset_text(
        path, as_toml(apply_overrides(preset_file.preset, settings)) if settings else text_of(preset_file)
    )
    return path


def checked_name(name: str) -> str:
    """Return `name` if a preset's file may have it; raises UserError if a file cannot have it."""
    if not NAME.fullmatch(name):
        raise UserError(f"{printable(repr(name[:60]))} is not a valid preset name: use letters, digits and .-_")
    return name


def text_of(preset_file: PresetFile) -> str:
    """Return a preset's text as it is in its file, or would be for a preset made from a model. Raises UserError if the
    file cannot be read.
    """
    return open_text(Path(preset_file.path)).text if is_written(preset_file) else as_toml(preset_file.preset)


def as_toml(preset: msgspec.Struct) -> str:
    """Return the TOML text of a preset, without default values."""
    import tomlkit  # noqa: PLC0415 - 9 ms that only writing pays

    return tomlkit.dumps(explicit_values(preset))


def run_editor(path: Path) -> None:
    """Open `path` in `$VISUAL`, `$EDITOR` or the first usual editor that is installed, and wait for its end. Raises
    UserError if it cannot be started, or it failed.
    """
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or ""
    try:
        command = shlex.split(chosen)
    except ValueError:
        command = [chosen]
    command = command or [next((name for name in EDITORS if shutil.which(name)), EDITORS[-1])]
    name = printable(command[0])
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode  # noqa: S603 - the user's own editor
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"{name} cannot be started: {reason.lower()}") from None
    if code:
        raise UserError(f"{name} ended with {code}")
