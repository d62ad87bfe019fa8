"""How CUDA's generic reduction splits its work, and the global memory it takes when blocks share an output.

The plan follows `setReduceConfig` in ATen/native/cuda/Reduce.cuh, over dimensions ordered and merged as TensorIterator
does it.
"""

from dataclasses import dataclass
from typing import Any

import torch

_MAX_THREADS = 512
_WARP = 32
_FEWEST_VALUES, _MOST_VALUES = 16, 256


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


@dataclass(frozen=True)
class ReductionScratch:
    """What a reduction takes beside its output, in bytes; both 0 when every output is reduced within one block."""

    buffer: int = 0
    semaphores: int = 0


def plan(
    tensor: torch.Tensor, dims: tuple[int, ...], out: torch.Tensor, card: Any, *, accumulator: int, vector: int = 4
) -> ReductionScratch:
    """Plan the reduction.

    Args:
        tensor: what is reduced.
        dims: over which dimensions, none negative.
        out: the result.
        card: gives `multiprocessors` and `threads_per_multiprocessor`.
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
    return _split(
        _block(wide, high, out_vector),
        card,
        along=along,
        inputs=inputs,
        outputs=outputs,
        out_vector=out_vector,
        accumulator=accumulator,
    )


def _out_vector(tensor: torch.Tensor, found: list[Dimension], first_kept: int) -> int:
    numbers = [tensor.storage_offset(), found[first_kept].size]
    numbers += [dim.inp for i, dim in enumerate(found) if i != first_kept]
    size = 4
    for number in numbers:
        while number % size:
            size //= 2
    return size


def _block(wide: int, high: int, out_vector: int) -> tuple[int, int]:
    most = _MAX_THREADS // out_vector
    x, y = (_last_power(n) if n < most else most for n in (wide, high))
    width = min(x, _WARP)
    height = min(y, most // width)
    return min(x, most // height), height


def _last_power(number: int) -> int:
    return 1 << (max(number, 1).bit_length() - 1)


def _up(number: int, by: int) -> int:
    return -(-number // by)


def _split(
    block: tuple[int, int], card: Any, *, along: bool, inputs: int, outputs: int, out_vector: int, accumulator: int
) -> ReductionScratch:
    width, height = block
    step_in, step_out = (width, 1) if along else (1, width)
    across_warps = _up(inputs, step_in) >= min(height * _FEWEST_VALUES, _MOST_VALUES)
    if across_warps:
        step_in *= height
    else:
        step_out *= height
    grid = _up(outputs // out_vector, step_out)
    target = card.multiprocessors * (card.threads_per_multiprocessor // (width * height))
    values = _up(inputs, step_in)
    if not across_warps or values < _MOST_VALUES or grid > target:
        return ReductionScratch()
    blocks = max(min(_up(target, grid), _up(values, _FEWEST_VALUES)), _up(values, _MOST_VALUES))
    if blocks <= 1:
        return ReductionScratch()
    buffer = accumulator * outputs * blocks * (1 if along else width * out_vector)
    return ReductionScratch(buffer, 4 * grid)
