"""Operators whose shapes PyTorch knows only by running them: as their CUDA code has them, or at their bound."""

from collections.abc import Callable
from typing import Any

import torch

from vramtui.dryrun.fake.kernels import kernel
from vramtui.dryrun.fake.kernels.reductions import accumulator_bytes, partial

_ATEN: Any = torch.ops.aten
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
    if biased:
        for i, gate in enumerate(gates):
            summed = call.take(grad.new_empty((3 * width,)))
            partial(call, gate, (0,), summed, accumulator=accumulator_bytes(grad.dtype))
            biases[i] = summed
    return *gates, hidden, *biases


# Sizes that depend on unknown values: as large as they can be, noted with the line by `memory.bound(places, operator)`.


def _nonzero(call: Any) -> Any:
    """The result is the transposed one of [dimensions, places] (ATen/native/cuda/Nonzero.cu)."""
    tensor = call.args[0]
    return tensor.new_empty([tensor.dim(), call.memory.bound(tensor.numel(), call.func)], dtype=torch.int64).t()


def _masked_select(call: Any) -> Any:
    tensor, mask = call.args
    count = call.memory.bound(torch.broadcast_shapes(tensor.shape, mask.shape).numel(), call.func)
    return tensor.new_empty([count])


def _index(call: Any) -> Any:
    """A mask has all places, or as many as were written through it, which the backward of `x[mask] = y` reads."""
    tensor, indices = call.args
    places: list[Any] = []
    for index in indices:
        if isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8):
            entry = call.memory.find(index)
            written = entry.places if entry is not None else None
            count = call.memory.bound(index.numel(), call.func) if written is None else written
            places += [tensor.new_empty([count], dtype=torch.int64)] * index.dim()
        else:
            places.append(index)
    return _ATEN.index.Tensor(tensor, places)


def _unique(call: Any) -> Any:
    """Every value is taken to be another."""
    tensor = call.args[0]
    dim = call.args[1] if call.func.overloadpacket.__name__.startswith("unique_dim") else None
    whole = tensor.numel() if dim is None else tensor.shape[dim]
    count = call.memory.bound(whole, call.func)
    shape = [count] if dim is None else [count if i == dim % tensor.dim() else n for i, n in enumerate(tensor.shape)]
    inverse = list(tensor.shape) if dim is None else [whole]
    return tensor.new_empty(shape), *(tensor.new_empty(sizes, dtype=torch.int64) for sizes in (inverse, [count]))


def _bincount(call: Any) -> Any:
    """args: tensor, weights, minlength, which is taken to bound the values."""
    weights = call.args[1] if len(call.args) > 1 else call.kwargs.get("weights")
    fewest = call.args[2] if len(call.args) > 2 else call.kwargs.get("minlength", 0)
    count = call.memory.bound(max(int(fewest), 1), call.func)
    return call.args[0].new_empty([count], dtype=torch.int64 if weights is None else torch.float64)


def _first_size(call: Any) -> Any:
    """Each repeat is taken to be one; every box may stay."""
    return call.args[0].new_empty([call.memory.bound(call.args[0].shape[0], call.func)], dtype=torch.int64)


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
        known_lengths = torch.full((batch,), time) if known is None else known
        sizes = (known_lengths.unsqueeze(0) > torch.arange(int(known_lengths.max())).unsqueeze(1)).sum(1)
        rows = int(sizes.sum())
    return call.args[0].new_empty([rows, *tensor.shape[2:]], dtype=tensor.dtype), sizes


_BOUNDS: dict[str, Callable[[Any], Any]] = {
    "aten::nonzero": _nonzero,
    "aten::linalg_lstsq": _lstsq,
    "aten::masked_select": _masked_select,
    "aten::index": _index,
    "aten::bincount": _bincount,
    "aten::repeat_interleave": _first_size,
    "aten::_pack_padded_sequence": _packed,
    "torchvision::nms": _first_size,
    **dict.fromkeys(
        ("aten::_unique", "aten::_unique2", "aten::unique_dim", "aten::unique_dim_consecutive",
         "aten::unique_consecutive"), _unique,
    ),
}  # fmt: skip


def bounded(call: Any) -> Any:
    """Give an operator's outputs at their bound; NotImplemented if it has none."""
    rule = _BOUNDS.get(call.func.name().partition(".")[0])
    return NotImplemented if rule is None else rule(call)
