"""`torch.load` of real files during a trace, and `torch.save`, which writes only what has values: weights have none.

What the code has saved it can load again: it is kept in this process, pickled, tensors without values as their shapes.
"""

import contextlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.storage
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches

_MARK = b"vramtui: tensors without values\n"
NOTE = "torch.save packs tensors without values into a buffer: what the code writes of it to a file is of no use later"


class _Pickler(pickle.Pickler):
    """Counts the tensors that have no values."""

    without_values = 0

    def reducer_override(self, obj: Any) -> Any:
        self.without_values += isinstance(obj, FakeTensor)
        return NotImplemented


def install(patches: Patches, memory: SimulatedMemory, *, shielded: bool) -> None:
    """Read as ever, then move to the simulated card what belongs there; `shielded` is whether files that are written
    are thrown away: then one without values is written too, which code may copy, move and load again.
    """
    plain_load, plain_save = torch.load, torch.save
    saved: dict[str, bytes] = {}

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        pickled = _marked(f) or saved.get(place_of(f))
        if pickled is not None:
            again = pickle.loads(pickled)  # noqa: S301 - a trace has made it
            return again if map_location is None else _moved(again, map_location, _place_of_tensor)
        places: dict[int, str] = {}

        def note(storage: Any, location: str) -> Any:
            places[storage._cdata] = location
            return storage

        with _disable_current_modes():
            read = plain_load(f, note, *args, **kwargs)
        return _moved(read, map_location, lambda tensor: places.get(tensor.untyped_storage()._cdata, "cpu"))

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if sys._getframe(1).f_code.co_filename == torch.storage.__file__:  # a real storage that is being pickled
            plain_save(obj, f, *args, **kwargs)
            return
        pickled = io.BytesIO()
        pickler = _Pickler(pickled)
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError, NotImplementedError):
            pickler.dump(obj)
            if not pickler.without_values:
                with _disable_current_modes():
                    plain_save(obj, f, *args, **kwargs)
                return
            saved[place_of(f)] = pickled.getvalue()
            if _lies_in_memory(f, memory) or shielded:
                _write(f, _MARK + pickled.getvalue())

    patches.set(torch.UntypedStorage, "from_buffer", staticmethod(_with_values(torch.UntypedStorage.from_buffer)))
    patches.set(torch, "load", load)
    patches.set(torch, "save", save)


def _with_values(from_buffer: Any) -> Any:
    """Bytes of the host as they are: while a fake mode is on PyTorch makes a storage without values of them
    (2.13, torch/csrc/StorageMethods.cpp, `THPStorage_fromBuffer`).
    """

    def read(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return from_buffer(*args, **kwargs)

    return read


def _marked(file: Any) -> bytes | None:
    """What `save` has put into a buffer, wherever the code has written that to; None for any other file."""
    with contextlib.suppress(OSError):
        if isinstance(file, (str, os.PathLike)):
            with open(file, "rb") as opened:  # noqa: PTH123 - most files are not ours, and some no paths of Path
                return _marked(opened)
        if hasattr(file, "read") and hasattr(file, "seek"):
            if file.read(len(_MARK)) == _MARK:
                content: bytes = file.read()
                return content
            file.seek(0)
    return None


def _lies_in_memory(file: Any, memory: SimulatedMemory) -> bool:
    """Whether it is a buffer, of which the code may make a file without us."""
    if isinstance(file, io.BytesIO):
        memory.warn(NOTE)
    return isinstance(file, io.BytesIO)


def _write(file: Any, content: bytes) -> None:
    if not isinstance(file, (str, os.PathLike)):
        file.write(content)
        return
    with open(file, "wb") as opened:  # noqa: PTH123 - as above
        opened.write(content)


def place_of(file: Any) -> str:
    """What tells a file apart: its path, whoever has opened it, or the buffer itself."""
    if isinstance(file, (str, os.PathLike)):
        return os.path.realpath(file)
    name = getattr(file, "name", None) or getattr(file, "path", None)
    return os.path.realpath(name) if isinstance(name, str) else f"buffer {id(file)}"


class _Storage:
    """What a `map_location` is given for a storage: it tells where the code wants it."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device = torch.device(device)

    def cuda(self, device: Any = None, **_kwargs: Any) -> "_Storage":
        return _Storage("cuda" if device is None or isinstance(device, int) else device)

    def cpu(self) -> "_Storage":
        return _Storage()

    def to(self, device: Any = None, **_kwargs: Any) -> "_Storage":
        return _Storage("cuda" if isinstance(device, int) else device)


def _place_of_tensor(tensor: torch.Tensor) -> str:
    return "cuda:0" if tensor.is_cuda else "cpu"


def _target(map_location: Any, location: str) -> torch.device:
    """Where `torch.load` puts what lay at `location` (torch/serialization.py, 2.13, `_get_restore_location`): a dict
    names some places, a function may say None.
    """
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif isinstance(map_location, (str, torch.device)):
        return torch.device(map_location)
    elif map_location is not None:
        wanted = map_location(_Storage(), location)
        if wanted is not None:
            return torch.device(wanted.device)
    return torch.device("cuda" if location.startswith("cuda") else "cpu")


def _moved(read: Any, map_location: Any, place: Callable[[torch.Tensor], str]) -> Any:
    """What was read, where the code wants it; `place` tells where a tensor lay as it was saved."""

    def move(tensor: torch.Tensor) -> torch.Tensor:
        device = _target(map_location, place(tensor))
        return tensor if device.type == "cpu" and not tensor.is_cuda else tensor.to(device)

    return read._apply(move) if isinstance(read, torch.nn.Module) else pytree.tree_map_only(torch.Tensor, move, read)
