"""Attention: the kernel that CUDA takes, what it saves for backward, and what it takes besides.

Tensors are [batch, heads, length, head dim] throughout.
"""

import math
from typing import Any

import torch

from vramtui.dryrun.fake.device.device import tensors_of
from vramtui.dryrun.fake.kernels import after, kernel, works_in
from vramtui.dryrun.fake.kernels.layers import adding
from vramtui.estimators.torch_facts import sdpa_backend as facts
from vramtui.estimators.torch_facts.releases import release_of

_OPS: Any = torch.ops.aten
_RELEASE = release_of(torch.__version__)
_HALF = (torch.float16, torch.bfloat16)
_TYPES = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_SWITCHES = {"efficient": "mem_efficient"}  # in PyTorch's own name
_MASK_ALIGNMENT = 8
_CUDNN_WORKSPACE = 256  # what cuDNN 9.20 asks for in forward, whatever the shape
_FLOAT = 4
_Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]  # query, key, value, mask


def choose(
    tensors: _Tensors, capability: tuple[int, int], *, dropout: float, causal: bool, grouped: bool
) -> facts.SdpaBackend:
    """The kernel CUDA would take, of those that are allowed. Raises RuntimeError in torch's words if none is."""
    query, key, value, mask = tensors
    asked = facts.AttentionCall(
        dtype=_TYPES.get(query.dtype, "other") if query.dtype == key.dtype == value.dtype else "mixed",
        query=tuple(query.shape), key=tuple(key.shape), value=tuple(value.shape),
        masked=mask is not None, trained_mask=mask is not None and mask.requires_grad,
        dropout=float(dropout), causal=causal, grouped=grouped, training=_trains(query, key, value),
        deterministic=torch.are_deterministic_algorithms_enabled(), release=_RELEASE,
    )  # fmt: skip
    strided = any(t.stride(-1) != 1 and t.shape[-1] != 1 for t in (query, key, value))
    for backend in facts.backend_order(capability):
        is_allowed = getattr(torch.backends.cuda, f"{_SWITCHES.get(backend, backend)}_sdp_enabled")
        if (backend == "math" or not strided) and is_allowed() and facts.can_use(backend, asked, capability):
            return backend
    raise RuntimeError("No available kernel. Aborting execution.")


def _trains(*tensors: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)


