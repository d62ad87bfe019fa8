"""Optimizers that look at a matrix as such: Adafactor and Muon, as torch.optim has them."""

from collections.abc import Sequence

from vramtui.estimators.analytic.optimizers.registry import TORCH, LoopStep, States, blocks_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.reduction import column_sum_scratch
from vramtui.models.spec import Parameter


def adafactor(tensors: Sequence[Parameter], itemsize: int, card: CardLimits, *, foreach: bool) -> States:
    """A row's and a column's mean square of each matrix, all numbers of a vector; no first moment."""
    size = count = 0
    for tensor in tensors:
        each = (tensor.numel,) if len(tensor.shape) < 2 else _sides(tensor)
        size += sum(rounded(numel * itemsize) for numel in each) * tensor.count
        count += len(each) * tensor.count
    whole, _ = blocks_of(tensors, itemsize)
    if foreach:
        step, words = whole, "an update for each parameter, all at once"
    else:
        step, words = _in_loop(tensors, itemsize, card), "the largest tensor's update, and that of the one before"

    def loop(tensor: Parameter) -> LoopStep:
        sums, update = _of_one(tensor, itemsize, card)
        return (sums, (update,)) if sums else ((update,),)

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


def _sides(tensor: Parameter) -> tuple[int, int]:
    return tensor.numel // tensor.shape[-1], tensor.numel // tensor.shape[-2]


def _in_loop(tensors: Sequence[Parameter], itemsize: int, card: CardLimits) -> int:
    """The update before this one is alive until the next is made; a column's norm leaves partial sums beside it."""
    before = most = 0
    for tensor in (*tensors, *tensors):
        sums, size = _of_one(tensor, itemsize, card)
        most = max(most, before + max(size, sum(sums)))
        before = size
    return most


def _of_one(tensor: Parameter, itemsize: int, card: CardLimits) -> tuple[tuple[int, ...], int]:
    """Norms of a matrix's rows and columns with the partial sums beside them, and the update."""
    size = rounded(tensor.numel * itemsize)
    if len(tensor.shape) < 2:
        return (), size
    rows, columns = tensor.shape[-2:]
    return (*(rounded(numel * itemsize) for numel in _sides(tensor)), column_sum_scratch(rows, columns, card)), size


def muon(inside: Sequence[Parameter], itemsize: int, rest: States) -> States:
    """Muon over the matrices `inside`, and AdamW over the `rest`, one after the other."""
    block, ones = blocks_of(inside, itemsize)
    most = max((_orthogonal(tensor, itemsize) for tensor in inside), default=0)
    return States(
        bytes=block + rest.bytes,
        count=ones + rest.count,
        step=max(most, rest.step),
        formula=f"momentum of {ones:,} hidden matrices, {block:,} B; AdamW of all else: {rest.formula}",
        step_formula="Newton–Schulz of the largest matrix in bf16, or the temporaries of AdamW's part",
        source=f"{TORCH}/_muon.py",
        note="Muon trains the hidden matrices; embeddings, output layer, experts' stacked weights and vectors have "
        "AdamW, as torch.optim.Muon takes matrices alone",
    )


def _orthogonal(tensor: Parameter, itemsize: int) -> int:
    """The update, its copy in bf16, the next iterate, and two square matrices of the smaller side."""
    small = min(tensor.shape)
    return rounded(tensor.numel * itemsize) + 2 * rounded(tensor.numel * 2) + 2 * rounded(small * small * 2)
