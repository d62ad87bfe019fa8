"""What each optimizer keeps between steps, and what one step needs beside it."""

from collections.abc import Callable, Sequence

import msgspec

from vramtui.core.workload import OptimizerImplementation
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.tensors import Tensor

SMALLEST_8BIT = 4096
BLOCK_8BIT = 256
TORCH = "PyTorch, torch/optim"
BITSANDBYTES = "bitsandbytes, optim/optimizer.py and functional.py"


class States(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes between steps.

    Attributes:
        bytes: in 512-byte blocks; `count` blocks.
        step: bytes of temporaries in a step.
        formula: how `bytes` comes about; `step_formula` the same for `step`.
        paged: bytes kept in managed memory, outside PyTorch's allocator.
        from_build: whether they are there before the first step.
    """

    bytes: int = 0
    count: int = 0
    step: int = 0
    formula: str = "none"
    step_formula: str = "none: everything is done in place"
    source: str = TORCH
    paged: int = 0
    from_build: bool = False


Sizes = tuple[Sequence[Tensor], int]


def optimizer_states(
    tensors: Sequence[Tensor], width: int, optimizer: str, implementation: OptimizerImplementation
) -> States:
    """The states of `optimizer` over trained tensors of `width` bytes a number."""
    if optimizer in _ELEMENTWISE:
        return _elementwise(tensors, width, optimizer, implementation)
    return _OTHERS[optimizer](tensors, width)


# States of a parameter's own shape, tensors of temporaries in a foreach step, and at once in a loop's step.
_ELEMENTWISE: dict[str, tuple[int, int, int, str]] = {
    "sgd": (0, 0, 0, ""),
    "momentum": (1, 0, 0, "momentum"),
    "adam": (2, 1, 2, "both moments"),
    "adamw": (2, 1, 2, "both moments"),
    "amsgrad": (3, 1, 2, "both moments and the largest second one"),
    "rmsprop": (1, 1, 1, "mean squares"),
    "adagrad": (1, 2, 1, "sums of squares"),
    "lion": (1, 0, 1, "momentum"),
}


def _elementwise(
    tensors: Sequence[Tensor], width: int, optimizer: str, implementation: OptimizerImplementation
) -> States:
    each, at_once, in_loop, what = _ELEMENTWISE[optimizer]
    whole, count = _blocks(tensors, width)
    numel = sum(tensor.numel * tensor.count for tensor in tensors)
    held, blocks = whole * each, count * each
    formula = f"{what}: {each} x {numel:,} x {width} B" if each else "plain SGD keeps nothing"
    if implementation == "fused" and optimizer in {"adam", "adamw", "amsgrad"}:
        held, blocks = held + 512 * count, blocks + count
        formula += f", and a step counter for each of {count:,} tensors"
    step, words = 0, "none: everything is done in place"
    if implementation == "foreach" and optimizer != "lion" and at_once:
        step, words = whole * at_once, f"{at_once} x {numel:,} x {width} B: one number for each parameter, all at once"
    elif implementation != "fused" and in_loop:
        step = _loop(tensors, width, in_loop)
        words = "one parameter after another: the largest tensor's, and those of the one before"
    return States(
        bytes=held, count=blocks, step=step, formula=formula, step_formula=words, from_build=optimizer == "adagrad"
    )


def _loop(tensors: Sequence[Tensor], width: int, at_once: int) -> int:
    """A loop's variables still hold the tensor before when the next one's are made."""
    before = most = 0
    for tensor in (*tensors, *tensors):
        size = rounded(tensor.numel * width)
        most = max(most, before + at_once * size)
        before = size
    return most


def _blocks(tensors: Sequence[Tensor], width: int) -> tuple[int, int]:
    whole = sum(rounded(tensor.numel * width) * tensor.count for tensor in tensors)
    return whole, sum(tensor.count for tensor in tensors)


def _adafactor(tensors: Sequence[Tensor], width: int) -> States:
    """Adafactor of torch: a row's and a column's mean square of each matrix, all numbers of a vector."""
    held = count = 0
    for tensor in tensors:
        if len(tensor.shape) < 2:
            held, count = held + rounded(tensor.numel * width) * tensor.count, count + tensor.count
            continue
        rows, columns = tensor.numel // tensor.shape[-1], tensor.numel // tensor.shape[-2]
        held += (rounded(rows * width) + rounded(columns * width)) * tensor.count
        count += 2 * tensor.count
    largest = max((rounded(tensor.numel * width) for tensor in tensors), default=0)
    return States(
        bytes=held,
        count=count,
        step=2 * largest,
        formula="a mean square for each row and each column of a matrix, for each number of a vector",
        step_formula=f"2 x {largest:,} B: the variance and the update of the largest tensor",
        source=f"{TORCH}/_adafactor.py",
    )


def _muon(tensors: Sequence[Tensor], width: int) -> States:
    """Muon for the matrices inside the blocks, AdamW for embeddings, output layer and vectors."""
    inside = [tensor for tensor in tensors if tensor.layer and len(tensor.shape) == 2]
    others = [tensor for tensor in tensors if tensor not in inside]
    one, ones = _blocks(inside, width)
    two, twos = _blocks(others, width)
    most = max((_orthogonal(tensor, width) for tensor in inside), default=0)
    return States(
        bytes=one + 2 * two,
        count=ones + 2 * twos,
        step=max(most, two),
        formula=f"momentum of the blocks' matrices, {one:,} B; AdamW's two moments of all else, 2 x {two:,} B",
        step_formula="Newton–Schulz of the largest matrix in bf16, or the square roots of AdamW's part",
        source=f"{TORCH}/_muon.py",
    )


def _orthogonal(tensor: Tensor, width: int) -> int:
    """The update, its copy in bf16, the next iterate, and two square matrices of the smaller side."""
    small = min(tensor.shape)
    return rounded(tensor.numel * width) + 2 * rounded(tensor.numel * 2) + 2 * rounded(small * small * 2)


def _eight_bit(tensors: Sequence[Tensor], width: int) -> States:
    """bitsandbytes: one byte a state and an fp32 scale for each block of 256; small tensors stay in fp32."""
    del width
    held = count = 0
    for tensor in tensors:
        if tensor.numel < SMALLEST_8BIT:
            held, count = held + 2 * rounded(tensor.numel * 4) * tensor.count, count + 2 * tensor.count
            continue
        scales = rounded(-(-tensor.numel // BLOCK_8BIT) * 4)
        held += 2 * (rounded(tensor.numel) + scales) * tensor.count
        count += 4 * tensor.count
    maps = 2 * rounded(256 * 4)
    return States(
        bytes=held + maps,
        count=count + 2,
        formula=f"2 x (1 B a number + 4 B for each {BLOCK_8BIT}); fp32 below {SMALLEST_8BIT} numbers; 2 maps of 1 KiB",
        source=BITSANDBYTES,
    )


def _paged(states: Callable[[Sequence[Tensor], int], States]) -> Callable[[Sequence[Tensor], int], States]:
    """The same states in managed memory, which the driver moves to the host when the card is full."""

    def paged(tensors: Sequence[Tensor], width: int) -> States:
        whole = states(tensors, width)
        return States(
            paged=whole.bytes,
            count=0,
            formula=f"{whole.formula}; in managed memory, outside PyTorch's allocator",
            source=BITSANDBYTES,
        )

    return paged


def _adam_32(tensors: Sequence[Tensor], width: int) -> States:
    del width
    whole, count = _blocks(tensors, 4)
    numel = sum(tensor.numel * tensor.count for tensor in tensors)
    return States(bytes=2 * whole, count=2 * count, formula=f"both moments in fp32: 2 x {numel:,} x 4 B")


_OTHERS: dict[str, Callable[[Sequence[Tensor], int], States]] = {
    "adafactor": _adafactor,
    "muon": _muon,
    "adamw_8bit": _eight_bit,
    "paged_adamw_32bit": _paged(_adam_32),
    "paged_adamw_8bit": _paged(_eight_bit),
}
