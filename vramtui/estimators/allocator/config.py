"""The settings of `PYTORCH_CUDA_ALLOC_CONF`, and the sizes they lead to."""

import re
from dataclasses import dataclass

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import MIB
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_EXACT, LARGE_SEGMENT, MIN_BLOCK, rounded, segment_bytes

INTERVALS = 16
"""Power-of-two intervals of `roundup_power2_divisions`: 1 MiB, 2 MiB, … 32 GiB and above."""

WITHOUT_EFFECT = (
    "graph_capture_record_stream_reuse", "pinned_free_catch_all", "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb", "pinned_use_background_threads", "pinned_use_cuda_host_register",
    "release_lock_on_cudamalloc", "throw_on_cudamalloc_oom",
)  # fmt: skip
"""Settings of host memory, locks and graph capture: read, and of no consequence here."""
SIZES = {
    "large_segment_size_mb": "large_segment_size",
    "max_non_split_rounding_mb": "max_non_split_rounding",
    "max_split_size_mb": "max_split_size",
}
FRACTIONS = {
    "garbage_collection_threshold": "garbage_collection_threshold",
    "per_process_memory_fraction": "memory_fraction",
}
KEYS = ("backend", "expandable_segments", "roundup_power2_divisions", *SIZES, *FRACTIONS, *WITHOUT_EFFECT)

_OUTER_COMMA = re.compile(r",(?![^\[]*\])")
_INTEGER = re.compile(r"\d{1,15}")
_NUMBER = re.compile(r"\d{1,15}(?:\.\d*)?|\.\d+")


@dataclass(frozen=True)
class AllocatorConfig:
    """Settings of the allocator. Sizes in bytes; None is "off".

    Attributes:
        max_split_size: blocks of this size or more are neither split nor given to smaller requests.
        max_non_split_rounding: how much larger than an unsplittable request its block may be.
        garbage_collection_threshold: share of the allowed memory beyond which idle blocks are freed; only acts
            together with a memory fraction, as in PyTorch.
        expandable_segments: one growing segment for each pool and stream.
        large_segment_size: what is taken from the device for requests between 1 and 10 MiB.
        memory_fraction: share of the device this process may reserve.
        roundup_divisions: divisions of each power-of-two interval from 1 MiB up; empty when off.
    """

    max_split_size: int | None = None
    max_non_split_rounding: int = LARGE_SEGMENT
    garbage_collection_threshold: float = 0.0
    expandable_segments: bool = False
    large_segment_size: int = LARGE_SEGMENT
    memory_fraction: float | None = None
    roundup_divisions: tuple[int, ...] = ()

    @classmethod
    def parse(cls, text: str) -> "AllocatorConfig":
        """Read `key:value,key:value` as PyTorch does, only that nothing unknown passes. Raises UserError for an unknown
        key, or a value that PyTorch would refuse.
        """
        settings: dict[str, object] = {}
        seen: set[str] = set()
        for part in filter(None, _OUTER_COMMA.split("".join(text.split()))):  # a list in brackets is one value
            key, colon, value = part.partition(":")
            if not colon or not value:
                raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: {part!r} is not of the form key:value{nearest(key, KEYS)}")
            if key not in KEYS:
                hint = nearest(key, KEYS)
                raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: {key!r} is not a setting of the allocator{hint}")
            if key in seen:
                raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: {key} is set twice")
            seen.add(key)
            settings.update(_read(key, value))
        config = cls(**settings)  # type: ignore[arg-type] # `_read` gives each field its own type
        # Sizes that only make sense together.
        least = config.large_segment_size
        if least <= LARGE_EXACT:
            raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: large_segment_size_mb must be above {LARGE_EXACT // MIB}")
        if config.max_split_size is not None and config.max_split_size < least:
            raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: max_split_size_mb must be at least {least // MIB}")
        # PyTorch's default for this stays as it is when segments are made larger.
        if config.max_non_split_rounding < least and config.max_non_split_rounding != LARGE_SEGMENT:
            raise UserError(f"PYTORCH_CUDA_ALLOC_CONF: max_non_split_rounding_mb must be at least {least // MIB}")
        return config

    def rounded(self, size: int) -> int:
        """The size of the block that serves a request of `size` bytes, before any remainder it keeps."""
        if size < MIN_BLOCK:
            return MIN_BLOCK
        if self.roundup_divisions:
            divisions = self.roundup_divisions[min(max(size.bit_length() - 21, 0), INTERVALS - 1)]
            if divisions > 1 and size > MIN_BLOCK * divisions:
                return next_division(size, divisions)
        return rounded(size)

    def segment_size(self, size: int) -> int:
        """Bytes taken from the device for a rounded request that no cached block fits."""
        return segment_bytes(size, self.large_segment_size)


def next_division(size: int, divisions: int) -> int:
    """`size` rounded up to the next of `divisions` equal steps between its powers of two."""
    if size & (size - 1) == 0:
        return size
    floor = 1 << (size.bit_length() - 1)
    step = floor >> (divisions.bit_length() - 1)
    return 2 * floor if step == 0 else (size + step - 1) // step * step


def _read(key: str, value: str) -> dict[str, object]:
    if key in FRACTIONS:
        if not _NUMBER.fullmatch(value):
            raise _refusal(key, value, "it is a number")
        share = float(value)
        if not 0 <= share <= 1 or (key == "garbage_collection_threshold" and share in {0, 1}):
            raise _refusal(key, value, "it lies between 0 and 1")
        return {FRACTIONS[key]: share}
    if key in SIZES:
        if not _INTEGER.fullmatch(value):
            raise _refusal(key, value, "it is a whole number of MiB")
        return {SIZES[key]: (int(value) * MIB)}
    if key == "roundup_power2_divisions":
        # From one number, or from `[256:1,512:2,>:8]` (lower bounds in MiB): a first bound also stands for all below
        # it, and `>` for all above the last; in between nothing is filled in.
        if not value.startswith("["):
            return {"roundup_divisions": (_power(key, value),) * INTERVALS}
        filled, last = [0] * INTERVALS, 0
        for number, entry in enumerate(value.strip("[]").split(",")):
            bound, colon, text = entry.partition(":")
            if not colon:
                raise _refusal(key, value, "a list holds entries like 256:4, and >:8 for all above")
            divisions = 0 if text == "0" else _power(key, text)
            if bound == ">":
                filled[last + 1 :] = [divisions] * (INTERVALS - last - 1)
                continue
            last = min(_power(key, bound).bit_length() - 1, INTERVALS - 1)
            if number == 0:
                filled[:last] = [divisions] * last
            filled[last] = divisions
        return {"roundup_divisions": tuple(filled)}
    if key == "expandable_segments":
        if value not in {"True", "False"}:
            raise _refusal(key, value, "it is True or False")
        return {"expandable_segments": value == "True"}
    if key == "backend" and value != "native":
        raise _refusal(key, value, "only the native backend is this allocator; cudaMallocAsync bypasses it")
    return {}


def _refusal(key: str, value: str, reason: str) -> UserError:
    return UserError(f"PYTORCH_CUDA_ALLOC_CONF: {key}:{value} is refused; {reason}")


def _power(key: str, text: str) -> int:
    if not _INTEGER.fullmatch(text) or int(text) == 0 or int(text) & (int(text) - 1):
        raise _refusal(key, text, "it takes powers of two")
    return int(text)
