"""Which model a path means: a file, or a folder with a model's files; and a decoder from the names and shapes of its
tensors alone, as a checkpoint lists them.
"""

import re
from math import prod
from pathlib import Path
from typing import Any

from vramtui.core.base.errors import UserError
from vramtui.models.named_files import CONFIG, INDEX, WEIGHTS
from vramtui.models.readers.bounded import DamagedError, path_text
from vramtui.models.readers.config_json import ConfigFile, read_config, what_answers
from vramtui.models.readers.diffusers.denoisers import INDEX as PIPELINE
from vramtui.models.readers.gguf import read_gguf
from vramtui.models.readers.gguf_model import GgufHeader
from vramtui.models.readers.safetensors import (
    BITS,
    FLOATS,
    CheckpointWeights,
    MissingShardError,
    read_index,
    read_safetensors,
)

_TOWER = re.compile(r"^(model\.)?(vision|visual|vit|image|audio|speech|multi_modal|mm_|embed_vision|embed_audio)")
_WORDS = re.compile(r"(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings|embeddings)\.weight$")
_KEYS = re.compile(r"\b(k_proj|key|v_proj|value|k|v)\.weight$")
_QUERIES = re.compile(r"\b(q_proj|query|q)\.weight$")
_UP = re.compile(r"(up_proj|w3|fc1|c_fc|dense_h_to_4h|intermediate\.dense)\.weight$")
USUAL_HEAD = 128


def listed_weights(weights: CheckpointWeights) -> dict[str, Any]:
    """The keys of a `[model]` table that list every tensor, those of packed types with their bits."""
    merged: dict[tuple[str, tuple[int, ...], str, int | None], int] = {}
    for (name, shape, dtype), count in weights.groups.items():
        if not shape or 0 in shape:
            continue
        place = "tower" if _TOWER.match(name) else "layers" if "#" in name else "outside"
        bits = None if dtype in FLOATS else BITS[dtype]
        # The last part of the module's name, as the estimator knows it.
        parts = [part for part in name.split(".") if part not in {"#", "weight", "bias"}]
        module = parts[-1] if parts else name
        if _WORDS.search(name):
            module = "embed_tokens"
        elif "shared" in name:
            module = f"shared_{module}"
        elif "experts" in parts:
            module = f"experts_{module}"
        key = (module, shape, place, bits)
        merged[key] = merged.get(key, 0) + count
    tensors: list[dict[str, Any]] = []
    for (name, shape, place, bits), count in merged.items():
        table: dict[str, Any] = {"name": name, "shape": list(shape), "count": count}
        if place != "layers":
            table["place"] = place
        if bits is not None:
            table["bits"] = bits
        tensors.append(table)
    numbers = sum(prod(table["shape"]) * table["count"] for table in tensors)
    return {"tensors": tensors, "parameters": numbers}


