"""Operators that run on the generic reduction; prefix sums and sorts, and norms over lists of tensors as optimizers and
gradient clipping take them.
"""

from typing import Any, NamedTuple

import torch

from vramtui.dryrun.fake.kernels import after, kernel, works_in
from vramtui.estimators.torch_facts import reduction as facts
from vramtui.estimators.torch_facts.cards import CardLimits


class Dimension(NamedTuple):
    """One merged dimension: its size, and what a step along it moves in output and input, in elements."""

    size: int
    out: int
    inp: int


def merged(tensor: torch.Tensor, dims: tuple[int, ...], out: torch.Tensor) -> list[Dimension]:
    """The dimensions of a reduction of `tensor` over `dims` into `out`, fastest first, reduced ones in front."""
    own, is_kept = list(out.stride()), out.dim() == tensor.dim()
    strides = [0 if i in dims else own[i] if is_kept else own.pop(0) for i in range(tensor.dim())]
    ordered: list[Dimension] = []
    for dim in map(Dimension, reversed(tensor.shape), reversed(strides), reversed(tensor.stride())):
        at = len(ordered)
        for i in range(len(ordered) - 1, -1, -1):
            order = _order(ordered[i], dim)
            if order > 0:
                at = i
            elif order < 0:
                break
        ordered.insert(at, dim)
    done: list[Dimension] = []
    for dim in ordered:
        if done and done[-1].size == 1:
            done[-1] = dim
        elif done and dim.size != 1 and (done[-1].size * done[-1].out, done[-1].size * done[-1].inp) == dim[1:]:
            done[-1] = done[-1]._replace(size=done[-1].size * dim.size)
        elif not done or dim.size != 1:
            done.append(dim)
    return done


def _order(first: Dimension, second: Dimension) -> int:
    """1 when `second` belongs before `first`, -1 when not, 0 when neither stride decides."""
    if (first.out == 0) != (second.out == 0):
        return 1 if second.out == 0 else -1
    for a, b in ((first.out, second.out), (first.inp, second.inp)):
        if a and b and (a != b or first.size > second.size):
            return -1 if a < b else 1
    return 0


def plan(
    tensor: torch.Tensor, dims: Any, out: torch.Tensor, card: CardLimits, *, accumulator: int, vector: int = 4
) -> facts.ReductionScratch:
    if not tensor.dim() or not tensor.numel() or not out.numel():
        return facts.ReductionScratch()
    dimensions = merged(tensor, dims, out)
    reduced = [dim for dim in dimensions if dim.out == 0]
    remaining = dimensions[len(reduced) :]
    outputs, inputs = out.numel(), tensor.numel() // out.numel()
    along = not remaining or not reduced or reduced[0].inp < remaining[0].inp
    wide, high = (inputs, outputs) if along else (outputs, inputs)
    fastest = (reduced or remaining)[0].inp if along else remaining[0].inp
    out_vector = 1
    if fastest == 1 and not along:
        numbers = [tensor.storage_offset(), remaining[0].size]
        numbers += [dim.inp for i, dim in enumerate(dimensions) if i != len(reduced)]
        out_vector = next(size for size in (4, 2, 1) if not any(number % size for number in numbers))
        wide //= out_vector
    elif fastest == 1 and wide >= 128 and len(reduced) == 1:
        wide //= vector
    asked = facts.Reduction(
        along=along,
        inputs=inputs,
        outputs=outputs,
        width=wide,
        height=high,
        out_vector=out_vector,
        accumulator=accumulator,
    )
    return facts.reduction_scratch(asked, card)


def partial(
    call: Any, tensor: torch.Tensor, dims: Any, out: torch.Tensor, *, accumulator: int = 0, vector: int = 4
) -> None:
    """Take and give back the partial results of one reduction; `dims` is as it takes them: None or empty is all.

    Sums are kept in `accumulator` bytes: without it float for halves, 8 for integers.
    """
    if not accumulator:
        kind = out.dtype
        accumulator = 2 * kind.itemsize if kind.is_complex else max(4 if kind.is_floating_point else 8, kind.itemsize)
    whole = range(tensor.dim()) if dims is None or dims in ([], ()) else [dims] if isinstance(dims, int) else dims
    over = tuple(dim % max(tensor.dim(), 1) for dim in whole)
    needs = plan(tensor, over, out, call.memory.limits, accumulator=accumulator, vector=vector)
    if needs.buffer:
        buffer = call.scratch(needs.buffer)
        call.drop(call.scratch(needs.semaphores), buffer)


