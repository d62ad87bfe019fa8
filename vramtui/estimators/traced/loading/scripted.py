"""TorchScript during a trace: what is saved stays in this process, since its weights have no values to be written.

TorchScript's writer goes through each tensor's bytes in C++ (torch/csrc/jit/serialization/export.cpp, 2.13), which fake
ones have none of: it would end the process.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.loading.checkpoints import names_card, place_of

_jit: Any = torch.jit  # it does not export all that it holds
_MARK = b"TorchScript kept by this trace "
_SAVED = "TorchScript is not written at {}: what the code saves of it can be loaded again in this trace alone"


def install(patches: Patches, memory: SimulatedMemory, where: Whereabouts, *, shielded: bool) -> None:
    """Keep what is saved, give it back where it is loaded; `shielded` is whether files are thrown away, so that one is
    left for code that looks for it.
    """
    modules: dict[str, Any] = {}

    def save(m: Any, f: Any, *_args: Any, **_kwargs: Any) -> None:
        memory.warn(_SAVED.format(where.user_line()))
        modules[place_of(f)] = m
        if hasattr(f, "write"):
            mark = _MARK + f"{len(modules):08}".encode()
            modules[str(mark)] = m
            f.write(mark)
        if shielded and isinstance(f, (str, os.PathLike)):
            Path(f).touch()

    def load(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        module = modules.get(_mark_in(f) or place_of(f))
        if module is None:
            with _disable_current_modes():
                module = plain_load(f, "cpu", *args, **kwargs)
        moves = map_location is not None and isinstance(module, torch.nn.Module)
        return module.to("cuda" if names_card(map_location) else map_location) if moves else module

    plain_load = _jit.load
    patches.set(torch.jit, "save", save)
    patches.set(torch.jit, "load", load)
    for kind in (_jit.RecursiveScriptModule, _jit.ScriptFunction):
        patches.set(kind, "save", lambda self, f, *_args, **_kwargs: save(self, f))
    for name in ("freeze", "optimize_for_inference"):
        patches.set(torch.jit, name, _or_as_it_is(getattr(torch.jit, name)))


def _mark_in(file: Any) -> str:
    """What `save` has written into a buffer, also where its bytes were put into another one since; "" for a path."""
    if not (hasattr(file, "read") and hasattr(file, "seek")):
        return ""
    at = file.tell()
    file.seek(0)
    mark = file.read(len(_MARK) + 8)
    file.seek(at)
    return str(mark) if isinstance(mark, bytes) and mark.startswith(_MARK) else ""


def _or_as_it_is(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Freeze TorchScript; a module that a trace has left as it is comes back unchanged."""

    def change(mod: Any, *args: Any, **kwargs: Any) -> Any:
        return plain(mod, *args, **kwargs) if isinstance(mod, torch.jit.ScriptModule) else mod

    return change


def give_save(module: Any) -> None:
    """Let what stands for a traced module or function have the method `save` of one, but for one of the code's own,
    which the code goes on to read (yolov3's list of layers).
    """
    target = vars(module)  # not as a child of itself
    if not hasattr(module, "save"):
        target["save"] = lambda f, *_args, **_kwargs: torch.jit.save(module, f)