def attend(
    capability: tuple[int, int], query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """Run attention on the kernel CUDA would take."""
    mask, how = attn_mask, (_trains(query, key, value), dropout_p, is_causal)
    backend = choose((query, key, value, mask), capability, dropout=dropout_p, causal=is_causal, grouped=enable_gqa)
    if backend == "cudnn":
        if mask is not None and mask.dtype is torch.bool:  # finite numbers: `convert_boolean_attn_mask_cudnn`
            mask = torch.where(mask.logical_not(), -65504.0, torch.zeros((), dtype=query.dtype))
        return _OPS._scaled_dot_product_cudnn_attention.default(query, key, value, mask, *how, False, scale=scale)[0]
    if backend == "flash":
        width = query.shape[-1]
        if padding := -width % 8:
            query, key, value = (torch.nn.functional.pad(t, (0, padding)) for t in (query, key, value))
        out = _OPS._scaled_dot_product_flash_attention.default(
            query, key, value, dropout_p, is_causal, False, scale=1 / math.sqrt(width) if scale is None else scale
        )[0]
        return out[..., :width] if padding else out
    if mask is not None and mask.dtype is torch.bool:  # `convert_boolean_attn_mask`
        both: Any = (torch.full((), value, dtype=query.dtype, device=mask.device) for value in (0.0, -math.inf))
        mask = _OPS.where.self(mask, *both)
    if backend == "math":
        with adding("scores"):
            return torch.ops.aten._scaled_dot_product_attention_math.default(
                query, key, value, mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
            )[0]
    if mask is not None:
        # The kernel reads the mask in pieces of 8 elements: other strides are padded and cut back to a view.
        if mask.stride(-1) != 1 or any(stride % _MASK_ALIGNMENT for stride in mask.stride()[:-1]):
            width = mask.shape[-1]
            mask = torch.nn.functional.pad(mask, (0, _MASK_ALIGNMENT - width % _MASK_ALIGNMENT))[..., :width]
        mask = mask.expand(*query.shape[:3], key.shape[2])
    return _OPS._scaled_dot_product_efficient_attention.default(query, key, value, mask, *how, scale=scale)[0]


@kernel("_scaled_dot_product_cudnn_attention")
def cudnn_forward(call: Any) -> Any:
    """The seed and offset come first (`run_cudnn_SDP_fprop`); sums of exponentials only if they are asked for."""
    out = call.untracked()
    for tensor in sorted(tensors_of(out), key=lambda tensor: tensor.numel() > 1):
        if tensor is not out[1] or call.argument("compute_log_sumexp"):
            call.take(tensor)
    call.scratch(_CUDNN_WORKSPACE)
    return out


@works_in("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(call: Any) -> list[int]:
    """The sum of dQ is kept in float, and one float per query with it; heads that share keys get their own dK, dV."""
    query, *shared = call.args[1:4]
    sums = query.numel() + query.numel() // query.shape[-1]
    return [sums * _FLOAT + _CUDNN_WORKSPACE + sum(_for_each_head(query.shape[1], *shared))]


def _for_each_head(heads: int, *shared: torch.Tensor) -> list[int]:
    """Bytes of keys and values with a copy for each head; nothing if no heads share them."""
    return [one.nbytes // one.shape[1] * heads for one in shared if shared[0].shape[1] != heads]


@kernel("_scaled_dot_product_efficient_attention")
def efficient_forward(call: Any) -> Any:
    """The seed and offset it returns live on the host, or are empty ones on the card."""
    out, are_seeds_on_card = call.untracked(), not call.argument("dropout_p") and _RELEASE >= facts.SHARED_HEADS_SINCE
    if are_seeds_on_card:
        out = (*out[:2], *(out[0].new_empty((), dtype=torch.int64) for _ in out[2:]))
    call.take(out if are_seeds_on_card else out[:2])
    query, value = call.args[0], call.args[2]
    if query.dtype in _HALF and max(query.shape[-1], value.shape[-1]) > 128:
        call.scratch(out[0].numel() * _FLOAT)
    return out


@after("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(call: Any, _out: Any) -> None:
    """Row sums of grad * output, before the kernel for float; then a staging area, and sums of shared heads."""
    grad, query, key, value = call.args[:4]
    batch, heads, length, width = query.shape
    call.scratch(*_for_each_head(heads, key, value))
    delta_bytes = batch * heads * length * _FLOAT
    if query.dtype in _HALF:
        delta = call.scratch(delta_bytes)
    else:
        product, sums, delta = call.scratch(grad.numel() * _FLOAT, delta_bytes, delta_bytes)
        call.drop(sums, product)
    how = facts.EfficientKernel(query.dtype in _HALF, call.memory.device.capability, bool(call.argument("dropout_p")))
    widths = width, value.shape[-1]
    call.drop(delta, call.scratch(facts.efficient_staging_bytes(batch * heads, length, key.shape[-2], widths, how)))


def _float_rows(call: Any, rows: int, width: int) -> None:
    """A float for each row, and the rows themselves in float, at the width that the kernel works in."""
    step = 32 if width <= 128 or width == 160 else 64
    call.scratch(rows * _FLOAT, rows * -(-width // step) * step * _FLOAT)


@after("_scaled_dot_product_flash_attention")
def flash_forward(call: Any, _out: Any) -> None:
    """Few queries over many keys are split among blocks, whose partial outputs are kept in float."""
    if call.argument("dropout_p"):
        call.scratch(16)  # the random state: two 64-bit numbers
        return
    query, key = call.args[:2]
    batch, heads, length, width = query.shape
    # `num_splits_heuristic`: the fewest splits that come within 85 % of the best use of the card.
    blocks = -(-key.shape[-2] // (256 if width <= 64 else 128 if width <= 128 else 64))
    work, slots = batch * heads * -(-length // 64), 2 * call.memory.limits.multiprocessors
    if work >= 0.8 * slots:
        return
    efficiency = {
        splits: work * splits / slots / -(-work * splits // slots)
        for splits in range(1, min(128, slots, blocks) + 1)
        if splits == 1 or -(-blocks // splits) != -(-blocks // (splits - 1))
    }
    best = max(efficiency.values())
    splits = next(splits for splits, value in efficiency.items() if value >= 0.85 * best)
    if splits > 1:
        _float_rows(call, splits * batch * heads * length, width)


@kernel("_scaled_dot_product_flash_attention_backward")
def flash_backward(call: Any) -> Any:
    """Over keys, dQ is summed in float; grouped heads get their dK and dV apart before they are summed."""
    grad, query, key, value, output = call.args[:5]
    for tensor in (grad, output):
        if not tensor.transpose(1, 2).is_contiguous():
            call.scratch(tensor.nbytes)
    out = call.run()
    batch, heads, length, width = query.shape
    _float_rows(call, batch * heads * -(-length // 128) * 128, width)
    call.scratch(*_for_each_head(heads, key, value))
    return out
