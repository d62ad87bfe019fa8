"""`torch.load` of real files during a trace, and `torch.save`, which writes nothing: the weights have no values."""

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

    def load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
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

    def save(*args: Any, **kwargs: Any) -> None:
        if sys._getframe(1).f_code.co_filename == torch.storage.__file__:  # a real storage that is being pickled
            plain_save(*args, **kwargs)

    patches.set(torch, "load", load)
    patches.set(torch, "save", save)


def _names_card(location: Any) -> bool:
    return isinstance(location, (str, torch.device)) and torch.device(location).type == "cuda"


def _moved(read: Any, location: Any) -> Any:
    if isinstance(read, torch.nn.Module):
        return read.to(location)
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(location), read)
