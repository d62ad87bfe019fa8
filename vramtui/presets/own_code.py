"""Models that are someone's own code, or of a library: where their files are, seen from the preset. Nothing runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import CONFIG
from vramtui.models.named_files import path_named
from vramtui.models.readers.bounded import decode_object, path_text, read_plain


def with_files_found(tables: dict[str, Any], folder: Path | None) -> dict[str, Any]:
    """A preset's tables with `model.file` as a whole path, and a Hugging Face `model.config` as its JSON.

    Raises:
        UserError: the config cannot be read or names no `model_type`; the sentence begins with the key.
    """
    model = tables.get("model")
    if not isinstance(model, dict):
        return tables
    if model.get("kind") == "torch" and isinstance(model.get("file"), str) and folder is not None:
        path = (folder / path_named(model["file"])).resolve()
        return tables | {"model": model | {"file": str(path)}}
    if model.get("kind") == "huggingface" and "config" in model:
        return tables | {"model": model | {"config": _config(model["config"], folder)}}
    return tables


def _config(given: object, folder: Path | None) -> str:
    if isinstance(given, str):
        if given.lstrip().startswith("{"):
            said = _decoded(given.encode(), "model.config")
        else:
            path = (folder or Path()) / path_named(given)
            said = _decoded(_content(path), f"model.config: {path_text(path)}")
    elif isinstance(given, Mapping):
        said = dict(given)
    else:
        raise UserError("model.config must be the path of a config.json, or a table with its keys")
    if not isinstance(said.get("model_type"), str):
        raise UserError("model.config names no model_type, which tells transformers what to build")
    return msgspec.json.encode(said, order="sorted").decode()


def _content(path: Path) -> bytes:
    try:
        return read_plain(path / "config.json" if path.is_dir() else path, CONFIG)
    except UserError as error:
        raise UserError(f"model.config: {error}") from None


def _decoded(content: bytes, name: str) -> dict[str, Any]:
    values = decode_object(content)
    if values is None:
        raise UserError(f"{name} is no config.json: it is not a JSON object")
    return values
