"""flash-attn and xformers where they are not installed: their functions as PyTorch's own FlashAttention.

Both call the kernels that PyTorch has a copy of (flash-attn 2, csrc/flash_attn/flash_api.cpp): the same outputs, saved
tensors and buffers of the backward pass.
"""

from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

NOTE = "{} is not installed here: its attention is traced as PyTorch's own FlashAttention, whose kernels it shares"
_WITHOUT_HEADS = 3
_HALF = (torch.float16, torch.bfloat16)


def flash_attn_func(q: Any, k: Any, v: Any, dropout_p: float = 0.0, *scale: Any, **options: Any) -> Any:
    """[batch, tokens, heads, width] each; fewer heads of keys and values are allowed.

    Raises:
        RuntimeError: as flash-attn does for numbers that are not of 16 bits.
    """
    if q.dtype not in _HALF:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type")
    given = dict(zip(("softmax_scale", "causal"), scale, strict=False)) | options
    return _attended(
        q, k, v, dropout_p=dropout_p, scale=given.get("softmax_scale"), is_causal=bool(given.get("causal"))
    )


def flash_attn_varlen_func(q: Any, k: Any, v: Any, *_lengths: Any, **options: Any) -> Any:
    """[tokens of all sequences, heads, width] each: one sequence has outputs of the same size."""
    known = {name: options[name] for name in ("dropout_p", "softmax_scale", "causal") if name in options}
    return flash_attn_func(*(tensor.unsqueeze(0) for tensor in (q, k, v)), **known).squeeze(0)


def flash_attn_qkvpacked_func(qkv: Any, *args: Any, **kwargs: Any) -> Any:
    """[batch, tokens, 3, heads, width]."""
    return flash_attn_func(*qkv.unbind(2), *args, **kwargs)


def flash_attn_kvpacked_func(q: Any, kv: Any, *args: Any, **kwargs: Any) -> Any:
    """Keys and values in one: [batch, tokens, 2, heads, width]."""
    return flash_attn_func(q, *kv.unbind(2), *args, **kwargs)


def memory_efficient_attention(query: Any, key: Any, value: Any, attn_bias: Any = None, **options: Any) -> Any:
    """Xformers' own: [batch, tokens, heads, width], or without heads."""
    alone = query.dim() == _WITHOUT_HEADS
    parts = [tensor.unsqueeze(2) if alone else tensor for tensor in (query, key, value)]
    causal = isinstance(attn_bias, LowerTriangularMask)
    known = {"dropout_p": options.get("p", 0.0), "scale": options.get("scale"), "is_causal": causal}
    out = _attended(*parts, attn_mask=None if causal else attn_bias, **known)
    return out.squeeze(2) if alone else out


class LowerTriangularMask:
    """xformers' causal mask, which is never made."""


def _attended(q: Any, k: Any, v: Any, **options: Any) -> Any:
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    return scaled_dot_product_attention(q, k, v, enable_gqa=q.shape[1] != k.shape[1], **options).transpose(1, 2)


_FLASH = (flash_attn_func, flash_attn_varlen_func, flash_attn_qkvpacked_func, flash_attn_kvpacked_func)
NAMES: dict[str, dict[str, Any]] = {
    "flash_attn": {function.__name__: function for function in _FLASH} | {"__version__": "2.8.3"},
    "xformers": {"memory_efficient_attention": memory_efficient_attention, "LowerTriangularMask": LowerTriangularMask},
}


def names_of(module: str) -> dict[str, Any] | None:
    """What a module of NAMES has, or one below it; None of another."""
    return NAMES.get(module.partition(".")[0])
