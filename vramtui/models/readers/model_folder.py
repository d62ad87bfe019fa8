"""A folder of a model from the Hub: its config, its index, and the headers of its safetensors files."""

import re
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.file_limits import INDEX as INDEX_LIMITS
from vramtui.core.base.file_limits import SAFETENSORS
from vramtui.core.base.text import printable
from vramtui.models.named_files import CONFIG, INDEX, WEIGHTS
from vramtui.models.readers.bounded import Cursor, DamagedError, open_plain, path_text, read_plain
from vramtui.models.readers.config_json import ConfigFile, read_config, what_answers
from vramtui.models.readers.diffusers import INDEX as PIPELINE
from vramtui.models.readers.gguf import GgufHeader, read_gguf

BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
# What a run calls the types that weights come in.
PRECISIONS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
# Saved with the parameters by some checkpoints, though they are none: masks, positions, rotary frequencies.
_BUFFER = re.compile(r"(rotary_emb\.inv_freq|masked_bias|position_ids|num_batches_tracked|running_(mean|var))$")
_MASK = re.compile(r"attn(?:\.attention)?\.bias$")
LARGEST_DIMENSION = 1 << 40


Group = tuple[str, tuple[int, ...], str]
_NUMBER = re.compile(r"\.\d+(?=\.|$)")


class CheckpointWeights(msgspec.Struct, frozen=True, kw_only=True):
    """Totals over the tensors of one file, or of all files of one checkpoint.

    Attributes:
        parameters: numbers in all tensors but buffers.
        bytes: bytes of all tensors.
        types: numbers of each type, by safetensors' name of it.
        names: of the tensors.
        groups: how many tensors there are of each name without numbers, shape and type.
    """

    parameters: int
    bytes: int
    types: dict[str, int]
    names: frozenset[str] = frozenset()
    groups: dict[Group, int] = {}

    @property
    def exact(self) -> bool:
        """Return whether every number stands for itself; packed and quantised weights hide how many there are."""
        return set(self.types) <= FLOATS

    @property
    def main_type(self) -> str:
        return max(self.types, key=self.types.__getitem__, default="")

    @property
    def precision(self) -> str | None:
        """The run's name of that type; None if runs do not use it."""
        return PRECISIONS.get(self.main_type)

    def __add__(self, other: "CheckpointWeights") -> "CheckpointWeights":
        return CheckpointWeights(
            parameters=self.parameters + other.parameters,
            bytes=self.bytes + other.bytes,
            types=dict(Counter(self.types) + Counter(other.types)),
            names=self.names | other.names,
            groups=dict(Counter(self.groups) + Counter(other.groups)),
        )


class MissingShardError(UserError):
    """A file that an index names is not there."""


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def read_safetensors(path: Path) -> CheckpointWeights:
    """The tensors of the file at `path`; raises UserError if it cannot be read, or is not a whole safetensors file."""
    file, size = open_plain(path)
    with file:
        try:
            return tensors_in(Cursor(file, size), size)
        except DamagedError as error:
            raise UserError(f"{path_text(path)} {error}") from None


