"""Operators whose shapes PyTorch knows only by running them: as their CUDA code has them, or at their bound."""

from collections.abc import Callable
from typing import Any

import torch

from vramtui.dryrun.fake.kernels import kernel
from vramtui.dryrun.fake.kernels.reductions import partial

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
            entry = call.memory.find(index)
            written = entry.places if entry is not None else None
            count = call.memory.bound(index.numel(), call.func) if written is None else written
            places += [tensor.new_empty([count], dtype=torch.int64)] * index.dim()
        else:
            places.append(index)
    return _ATEN.index.Tensor(tensor, places)


def _unique(call: Any) -> Any:
    """Every value is taken to be another."""
    tensor, dim = call.args[0], call.argument("dim")
    whole = tensor.numel() if dim is None else tensor.shape[dim]
    count = call.memory.bound(whole, call.func)
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
        known_lengths = torch.full((batch,), time) if known is None else known
        sizes = (known_lengths.unsqueeze(0) > torch.arange(int(known_lengths.max())).unsqueeze(1)).sum(1)
        rows = int(sizes.sum())
    return tensor.new_empty([rows, *tensor.shape[2:]]), sizes


def bounded(call: Any) -> Any:
    """Give an operator's outputs at their bound; NotImplemented if it has none."""
    tensor, bound, name = call.args[0], call.memory.bound, call.func.name().partition(".")[0]
    if rule := _BOUNDS.get(name):
        return rule(call)
    if name == "aten::nonzero":  # the transposed one of [dimensions, places] (ATen/native/cuda/Nonzero.cu)
        return tensor.new_empty([tensor.dim(), bound(tensor.numel(), call.func)], dtype=torch.int64).t()
    if name == "aten::masked_select":
        return tensor.new_empty([bound(torch.broadcast_shapes(*(one.shape for one in call.args)).numel(), call.func)])
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
