"""What optimizers are told in: bytes between steps and within one."""

from collections.abc import Callable, Sequence

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import rounded
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
