"""Copies of tensors that kernels cannot read as they lie, and of what crosses between host and card.

PyTorch 2.13; each was measured with rows, channels-last, parts of both, turned and expanded tensors
(aten/src/ATen/native/cuda/UpSample*.cu, AveragePool2d.cu, DilatedMaxPool2d.cu, AdaptiveMaxPooling2d.cu,
ReflectionPad.cu, Im2Col.cu, ScanKernels.cpp, DistanceKernel.cu).
"""

from typing import Any

import torch

from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.kernels.registry import kernel

_FORMS = ((4, torch.channels_last), (5, torch.channels_last_3d))
_ROWS = torch.contiguous_format


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _copy(call: Any, tensor: torch.Tensor, form: torch.memory_format = _ROWS) -> None:
    if not tensor.is_contiguous(memory_format=form):
        call.scratch(_bytes(tensor))


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


@kernel("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d", "_upsample_nearest_exact2d",
        "avg_pool2d", "max_pool2d_with_indices", "upsample_nearest2d_backward", "_upsample_nearest_exact2d_backward",
        "upsample_bilinear2d_backward")  # fmt: skip
def read_in_its_form(call: Any) -> Any:
    """The first argument is copied if it is neither rows nor channels-last throughout."""
    out = call.run()
    _copy(call, call.args[0], form_of(call.args[0]))
    return out


@kernel("_adaptive_avg_pool2d")
def read_by_strides(call: Any) -> Any:
    """Channels-last, and parts of it, are read as they lie."""
    out = call.run()
    if form_of(call.args[0]) is _ROWS:
        _copy(call, call.args[0])
    return out


@kernel("reflection_pad2d", "upsample_nearest1d_backward", "_upsample_nearest_exact1d_backward",
        "upsample_linear1d_backward", "upsample_bicubic2d_backward", "_upsample_bilinear2d_aa_backward",
        "_upsample_bicubic2d_aa_backward", "upsample_nearest3d_backward", "_upsample_nearest_exact3d_backward",
        "topk", "median.dim", "nanmedian.dim", "kthvalue", "nll_loss2d_forward", "bucketize.Tensor")  # fmt: skip
def read_as_rows(call: Any) -> Any:
    out = call.run()
    _copy(call, call.args[0])
    return out


@kernel("mode")
def mode(call: Any) -> Any:
    """A copy of the first argument is sorted."""
    out = call.run()
    call.scratch(_bytes(call.args[0]))
    return out


@kernel("upsample_nearest3d", "_upsample_nearest_exact3d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
        "adaptive_max_pool2d", "upsample_trilinear3d_backward")  # fmt: skip
def written_as_rows(call: Any) -> Any:
    """The results, too, are rows at first, and are copied into place."""
    out = call.run()
    for one in (*(out if isinstance(out, tuple) else (out,)), call.args[0]):
        _copy(call, one)
    return out


@kernel("adaptive_max_pool2d_backward")
def adaptive_max_backward(call: Any) -> Any:
    """args: grad, input, places."""
    out = call.run()
    for tensor in (call.args[0], call.args[2], out):
        _copy(call, tensor)
    return out


@kernel("avg_pool2d_backward", "max_pool2d_with_indices_backward")
def pool_backward(call: Any) -> Any:
    """args: grad, input, and more; both are read in the input's form."""
    form, out = form_of(call.args[1]), call.run()
    _copy(call, call.args[0], form)
    _copy(call, call.args[1], form)
    return out


@kernel("im2col", "col2im")
def resized(call: Any) -> Any:
    """The result begins as large as the input; its memory is changed if that is too small (`im2col_cuda`)."""
    tensor, out = call.args[0], call.untracked()
    first = call.scratch(_bytes(tensor)) if _bytes(out) > _bytes(tensor) else None
    if first is None:
        out.untyped_storage().resize_(_bytes(tensor))
    call.take(out)
    _copy(call, tensor)
    if first is not None:
        call.drop(first)
    return out


@kernel("_cdist_forward")
def cdist(call: Any) -> Any:
    """args: rows, other rows, and more."""
    out = call.run()
    for tensor in call.args[:2]:
        _copy(call, tensor)
    return out


@kernel("_cdist_backward")
def cdist_backward(call: Any) -> Any:
    """args: grad, rows, other rows, exponent, distances: a gradient for each pair of rows is made before their sum."""
    grad, one, other = call.args[:3]
    out = call.run()
    for tensor in (grad, one, other):
        _copy(call, tensor)
    if out.numel() and other.numel():
        call.scratch(out.numel() // max(out.shape[-1], 1) * other.shape[-2] * out.shape[-1] * out.element_size())
    return out


@kernel("_pdist_backward")
def pdist_backward(call: Any) -> Any:
    """args: grad, rows, exponent, distances."""
    out = call.run()
    call.scratch((call.args[1].shape[0] - 1) * _bytes(call.args[1]))
    return out


def _stage(call: Any, source: torch.Tensor, target: torch.Tensor, *, non_blocking: bool) -> None:
    """`copy_requires_temporaries`: a blocking copy converts on the host, another one on the card."""
    if is_sim(source) == is_sim(target):
        return
    same_type = source.dtype is target.dtype
    onto, other = (target, source) if is_sim(target) else (source, target)
    if (non_blocking and not same_type) or not onto.is_contiguous():
        call.scratch(onto.numel() * (other if non_blocking else onto).element_size())


@kernel("_to_copy")
def to_copy(call: Any) -> Any:
    out = call.run()
    _stage(call, call.args[0], out, non_blocking=bool(call.kwargs.get("non_blocking")))
    return out


@kernel("copy_")
def copy(call: Any) -> Any:
    """args: target, source, whether to wait."""
    target, source = call.args[:2]
    non_blocking = call.args[2] if len(call.args) > 2 else call.kwargs.get("non_blocking", False)
    out = call.run()
    if isinstance(source, torch.Tensor):
        _stage(call, source, target, non_blocking=bool(non_blocking))
    return out
