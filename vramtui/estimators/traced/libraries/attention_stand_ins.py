"""flash-attn and xformers where they are not installed: their functions as PyTorch's own FlashAttention. The finder of
bitsandbytes' stand-in as well.

Both call the kernels that PyTorch has a copy of (flash-attn 2, csrc/flash_attn/flash_api.cpp): the same outputs, saved
tensors and buffers of the backward pass. An import that is allowed to fail, within `try` or asked by `find_spec`, does.
"""

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.libraries import bitsandbytes_stand_in

NOTE = "{} is not installed here: its attention is traced as PyTorch's own FlashAttention, whose kernels it shares"
_NOTES = {"bitsandbytes": bitsandbytes_stand_in.NOTE}
_WITHOUT_HEADS = 3
_HALF = (torch.float16, torch.bfloat16)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Answer the imports that nothing else answers."""
    finder = AttentionFinder(lambda name: memory.warn(_NOTES.get(name, NOTE.format(name))))
    patches.set(sys, "meta_path", [*sys.meta_path, finder])


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


class AttentionFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the modules of NAMES and those below them, each with all of their names."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def find_spec(self, fullname: str, *_place: object) -> importlib.machinery.ModuleSpec | None:
        """A spec where the code cannot go on without one."""
        top = fullname.partition(".")[0]
        known = top in NAMES or bitsandbytes_stand_in.names_of(fullname) is not None
        if not known or (top == fullname and _may_fail()):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """All names at once."""
        top = module.__name__.partition(".")[0]
        vars(module).update(NAMES.get(top) or bitsandbytes_stand_in.names_of(module.__name__) or {})
        self._tell(top)


def _may_fail() -> bool:
    """Whether who imports asks only, or goes on without."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code.co_name == "find_spec":  # importlib.util's
            return True
        frame = frame.f_back
    return frame is None or _within_try(frame.f_code.co_filename, frame.f_lineno)


def _within_try(file: str, line: int) -> bool:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers)
    return any(node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0) for node in tries)
