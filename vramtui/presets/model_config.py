"""`[model] config = "…"` in a preset: what the file says, under what the table says itself."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.text import printable
from vramtui.models.named_files import CONFIG, INDEX, SUFFIXES, WEIGHTS, Stamp, is_gguf, path_named, stamp_of
from vramtui.models.stores.local_models import find_model

KEY = "config"
# Most presets say the sizes of their models themselves.
gguf_table = late("vramtui.models.readers.model_folder:gguf_table")
read_gguf_header = late("vramtui.models.readers.model_folder:read_gguf_header")
read_hugging_face = late("vramtui.models.readers.model_folder:read_hugging_face")
with_weights = late("vramtui.models.readers.model_folder:with_weights")


def filled(tables: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """A preset's tables with `model.config` replaced by what that file says; a path is relative to `folder`, the
    preset's own (the working directory when None).

    Raises:
        UserError: the file cannot be read or is no model's; the sentence begins with the key.
    """
    model = tables.get("model")
    if isinstance(model, dict) and model.get("kind") == "torch":
        if folder is None or not isinstance(model.get("file"), str):
            return tables
        return tables | {"model": model | {"file": str((folder / path_named(model["file"])).resolve())}}
    if not isinstance(model, dict) or KEY not in model:
        return tables
    name = model[KEY]
    if not isinstance(name, str) or not name or "\0" in name:
        raise UserError(
            "model.config must be the path of a config.json, safetensors or GGUF file, or a model's name, in quotes"
        )
    try:
        config = find_model(name, folder=folder)
        described = _table((folder or Path()) / path_named(name) if config is None else config.path)
    except (UserError, RuntimeError) as error:
        raise UserError(f"model.config: {error}") from None
    own = {key: value for key, value in model.items() if key != KEY}
    if set(own) - {"kind", "parameters"} and "parameters" not in own:
        described.pop("parameters", None)
    if own.get("kind", described["kind"]) != described["kind"]:
        given = printable(repr(own["kind"]))[:40]
        raise UserError(f"model.kind is {given}, but model.config describes a model of kind {described['kind']!r}")
    return tables | {"model": described | own}


def _table(path: Path) -> dict[str, Any]:
    """What the file at `path` says; read once as long as it and the files beside it that count stay the same, since an
    editor asks at every keystroke and a GGUF header may be 10 MB.
    """
    counted = (folder / name for folder in (path, path.parent) for name in (CONFIG, WEIGHTS, INDEX))
    return dict(_read(path, tuple(map(stamp_of, (path, *counted)))))


@lru_cache(maxsize=8)
def _read(path: Path, _stamps: tuple[Stamp | None, ...]) -> dict[str, Any]:
    if is_gguf(path):
        return dict(gguf_table(path, read_gguf_header(path)))
    if path.suffix in SUFFIXES or path.is_dir():
        return dict(with_weights(*read_hugging_face(path)))
    raise UserError(f"{path.name} is none of config.json, *.safetensors, *.gguf or a folder with them")
