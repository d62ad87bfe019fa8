"""`torch.load` of real files during a trace, and `torch.save`, which writes nothing: the weights have no values.

What the code has saved it can load again: it is kept in this process, pickled, tensors without values as their shapes.
"""

import contextlib
import os
import pickle
import sys
from typing import Any

import torch
import torch.storage
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from vramtui.estimators.traced.device.patches import Patches


def install(patches: Patches) -> None:
    """Read as ever, then move to the simulated card what belongs there."""
    plain_load, plain_save = torch.load, torch.save
    saved: dict[str, bytes] = {}

    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        kept = saved.get(_place(file))
        if kept is not None:
            again = pickle.loads(kept)  # noqa: S301 - this process has just made it
            return again if map_location is None else _moved(again, map_location)
        on_card: set[int] = set()

        def note(storage: Any, location: str) -> Any:
            if location.startswith("cuda"):
                on_card.add(storage._cdata)
            return storage

        with _disable_current_modes():
            read = plain_load(file, note, *args, **kwargs)
        if map_location is not None:
            return _moved(read, map_location) if _names_card(map_location) else read
        return pytree.tree_map_only(
            torch.Tensor, lambda tensor: tensor.cuda() if tensor.untyped_storage()._cdata in on_card else tensor, read
        )

    def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        if sys._getframe(1).f_code.co_filename == torch.storage.__file__:  # a real storage that is being pickled
            plain_save(obj, f, *args, **kwargs)
            return
        with contextlib.suppress(pickle.PicklingError, AttributeError, TypeError, NotImplementedError):
            saved[_place(f)] = pickle.dumps(obj)

    patches.set(torch, "load", load)
    patches.set(torch, "save", save)


def _place(file: Any) -> str:
    """What tells a file apart: its path, whoever has opened it, or the buffer itself."""
    if isinstance(file, (str, os.PathLike)):
        return os.path.realpath(file)
    name = getattr(file, "name", None) or getattr(file, "path", None)
    return os.path.realpath(name) if isinstance(name, str) else f"buffer {id(file)}"


def _names_card(location: Any) -> bool:
    return isinstance(location, (str, torch.device)) and torch.device(location).type == "cuda"


def _moved(read: Any, location: Any) -> Any:
    if isinstance(read, torch.nn.Module):
        return read.to(location)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(location), read)
