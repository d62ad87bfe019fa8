"""Copies between host and GPU or of tensors that kernels cannot read as they are; gathering and scattering."""

from collections.abc import Iterator
from typing import Any

import torch

from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.kernels import after, kernel, works_in
from vramtui.estimators.torch_facts.reduction import scan, sort_pairs

_FORMS = {4: torch.channels_last, 5: torch.channels_last_3d}
_ROWS = torch.contiguous_format


def form_of(tensor: torch.Tensor) -> torch.memory_format:
    """Channels-last if its strides are in that order, also those of a part of one; rows for any other.

    `suggest_memory_format` of c10/core/TensorImpl.h, `is_channels_last_strides_2d` of c10/core/MemoryFormat.h.
    """
    least, strides, sizes = 0, tensor.stride(), tensor.shape
    if tensor.dim() not in _FORMS or strides[1] == 0:
        return _ROWS
    for dim in (1, *range(tensor.dim() - 1, 1, -1), 0):
        if sizes[dim] == 0 or strides[dim] < least or (dim == 0 and least == strides[1]):
            return _ROWS
        least = strides[dim] * (max(1, sizes[dim]))
    return _FORMS[tensor.dim()]


# Tensors that are copied if they do not lie as the kernel reads them: whose form it reads (or rows), which
# arguments these are by their places, and the operators.
for _form, _read, _names in (
    (0, (0,), ("upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d avg_pool2d "
     "max_pool2d_with_indices upsample_nearest2d_backward _upsample_nearest_exact2d_backward "
     "upsample_bilinear2d_backward")),
    (1, (0, 1), "avg_pool2d_backward max_pool2d_with_indices_backward"),
    (None, (0,), ("reflection_pad2d upsample_nearest1d_backward _upsample_nearest_exact1d_backward "
     "upsample_linear1d_backward upsample_bicubic2d_backward _upsample_bilinear2d_aa_backward "
     "_upsample_bicubic2d_aa_backward upsample_nearest3d_backward _upsample_nearest_exact3d_backward topk median.dim "
     "nanmedian.dim kthvalue nll_loss2d_forward bucketize.Tensor _softmax _log_softmax")),
    (None, (0, 1), "_cdist_forward _log_softmax_backward_data"),
):  # fmt: skip

    @after(*_names.split())
    def read(call: Any, _out: Any, of: int | None = _form, places: tuple[int, ...] = _read) -> None:
        form = _ROWS if of is None else form_of(call.args[of])
        call.copy(*(call.args[place] for place in places), form=form)


@after("_adaptive_avg_pool2d")
def read_by_strides(call: Any, _out: Any) -> None:
    """Channels-last, and parts of it, are read as they lie."""
    if form_of(call.args[0]) is _ROWS:
        call.copy(call.args[0])


@after("upsample_nearest3d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
       "adaptive_max_pool2d", "upsample_trilinear3d_backward", "adaptive_max_pool2d_backward")  # fmt: skip
def copied_into_place(call: Any, out: Any) -> None:
    """Rows are written, and copied into place; the backward of max pooling reads its indices (third) as rows too."""
    call.copy(*(out if isinstance(out, tuple) else (out,)), call.args[0])
    if call.func is torch.ops.aten.adaptive_max_pool2d_backward.default:
        call.copy(call.args[2])


works_in("mode")(lambda call: [call.args[0].nbytes])  # a copy of the first argument is sorted
# args: grad, rows, exponent, distances
works_in("_pdist_backward")(lambda call: [(call.args[1].shape[0] - 1) * call.args[1].nbytes])
# Each dimension takes a tensor of its own (ATen/native/TensorTransformations.h, roll_common).
works_in("roll", first=True)(lambda call: [call.args[0].nbytes] * len(call.args[1][1:]))
# One draw, or draws without putting back: the largest of probabilities over exponential noise.
works_in("multinomial", first=True)(
    lambda call: [] if call.argument("replacement") and call.args[1] != 1 else [call.args[0].nbytes]
)


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


@after("_to_copy", "copy_")
def copy(call: Any, out: Any) -> None:
    """`copy_requires_temporaries`: a blocking copy converts on the host, another one on the card."""
    source, target = call.args[call.func is torch.ops.aten.copy_.default], out
    if not isinstance(source, torch.Tensor) or is_sim(source) == is_sim(target):
        return
    non_blocking = bool(call.argument("non_blocking"))
    onto, other = (target, source) if is_sim(target) else (source, target)
    if (non_blocking and source.dtype is not target.dtype) or not onto.is_contiguous():
        call.scratch(onto.numel() * (other if non_blocking else onto).element_size())


_INDEX = 8
_MASKS = (torch.bool, torch.uint8)


