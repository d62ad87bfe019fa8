"""Operators that are one kernel on CUDA but would fall apart into several on a device torch does not know."""

from typing import Any

import torch

_WHOLE_ON_CUDA = ("silu_backward", "mish_backward", "native_channel_shuffle", "_fused_rms_norm")


def install() -> "torch.library.Library":
    """Keep them whole; keep the returned library.

    The kernels are never run: the mode above answers first. That they exist keeps torch from decomposing.
    """
    library = torch.library.Library("aten", "IMPL")
    for name in _WHOLE_ON_CUDA:
        library.impl(name, _never, "PrivateUse1")
    return library


def _never(*_args: Any, **_kwargs: Any) -> Any:
    raise AssertionError("reached a kernel of the simulated device")
