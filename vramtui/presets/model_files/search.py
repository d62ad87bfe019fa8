"""Which model a path means: a file, or a folder with a model's files."""

from pathlib import Path

from vramtui.core.base.errors import UserError
from vramtui.presets.model_files.bounded import Damaged, shown
from vramtui.presets.model_files.config import ConfigFile, read_config
from vramtui.presets.model_files.diffusers import INDEX as PIPELINE
from vramtui.presets.model_files.gguf import read_gguf
from vramtui.presets.model_files.gguf_model import GgufHeader
from vramtui.presets.model_files.safetensors import CheckpointWeights, read_index, read_safetensors

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
SUFFIXES = (".json", ".safetensors", ".gguf")
# By safetensors' name of the type that most numbers have.
PRECISIONS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file of a known architecture.

    Raises:
        UserError: it cannot be read, is damaged, or holds something else.
    """
    file = read_gguf(path)
    try:
        return GgufHeader(file)
    except Damaged as error:
        raise UserError(f"{shown(path)} {error}") from None


def gguf_table(path: Path, header: GgufHeader) -> dict[str, object]:
    """The `[model]` table of a GGUF file.

    Raises:
        UserError: a size is missing.
    """
    try:
        return header.model()
    except Damaged as error:
        raise UserError(f"{shown(path)} {error}") from None


def read_hugging_face(path: Path) -> tuple[ConfigFile, CheckpointWeights | None]:
    """A config, and the weights beside it where they are there; `path` is any of these files or their folder.

    Raises:
        UserError: one of them cannot be read, or weights have no config beside them.
    """
    if path.is_dir():
        path = path / folder_index(path)
    if path.suffix == ".safetensors":
        return _beside(path), read_safetensors(path)
    if path.name.endswith(".safetensors.index.json"):
        return _beside(path), read_index(path)
    config = read_config(path)
    for name, read in ((WEIGHTS, read_safetensors), (INDEX, read_index)):
        if path.name == CONFIG and path.with_name(name).is_file():
            return config, read(path.with_name(name))
    return config, None


def folder_index(folder: Path) -> str:
    """The name of the file that says what is in a folder: its config, or a pipeline's index."""
    return PIPELINE if not (folder / CONFIG).exists() and (folder / PIPELINE).is_file() else CONFIG


def _beside(path: Path) -> ConfigFile:
    config = path.with_name(CONFIG)
    if not config.is_file():
        weights = read_safetensors(path) if path.suffix == ".safetensors" else read_index(path)
        raise UserError(
            f"{shown(path)} holds {weights.parameters:,} numbers, mostly {weights.main_type or 'nothing'}, but not how "
            f"they are used: put the model's config.json beside it"
        )
    return read_config(config)


def with_weights(config: ConfigFile, weights: CheckpointWeights | None) -> dict[str, object]:
    """The `[model]` table, with the exact count of parameters where the weights tell it."""
    if weights is None or not weights.exact or config.partial:
        return config.model
    return config.model | {"parameters": weights.parameters}
