"""cuDNN's recurrent layers: one call forward and one backward for a whole stack, with what they keep and work in.

PyTorch 2.13, aten/src/ATen/native/cudnn/RNN.cpp. Shapes: sequence (t, b, i), states (layers x directions, b, h).
"""

from collections.abc import Sequence
from typing import Any

import torch

from vramtui.estimators.torch_facts.recurrent import Cell, RecurrentSizes, reserve_bytes, workspace_bytes
from vramtui.estimators.traced.kernels.registry import kernel

MODES: tuple[Cell, ...] = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # cudnnRNNMode_t, which counts from 0


def parts_of(buffer: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Views of `buffer`, one behind the other, of the weights' shapes."""
    parts, at = [], 0
    for weight in weights:
        parts.append(buffer[at : at + weight.numel()].view(weight.shape))
        at += weight.numel()
    return parts


def _sizes(sequence: torch.Tensor, how: tuple[Any, ...], itemsize: int) -> RecurrentSizes:
    """The sizes of a call whose arguments `mode` to `batch_sizes` are `how`; a packed one is as long as its longest."""
    mode, hidden, projection, layers, batch_first, _, _, bidirectional, packed = how
    steps, batch = (len(packed), packed[0]) if packed else sequence.shape[:2]
    if batch_first and not packed:
        steps, batch = batch, steps
    return RecurrentSizes(
        cell=MODES[mode],
        batch=batch,
        steps=steps,
        inputs=sequence.shape[-1],
        hidden=hidden,
        output=projection or hidden,
        layers=layers,
        directions=2 if bidirectional else 1,
        itemsize=itemsize,
    )


@kernel("_cudnn_rnn")
def forward(call: Any) -> Any:
    """Output, states, workspace, reserve: `_cudnn_rnn`; a sequence with its batches first is copied before."""
    sequence, weights = call.args[:2]
    how, dropout = call.args[6:15], call.args[11]
    sizes = _sizes(sequence, how, sequence.element_size())
    if how[4] and not how[8]:
        call.scratch(sequence.numel() * sequence.element_size())
    out, hidden, cell, _, buffer = call.untracked()
    if call.args[3] is None:
        buffer = sequence.new_empty(sum(weight.numel() for weight in weights))
    if how[4] and not how[8]:
        out = torch.empty_strided(
            out.shape, (out.shape[2], out.shape[0] * out.shape[2], 1), dtype=out.dtype, device=out.device
        )
    call.take((out, hidden, cell, buffer))
    call.scratch(workspace_bytes(sizes, dropout=dropout > 0))
    reserve_size = reserve_bytes(sizes, dropout=dropout > 0) if call.args[12] else 0
    reserve = sequence.new_empty(reserve_size, dtype=torch.uint8)
    return out, hidden, cell, call.take(reserve), buffer


@kernel("_cudnn_rnn_backward")
def backward(call: Any) -> Any:
    """Gradients that are not there are zeros; those of the input before the weights', each with its workspace."""
    sequence, weights, _, buffer, hidden, cell, out, grad_out, grad_hidden, grad_cell = call.args[:10]
    how, dropout, mask = call.args[10:19], call.args[15], call.args[21]
    sizes = _sizes(sequence, how, sequence.element_size())
    answered = (grad_hidden, hidden), (grad_cell, cell), (grad_out, out)
    for gradient, like in answered:
        if like is not None and (gradient is None or not gradient.is_contiguous()):
            call.scratch(like.numel() * like.element_size())
    first = how[4] and not how[8]
    if first:
        call.scratch(sequence.numel() * sequence.element_size())
    grads = [None if like is None else call.take(torch.empty_like(like)) for like in (sequence, hidden, cell)]
    workspace = workspace_bytes(sizes, dropout=dropout > 0)
    call.drop(call.scratch(workspace))
    parts: list[torch.Tensor] = []
    if mask[3]:
        flat = call.take(buffer.new_empty(buffer.numel()))
        parts = parts_of(flat, weights)
        call.drop(call.scratch(workspace))
    none = sequence.new_empty(0)
    return (*(none if one is None else one for one in grads), parts)
