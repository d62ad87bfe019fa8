"""What runs in Python during one call, and whether a record of that call could stand for it."""

import contextlib
import dis
import functools
import math
import os
import sys
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

import torch

from vramtui.estimators.traced.repeats.structure import CALLABLES, UnrecognisableError, frozen

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep  # noqa: PTH100,PTH120 - code objects hold plain strings
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100,PTH120 - as above
_CALLS = os.path.join(os.path.dirname(__file__), "calls.py")  # noqa: PTH118,PTH120 - as above
_HARMLESS_PARTS = (
    "dispatch", "repeats", "accounting", "device/names.", "device/device.", "libraries/linear.",
    "libraries/batch_norm.",
)  # fmt: skip
_OURS_HARMLESS = tuple(_OURS + part.replace("/", os.sep) for part in _HARMLESS_PARTS)
_EINOPS = f"{os.sep}site-packages{os.sep}einops{os.sep}"
_STORES = {
    "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE",
    "IMPORT_NAME", "STORE_NAME",
}  # fmt: skip
_BUILTINS = {
    "len", "isinstance", "issubclass", "getattr", "hasattr", "max", "min", "sum", "abs", "round", "any", "all",
    "callable", "divmod", "pow", "sorted", "repr", "iter", "next",  # an iterator from elsewhere has no description
}  # fmt: skip
_OF_CONTAINERS = {"get", "items", "keys", "values", "copy", "index", "count", "numel"}
_OF_TENSORS_REFUSED = {
    "requires_grad_", "t_", "squeeze_", "unsqueeze_", "transpose_", "swapdims_", "swapaxes_", "detach_", "resize_",
    "resize_as_", "set_", "as_strided_", "share_memory_", "register_hook", "retain_grad", "backward", "data_ptr",
    "item", "tolist", "numpy", "untyped_storage",
}  # fmt: skip
_VALUES = (int, float, str, tuple, bool, frozenset, bytes, torch.dtype)
_PURE_MODULES = ("math", "operator", "_operator", "_warnings")
_QUESTIONS = ("is_", "_is_", "get_", "_get_", "has_", "_has_")


class Observer:
    """Watches what runs on this thread between `start` and `stop`.

    Attributes:
        harmless: nothing was seen that a record could not stand for.
        names: the globals that functions in Python may have read, with their values; never a tensor.
        settings: what those hold, with copies.
    """

    def __init__(self) -> None:
        self.harmless = True
        self.names: dict[tuple[int, str], tuple[dict[str, Any], str, Any]] = {}
        self.settings: list[tuple[Any, Any]] = []
        self._skipped = 0  # frames of our own that are running

    def start(self) -> bool:
        """Begin; False where somebody else profiles the code."""
        if sys.getprofile() is not None:
            return False
        sys.setprofile(self._on_event)
        return True

    def stop(self) -> None:
        """Stop observing calls."""
        sys.setprofile(None)

    def unchanged(self) -> bool:
        """Whether the globals are what they were."""
        return all(namespace.get(name, Observer) is value for namespace, name, value in self.names.values()) and all(
            now == before for now, before in self.settings
        )

    def _on_event(self, frame: FrameType, event: str, arg: Any) -> None:
        if self._skipped:
            self._skipped += (event == "call") - (event == "return")
        elif event == "call":
            self._called(frame)
        elif event == "c_call" and not _is_trusted(frame.f_code.co_filename) and not _is_harmless(arg):
            self.harmless = False

    def _called(self, frame: FrameType) -> None:
        code = frame.f_code
        file = code.co_filename
        if file == _CALLS:
            return  # what it calls is the code's own
        if file.startswith(_OURS):
            self.harmless &= file.startswith(_OURS_HARMLESS)
            self._skipped = 1
        elif not file.startswith("<") and not _is_trusted(file):
            known = facts_of(code)
            self.harmless &= not known[0]
            for name in known[1]:
                if name in frame.f_globals:
                    self._reads(frame.f_globals, name)

    def _reads(self, namespace: dict[str, Any], name: str) -> None:
        """A function reads a global: a function, a class or a module, or something of plain values."""
        value = namespace[name]
        if not isinstance(value, (*CALLABLES, ModuleType)):
            try:
                frozen(value, self.settings)
            except UnrecognisableError:
                self.harmless = False
                return
        self.names[id(namespace), name] = namespace, name, value


@functools.cache
def _is_trusted(file: str) -> bool:
    """Whether a file is PyTorch's, or holds functions that change nothing but what they made and their own caches."""
    return file.startswith((_TORCH, contextlib.__file__)) or _EINOPS in file


_known: dict[int, tuple[bool, tuple[str, ...], CodeType]] = {}


def facts_of(code: CodeType) -> tuple[bool, tuple[str, ...], CodeType]:
    """Whether a function changes anything but its own variables, which globals it names, and its code."""
    known = _known.get(id(code))
    if known is None:
        instructions = list(dis.get_instructions(code))
        changes = any(
            one.opname in _STORES or (one.opname == "STORE_DEREF" and one.argval not in code.co_cellvars)
            for one in instructions
        )
        names = {one.argval for one in instructions if one.opname in {"LOAD_GLOBAL", "LOAD_NAME"}}
        known = _known[id(code)] = changes, tuple(sorted(names)), code
    return known


def _is_harmless(function: Any) -> bool:
    if not isinstance(function, BuiltinFunctionType):
        return False
    name, owner = function.__name__, function.__self__
    if isinstance(owner, torch.Tensor):
        return name not in _OF_TENSORS_REFUSED
    if isinstance(owner, _VALUES):
        return True
    if isinstance(owner, (dict, list)):
        return name in _OF_CONTAINERS
    if isinstance(owner, type(math)):
        return _of_module(owner.__name__, name)
    # `torch.cat` and the like are methods of a class.
    return owner is None or getattr(owner, "__name__", "") == "_VariableFunctionsClass"


def _of_module(module: str, name: str) -> bool:
    if module == "builtins":
        return name in _BUILTINS
    if module == "torch._C":
        return name.startswith(_QUESTIONS)
    return module in _PURE_MODULES or (module.startswith("torch._C._") and not name.startswith("_"))