def _places(call: Any, indices: Any) -> Iterator[Any]:
    """The indices as the kernel takes them: 64-bit and on the card; masks as the places where they are true.

    What is made for that lives as long as the call. Masks that follow from data are left as they are.
    """
    for index in indices:
        if not isinstance(index, torch.Tensor) or index.dtype not in _MASKS:
            if index is not None and (index.dtype is not torch.int64 or index.device.type == "cpu"):
                call.scratch(index.numel() * _INDEX)
            yield index
        elif (count := _count_of(call, index, index.shape)) is None:
            # PyTorch's own shapes take bytes for places (2.13, torch/_meta_registrations.py, `index.Tensor`).
            yield index.view(torch.bool) if index.dtype is torch.uint8 else index
        else:
            place = torch.ops.aten.empty.memory_format([count], dtype=torch.int64, device=call.args[0].device)
            yield from [place] * index.dim()


def _count_of(call: Any, mask: torch.Tensor, shape: Any) -> int | None:
    """How many places a mask has, for which memory is taken; None if that follows from data."""
    known = call.memory.values.value_of(mask)
    if known is None:
        return None
    with torch._C._DisableTorchDispatch():
        count = int(known.expand(shape).count_nonzero())
    call.scratch(count * len(shape) * _INDEX)
    return count


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
    call.args = (call.args[0], list(_places(call, call.args[1])))
    return call.run()


@kernel("masked_select")
def masked_select(call: Any) -> Any:
    """args: tensor, mask; the mask's places are what the tensor is indexed with."""
    tensor, mask = call.args
    count = _count_of(call, mask, torch.broadcast_shapes(tensor.shape, mask.shape))
    if count is None:
        return call.run()
    return call.take(torch.ops.aten.empty.memory_format([count], dtype=tensor.dtype, device=tensor.device))


@kernel("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put")
def index_put(call: Any) -> Any:
    """args: target, indices, values, accumulate; adding up sorts the indices first (`index_put_with_sort_kernel`)."""
    target, asked, source = call.args[:3]
    indices = list(_places(call, asked))
    tensors = [index for index in indices if isinstance(index, torch.Tensor)]
    if len(tensors) == 1 and tensors[0].dtype in _MASKS and indices[0] is tensors[0]:
        # An unknown mask has as many places as there are values for it: the first size of what is written.
        behind, entry = target.dim() - tensors[0].dim(), call.memory.find(tensors[0])
        if entry is not None and source.dim() == behind + 1 and source.shape[0] > 1:
            entry.places = source.shape[0]
    out = call.run()
    if not call.argument("accumulate") or not tensors or tensors[0].dtype is torch.bool:
        return out
    if count := torch.broadcast_shapes(*(index.shape for index in tensors)).numel():
        linear = call.scratch(count * _INDEX)
        call.copy(source)
        scratch = [call.scratch(count * _INDEX), call.scratch(count * _INDEX)]
        order = call.scratch(count * _INDEX)
        bits = max(int(target.numel()).bit_length(), 1)
        call.drop(call.scratch(sort_pairs(count, _INDEX, _INDEX, bits, call.memory.device.capability)), order)
        call.drop(*scratch, linear)
    return out


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
    _, _, order = (call.scratch(count * item) for _ in range(3))
    bits = max(int(rows).bit_length(), 1)
    call.drop(call.scratch(sort_pairs(count, item, item, bits, call.memory.device.capability)), order)
    if by_frequency:
        call.scratch(count * item)
        for _ in range(2):
            call.drop(call.scratch(scan(count)))
    out = call.run()
    # Sum each row's segments.
    _, _, keys = (call.scratch(nbytes) for nbytes in (count * item, 8, count * item))
    call.drop(call.scratch(scan(count)), keys)
    segments = min(count, rows)
    for _ in range(2):
        call.scratch(segments * item)
    call.drop(call.scratch(scan(segments)))
    partials = count // _ROWS_PER_PARTIAL + segments
    call.scratch(8)
    call.scratch(partials * item)
    width = grad.shape[-1]
    lowered = grad.dtype in (torch.float16, torch.bfloat16)
    precise = 4 if lowered else grad.element_size()
    threads = -(-width // 32) * 32
    blocks = -(-segments * threads // min(threads, _MOST_THREADS))
    is_few = blocks < call.memory.device.limits.multiprocessors * _ATOMIC_BLOCKS_PER_SM and partials > blocks * 4
    if is_few and not torch.are_deterministic_algorithms_enabled():  # long segments are summed straight into the table
        call.scratch(partials * item)
        call.scratch(rows * width * precise if lowered else 0)
    else:
        call.scratch(partials * width * precise)
    return out
