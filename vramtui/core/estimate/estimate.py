"""The Ledger: named parts of one process's memory in bytes, the same tree for prediction and observation.

process      = context + reserved + other
  reserved   = allocated + cached
    allocated = weights + gradients + optimizer + master_weights + activations + kv_cache
                + inputs + workspaces + temporaries
"""

from typing import Literal, Protocol, get_args

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload

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
    """A complete Ledger from its leaves: the totals are the sums, so they cannot disagree with the parts. Raises
    ValueError if reserved is less than the parts' sum.
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


# The analytic method's, as the README's accuracy table has it; also taken for estimates whose error was never measured.
USUAL_ERROR = 0.08

Phase = Literal[
    "build", "input", "forward", "backward", "step", "zero_grad", "delete", "clear", "prefill", "decode", "serve"
]
PHASE_TITLES: dict[Phase, str] = {
    "build": "build", "input": "input", "forward": "forward", "backward": "backward", "step": "optimizer step",
    "zero_grad": "zero_grad", "delete": "delete", "clear": "clear workspaces", "prefill": "prefill",
    "decode": "decode", "serve": "serving",
}  # fmt: skip


BESIDE_TOTAL = "not in the total, for comparison"  # the lifetime of a figure that a rule publishes outside of its total


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """One named piece of memory.

    Attributes:
        name: short and unique within its estimate.
        line: the Ledger line it belongs to.
        bytes: its own full size.
        at_peak: how much of it is alive when the allocated total peaks; these sum to the process total.
        formula: the arithmetic in words and numbers, as a person would check it.
        source: where the formula comes from.
        lifetime: from when to when it is held, in words.
        count: how many blocks of the allocator it takes (0 when it is outside the allocator).
    """

    name: str
    line: Line
    bytes: int
    at_peak: int
    formula: str
    source: str
    lifetime: str
    count: int = 0


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one phase of one step: what is allocated and reserved then, and the phase's own peaks, in bytes.

    A method that does not follow the allocator's segments leaves the reserved figures None.
    """

    phase: Phase
    step: int
    allocated: int
    reserved: int | None = None
    peak_allocated: int
    peak_reserved: int | None = None
    categories: dict[str, int] = {}


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """A prediction for one process.

    Attributes:
        method: `analytic`, `traced`, or `rules:ID`.
        parts: every part; `at_peak` sums over the parts of a line to that line of the ledger.
        ledger: the parts alive at the peak of allocated, and the three peak totals.
        peak_phase: the phase in which allocated peaks.
        peak_step: the first step (from 0) in which it does; None when there are no steps.
        timeline: what is held at the end of each phase, where the method knows it.
        assumptions: what was taken for granted, a sentence each.
        error: by how much more than said the process may need, as a fraction of its total; None when it was never
            measured.
        error_below: by how much less; as `error` when None.
    """

    method: str
    parts: tuple[Part, ...]
    ledger: Ledger
    peak_phase: Phase
    peak_step: int | None = None
    timeline: tuple[Moment, ...] = ()
    assumptions: tuple[str, ...] = ()
    error: float | None = None
    error_below: float | None = None

    @property
    def allocated(self) -> int:
        """Peak of `torch.cuda.memory_allocated` in bytes."""
        return self.ledger.allocated or 0

    @property
    def reserved(self) -> int | None:
        """Peak of `torch.cuda.memory_reserved` in bytes; None if the method has no word on it, as most rules."""
        return self.ledger.reserved

    @property
    def process(self) -> int:
        """Peak of what NVML shows for the process, in bytes."""
        return self.ledger.process or 0

    def first_over(self, room: int) -> tuple[Moment, int] | None:
        """The first phase that takes more than `room` bytes of the card, and by how many its whole step does; None
        where none does, or the method has no word on reserved memory.
        """
        outside = self.process - (self.reserved or 0)
        over = [moment for moment in self.timeline if (moment.peak_reserved or 0) + outside > room]
        if not over or self.reserved is None:
            return None
        first = over[0]
        return first, max((one.peak_reserved or 0) + outside - room for one in over if one.step == first.step)


class Estimator(Protocol):
    """Anything that turns a Workload on a Device into an Estimate."""

    name: str

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict the memory of a workload on a device. Raises UserError if the workload is contradictory, or of a kind
        this estimator does not know.
        """


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The prediction for a process.

    Attributes:
        preset: the key of the preset that the process was matched to.
        title: that preset's name.
        workload: what the estimator looked at, changes made in the panel included.
        device: the card that it was made for.
        estimate: the answer.
    """

    preset: str
    title: str
    workload: Workload
    device: Device
    estimate: Estimate


def prediction_of(preset_file: PresetFile, device: Device, estimate: Estimate | None) -> Prediction | None:
    """The prediction by a preset as in its file; None without an estimate."""
    if estimate is None:
        return None
    return Prediction(
        preset=preset_file.key,
        title=preset_file.preset.name,
        workload=preset_file.preset.workload,
        device=device,
        estimate=estimate,
    )
