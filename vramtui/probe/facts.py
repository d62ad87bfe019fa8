"""Single questions to torch, Python and the environment."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import os
import sys
from collections.abc import Callable
from typing import Any

LONGEST_MESSAGE = 4000


def number_in_environment(names: tuple[str, ...]) -> int | None:
    """The first of these variables that holds a number."""
    for name in names:
        value = os.environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None


def shortened(text: str, longest: int = 200) -> str:
    """The beginning of `text`, with what is no Unicode replaced."""
    return text[:longest].encode("utf-8", "replace").decode()


def is_data_worker() -> bool:
    """Return whether this process only loads data for another."""
    module = sys.modules.get("torch.utils.data._utils.worker")
    return module is not None and getattr(module, "_worker_info", None) is not None


def watch_for_oom(torch: Any, tell: Callable[[int, int, int, int | None], None]) -> None:
    """Have `tell(device, asked, free, limit)`, in bytes, called whenever the allocator gives up."""
    attach = getattr(getattr(torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
    if attach is None:
        return

    def observe(device: int, asked: int, allowed: int, free: int) -> None:
        try:
            tell(int(device), int(asked), int(free), _limit(torch, int(device), int(allowed)))
        except Exception:
            pass

    attach(observe)


def _limit(torch: Any, device: int, allowed: int) -> int | None:
    """The limit of the process by set_per_process_memory_fraction; None without one.

    The allocator tells its observers that limit in the place of the card's total, where there is one
    (c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13).
    """
    try:
        return allowed if allowed < torch.cuda.mem_get_info(device)[1] else None
    except Exception:
        return None


def last_words(torch: Any) -> dict[str, Any]:
    """The exception that ends the interpreter: its class, its text, and whether it is an OutOfMemoryError."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    kind = getattr(getattr(torch, "cuda", None), "OutOfMemoryError", None)
    cause, depth = error, 0
    while cause is not None and depth < 8:
        if kind is not None and isinstance(cause, kind):
            return {
                "error": type(error).__name__,
                "message": shortened(str(cause), LONGEST_MESSAGE),
                "out_of_memory": True,
            }
        cause, depth = cause.__cause__ or cause.__context__, depth + 1
    if error is None:
        return {"error": None, "message": "", "out_of_memory": False}
    return {"error": type(error).__name__, "message": shortened(str(error), LONGEST_MESSAGE), "out_of_memory": False}
