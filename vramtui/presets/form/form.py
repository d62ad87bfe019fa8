"""The form of a preset: its tables and keys as the core's types have them, with what a text says of each."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import inspect

from vramtui.core.base.errors import UserError
from vramtui.presets.form.fields import FieldMaker
from vramtui.presets.form.help_texts import helps_of, summary_of
from vramtui.presets.form.types import FormField, FormGroup
from vramtui.presets.schema import dotted, options_of, preset_type, struct_for
from vramtui.presets.toml.edits import Readable, readable
from vramtui.presets.toml.positions import Key


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
        self, key: Key, kind: inspect.Type, said: object, *, required: bool, about: str = ""
    ) -> Iterator[FormGroup]:
        table = said if isinstance(said, Mapping) else {}
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
                value, told = table.get(field.encode_name), helps.get(field.encode_name, "")
                inner.extend(self._table(whole, field.type, value, required=field.required, about=told))
            elif struct is not None:
                needed = required or isinstance(said, Mapping)
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