@kernel("sum", "sum.dim_IntList", "mean", "mean.dim", "prod", "prod.dim_int")
def sums(call: Any) -> Any:
    """A reduction into another type first copies its input, except from halves to float."""
    tensor, dtype = call.args[0], call.argument("dtype")
    if dtype is None and not tensor.is_floating_point() and not tensor.is_complex():
        dtype = torch.int64
    lowered = tensor.dtype in (torch.float16, torch.bfloat16) and dtype is torch.float32
    if dtype is not None and dtype is not tensor.dtype and not lowered:
        call.scratch(tensor.numel() * dtype.itemsize)
    out = call.run()
    vector = 8 if tensor.dtype.itemsize == 2 and call.func.overloadpacket is torch.ops.aten.sum else 4
    partial(call, tensor, call.argument("dim"), out, vector=vector)
    return out


# Operators that reduce, and the bytes that each keeps of a partial result; 0: as sums do, -1: those of their type.
for _names, _bytes in (
    ("any any.dim any.dims all all.dim all.dims", 1),
    ("amax amin max min", -1),
    ("max.dim min.dim argmax argmin", 16),  # a value and an int64, aligned
    ("var.correction std.correction var_mean.correction std_mean.correction", 16),  # mean, m2, count, count as a float
    ("linalg_vector_norm norm.Scalar norm.ScalarOpt_dim norm.ScalarOpt_dtype norm.ScalarOpt_dim_dtype", 0),
):

    @after(*_names.split())
    def reduced(call: Any, out: Any, size: int = _bytes) -> None:
        first = out[0] if isinstance(out, (tuple, list)) else out
        tensor = call.args[0]
        dim, places = call.argument("dim"), out[-1] if isinstance(out, (tuple, list)) else out
        partial(call, tensor, dim, first, accumulator=tensor.element_size() if size < 0 else size)
        if places.dtype is torch.int64 and size == 16 and (entry := call.memory.find(places)) is not None:
            entry.places = tensor.numel() if dim is None or not tensor.dim() else tensor.shape[dim]


_CHUNK = 65536  # elements one block of a multi-tensor kernel takes
_INDEX = 8
_SORTED_IN_PLACE, _LONG_ROW, _MANY_ROWS = 4096, 1_000_000, 128


@works_in("_foreach_norm.Scalar", first=True)
def foreach_norm(call: Any) -> list[int]:
    """Partial norms of every chunk of every tensor, in the type sums are kept in (`foreach_tensor_norm_cuda`)."""
    tensors: list[torch.Tensor] = list(call.args[0])
    most = max((-(-tensor.numel() // _CHUNK) for tensor in tensors), default=0)
    return [len(tensors) * most * (8 if any(tensor.dtype is torch.float64 for tensor in tensors) else 4)]


@works_in("dist", first=True)
def dist(call: Any) -> list[int]:
    tensor, other = call.args[:2]
    return [torch.broadcast_shapes(tensor.shape, other.shape).numel() * torch.result_type(tensor, other).itemsize]


@after("cumsum", "cumprod")
def cumulative(call: Any, out: Any) -> None:
    """The input is first converted to the type of the result, and into one piece; one long row goes through CUB."""
    tensor = call.args[0]
    if tensor.dtype is not out.dtype or not tensor.is_contiguous():
        call.scratch(out.nbytes)
    if tensor.dim() and tensor.numel() == tensor.shape[call.args[1]] and tensor.numel():
        call.scratch(facts.scan(tensor.numel()))


@after("sort", "sort.stable")
def sort(call: Any, _out: Any) -> None:
    """Rows up to 4096 are sorted in place; CUB sorts long ones one by one, few ones whole, else by segments."""
    tensor = call.args[0]
    if not tensor.numel() or not tensor.dim():
        return
    row, count, item = tensor.shape[call.argument("dim")], tensor.numel(), tensor.element_size()
    rows, capability = count // row, call.memory.device.capability
    if row <= _SORTED_IN_PLACE or rows == 1 or row >= _LONG_ROW:
        call.scratch(row * _INDEX)
        if row > _SORTED_IN_PLACE:
            call.scratch(facts.sort_pairs(row, item, _INDEX, 8 * item, capability))
    elif rows < _MANY_ROWS:
        _, _, keys = call.scratch(count * _INDEX, count * _INDEX, count * item)  # a segment and a place for each
        call.drop(call.scratch(facts.sort_pairs(count, item, _INDEX, 8 * item, capability)), keys)
        call.scratch(facts.sort_pairs(count, _INDEX, 0, rows.bit_length(), capability))
    else:
        call.scratch(count * _INDEX, facts.pieces(count * item, count * _INDEX))


@kernel("logsumexp")
def logsumexp(call: Any) -> Any:
    """The exponentials take a tensor of their own (ATen/native/ReduceOps.cpp, logsumexp_out_impl)."""
    tensor = call.args[0]
    out = call.untracked()
    nbytes, item = out.nbytes, out.element_size()
    if tensor.dtype is not out.dtype:
        call.scratch(tensor.numel() * item)
    if tensor.numel():
        call.scratch(nbytes)
        call.drop(call.scratch(nbytes), call.scratch(out.numel()))
    over = call.scratch(tensor.numel() * item)
    call.take(out)
    call.drop(over)
    return out
