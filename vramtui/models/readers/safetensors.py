"""The header of a safetensors file: its tensors and their types. Their values are never read."""

import re
from collections import Counter
from math import prod
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.file_limits import INDEX, SAFETENSORS
from vramtui.core.base.text import printable
from vramtui.models.readers.bounded import Cursor, DamagedError, open_plain, path_text, read_plain

BITS: dict[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "I32": 32, "U32": 32, "I64": 64, "U64": 64,
    "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
# What a run calls the types that weights come in.
PRECISIONS = {"F32": "fp32", "F16": "fp16", "BF16": "bf16"}
FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
# Saved beside the parameters by some checkpoints, though they are none: masks, positions, rotary frequencies.
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
    """The tensors of the file at `path`.

    Raises:
        UserError: it cannot be read, or is not a whole safetensors file.
    """
    file, size = open_plain(path)
    with file:
        try:
            return tensors_in(Cursor(file, size), size)
        except DamagedError as error:
            raise UserError(f"{path_text(path)} {error}") from None


def read_index(path: Path) -> CheckpointWeights:
    """The tensors of all the files that a `model.safetensors.index.json` names, which stand beside it.

    Raises:
        UserError: one of them is missing or damaged.
    """
    content = read_plain(path, INDEX)
    try:
        places = msgspec.json.decode(content, type=_Index).weight_map
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise UserError(
            f"{path_text(path)} is not an index of safetensors files: it has no weight_map of names"
        ) from None
    if len(places) > (INDEX.count or 0):
        raise UserError(f"{path_text(path)} names more than {INDEX.count:,} tensors, which no model has")
    names = sorted(set(places.values()))
    for name in names:
        if "/" in name or "\\" in name or not name.endswith(".safetensors"):
            raise UserError(
                f"{path_text(path)} names {printable(name[:80])!r}, which is not a safetensors file beside it"
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
    """The files that an index names, which stand beside it; None if it is not an index."""
    try:
        names = sorted(set(msgspec.json.decode(index, type=_Index).weight_map.values()))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return None if any("/" in name or "\\" in name or not name.endswith(".safetensors") for name in names) else names


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def tensors_in(cursor: Cursor, size: int) -> CheckpointWeights:
    """The tensors that a safetensors header names.

    Args:
        cursor: at the file's beginning; it need not hold more than the header.
        size: of the whole file in bytes.

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
