"""Values that leave PyTorch: printed, formatted, listed, given to numpy, pickled."""

import functools
import sys
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.device import is_sim
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.fake.dispatch import values
from vramtui.probe import guards

_TORCH = str(Path(torch.__file__).parent)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let tensors without values be read as what they might hold."""
    plain = {name: getattr(torch.Tensor, name) for name in ("numpy", "tolist", "__repr__", "__bool__")}

    def read(tensor: torch.Tensor) -> torch.Tensor:
        """What stands for it; the line is remembered where that is a guess."""
        if values.certain_value(memory.book, tensor) is None:
            memory.guesses_read.add(memory.user_line())
        return values.array_of(memory.book, tensor)

    def numpy(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return plain["numpy"](tensor, *args, **kwargs)
        value = read(tensor)
        with values.plainly():
            return plain["numpy"](value.clone())  # numpy writes where it likes

    def array(tensor: torch.Tensor, dtype: Any = None, **_kwargs: Any) -> Any:
        import numpy as np  # noqa: PLC0415 - PyTorch runs without it, and only it calls this

        return np.asarray(numpy(tensor.detach()), dtype=dtype)

    def tolist(tensor: torch.Tensor) -> Any:
        value = read(tensor)
        with values.plainly():
            return plain["tolist"](value)

    def formatted(tensor: torch.Tensor, format_spec: str) -> str:
        return format(tensor.item() if tensor.dim() == 0 else str(tensor), format_spec)

    def show(tensor: torch.Tensor, **kwargs: Any) -> str:
        if not isinstance(tensor, FakeTensor) or tensor.device.type == "meta":
            return str(plain["__repr__"](tensor, **kwargs))
        value = values.array_of(memory.book, tensor)
        with values.plainly():
            text = str(plain["__repr__"](value, **kwargs))
        return f"{text[:-1]}, device='cuda:0')" if is_sim(tensor) else text

    def truth(tensor: torch.Tensor) -> bool:
        """The truth of a known value, else the one by which a healthy job goes on and does its work."""
        if (
            not isinstance(tensor, FakeTensor)
            or tensor.numel() != 1
            or values.certain_value(memory.book, tensor) is not None
        ):
            return bool(plain["__bool__"](tensor))
        frame = sys._getframe(1)
        way = guards.way_of(frame, is_torch=frame.f_code.co_filename.startswith(_TORCH))
        if way is None:
            return bool(plain["__bool__"](tensor))
        answer, is_guess = way
        if is_guess:
            memory.guesses_read.add(memory.user_line())
            values.note_condition(memory, memory.user_line())
        return answer

    patches.set(torch.Tensor, "__bool__", truth)
    patches.set(torch.Tensor, "numpy", numpy)
    patches.set(torch.Tensor, "__array__", array)
    patches.set(torch.Tensor, "tolist", tolist)
    patches.set(FakeTensor, "tolist", tolist)  # it has one of its own, which reads place by place
    patches.set(torch.Tensor, "__format__", formatted)
    patches.set(torch.Tensor, "__repr__", show)
    patches.set(torch.Tensor, "__str__", show)
    patches.set(torch.Tensor, "share_memory_", lambda tensor: tensor)
    _pickle(patches)


def _pickle(patches: Patches) -> None:
    """A pickled tensor without values comes back as one of its kind."""
    plain: Any = torch.Tensor.__reduce_ex__

    @functools.wraps(plain)
    def reduce(tensor: torch.Tensor, proto: Any) -> Any:
        if not isinstance(tensor, FakeTensor):
            return plain(tensor, proto)
        layout = (tuple(tensor.shape), tensor.stride())
        kind = {"dtype": tensor.dtype, "device": str(tensor.device), "requires_grad": tensor.requires_grad}
        return _rebuilt, (layout, kind, isinstance(tensor, torch.nn.Parameter))

    patches.set(torch.Tensor, "__reduce_ex__", reduce)


def _rebuilt(layout: tuple[Any, Any], kind: dict[str, Any], parameter: bool) -> torch.Tensor:
    tensor = torch.empty_strided(*layout, **kind)
    return torch.nn.Parameter(tensor.detach(), requires_grad=kind["requires_grad"]) if parameter else tensor
