"""Fused dropout."""

from typing import Any

from vramtui.estimators.traced.kernels.registry import kernel


@kernel("native_dropout")
def dropout(call: Any) -> Any:
    """The mask of bytes comes first (`dropout_cuda`)."""
    out, mask = call.untracked()
    call.take(mask)
    call.take(out)
    return out, mask