def decoder_of_weights(weights: CheckpointWeights) -> dict[str, Any]:
    """The `[model]` table of a decoder whose config is not there.

    Raises:
        DamagedError: an embedding of words, or projections to keys and values are missing.
    """
    shapes = {name: shape for name, shape, _ in weights.groups if len(shape) == 2 and not _TOWER.match(name)}
    words = next((shape for name, shape in shapes.items() if _WORDS.search(name)), None)
    projections = [
        (shape, count)
        for (name, shape, _), count in weights.groups.items()
        if _KEYS.search(name) and "#" in name and len(shape) == 2 and not _TOWER.match(name)
    ]
    if words is None or not projections:
        raise DamagedError("neither an embedding of words nor projections to keys and values are among them")
    layers = max(1, sum(count for _, count in projections) // 2)
    queries = next((shape[0] for name, shape in shapes.items() if _QUERIES.search(name)), words[1])
    heads = max(1, queries // USUAL_HEAD)
    each = sum(shape[0] * count for shape, count in projections) // layers
    width = next((shape[0] for name, shape in shapes.items() if _UP.search(name)), 4 * words[1])
    return {
        "kind": "transformer",
        "hidden_size": words[1],
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "head_dim": max(1, queries // heads),
        "intermediate_size": width,
        "vocab_size": words[0],
        "basis": "generic",
        "caches": [{"layers": layers, "per_token": each}],
        **listed_weights(weights),
    }


LFS = b"version https://git-lfs"


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a GGUF file of a known architecture.

    Raises:
        UserError: it cannot be read, is damaged, or holds something else.
    """
    file = read_gguf(path)
    try:
        return GgufHeader(file)
    except DamagedError as error:
        raise UserError(f"{path_text(path)} {error}") from None


def gguf_table(path: Path, header: GgufHeader) -> dict[str, object]:
    """The `[model]` table of a GGUF file."""
    try:
        return header.model()
    except DamagedError as error:
        raise UserError(f"{path_text(path)} {error}") from None


def read_hugging_face(path: Path) -> tuple[ConfigFile, CheckpointWeights | None]:
    """A config, and the weights beside it where they are there; `path` is any of these files or their folder.

    Raises:
        UserError: one of them cannot be read, or weights have no config beside them.
    """
    if path.is_dir():
        path = path / folder_index(path)
    if path.suffix == ".safetensors":
        weights = read_safetensors(path)
        return _config_of_weights(path, weights), weights
    if path.name.endswith(".safetensors.index.json"):
        weights = read_index(path)
        return _config_of_weights(path, weights), weights
    config, checkpoint = read_config(path), weights_beside(path)
    if config.undescribed and checkpoint is None:
        raise UserError(
            f"{path_text(path)} is of the architecture {config.architecture!r} but has a net of its own in "
            f"{config.undescribed}, which no rule covers; {what_answers(path)}"
        )
    return config, checkpoint


def weights_beside(config: Path) -> CheckpointWeights | None:
    """The weights in a config's folder; None if they are not, or not wholly, downloaded."""
    for name, read in ((WEIGHTS, read_safetensors), (INDEX, read_index)):
        path = config.with_name(name)
        if config.name == CONFIG and path.is_file() and not _is_pointer(path):
            try:
                return read(path)
            except MissingShardError:
                return None
    return None


def _is_pointer(path: Path) -> bool:
    """Return whether Git LFS has left a line of text in the place of a large file."""
    with path.open("rb") as file:
        return file.read(len(LFS)) == LFS


def folder_index(folder: Path) -> str:
    """The name of the file that says what is in a folder: its config, or a pipeline's index."""
    return PIPELINE if not (folder / CONFIG).exists() and (folder / PIPELINE).is_file() else CONFIG


def _config_of_weights(path: Path, weights: CheckpointWeights) -> ConfigFile:
    """The config beside weights; without one, what their names and shapes tell."""
    config, refused = path.with_name(CONFIG), ""
    if config.is_file():
        try:
            return read_config(config)
        except UserError as error:
            refused = str(error).partition("; ")[0]
    try:
        model = decoder_of_weights(weights)
    except DamagedError as error:
        instead = "put the model's config.json beside it"
        if refused:
            instead = refused
        raise UserError(
            f"{path_text(path)} holds {weights.parameters:,} numbers, mostly {weights.main_type or 'nothing'}, but not "
            f"how they are used ({error}): {instead}"
        ) from None
    return ConfigFile(architecture="no config.json", model=model, basis="generic")


def with_weights(config: ConfigFile, weights: CheckpointWeights | None) -> dict[str, object]:
    """The `[model]` table, with what the weights tell better: the exact count of parameters, or every tensor."""
    if weights is None:
        return config.model
    if config.basis == "generic" or (config.basis == "family" and not weights.exact):
        return config.model | listed_weights(weights)
    if not weights.exact or config.partial or config.basis == "family":
        return config.model
    return config.model | {"parameters": weights.parameters}
