"""Every optimizer's states and temporaries, by its name and implementation: bytes between steps and within one."""

from collections.abc import Callable, Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import Optimizer, OptimizerImplementation
from vramtui.estimators.analytic.sizes.precision import numel_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.reduction import column_sum_scratch
from vramtui.models.spec import Parameter

TORCH = "PyTorch, torch/optim"
# What a loop's step over one tensor takes: blocks that come together and go before the next come; the last of all stays
# until the next tensor has its own.
LoopStep = tuple[tuple[int, ...], ...]


class States(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes between steps.

    Attributes:
        bytes: in 512-byte blocks; `count` blocks.
        step: bytes of temporaries in a step: `lists` of one for each parameter, or by `loop` one after another.
        formula: how `bytes` comes about; `step_formula` the same for `step`.
        paged: bytes kept in managed memory, outside PyTorch's allocator.
        from_build: whether they are there before the first step.
        note: what was assumed, a sentence; empty if nothing was.
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


def blocks_of(tensors: Sequence[Parameter], itemsize: int) -> tuple[int, int]:
    """Bytes of `tensors` in blocks of 512, and how many tensors there are."""
    whole = sum(rounded(tensor.numel * itemsize) * tensor.count for tensor in tensors)
    return whole, sum(tensor.count for tensor in tensors)


# States of a parameter's own shape, tensors of temporaries in a foreach step, and at once in a loop's step.
_ELEMENTWISE: dict[Optimizer, tuple[int, int, int, str]] = {
    "sgd": (0, 0, 0, ""), "momentum": (1, 0, 0, "momentum"), "adam": (2, 1, 2, "both moments"),
    "adamw": (2, 1, 2, "both moments"), "amsgrad": (3, 1, 2, "both moments and the largest second one"),
    "rmsprop": (1, 1, 1, "mean squares"), "adagrad": (1, 2, 1, "sums of squares"), "lion": (1, 3, 3, "momentum"),
}  # fmt: skip
FUSED: frozenset[Optimizer] = frozenset({"sgd", "momentum", "adam", "adamw", "amsgrad", "adagrad", "muon"})
_COUNTED: frozenset[Optimizer] = frozenset({"adam", "adamw", "amsgrad", "adagrad"})
_LION = "google/automl, lion/lion_pytorch.py (Chen et al. 2023, arXiv 2302.06675)"
_BITS = frozenset({"adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"})

SMALLEST_8BIT = 4096
BLOCK_8BIT = 256
SMALLEST_PAGED = 100_000
_BITS_SOURCE = "bitsandbytes, optim/optimizer.py and functional.py"
_MAPS = 2 * rounded(256 * 4)
_BITS_NOTE = "bitsandbytes has one kernel for each tensor, whatever run.optimizer_implementation says"
_PAGED_NOTE = (
    "paged states are counted in full outside PyTorch's allocator; the driver moves them to the host when the card is "
    "full, so the process may show less"
)


def optimizer_states(
    tensors: Sequence[Parameter],
    itemsize: int,
    optimizer: Optimizer,
    implementation: OptimizerImplementation,
    card: CardLimits,
) -> States:
    """The states of `optimizer` over trained tensors of `itemsize` bytes a number.

    Raises:
        UserError: there is no such implementation of it.
    """
    if implementation == "fused" and optimizer not in FUSED | _BITS:
        raise UserError(
            f"run.optimizer_implementation = 'fused' does not exist for run.optimizer = {optimizer!r}; "
            f"it does for {', '.join(sorted(FUSED))}"
        )
    if optimizer in _ELEMENTWISE:
        return _elementwise(tensors, itemsize, optimizer, implementation)
    if optimizer == "adafactor":
        return _adafactor(tensors, itemsize, card, foreach=implementation == "foreach")
    if optimizer == "muon":
        return _muon(tensors, itemsize, implementation)
    # Bitsandbytes' AdamW: states of one byte a number, and paged ones, whose large tensors lie in managed memory.
    small = [tensor for tensor in tensors if tensor.numel < SMALLEST_PAGED]
    large = [tensor for tensor in tensors if tensor.numel >= SMALLEST_PAGED]
    if optimizer == "adamw_8bit":
        numbers, scales, count = _eight_bit(tensors)
        return States(
            bytes=numbers + scales + _MAPS,
            count=count + 2,
            formula=f"2 x (1 B a number + 4 B for each {BLOCK_8BIT}); fp32 below {SMALLEST_8BIT} numbers; 2 maps of 1 "
            "KiB",
            source=_BITS_SOURCE,
            note=_BITS_NOTE,
        )
    if optimizer == "paged_adamw_8bit":
        numbers, scales, count = _eight_bit(small)
        paged, large_scales, large_count = _eight_bit(large)
        size, count = numbers + scales + large_scales + _MAPS, count + large_count // 2 + 2
        words = f"2 x 4 B for each {BLOCK_8BIT} numbers, and the states of tensors below {SMALLEST_PAGED:,} numbers"
    else:
        whole, ones = blocks_of(small, 4)
        size, count, paged = 2 * whole, 2 * ones, 2 * blocks_of(large, 4)[0]
        words = f"both moments in fp32: 2 x {numel_of(small):,} x 4 B of tensors below {SMALLEST_PAGED:,} numbers"
    return States(
        bytes=size,
        count=count,
        paged=paged,
        formula=f"{words}; of the others {paged:,} B in managed memory, outside PyTorch's allocator",
        source=_BITS_SOURCE,
        note=f"{_BITS_NOTE}; {_PAGED_NOTE}",
    )


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
        before = 0  # a loop's variables still hold the tensor before when the next one's are made
        for tensor in (*tensors, *tensors):
            own = rounded(tensor.numel * itemsize)
            step, before = max(step, before + in_loop * own), own
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


def _adafactor(tensors: Sequence[Parameter], itemsize: int, card: CardLimits, *, foreach: bool) -> States:
    """A row's and a column's mean square of each matrix, all numbers of a vector; no first moment."""

    def sides(tensor: Parameter) -> tuple[int, ...]:
        return tensor.numel // tensor.shape[-1], tensor.numel // tensor.shape[-2]

    def of_one(tensor: Parameter) -> tuple[tuple[int, ...], int]:
        """Norms of a matrix's rows and columns with partial sums next to them, and the update."""
        size = rounded(tensor.numel * itemsize)
        if len(tensor.shape) < 2:
            return (), size
        norms = (rounded(numel * itemsize) for numel in sides(tensor))
        return (*norms, column_sum_scratch(*tensor.shape[-2:], card)), size

    def loop(tensor: Parameter) -> LoopStep:
        sums, update = of_one(tensor)
        return (sums, (update,)) if sums else ((update,),)

    size = count = 0
    for tensor in tensors:
        each = (tensor.numel,) if len(tensor.shape) < 2 else sides(tensor)
        size += sum(rounded(numel * itemsize) for numel in each) * tensor.count
        count += len(each) * tensor.count
    if foreach:
        step, words = blocks_of(tensors, itemsize)[0], "an update for each parameter, all at once"
    else:
        # The update before this one is alive until the next is made.
        step, words, before = 0, "the largest tensor's update, and that of the one before", 0
        for tensor in (*tensors, *tensors):
            sums, update = of_one(tensor)
            step, before = max(step, before + max(update, sum(sums))), update
    return States(
        bytes=size,
        count=count,
        step=step,
        lists=int(foreach),
        loop=None if foreach else loop,
        formula="a mean square for each row and each column of a matrix, for each number of a vector",
        step_formula=words,
        source=f"{TORCH}/_adafactor.py",
        note="Adafactor is torch's: no momentum, and matrices factored along their last two dimensions",
    )


def _muon(tensors: Sequence[Parameter], itemsize: int, implementation: OptimizerImplementation) -> States:
    """Muon over the hidden matrices, those of the blocks (in a list of layers all but embeddings and the last), and
    AdamW over the rest, one after the other.
    """
    inside = [tensor for tensor in tensors if tensor.layer and len(tensor.shape) == 2]
    if not any(tensor.layer for tensor in tensors):
        inside = [tensor for tensor in tensors if len(tensor.shape) == 2 and tensor.module != "embedding"][:-1]
    rest = _elementwise([tensor for tensor in tensors if tensor not in inside], itemsize, "adamw", implementation)
    block, ones = blocks_of(inside, itemsize)
    most = 0
    for tensor in inside:
        # The update, its copy in bf16, the next iterate, and two square matrices of the smaller side.
        square = rounded(min(tensor.shape) ** 2 * 2)
        most = max(most, rounded(tensor.numel * itemsize) + 2 * rounded(tensor.numel * 2) + 2 * square)
    return States(
        bytes=block + rest.bytes,
        count=ones + rest.count,
        step=max(most, rest.step),
        formula=f"momentum of {ones:,} hidden matrices, {block:,} B; AdamW of all else: {rest.formula}",
        step_formula="Newton–Schulz of the largest matrix in bf16, or the temporaries of AdamW's part",
        source=f"{TORCH}/_muon.py",
        note="Muon trains the hidden matrices; embeddings, output layer, experts' stacked weights and vectors have "
        "AdamW, as torch.optim.Muon takes only matrices",
    )


def _eight_bit(tensors: Sequence[Parameter]) -> tuple[int, int, int]:
    """Bytes of both states, one byte a number (tensors below 4096 numbers in fp32), bytes of the fp32 scales of their
    blocks, and how many blocks of the allocator these are.
    """
    numbers = scales = count = 0
    for tensor in tensors:
        if tensor.numel < SMALLEST_8BIT:
            numbers += 2 * rounded(tensor.numel * 4) * tensor.count
            count += 2 * tensor.count
            continue
        numbers += 2 * rounded(tensor.numel) * tensor.count
        scales += 2 * rounded(-(-tensor.numel // BLOCK_8BIT) * 4) * tensor.count
        count += 4 * tensor.count
    return numbers, scales, count
