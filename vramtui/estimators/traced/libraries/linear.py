"""Whether an operator is part of `torch.nn.functional.linear`, which PyTorch does differently for fake tensors."""

import functools
import threading
from typing import Any

import torch
from torch.jit import _builtins

from vramtui.estimators.traced.device.patches import Patches

_running = threading.local()


def install(patches: Patches) -> None:
    """Watch `F.linear` wherever it is called from: layers, attention, and the code itself."""
    plain = torch.nn.functional.linear

    @functools.wraps(plain)
    def linear(*args: Any, **kwargs: Any) -> torch.Tensor:
        before, _running.value = is_running(), True
        try:
            return plain(*args, **kwargs)
        finally:
            _running.value = before

    _builtins._register_builtin(linear, "aten::linear")  # what torch.jit.script takes it for
    patches.set(torch.nn.functional, "linear", linear)


def is_running() -> bool:
    """Whether this thread is in `F.linear`."""
    return getattr(_running, "value", False)