def read_index(path: Path) -> CheckpointWeights:
    """The tensors of all the files that a `model.safetensors.index.json` names, which are next to it. Raises UserError
    if one of them is missing or damaged.
    """
    content = read_plain(path, INDEX_LIMITS)
    try:
        places = msgspec.json.decode(content, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UserError(
            f"{path_text(path)} is not an index of safetensors files: it has no weight_map of names"
        ) from None
    if len(places) > (INDEX_LIMITS.count or 0):
        raise UserError(f"{path_text(path)} names more than {INDEX_LIMITS.count:,} tensors, which no model has")
    names = sorted(set(places.values()))
    for name in names:
        if "/" in name or "\\" in name or not name.endswith(".safetensors"):
            raise UserError(
                f"{path_text(path)} names {printable(name[:80])!r}, which is not a safetensors file next to it"
            )
    whole = CheckpointWeights(parameters=0, bytes=0, types={})
    for name in names:
        if not path.with_name(name).exists():
            raise MissingShardError(f"{path_text(path.with_name(name))} does not exist, which {path.name} names")
        whole += read_safetensors(path.with_name(name))
    missing = set(places) - whole.names
    if missing:
        raise UserError(f"{path_text(path)} names the tensor {printable(min(missing)[:80])!r}, which no file holds")
    return whole


def shards_of(index: bytes) -> list[str] | None:
    """The files that an index names, which are next to it; None if it is not an index."""
    try:
        names = sorted(set(msgspec.json.decode(index, type=_Index).weight_map.values()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if any("/" in name or "\\" in name or not name.endswith(".safetensors") for name in names) else names


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def tensors_in(cursor: Cursor, size: int) -> CheckpointWeights:
    """The tensors that a safetensors header names, of a file of `size` bytes that need not hold more than the header.

    Raises:
        DamagedError: it is not the header of a safetensors file.
    """
    length = cursor.number(8)
    if length > SAFETENSORS.size:
        raise DamagedError("is not a safetensors file: its header would be larger than 100 MB")
    header = cursor.take(length)
    if header.count(b'"data_offsets"') > (SAFETENSORS.count or 0):
        raise DamagedError(f"names more than {SAFETENSORS.count:,} tensors, which no model has")
    try:
        tables = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        tables.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(table, type=_Entry) for name, table in tables.items()}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise DamagedError("is not a safetensors file: its header is not the table of tensors it should be") from None
    types: Counter[str] = Counter()
    groups: Counter[Group] = Counter()
    parameters = total = 0
    for name, entry in entries.items():
        shown = printable(name[:80])
        bits = BITS.get(entry.dtype)
        if bits is None:
            guess = nearest(entry.dtype, BITS)
            raise DamagedError(f"holds {shown!r} in a type that is not known, {printable(entry.dtype[:20])!r}{guess}")
        start, end = entry.data_offsets
        if any(not 0 <= side <= LARGEST_DIMENSION for side in entry.shape):
            raise DamagedError(f"gives {shown!r} an impossible shape")
        numel = prod(entry.shape)
        if not 0 <= start <= end or (end - start) * 8 != numel * bits:
            raise DamagedError(f"gives {shown!r} a shape that its bytes do not have")
        if end > size - cursor.at:
            raise DamagedError(f"is cut short: {shown!r} ends {end - size + cursor.at:,} bytes after the file does")
        total += end - start
        if not (bool(_BUFFER.search(name)) or (bool(_MASK.search(name)) and len(entry.shape) > 2)):
            parameters += numel
            types[entry.dtype] += numel
            groups[_NUMBER.sub(".#", name), entry.shape, entry.dtype] += 1
    return CheckpointWeights(
        parameters=parameters, bytes=total, types=dict(types), names=frozenset(entries), groups=dict(groups)
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
    return {"tensors": tensors, "parameters": sum(prod(table["shape"]) * table["count"] for table in tensors)}


def decoder_of_weights(weights: CheckpointWeights) -> dict[str, Any]:
    """The `[model]` table of a decoder whose config is not there. Raises DamagedError if an embedding of words, or
    projections to keys and values are missing.
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
    """The header of a GGUF file of a known architecture; raises UserError if it cannot be read as one."""
    file = read_gguf(path)
    try:
        return GgufHeader(file)
    except DamagedError as error:
        raise UserError(f"{path_text(path)} {error}") from None


def gguf_table(path: Path, header: GgufHeader) -> dict[str, object]:
    try:
        return header.model()
    except DamagedError as error:
        raise UserError(f"{path_text(path)} {error}") from None


def read_hugging_face(path: Path) -> tuple[ConfigFile, CheckpointWeights | None]:
    """A config, and the weights next to it if there are any; `path` is any of these files or their folder. Raises
    UserError if one of them cannot be read, or weights have no config next to them.
    """
    if path.is_dir():
        path /= PIPELINE if not (path / CONFIG).exists() and (path / PIPELINE).is_file() else CONFIG
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
        if config.name == CONFIG and path.is_file():
            with path.open("rb") as file:
                if file.read(len(LFS)) == LFS:  # Git LFS has left a line of text in the place of a large file
                    continue
            try:
                return read(path)
            except MissingShardError:
                return None
    return None


def _config_of_weights(path: Path, weights: CheckpointWeights) -> ConfigFile:
    """The config next to weights; without one, what their names and shapes tell."""
    config, refused = path.with_name(CONFIG), ""
    if config.is_file():
        try:
            return read_config(config)
        except UserError as error:
            refused = str(error).partition("; ")[0]
    try:
        model = decoder_of_weights(weights)
    except DamagedError as error:
        instead = "put the model's config.json next to it"
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
