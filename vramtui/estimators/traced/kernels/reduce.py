"""A reduction's dimensions, ordered and merged as TensorIterator does it before CUDA's generic reduction."""

from dataclasses import dataclass

import torch

from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.reduction import Reduction, ReductionScratch, reduction_scratch


@dataclass(frozen=True)
class Dimension:
    """One merged dimension: its size, and what a step along it moves in output and input, in elements."""

    size: int
    out: int
    inp: int


def merged(tensor: torch.Tensor, dims: tuple[int, ...], out: torch.Tensor) -> list[Dimension]:
    """The dimensions of a reduction of `tensor` over `dims` into `out`, fastest first, reduced ones in front."""
    strides = _out_strides(tensor, dims, out)
    found = [Dimension(*each) for each in zip(tensor.shape, strides, tensor.stride(), strict=True)]
    ordered: list[Dimension] = []
    for dim in reversed(found):
        at = len(ordered)
        for i in range(len(ordered) - 1, -1, -1):
            order = _order(ordered[i], dim)
            if order > 0:
                at = i
            elif order < 0:
                break
        ordered.insert(at, dim)
    return _coalesce(ordered)


def _out_strides(tensor: torch.Tensor, dims: tuple[int, ...], out: torch.Tensor) -> list[int]:
    own = list(out.stride())
    if out.dim() == tensor.dim():
        return [0 if i in dims else own[i] for i in range(tensor.dim())]
    return [0 if i in dims else own.pop(0) for i in range(tensor.dim())]


def _order(first: Dimension, second: Dimension) -> int:
    """1 when `second` belongs before `first`, -1 when not, 0 when neither stride tells."""
    if (first.out == 0) != (second.out == 0):
        return 1 if second.out == 0 else -1
    for a, b in ((first.out, second.out), (first.inp, second.inp)):
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if first.size > second.size:
            return 1
    return 0


def _coalesce(dims: list[Dimension]) -> list[Dimension]:
    done: list[Dimension] = []
    for dim in dims:
        last = done[-1] if done else None
        if last is None:
            done.append(dim)
        elif last.size == 1:
            done[-1] = dim
        elif dim.size == 1:
            continue
        elif last.size * last.out == dim.out and last.size * last.inp == dim.inp:
            done[-1] = Dimension(last.size * dim.size, last.out, last.inp)
        else:
            done.append(dim)
    return done


def plan(
    tensor: torch.Tensor,
    dims: tuple[int, ...],
    out: torch.Tensor,
    card: CardLimits,
    *,
    accumulator: int,
    vector: int = 4,
) -> ReductionScratch:
    """Plan the reduction.

    Args:
        tensor: what is reduced.
        dims: over which dimensions, none negative.
        out: the result.
        card: what kernels ask of it.
        accumulator: bytes of one partial result.
        vector: how many elements a thread loads at once along a contiguous reduced dimension.
    """
    if not tensor.dim() or not tensor.numel() or not out.numel():
        return ReductionScratch()
    found = merged(tensor, dims, out)
    reduced = [dim for dim in found if dim.out == 0]
    kept = found[len(reduced) :]
    outputs = out.numel()
    inputs = tensor.numel() // outputs
    along = not kept or not reduced or reduced[0].inp < kept[0].inp
    wide, high = (inputs, outputs) if along else (outputs, inputs)
    fastest = (reduced or kept)[0].inp if along else kept[0].inp
    out_vector = 1
    if fastest == 1:
        if along and wide >= 128 and len(reduced) == 1:
            wide //= vector
        elif not along:
            out_vector = _out_vector(tensor, found, len(reduced))
            wide //= out_vector
    asked = Reduction(
        along=along,
        inputs=inputs,
        outputs=outputs,
        width=wide,
        height=high,
        out_vector=out_vector,
        accumulator=accumulator,
    )
    return reduction_scratch(asked, card)


def _out_vector(tensor: torch.Tensor, found: list[Dimension], first_kept: int) -> int:
    numbers = [tensor.storage_offset(), found[first_kept].size]
    numbers += [dim.inp for i, dim in enumerate(found) if i != first_kept]
    size = 4
    for number in numbers:
        while number % size:
            size //= 2
    return size
