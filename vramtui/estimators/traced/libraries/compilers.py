"""Compilers, run as what they compile; kernels in CUDA's own language, which a trace cannot run."""

from typing import Any

import torch
import torch.utils.cpp_extension

from vramtui.core.base.errors import UserError
from vramtui.estimators.torch_facts.compiled import measured_difference
from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches


def install(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """Run compiled code as it is written, and refuse kernels in CUDA."""
    _compile_nothing(patches, memory, where)
    _build_nothing(patches, where)
    _record_nothing(patches)


def _compile_nothing(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    def compiled(model: Any = None, **_kwargs: Any) -> Any:
        if where.called_by_user():
            tell()
        return eager if model is None else eager(model)

    def compile_module(model: Any, *_args: Any, **_kwargs: Any) -> None:
        if where.called_by_user():
            tell()
        eager(model)

    def tell() -> None:
        memory.warn(
            f"torch.compile at {where.user_line()} is run as eager code; what compiled code keeps and makes differs: "
            f"{measured_difference()}"
        )

    def eager(model: Any) -> Any:
        if isinstance(model, torch.nn.Module):
            vars(model)["_orig_mod"] = model  # not as a child of itself
        return model

    patches.set(torch, "compile", compiled)
    patches.set(torch.nn.Module, "compile", compile_module)


def _build_nothing(patches: Patches, where: Whereabouts) -> None:
    def build(*_args: Any, **_kwargs: Any) -> Any:
        raise UserError(
            f"a CUDA kernel of the code's own is built at {where.user_line()}: a trace cannot run it, so switch to the "
            "code's way without it if it has one"
        )

    for name in ("load", "load_inline"):
        patches.set(torch.utils.cpp_extension, name, build)


def _record_nothing(patches: Patches) -> None:
    """No history of the driver's memory is taken."""
    nothing = lambda *_args, **_kwargs: None  # noqa: E731 # one for all
    for name in ("_record_memory_history", "_dump_snapshot"):
        patches.set(torch.cuda.memory, name, nothing)
