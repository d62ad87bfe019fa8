"""Copies between host and GPU or of tensors that kernels cannot read as they are; gathering and scattering; operators
whose shapes PyTorch knows only by running them: as their CUDA code has them, or at their bound.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.kernels import after, kernel, works_in
from vramtui.dryrun.fake.kernels.reductions import partial
from vramtui.dryrun.values import ORDER
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


# Whose form the kernel reads (or rows), and which arguments are copied to it.
for _copied in LISTS["copied"]:

    @after(*_copied["names"])
    def read(call: Any, _out: Any, of: int | None = _copied.get("form"), places: list[int] = _copied["read"]) -> None:
        call.copy(*(call.args[place] for place in places), form=_ROWS if of is None else form_of(call.args[of]))


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
# Several with putting back: a copy, shares and their sums (ATen/native/cuda/MultinomialKernel.cu).
works_in("multinomial", first=True)(
    lambda call: [call.args[0].nbytes] * (3 if call.argument("replacement") and call.args[1] != 1 else 1)
)


@works_in("randperm", "randperm.generator")
def randperm(call: Any) -> list[int]:
    """Numbers are sorted by random keys, wide enough for them to differ (ATen/native/cuda/Randperm.cu, 2.13)."""
    count, capability = call.args[0], call.memory.device.capability
    bits = math.ceil(math.log2(max(1, count - (6 * count**2 + 1) / (12 * math.log(0.9)))))
    key = 4 if bits <= 32 else 8
    return [count * _INDEX, count * key, count * key, sort_pairs(count, key, _INDEX, bits, capability)] if count else []


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
    kind = call.memory.values.is_guess(mask)
    known = call.memory.values.value_of(mask, or_guess=kind == ORDER or not call.memory.values.holds)
    if known is None:
        return None
    with torch._C._DisableTorchDispatch():
        count = int(known.expand(shape).count_nonzero())
    if kind:
        call.memory.bound(count, call.func)
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
        *pairs, order = call.scratch(*[count * _INDEX] * 3)
        bits = max(int(target.numel()).bit_length(), 1)
        call.drop(call.scratch(sort_pairs(count, _INDEX, _INDEX, bits, call.memory.device.capability)), order)
        call.drop(*pairs, linear)
    return out


@kernel("masked_scatter", "masked_scatter_", "masked_fill.Scalar", "masked_fill.Tensor", "masked_fill_.Scalar",
        "masked_fill_.Tensor")  # fmt: skip
def refuse_mask_of_numbers(call: Any) -> Any:
    """A mask of bytes is refused (ATen/native/cuda/IndexKernel.cpp and Indexing.cu); PyTorch's own shapes take it."""
    name, mask = call.func.overloadpacket.__name__, call.args[1]
    if mask.dtype != torch.bool:
        raise RuntimeError(f"{name} only supports boolean masks, but got mask with dtype {mask.dtype}")
    out = call.run()
    if name.startswith("masked_scatter"):  # how many are true before each place, of a whole mask (IndexKernel.cu)
        call.scratch(out.numel() * (_INDEX + (mask.numel() < out.numel() or not mask.is_contiguous())))
    return out


_UNSORTED_UP_TO, _ROWS_PER_PARTIAL = 3072, 10
_MOST_THREADS, _ATOMIC_BLOCKS_PER_SM, _MAXIMUM = 1024, 4, 2


