"""cuDNN's recurrent layers: one call forward and one backward for a whole stack, with what they keep and work in.

`nn.LSTM`, `nn.GRU` and `nn.RNN` are steered to them (PyTorch 2.13, aten/src/ATen/native/RNN.cpp and cudnn/RNN.cpp).
Shapes: sequence (t, b, i), states (layers x directions, b, h).
"""

from collections.abc import Sequence
from typing import Any

import torch

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.kernels import kernel
from vramtui.estimators.torch_facts import recurrent as facts

MODES: tuple[facts.Cell, ...] = ("rnn_relu", "rnn_tanh", "lstm", "gru")  # cudnnRNNMode_t, which counts from 0


def parts_of(buffer: torch.Tensor, weights: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parts = buffer.split([weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]


def _sizes(call: Any) -> tuple[facts.RecurrentSizes, bool]:
    """The sizes of a call, and whether its batches come first; a packed one is as long as its longest."""
    sequence, hidden, packed = call.args[0], call.argument("hidden_size"), call.argument("batch_sizes")
    steps, batch = (len(packed), packed[0]) if packed else sequence.shape[:2]
    batch_first = call.argument("batch_first") and not packed
    sizes = facts.RecurrentSizes(
        cell=MODES[call.argument("mode")], itemsize=sequence.element_size(),
        batch=steps if batch_first else batch, steps=batch if batch_first else steps,
        inputs=sequence.shape[-1], hidden=hidden, output=call.argument("proj_size") or hidden,
        layers=call.argument("num_layers"), directions=2 if call.argument("bidirectional") else 1,
    )  # fmt: skip
    return sizes, batch_first


@kernel("_cudnn_rnn")
def forward(call: Any) -> Any:
    """Output, states, workspace, reserve: `_cudnn_rnn`; a sequence with its batches first is copied before."""
    sequence, weights, dropout = call.args[0], call.args[1], call.argument("dropout") > 0
    sizes, batch_first = _sizes(call)
    if batch_first:
        call.scratch(sequence.nbytes)
    out, hidden, cell, _, buffer = call.untracked()
    if call.argument("weight_buf") is None:
        buffer = sequence.new_empty(sum(weight.numel() for weight in weights))
    if batch_first:
        strides = (out.shape[2], out.shape[0] * out.shape[2], 1)
        out = torch.empty_strided(out.shape, strides, dtype=out.dtype, device=out.device)
    call.take((out, hidden, cell, buffer))
    call.scratch(facts.workspace_bytes(sizes, dropout=dropout))
    reserve = sequence.new_empty(
        facts.reserve_bytes(sizes, dropout=dropout) if call.argument("train") else 0, dtype=torch.uint8
    )
    return out, hidden, cell, call.take(reserve), buffer


@kernel("_cudnn_rnn_backward")
def backward(call: Any) -> Any:
    """Gradients that are not there are zeros; those of the input before the weights', each with its workspace."""
    sequence, weights, _, buffer, hidden, cell, out, grad_out, grad_hidden, grad_cell = call.args[:10]
    sizes, batch_first = _sizes(call)
    for gradient, like in ((grad_hidden, hidden), (grad_cell, cell), (grad_out, out)):
        if like is not None and (gradient is None or not gradient.is_contiguous()):
            call.scratch(like.nbytes)
    if batch_first:
        call.scratch(sequence.nbytes)
    none = sequence.new_empty(0)
    grads = [none if like is None else call.take(torch.empty_like(like)) for like in (sequence, hidden, cell)]
    workspace = facts.workspace_bytes(sizes, dropout=call.argument("dropout") > 0)
    call.drop(call.scratch(workspace))
    parts: list[torch.Tensor] = []
    if call.argument("output_mask")[3]:
        parts = parts_of(call.take(buffer.new_empty(buffer.numel())), weights)
        call.drop(call.scratch(workspace))
    return *grads, parts


_DTYPES = (torch.float64, torch.float32, torch.float16)
_DROPOUT_STATES = 6488064
"""Bytes of the random states, made once (measured on an H200; `cudnnDropoutGetStatesSize`)."""
_PACKED_NOTE = "packed sequences were not measured: each is counted as long as the longest"


def steer(patches: Patches, memory: SimulatedMemory) -> None:
    """Steer the four functions that the layers call, and the making of one buffer of a layer's weights."""
    for name in MODES:
        patches.around(torch._VF, name)(_steered(name, memory))

    @patches.around(torch.nn.RNNBase, "flatten_parameters")
    def flatten_parameters(plain: Any, layer: torch.nn.RNNBase) -> None:
        """Make the weights parts of one buffer if they are on the card (`RNNBase.flatten_parameters`)."""
        weights: Any = layer._flat_weights
        if not all(isinstance(weight, torch.Tensor) and _takes(weight) for weight in weights):
            plain(layer)
            return
        places = {(weight.untyped_storage()._cdata, weight.storage_offset()) for weight in weights}
        if len({weight.dtype for weight in weights}) == 1 and len(places) == len(weights):
            with torch.no_grad():
                buffer = weights[0].new_empty(sum(weight.numel() for weight in weights))
                for weight, part in zip(weights, parts_of(buffer, weights), strict=True):
                    weight.data = part


def _takes(tensor: torch.Tensor) -> bool:
    return bool(tensor.is_cuda and tensor.dtype in _DTYPES and torch.backends.cudnn.enabled and tensor.numel())


def _steered(name: facts.Cell, memory: SimulatedMemory) -> Any:
    states: list[torch.Tensor] = []

    def run(plain: Any, data: torch.Tensor, *rest: Any) -> Any:
        if not _takes(data):
            return plain(data, *rest)
        memory.warn(facts.RECURRENT_NOTE)
        lengths: list[int] = []
        if isinstance(rest[0], torch.Tensor) and isinstance(rest[2], (list, tuple)):
            memory.warn(_PACKED_NOTE)
            lengths, rest = [int(length) for length in rest[0]], (*rest[1:], False)
        hx, weights, biases, layers, dropout, training, bidirectional, batch_first = rest
        initial, weights = list(hx) if name == "lstm" else [hx], list(weights)
        storage, numel = weights[0].untyped_storage(), sum(weight.numel() for weight in weights)
        # The one buffer that all weights are parts of (`try_get_weight_buf`).
        is_flat = all(weight.untyped_storage()._cdata == storage._cdata for weight in weights)
        is_flat = is_flat and storage.nbytes() >= numel * weights[0].element_size()
        buffer = weights[0].detach().as_strided((numel,), (1,), 0) if is_flat else None
        if torch.is_autocast_enabled(data.device.type) and data.dtype is torch.float32:
            dtype = torch.get_autocast_dtype(data.device.type)
            data, *initial = (one.to(dtype) for one in (data, *initial))
            # Copies in one buffer, made anew at each call (`copy_weights_to_flat_buf_views`).
            with torch.no_grad():
                buffer = weights[0].new_empty(numel, dtype=dtype)
            parts = zip(weights, parts_of(buffer, weights), strict=True)
            weights = [_Copied.apply(weight, part) for weight, part in parts]  # type: ignore[no-untyped-call] # torch's own
        is_random = dropout and training
        if is_random and not states:
            states.append(data.new_empty(_DROPOUT_STATES, dtype=torch.uint8))
        output, width = initial[0].shape[2], initial[-1].shape[2]
        hidden, cell = (*(one.contiguous() for one in initial), None)[:2]
        with torch.autocast(data.device.type, enabled=False):
            answer = torch.ops.aten._cudnn_rnn.default(
                data, weights, 4 if biases else 2, buffer, hidden, cell, MODES.index(name), width,
                output if output != width else 0, layers, batch_first, dropout, training, bool(bidirectional), lengths,
                states[0] if is_random else None,
            )  # fmt: skip
        return answer[: 1 + len(initial)]

    return run


class _Copied(torch.autograd.Function):
    """A weight's copy in the buffer; its gradient is cast back."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, part: torch.Tensor) -> torch.Tensor:
        ctx.dtype = weight.dtype
        return part.detach()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        return grads[0].to(ctx.dtype), None
