"""Operators for which torch knows no shapes without running them, as their CUDA code gives them."""

from typing import Any

import torch

from vramtui.dryrun.fake.kernels.reductions import accumulator_bytes, partial
from vramtui.dryrun.fake.kernels.registry import kernel

PADDED = "nn.TransformerEncoder computes padding here; its fast path for inference may leave that out, and take less"


def _empty(like: torch.Tensor, *shape: int) -> torch.Tensor:
    out: torch.Tensor = torch.ops.aten.empty.memory_format(list(shape), dtype=like.dtype, device=like.device)
    return out


def _like(tensor: torch.Tensor) -> torch.Tensor:
    out: torch.Tensor = torch.ops.aten.empty_like.default(tensor)
    return out


@kernel("_sample_dirichlet", "_standard_gamma_grad", "_dirichlet_grad", "binomial", "_masked_softmax",
        "_masked_softmax_backward", "_logcumsumexp")  # fmt: skip
def like_first(call: Any) -> Any:
    return call.take(_like(call.args[0]))


@kernel("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "_fake_quantize_learnable_per_tensor_affine")
def fake_quantize(call: Any) -> Any:
    """The result and the mask of what was clipped (ATen/native/quantized/FakeQuantPerTensorAffine.cpp)."""
    out = call.take(_like(call.args[0]))
    if len(call.func._schema.returns) == 1:
        return out
    return out, call.take(torch.ops.aten.empty_like.default(call.args[0], dtype=torch.bool))


@kernel("_nested_tensor_from_mask_left_aligned")
def left_aligned(call: Any) -> bool:
    """Whether nn.TransformerEncoder leaves padding out: it goes on with whole tensors where this is False."""
    call.memory.warn(PADDED)
    return False


@kernel("multi_margin_loss_backward", "multilabel_margin_loss_backward")
def margin_backward(call: Any) -> Any:
    """args: grad, input, target, ..."""
    return call.take(_like(call.args[1]))


@kernel("_thnn_fused_gru_cell")
def gru_cell(call: Any) -> Any:
    """args: input gates, hidden gates, hidden state; the workspace keeps five numbers for each of its own."""
    hidden = call.args[2]
    workspace = call.take(_empty(hidden, hidden.shape[0], 5 * hidden.shape[1]))
    return call.take(_like(hidden)), workspace


@kernel("_thnn_fused_gru_cell_backward")
def gru_cell_backward(call: Any) -> Any:
    """args: grad, workspace, whether there are biases."""
    grad, _, biased = call.args
    batch, width = grad.shape
    gates = [call.take(_empty(grad, batch, 3 * width)) for _ in range(2)]
    hidden = call.take(_like(grad))
    biases: list[torch.Tensor | None] = [None, None]
    if biased:
        for i, gate in enumerate(gates):
            summed = call.take(_empty(grad, 3 * width))
            partial(call, gate, (0,), summed, accumulator=accumulator_bytes(grad.dtype))
            biases[i] = summed
    return *gates, hidden, *biases
