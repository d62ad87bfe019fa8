"""Copies between the host and the card, and the staging they need when the type changes on the way."""

from typing import Any

import torch

from vramtui.estimators.traced.device.device import is_sim
from vramtui.estimators.traced.kernels.registry import kernel


def _stage(call: Any, source: torch.Tensor, target: torch.Tensor, *, non_blocking: bool) -> None:
    """`copy_requires_temporaries`: a blocking copy converts on the host, another one on the card."""
    if is_sim(source) == is_sim(target):
        return
    same_type = source.dtype is target.dtype
    if is_sim(target):
        if (non_blocking and not same_type) or not target.is_contiguous():
            item = source.element_size() if non_blocking else target.element_size()
            call.scratch(target.numel() * item)
    elif not source.is_contiguous() or (non_blocking and not same_type):
        item = target.element_size() if non_blocking else source.element_size()
        call.scratch(source.numel() * item)


@kernel("_to_copy")
def to_copy(call: Any) -> Any:
    out = call.run()
    _stage(call, call.args[0], out, non_blocking=bool(call.kwargs.get("non_blocking")))
    return out


@kernel("copy_")
def copy(call: Any) -> Any:
    """args: target, source, whether to wait."""
    target, source = call.args[:2]
    waits = not (call.args[2] if len(call.args) > 2 else call.kwargs.get("non_blocking", False))
    out = call.run()
    if isinstance(source, torch.Tensor):
        _stage(call, source, target, non_blocking=not waits)
    return out
