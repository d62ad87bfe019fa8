"""The Ledger: named parts of one process's memory in bytes, the same tree for prediction and observation.

process      = context + reserved + other
  reserved   = allocated + cached
    allocated = weights + gradients + optimizer + master_weights + activations + kv_cache
                + inputs + workspaces + temporaries
"""

from typing import Literal, get_args

import msgspec

Category = Literal[
    "weights",
    "gradients",
    "optimizer",
    "master_weights",
    "activations",
    "kv_cache",
    "inputs",
    "workspaces",
    "temporaries",
]
Line = Literal[Category, "allocated", "cached", "reserved", "context", "other", "process"]

CATEGORIES: tuple[Category, ...] = get_args(Category)
TOTALS: tuple[Line, ...] = ("allocated", "reserved", "process")
# Those that no other line has in it: together they are what the process holds.
LEAVES: tuple[Line, ...] = (*CATEGORIES, "cached", "context", "other")
LINES: tuple[Line, ...] = (*CATEGORIES, "allocated", "cached", "reserved", "context", "other", "process")
TITLES: dict[Line, str] = {
    "weights": "weights", "gradients": "gradients", "optimizer": "optimizer", "master_weights": "master weights",
    "activations": "activations", "kv_cache": "KV cache", "inputs": "inputs", "workspaces": "workspaces",
    "temporaries": "temporaries", "allocated": "allocated", "cached": "cached", "reserved": "reserved",
    "context": "CUDA context", "other": "other libraries", "process": "process",
}  # fmt: skip
# How a category is told apart in a bar without colours.
LETTERS: dict[Category, str] = {
    "weights": "W", "gradients": "G", "optimizer": "O", "master_weights": "M", "activations": "A", "kv_cache": "K",
    "inputs": "I", "workspaces": "S", "temporaries": "T",
}  # fmt: skip
CUDA = "NVIDIA"
_CONTEXTS = {CUDA: "CUDA context", "AMD": "HIP context"}


def title_of(line: Line, vendor: str = CUDA) -> str:
    """A line's name; what a process holds before its first tensor is called as the card's vendor does."""
    return _CONTEXTS.get(vendor, "context") if line == "context" else TITLES[line]


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """One process's memory in bytes, by part; a part that could not be measured is None, never 0."""

    weights: int | None = None
    gradients: int | None = None
    optimizer: int | None = None
    master_weights: int | None = None
    activations: int | None = None
    kv_cache: int | None = None
    inputs: int | None = None
    workspaces: int | None = None
    temporaries: int | None = None
    allocated: int | None = None
    cached: int | None = None
    reserved: int | None = None
    context: int | None = None
    other: int | None = None
    process: int | None = None

    def bytes_of(self, line: Line) -> int | None:
        value: int | None = getattr(self, line)
        return value


def ledger_from_parts(parts: dict[Category, int], *, reserved: int, context: int, other: int = 0) -> Ledger:
    """A complete Ledger from its leaves: the totals are the sums, so they cannot disagree with the parts.

    Raises:
        ValueError: reserved is less than the parts' sum.
    """
    allocated = sum(parts.values())
    if reserved < allocated:
        raise ValueError(f"reserved {reserved} is less than allocated {allocated}")
    leaves = {category: parts.get(category, 0) for category in CATEGORIES}
    return Ledger(
        **leaves,
        allocated=allocated,
        cached=reserved - allocated,
        reserved=reserved,
        context=context,
        other=other,
        process=reserved + context + other,
    )
