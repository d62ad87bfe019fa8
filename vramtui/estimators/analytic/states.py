"""Weights, gradients and optimizer states, tensor by tensor."""

from collections.abc import Iterable

import msgspec

from vramtui.core.workload import Optimizer, OptimizerImplementation
from vramtui.estimators.analytic.blocks import rounded, tail
from vramtui.estimators.analytic.tensors import Tensor

# States of a parameter's own shape (torch/optim/sgd.py, adam.py).
STATES: dict[Optimizer, int] = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}


class Held(msgspec.Struct, frozen=True):
    """Bytes in 512-byte blocks, the tails that large blocks keep beyond them, and how many blocks there are."""

    bytes: int = 0
    tails: int = 0
    count: int = 0

    def __add__(self, other: "Held") -> "Held":
        return Held(self.bytes + other.bytes, self.tails + other.tails, self.count + other.count)

    @property
    def whole(self) -> int:
        """What the allocator counts."""
        return self.bytes + self.tails


def held(tensors: Iterable[Tensor], element: int) -> Held:
    """What `tensors` take at `element` bytes a number."""
    total = Held()
    for tensor in tensors:
        size = tensor.numel * element
        total += Held(rounded(size) * tensor.count, tail(size) * tensor.count, tensor.count)
    return total


def optimizer_states(tensors: tuple[Tensor, ...], element: int, optimizer: Optimizer, *, fused: bool) -> Held:
    """What the optimizer keeps between steps; fused ones keep a step counter of 4 bytes on the GPU for each tensor."""
    states = held(tensors, element)
    each = STATES[optimizer]
    total = Held(states.bytes * each, states.tails * each, states.count * each)
    if fused and optimizer in {"adam", "adamw"}:
        total += held([Tensor("step", (1,), sum(tensor.count for tensor in tensors))], 4)
    return total


def step_temporaries(
    tensors: tuple[Tensor, ...], element: int, optimizer: Optimizer, implementation: OptimizerImplementation
) -> Held:
    """What a step needs beside the states: Adam's denominators, all at once (foreach) or one at a time (loop)."""
    if optimizer not in {"adam", "adamw"} or implementation == "fused":
        return Held()
    if implementation == "foreach":
        return held(tensors, element)
    largest = max(tensors, key=lambda tensor: tensor.numel)
    return held([Tensor(largest.module, largest.shape)], element)