@kernel("embedding_dense_backward", "_embedding_bag_backward")
def embedding_backward(call: Any) -> Any:
    """args: grad [..., width], indices, rows of the table, padding index, scale by frequency; of bags (EmbeddingBag.cu,
    which always sorts) grad, indices, four tensors of them, rows, scale by frequency, mode, whether it is sparse, …
    """
    grad, indices, *rest = call.args
    is_bag = len(rest) > 3
    rows, by_frequency = rest[4:6] if is_bag else rest[0::2]
    call.copy(indices, grad)
    count, item = indices.numel(), indices.element_size()
    if (rest[6] == _MAXIMUM or rest[7]) if is_bag else (count <= _UNSORTED_UP_TO and not by_frequency):
        return call.run()
    _, _, order = call.scratch(*[count * item] * 3)
    bits = max(int(rows).bit_length(), 1)
    call.drop(call.scratch(sort_pairs(count, item, item, bits, call.memory.device.capability)), order)
    if by_frequency:
        call.scratch(count * item)
        for _ in range(2):
            call.drop(call.scratch(scan(count)))
    out = call.run()
    # Sum each row's segments.
    _, _, keys = call.scratch(count * item, 8, count * item)
    call.drop(call.scratch(scan(count)), keys)
    segments = min(count, rows)
    call.scratch(segments * item, segments * item)
    call.drop(call.scratch(scan(segments)))
    partials = count // _ROWS_PER_PARTIAL + segments
    call.scratch(8, partials * item)
    width, lowered = grad.shape[-1], grad.dtype in (torch.float16, torch.bfloat16)
    precise = 4 if lowered else grad.element_size()
    threads = -(-width // 32) * 32
    blocks = -(-segments * threads // min(threads, _MOST_THREADS))
    is_few = blocks < call.memory.limits.multiprocessors * _ATOMIC_BLOCKS_PER_SM and partials > blocks * 4
    if is_few and not torch.are_deterministic_algorithms_enabled():  # long segments are summed straight into the table
        call.scratch(partials * item, rows * width * precise if lowered else 0)
    else:
        call.scratch(partials * width * precise)
    return out


PADDED = "nn.TransformerEncoder computes padding here; its fast path for inference may leave that out, and take less"


kernel("_sample_dirichlet", "_standard_gamma_grad", "_dirichlet_grad", "binomial", "_masked_softmax",
       "_masked_softmax_backward", "_logcumsumexp")(lambda call: call.take(torch.empty_like(call.args[0])))  # fmt: skip
# args: grad, input, target, ...
kernel("multi_margin_loss_backward", "multilabel_margin_loss_backward")(
    lambda call: call.take(torch.empty_like(call.args[1]))
)


@kernel("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "_fake_quantize_learnable_per_tensor_affine")
def fake_quantize(call: Any) -> Any:
    """The result and the mask of what was clipped (ATen/native/quantized/FakeQuantPerTensorAffine.cpp)."""
    out = call.take(torch.empty_like(call.args[0]))
    if len(call.func._schema.returns) == 1:
        return out
    return out, call.take(torch.empty_like(call.args[0], dtype=torch.bool))


@kernel("_nested_tensor_from_mask_left_aligned")
def left_aligned(call: Any) -> bool:
    """Let nn.TransformerEncoder compute padding: it goes on with whole tensors if this is False."""
    call.memory.warn(PADDED)
    return False


@kernel("_thnn_fused_gru_cell")
def gru_cell(call: Any) -> Any:
    """args: input gates, hidden gates, hidden state; the workspace keeps five numbers for each of its own."""
    hidden = call.args[2]
    workspace = call.take(hidden.new_empty((hidden.shape[0], 5 * hidden.shape[1])))
    return call.take(torch.empty_like(hidden)), workspace


@kernel("_thnn_fused_gru_cell_backward")
def gru_cell_backward(call: Any) -> Any:
    """args: grad, workspace, whether there are biases."""
    grad, _, biased = call.args
    batch, width = grad.shape
    gates = [call.take(grad.new_empty((batch, 3 * width))) for _ in range(2)]
    hidden = call.take(torch.empty_like(grad))
    biases: list[torch.Tensor | None] = [None, None]
    for i, gate in enumerate(gates if biased else ()):
        biases[i] = summed = call.take(grad.new_empty((3 * width,)))
        partial(call, gate, (0,), summed)
    return *gates, hidden, *biases


# Sizes that depend on unknown values: as large as they can be, noted with the line by `memory.bound(places, operator)`.


def _index(call: Any) -> Any:
    """A mask has all places, or as many as were written through it, which the backward of `x[mask] = y` reads."""
    tensor, indices = call.args
    places: list[Any] = []
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            written = getattr(call.memory.find(index), "places", None)
            most = index.numel() * call.memory.values.holds
            count = call.memory.bound(most, call.func) if written is None else written
            places += [tensor.new_empty([count], dtype=torch.int64)] * index.dim()
        else:
            places.append(index)
    return torch.ops.aten.index.Tensor(tensor, places)


def _unique(call: Any) -> Any:
    """Every value is taken to be another, but for places along a dimension."""
    tensor, dim = call.args[0], call.argument("dim")
    whole = tensor.numel() if dim is None else tensor.shape[dim]
    kinds = getattr(call.memory.find(tensor), "places", None)
    count = call.memory.bound(whole, call.func) if kinds is None or dim is not None else min(whole, kinds)
    shape = [count] if dim is None else [count if i == dim % tensor.dim() else n for i, n in enumerate(tensor.shape)]
    inverse = list(tensor.shape) if dim is None else [whole]
    return tensor.new_empty(shape), *(tensor.new_empty(sizes, dtype=torch.int64) for sizes in (inverse, [count]))


def _lstsq(call: Any) -> Any:
    """Residuals if a is higher than wide; CUDA gives no rank and no singular values (`linalg_lstsq_out`)."""
    a, b = call.args[:2]
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and tuple(b.shape) == tuple(a.shape[:-1]))
    batch = list(torch.broadcast_shapes(a.shape[:-2], b.shape[:-1] if vector else b.shape[:-2]))
    columns = [] if vector else [b.shape[-1]]
    residuals = [*batch, *columns] if a.shape[-2] > a.shape[-1] else [0]
    solution = a.new_empty([*batch, a.shape[-1], *columns])
    return solution, a.new_empty(residuals), a.new_empty([0], dtype=torch.int64), a.new_empty([0])


def _packed(call: Any) -> Any:
    """args: padded input, lengths, whether the batch is first; sequences of unknown length are taken to be full."""
    tensor, lengths, batch_first = call.args
    batch, time = (tensor.shape[0], tensor.shape[1]) if batch_first else (tensor.shape[1], tensor.shape[0])
    known = call.memory.values.value_of(lengths)
    if known is None:
        call.memory.bound(batch * time, call.func)
    with torch._C._DisableTorchDispatch():
        known = torch.full((batch,), time) if known is None else known
        sizes = (known.unsqueeze(0) > torch.arange(int(known.max())).unsqueeze(1)).sum(1)
        rows = int(sizes.sum())
    return tensor.new_empty([rows, *tensor.shape[2:]]), sizes


def bounded(call: Any) -> Any:
    """Give an operator's outputs at their bound; NotImplemented if it has none."""
    tensor, bound, name = call.args[0], call.memory.bound, call.func.name().partition(".")[0]
    holds = call.memory.values.holds
    if rule := _BOUNDS.get(name):
        return rule(call)
    if name == "aten::nonzero":  # the transposed one of [dimensions, places] (ATen/native/cuda/Nonzero.cu)
        return tensor.new_empty([tensor.dim(), bound(tensor.numel() * holds, call.func)], dtype=torch.int64).t()
    if name == "aten::masked_select":
        places = torch.broadcast_shapes(*(one.shape for one in call.args)).numel()
        return tensor.new_empty([bound(places * holds, call.func)])
    if name == "aten::bincount":  # `minlength` is taken to bound the values
        kind = torch.int64 if call.argument("weights") is None else torch.float64
        return tensor.new_empty([bound(max(int(call.argument("minlength")), 1), call.func)], dtype=kind)
    if name in {"aten::repeat_interleave", "torchvision::nms"}:  # each repeat is taken to be one; every box may stay
        return tensor.new_empty([bound(tensor.shape[0], call.func)], dtype=torch.int64)
    return NotImplemented


_BOUNDS: dict[str, Callable[[Any], Any]] = {
    "aten::linalg_lstsq": _lstsq,
    "aten::index": _index,
    "aten::_pack_padded_sequence": _packed,
    **dict.fromkeys((f"aten::{name}" for name in ("_unique", "_unique2", "unique_dim", "unique_dim_consecutive",
                                                  "unique_consecutive")), _unique),
}  # fmt: skip
