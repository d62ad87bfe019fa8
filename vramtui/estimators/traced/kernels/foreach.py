"""Operators over lists of tensors, as optimizers and gradient clipping use them."""

from typing import Any

import torch

from vramtui.estimators.traced.kernels.registry import kernel

_CHUNK = 65536  # elements one block of a multi-tensor kernel takes


@kernel("_foreach_norm.Scalar")
def foreach_norm(call: Any) -> Any:
    """Partial norms of every chunk of every tensor, in the type sums are kept in (`foreach_tensor_norm_cuda`)."""
    tensors: list[torch.Tensor] = list(call.args[0])
    most = max((-(-tensor.numel() // _CHUNK) for tensor in tensors), default=0)
    precise = 8 if any(tensor.dtype is torch.float64 for tensor in tensors) else 4
    partial = call.scratch(len(tensors) * most * precise)
    out = call.run()
    call.drop(partial)
    return out
