"""What a trace does not follow: told in a sentence with the user's line, or left undone where it does not matter."""

from typing import Any

import numpy as np
import torch
import torch.utils.cpp_extension
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.dispatch import values


def install(patches: Patches, memory: SimulatedMemory, where: Whereabouts) -> None:
    """Refuse compilers and custom kernels, write no files, and let values be read as arrays."""
    _refuse_compilers(patches, where)
    _write_nothing(patches)
    _give_arrays(patches, memory)


def _refuse_compilers(patches: Patches, where: Whereabouts) -> None:
    def refusal(what: str) -> UserError:
        return UserError(f"{what} at {where.user_line()}: a trace does not follow it; run the code without it")

    def compile_(model: Any = None, **kwargs: Any) -> Any:
        if where.called_by_user():
            raise refusal("torch.compile")
        if model is None:
            return lambda function: compile_(function, **kwargs)
        return model

    def compile_module(*_args: Any, **_kwargs: Any) -> Any:
        raise refusal("Module.compile")

    def build(*_args: Any, **_kwargs: Any) -> Any:
        raise refusal("a custom CUDA kernel")

    patches.set(torch, "compile", compile_)
    patches.set(torch.nn.Module, "compile", compile_module)
    for name in ("load", "load_inline"):
        patches.set(torch.utils.cpp_extension, name, build)


def _write_nothing(patches: Patches) -> None:
    """Weights that do not exist are not saved, and no history of memory is taken."""
    nothing = lambda *_args, **_kwargs: None  # noqa: E731 # one for all
    patches.set(torch, "save", nothing)
    for name in ("_record_memory_history", "_dump_snapshot"):
        patches.set(torch.cuda.memory, name, nothing)


def _give_arrays(patches: Patches, memory: SimulatedMemory) -> None:
    plain = torch.Tensor.numpy

    def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, *args, **kwargs)
        with torch._C._DisableTorchDispatch():
            value = values.value_of(memory.book, tensor)
            if value is None:
                value = torch.zeros((), dtype=tensor.dtype).expand(tensor.shape)
            return plain(value)

    def array(tensor: torch.Tensor, dtype: Any = None, **_kwargs: Any) -> Any:
        return np.asarray(numpy(tensor), dtype=dtype)

    patches.set(torch.Tensor, "numpy", numpy)
    patches.set(torch.Tensor, "__array__", array)
