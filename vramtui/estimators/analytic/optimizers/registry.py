"""Every optimizer's states and temporaries, by its name and implementation: bytes between steps and within one."""

from collections.abc import Callable, Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.schema.workload import Optimizer, OptimizerImplementation
from vramtui.estimators.analytic.sizes.precision import numel_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.models.spec import Parameter

TORCH = "PyTorch, torch/optim"
# What a loop's step over one tensor takes: blocks that come together and go before the next come; the last of all stays
# until the next tensor has its own.
LoopStep = tuple[tuple[int, ...], ...]


class States(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes between steps.

    Attributes:
        bytes: in 512-byte blocks; `count` blocks.
        step: bytes of temporaries in a step: `lists` of one for each parameter, or what `loop` tells of each.
        formula: how `bytes` comes about; `step_formula` the same for `step`.
        paged: bytes kept in managed memory, outside PyTorch's allocator.
        from_build: whether they are there before the first step.
        note: what was taken for granted, a sentence; empty where nothing was.
    """

    bytes: int = 0
    count: int = 0
    step: int = 0
    lists: int = 0
    loop: Callable[[Parameter], LoopStep] | None = None
    formula: str = "none"
    step_formula: str = "none: everything is done in place"
    source: str = TORCH
    paged: int = 0
    from_build: bool = False
    note: str = ""


def loop_bytes(tensors: Sequence[Parameter], itemsize: int, at_once: int) -> int:
    """A loop's variables still hold the tensor before when the next one's are made."""
    before = most = 0
    for tensor in (*tensors, *tensors):
        size = rounded(tensor.numel * itemsize)
        most = max(most, before + at_once * size)
        before = size
    return most


def blocks_of(tensors: Sequence[Parameter], itemsize: int) -> tuple[int, int]:
    """Bytes of `tensors` in blocks of 512, and how many tensors there are."""
    whole = sum(rounded(tensor.numel * itemsize) * tensor.count for tensor in tensors)
    return whole, sum(tensor.count for tensor in tensors)


# Each is one of many optimizers.
_HERE = __name__.rpartition(".")[0]
adamw_8bit: Callable[..., "States"] = late(f"{_HERE}.bitsandbytes:adamw_8bit")
paged_adamw_8bit: Callable[..., "States"] = late(f"{_HERE}.bitsandbytes:paged_adamw_8bit")
paged_adamw_32bit: Callable[..., "States"] = late(f"{_HERE}.bitsandbytes:paged_adamw_32bit")
adafactor: Callable[..., "States"] = late(f"{_HERE}.factored:adafactor")
muon: Callable[..., "States"] = late(f"{_HERE}.factored:muon")

# States of a parameter's own shape, tensors of temporaries in a foreach step, and at once in a loop's step.
_ELEMENTWISE: dict[Optimizer, tuple[int, int, int, str]] = {
    "sgd": (0, 0, 0, ""),
    "momentum": (1, 0, 0, "momentum"),
    "adam": (2, 1, 2, "both moments"),
    "adamw": (2, 1, 2, "both moments"),
    "amsgrad": (3, 1, 2, "both moments and the largest second one"),
    "rmsprop": (1, 1, 1, "mean squares"),
    "adagrad": (1, 2, 1, "sums of squares"),
    "lion": (1, 3, 3, "momentum"),
}
FUSED: frozenset[Optimizer] = frozenset({"sgd", "momentum", "adam", "adamw", "amsgrad", "adagrad", "muon"})
_COUNTED: frozenset[Optimizer] = frozenset({"adam", "adamw", "amsgrad", "adagrad"})
_LION = "google/automl, lion/lion_pytorch.py (Chen et al. 2023, arXiv 2302.06675)"
_BITS = frozenset({"adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"})


def optimizer_states(
    tensors: Sequence[Parameter],
    itemsize: int,
    optimizer: Optimizer,
    implementation: OptimizerImplementation,
    card: CardLimits,
) -> States:
    """The states of `optimizer` over trained tensors of `itemsize` bytes a number."""
    if implementation == "fused" and optimizer not in FUSED | _BITS:
        raise UserError(
            f"run.optimizer_implementation = 'fused' does not exist for run.optimizer = {optimizer!r}; "
            f"it does for {', '.join(sorted(FUSED))}"
        )
    if optimizer in _ELEMENTWISE:
        return _elementwise(tensors, itemsize, optimizer, implementation)
    if optimizer == "adafactor":
        return adafactor(tensors, itemsize, card, foreach=implementation == "foreach")
    if optimizer == "muon":
        rest = [tensor for tensor in tensors if tensor not in hidden_matrices(tensors)]
        return muon(hidden_matrices(tensors), itemsize, _elementwise(rest, itemsize, "adamw", implementation))
    if optimizer == "adamw_8bit":
        return adamw_8bit(tensors)
    return paged_adamw_8bit(tensors) if optimizer == "paged_adamw_8bit" else paged_adamw_32bit(tensors)


def hidden_matrices(tensors: Sequence[Parameter]) -> list[Parameter]:
    """The matrices that Muon is meant for: those of the blocks; in a list of layers all but embeddings and the last."""
    if any(tensor.layer for tensor in tensors):
        return [tensor for tensor in tensors if tensor.layer and len(tensor.shape) == 2]
    matrices = [tensor for tensor in tensors if len(tensor.shape) == 2 and tensor.module != "embedding"]
    return matrices[:-1]


def _elementwise(
    tensors: Sequence[Parameter], itemsize: int, optimizer: Optimizer, implementation: OptimizerImplementation
) -> States:
    each, at_once, in_loop, what = _ELEMENTWISE[optimizer]
    whole, count = blocks_of(tensors, itemsize)
    numel = numel_of(tensors)
    size, blocks = whole * each, count * each
    formula = f"{what}: {each} x {numel:,} x {itemsize} B" if each else "plain SGD keeps nothing"
    if implementation == "fused" and optimizer in _COUNTED:
        size, blocks = size + 512 * count, blocks + count
        formula += f", and a step counter for each of {count:,} tensors"
    step, words, lists, loop = 0, "none: everything is done in place", 0, None
    if implementation == "foreach" and optimizer != "lion" and at_once:
        step, lists = whole * at_once, at_once
        words = f"{at_once} x {numel:,} x {itemsize} B: one number for each parameter, all at once"
    elif implementation != "fused" and in_loop:
        step = loop_bytes(tensors, itemsize, in_loop)
        words = "one parameter after another: the largest tensor's, and those of the one before"
        loop = lambda tensor: ((rounded(tensor.numel * itemsize),) * in_loop,)  # noqa: E731 - one of two
    return States(
        bytes=size,
        count=blocks,
        step=step,
        lists=lists,
        loop=loop,
        formula=formula,
        step_formula=words,
        source=_LION if optimizer == "lion" else TORCH,
        from_build=optimizer == "adagrad",
        note="Lion is the published one, which goes through one tensor after another" if optimizer == "lion" else "",
    )
