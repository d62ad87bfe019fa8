"""Copies between host and GPU or of tensors that kernels cannot read as they are; gathering and scattering."""

from typing import Any

import torch

from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.kernels import after, kernel
from vramtui.estimators.torch_facts.reduction import scan, sort_pairs

_FORMS = ((4, torch.channels_last), (5, torch.channels_last_3d))
_ROWS = torch.contiguous_format


def form_of(tensor: torch.Tensor) -> torch.memory_format:
    """Channels-last if its strides are in that order, also those of a part of one; rows for any other.

    `suggest_memory_format` of c10/core/TensorImpl.h, `is_channels_last_strides_2d` of c10/core/MemoryFormat.h.
    """
    form = next((form for dim, form in _FORMS if tensor.dim() == dim), None)
    if form is None or tensor.stride()[1] == 0:
        return _ROWS
    least, strides, sizes = 0, tensor.stride(), tensor.shape
    for dim in (1, *range(tensor.dim() - 1, 1, -1), 0):
        if sizes[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return _ROWS
        least = strides[dim] * (max(1, sizes[dim]))
    return form


@after("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
        "avg_pool2d", "max_pool2d_with_indices", "upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward",
        "upsample_bilinear2d_backward")  # fmt: skip
def read_in_its_form(call: Any, _out: Any) -> None:
    """The first argument is copied if it is neither rows nor channels-last throughout."""
    call.copy(call.args[0], form=form_of(call.args[0]))


@after("_adaptive_avg_pool2d")
def read_by_strides(call: Any, _out: Any) -> None:
    """Channels-last, and parts of it, are read as they lie."""
    if form_of(call.args[0]) is _ROWS:
        call.copy(call.args[0])


def _read_as_rows(*places: int, writes: bool = False) -> Any:
    """A rule for kernels that read these arguments as rows, and that write rows which are copied into place."""

    def rule(call: Any, out: Any) -> None:
        if writes:
            call.copy(*(out if isinstance(out, tuple) else (out,)))
        call.copy(*(call.args[place] for place in places))

    return rule


after("reflection_pad2d", "upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward",
      "upsample_linear1d_backward", "upsample_bicubic2d_backward", "_upsample_bilinear2d_aa_backward",
      "_upsample_bicubic2d_aa_backward", "upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward",
      "topk", "median.dim", "nanmedian.dim", "kthvalue", "nll_loss2d_forward", "bucketize.Tensor",
)(_read_as_rows(0))  # fmt: skip
after("upsample_nearest3d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
      "adaptive_max_pool2d", "upsample_trilinear3d_backward")(_read_as_rows(0, writes=True))  # fmt: skip
after("adaptive_max_pool2d_backward")(_read_as_rows(0, 2, writes=True))
after("_cdist_forward")(_read_as_rows(0, 1))
after("mode")(lambda call, _out: call.scratch(call.args[0].nbytes))  # a copy of the first argument is sorted
# args: grad, rows, exponent, distances
after("_pdist_backward")(lambda call, _out: call.scratch((call.args[1].shape[0] - 1) * call.args[1].nbytes))


@kernel("roll")
def roll(call: Any) -> Any:
    """Each dimension takes a tensor of its own (ATen/native/TensorTransformations.h, roll_common)."""
    for _ in call.args[1][1:]:
        call.scratch(call.args[0].nbytes)
    return call.run()


@kernel("avg_pool2d_backward", "max_pool2d_with_indices_backward")
def pool_backward(call: Any) -> Any:
    """args: grad, input, and more; both are read in the input's form."""
    form, out = form_of(call.args[1]), call.run()
    call.copy(*call.args[:2], form=form)
    return out


@kernel("im2col", "col2im")
def resized(call: Any) -> Any:
    """The result begins as large as the input; its memory is changed if that is too small (`im2col_cuda`)."""
    tensor, out = call.args[0], call.untracked()
    if out.nbytes > tensor.nbytes:
        call.scratch(tensor.nbytes)
    else:
        out.untyped_storage().resize_(tensor.nbytes)
    call.take(out)
    call.copy(tensor)
    return out


@after("_cdist_backward")
def cdist_backward(call: Any, out: Any) -> None:
    """args: grad, rows, other rows, exponent, distances: a gradient for each pair of rows is made before their sum."""
    other = call.args[2]
    call.copy(*call.args[:3])
    if out.numel() and other.numel():
        call.scratch(out.numel() // max(out.shape[-1], 1) * other.shape[-2] * out.shape[-1] * out.element_size())


def _stage(call: Any, source: torch.Tensor, target: torch.Tensor, *, non_blocking: bool) -> None:
    """`copy_requires_temporaries`: a blocking copy converts on the host, another one on the card."""
    if is_sim(source) == is_sim(target):
        return
    same_type = source.dtype is target.dtype
    onto, other = (target, source) if is_sim(target) else (source, target)
    if (non_blocking and not same_type) or not onto.is_contiguous():
        call.scratch(onto.numel() * (other if non_blocking else onto).element_size())


@after("_to_copy")
def to_copy(call: Any, out: Any) -> None:
    _stage(call, call.args[0], out, non_blocking=bool(call.kwargs.get("non_blocking")))


@after("copy_")
def copy(call: Any, _out: Any) -> None:
    """args: target, source, whether to wait."""
    target, source = call.args[:2]
    non_blocking = call.args[2] if len(call.args) > 2 else call.kwargs.get("non_blocking", False)
    if isinstance(source, torch.Tensor):
        _stage(call, source, target, non_blocking=bool(non_blocking))


_INDEX = 8


def _places(call: Any, indices: Any) -> list[Any]:
    """The indices as the kernel takes them: 64-bit and on the card; masks as the places where they are true.

    What is made for that lives as long as the call. Masks that follow from data are left as they are.
    """
    places: list[Any] = []
    for index in indices:
        if not isinstance(index, torch.Tensor):
            places.append(index)
        elif index.dtype in (torch.bool, torch.uint8):
            places += _places_of_mask(call, index)
        else:
            if index.dtype is not torch.int64 or index.device.type == "cpu":
                call.scratch(index.numel() * _INDEX)
            places.append(index)
    return places


def _places_of_mask(call: Any, mask: torch.Tensor) -> list[torch.Tensor]:
    known = call.memory.values.value_of(mask)
    if known is None:  # PyTorch's own shapes take bytes for places (2.13, torch/_meta_registrations.py, `index.Tensor`)
        return [mask.view(torch.bool)] if mask.dtype is torch.uint8 else [mask]
    with torch._C._DisableTorchDispatch():
        count = int(known.count_nonzero())
    call.scratch(count * mask.dim() * _INDEX)
    places = torch.ops.aten.empty.memory_format([count], dtype=torch.int64, device=call.args[0].device)
    return [places] * mask.dim()


@kernel("where.self")
def where(call: Any) -> Any:
    """Bytes become conditions first, which shapes do not take (ATen/native/TensorCompare.cpp, `where_self_out`)."""
    condition = call.args[0]
    if condition.dtype is torch.uint8:
        call.scratch(condition.numel())
        call.args = (condition.view(torch.bool), *call.args[1:])
    return call.run()


@kernel("index.Tensor")
def index(call: Any) -> Any:
    call.args = (call.args[0], _places(call, call.args[1]))
    return call.run()


@kernel("masked_select")
def masked_select(call: Any) -> Any:
    """args: tensor, mask; the mask's places are what the tensor is indexed with."""
    tensor, mask = call.args
    known = call.memory.values.value_of(mask)
    if known is None:
        return call.run()
    shape = torch.broadcast_shapes(tensor.shape, mask.shape)
    with torch._C._DisableTorchDispatch():
        count = int(known.expand(shape).count_nonzero())
    call.scratch(count * len(shape) * _INDEX)
    return call.take(torch.ops.aten.empty.memory_format([count], dtype=tensor.dtype, device=tensor.device))


@kernel("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def index_put(call: Any) -> Any:
    """args: target, indices, values, accumulate; adding up sorts the indices first (`index_put_with_sort_kernel`)."""
    target, indices, source = call.args[:3]
    accumulate = call.args[3] if len(call.args) > 3 else call.kwargs.get("accumulate", False)
    indices = _places(call, indices)
    given = [index for index in indices if isinstance(index, torch.Tensor)]
    if len(given) == 1 and given[0].dtype in (torch.bool, torch.uint8) and indices[0] is given[0]:
        # An unknown mask has as many places as there are values for it: the first size of what is written.
        behind, entry = target.dim() - given[0].dim(), call.memory.find(given[0])
        if entry is not None and source.dim() == behind + 1 and source.shape[0] > 1:
            entry.places = source.shape[0]
    out = call.run()
    if not accumulate or not given or given[0].dtype is torch.bool:
        return out
    count = torch.broadcast_shapes(*(index.shape for index in given)).numel()
    if not count:
        return out
    linear = call.scratch(count * _INDEX)
    call.copy(source)
    scratch = [call.scratch(count * _INDEX), call.scratch(count * _INDEX)]
    order = call.scratch(count * _INDEX)
    bits = max(int(target.numel()).bit_length(), 1)
    call.drop(call.scratch(sort_pairs(count, _INDEX, _INDEX, bits, call.memory.device.capability)), order)
    call.drop(*scratch, linear)
    return out


@kernel("multinomial")
def multinomial(call: Any) -> Any:
    """One draw, or draws without putting back: the largest of probabilities over exponential noise."""
    tensor, count = call.args[:2]
    again = call.args[2] if len(call.args) > 2 else call.kwargs.get("replacement", False)
    if not again or count == 1:
        call.scratch(tensor.nbytes)
    return call.run()


@kernel("masked_scatter", "masked_scatter_", "masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar",
        "masked_fill_.Tensor")  # fmt: skip
def refuse_mask_of_numbers(call: Any) -> Any:
    """A mask of bytes is refused (ATen/native/cuda/IndexKernel.cpp and Indexing.cu); PyTorch's own shapes take it."""
    name, mask = call.func.overloadpacket.__name__, call.args[1]
    if mask.dtype != torch.bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}")
    return call.run()


_UNSORTED_UP_TO = 3072
_ROWS_PER_PARTIAL = 10
_MOST_THREADS = 1024
_ATOMIC_BLOCKS_PER_SM = 4


@kernel("embedding_dense_backward")
def embedding_backward(call: Any) -> Any:
    """args: grad [..., width], indices, rows of the table, padding index, scale by frequency."""
    grad, indices, rows, _, by_frequency = call.args
    call.copy(indices, grad)
    count, item = indices.numel(), indices.element_size()
    if count <= _UNSORTED_UP_TO and not by_frequency:
        return call.run()
    scratch = [call.scratch(count * item), call.scratch(count * item)]
    order = call.scratch(count * item)
    bits = max(int(rows).bit_length(), 1)
    temporary = call.scratch(sort_pairs(count, item, item, bits, call.memory.device.capability))
    call.drop(temporary, order)
    if by_frequency:
        scratch.append(call.scratch(count * item))
        call.drop(call.scratch(scan(count)))
        call.drop(call.scratch(scan(count)))
    out = call.run()
    _sum_segments(call, count, item, rows, grad)
    call.drop(*scratch)
    return out


def _sum_segments(call: Any, count: int, item: int, rows: int, grad: torch.Tensor) -> None:
    scratch = [call.scratch(count * item), call.scratch(8)]
    keys = call.scratch(count * item)
    call.drop(call.scratch(scan(count)), keys)
    segments = min(count, rows)
    scratch += [call.scratch(segments * item), call.scratch(segments * item)]
    call.drop(call.scratch(scan(segments)))
    partials = count // _ROWS_PER_PARTIAL + segments
    scratch += [call.scratch(8), call.scratch(partials * item)]
    width = grad.shape[-1]
    lowered = grad.dtype in (torch.float16, torch.bfloat16)
    precise = 4 if lowered else grad.element_size()
    threads = -(-width // 32) * 32
    blocks = -(-segments * threads // min(threads, _MOST_THREADS))
    is_few = blocks < call.memory.device.limits.multiprocessors * _ATOMIC_BLOCKS_PER_SM and partials > blocks * 4
    if is_few and not torch.are_deterministic_algorithms_enabled():  # long segments are summed straight into the table
        scratch.append(call.scratch(partials * item))
        if lowered:
            scratch.append(call.scratch(rows * width * precise))
    else:
        scratch.append(call.scratch(partials * width * precise))
    call.drop(*reversed(scratch))
