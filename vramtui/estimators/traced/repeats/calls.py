"""Calls of modules without gradients that were seen before: a module of the same structure, given the same tensors but
for their values, allocates the same. Its second such call is recorded; from the third on the record runs instead, and
the allocator sees the same requests in the same order.

Whatever a record could not stand for is run as ever: the outermost module (the phases are told by it), one with hooks
or under autocast, one that is given anything but tensors and plain values, that reads a value, writes into what it is
given, keeps memory beyond its results, or changes any object. A function that the code replaces between two calls
is noticed where the call reads it as a global of its module; a module's own attribute always.
"""

import dis
import math
import os
import sys
import threading
from types import BuiltinFunctionType, CodeType, FrameType, ModuleType
from typing import Any

import torch
import torch.nn.modules.module as hooks
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.accounting.storages import StorageEntry
from vramtui.estimators.traced.device.device import SIM
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.repeats.record import Birth, CallRecorder, Record
from vramtui.estimators.traced.repeats.structure import (
    CALLABLES,
    ModuleStructure,
    ModuleStructures,
    UnrecognisableError,
    describe_tensor,
    frozen,
)

_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep  # noqa: PTH100,PTH120 - code objects hold plain strings
_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100,PTH120 - as above
_HARMLESS_PARTS = ("dispatch", "repeats", "accounting", "device/names.", "device/device.")
_OURS_HARMLESS = tuple(_OURS + part.replace("/", os.sep) for part in _HARMLESS_PARTS)
_STORES = {
    "STORE_ATTR", "DELETE_ATTR", "STORE_GLOBAL", "DELETE_GLOBAL", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_SLICE",
    "IMPORT_NAME", "STORE_NAME",
}  # fmt: skip
_BUILTINS = {
    "len", "isinstance", "issubclass", "getattr", "hasattr", "max", "min", "sum", "abs", "round", "any", "all",
    "callable", "divmod", "pow", "sorted", "repr",
}  # fmt: skip
_OF_CONTAINERS = {"get", "items", "keys", "values", "copy", "index", "count", "numel"}
_OF_TENSORS_REFUSED = {
    "requires_grad_", "t_", "squeeze_", "unsqueeze_", "transpose_", "swapdims_", "swapaxes_", "detach_", "resize_",
    "resize_as_", "set_", "as_strided_", "share_memory_", "register_hook", "retain_grad", "backward", "data_ptr",
    "item", "tolist", "numpy", "untyped_storage",
}  # fmt: skip
_VALUES = (int, float, str, tuple, bool, frozenset, bytes, torch.dtype)
_PURE_MODULES = ("math", "operator", "_operator")
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
        elif event == "c_call" and not frame.f_code.co_filename.startswith(_TORCH) and not _is_harmless(arg):
            self.harmless = False

    def _called(self, frame: FrameType) -> None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_OURS):
            self.harmless &= file.startswith(_OURS_HARMLESS)
            self._skipped = 1
        elif not file.startswith((_TORCH, "<")):
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


_PLAIN = (int, float, bool, complex, str, type(None), torch.dtype, torch.layout, torch.memory_format)
_MOST = 1 << 13  # records, each some kilobytes
_TRIES = 3  # calls of one kind that could not be recorded, after which none is tried
_GLOBAL_HOOKS = (
    "_global_forward_hooks",
    "_global_forward_pre_hooks",
    "_global_backward_hooks",
    "_global_backward_pre_hooks",
)


class RepeatedCalls:
    """Stands before `torch.nn.Module.__call__`.

    Args:
        memory: where calls allocate.
        where: how deep inside modules the code is.
    """

    def __init__(self, memory: SimulatedMemory, where: Whereabouts) -> None:
        self._memory, self._where = memory, where
        self._structures = ModuleStructures()
        self._records: dict[Any, tuple[Record, Observer] | int] = {}
        self._failed: dict[int, int] = {}  # by the structure's number
        self._busy = False
        self._hooks: list[int] = []
        self._thread = threading.get_ident()

    def install(self, patches: Patches) -> None:
        """Take the place of the plain call; after all hooks of our own."""
        plain, assign, remove = (getattr(torch.nn.Module, name) for name in ("__call__", "__setattr__", "__delattr__"))
        self._hooks = [len(getattr(hooks, name)) for name in _GLOBAL_HOOKS]
        structures = self._structures

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.is_grad_enabled() or self._busy or not self._where.depth():
                return plain(module, *args, **kwargs)
            return self._called(plain, module, args, kwargs)

        def set_attribute(module: torch.nn.Module, name: str, value: Any) -> None:
            structures.changed(module, name, value)
            assign(module, name, value)

        def delete_attribute(module: torch.nn.Module, name: str) -> None:
            structures.changed(module, name, RepeatedCalls)
            remove(module, name)

        def adding(plain_adding: Any) -> Any:
            def add(self: torch.nn.Module, name: str, *args: Any, **kwargs: Any) -> None:
                structures.changed(self, name, RepeatedCalls)
                plain_adding(self, name, *args, **kwargs)

            return add

        patches.set(torch.nn.Module, "__call__", call)
        patches.set(torch.nn.Module, "__setattr__", set_attribute)
        patches.set(torch.nn.Module, "__delattr__", delete_attribute)
        for name in ("register_parameter", "register_buffer", "add_module"):
            patches.set(torch.nn.Module, name, adding(getattr(torch.nn.Module, name)))

    def _called(self, plain: Any, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        structure = self._structures.of(module)
        if structure is None or self._failed.get(structure.number, 0) >= _TRIES:
            return plain(module, *args, **kwargs)
        given: list[torch.Tensor] = []
        try:
            key = self._key(structure, args, kwargs, given)
        except UnrecognisableError:
            return plain(module, *args, **kwargs)
        known = self._records.get(key)
        if known is None:
            if len(self._records) >= _MOST:
                self._records.clear()
            self._records[key] = 1
            return plain(module, *args, **kwargs)
        if isinstance(known, int):
            return self._recorded(plain, module, (args, kwargs), (structure, key, given))
        record, observer = known
        if not observer.unchanged():
            del self._records[key]
            return plain(module, *args, **kwargs)
        return self._again(record, module, structure, given)

    def _key(self, structure: ModuleStructure, args: tuple[Any, ...], kwargs: dict[str, Any], given: list[Any]) -> Any:
        """What names the call among all.

        Raises:
            UnrecognisableError: it may depend on something else.
        """
        if torch.is_autocast_enabled(SIM) or torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu"):
            raise UnrecognisableError
        if torch._C._current_graph_task_id() != -1 or threading.get_ident() != self._thread:
            raise UnrecognisableError
        if torch._C._functorch.peek_interpreter_stack() is not None:
            raise UnrecognisableError
        if [len(getattr(hooks, name)) for name in _GLOBAL_HOOKS] != self._hooks:
            raise UnrecognisableError
        flags, memory = torch._C, self._memory
        parts: list[Any] = [
            structure.number, memory.stream, memory.epoch, torch.get_default_dtype(),
            flags._len_torch_dispatch_stack(), flags._len_torch_function_stack(), torch.is_inference_mode_enabled(),
            flags._get_cudnn_sdp_enabled(), flags._get_flash_sdp_enabled(), flags._get_mem_efficient_sdp_enabled(),
            flags._get_math_sdp_enabled(), torch.are_deterministic_algorithms_enabled(),
            flags._get_cudnn_benchmark(), flags._get_cudnn_enabled(), flags._get_cudnn_deterministic(),
        ]  # fmt: skip
        structure.state(parts)
        self._describe(args, parts, given)
        for name, value in kwargs.items():
            parts.append(name)
            self._describe((value,), parts, given)
        if len(given) > 1:
            parts += [next(i for i, other in enumerate(given) if other is tensor) for tensor in given]
        return tuple(parts)

    def _describe(self, values: Any, parts: list[Any], given: list[Any]) -> None:
        for value in values:
            kind = type(value)
            if kind is FakeTensor:
                describe_tensor(value, parts)
                entry = self._memory.book.find(value)
                parts.append(None if entry is None else (entry.mirror is None, entry.guessed))
                given.append(value)
            elif kind in _PLAIN:
                parts += (kind, value)
            elif kind is tuple or kind is list:
                parts += (kind, len(value))
                self._describe(value, parts, given)
            else:
                raise UnrecognisableError

    def _recorded(
        self, plain: Any, module: Any, asked: tuple[Any, Any], named: tuple[ModuleStructure, Any, list[Any]]
    ) -> Any:
        """Run a call as ever, and keep a record of it."""
        structure, key, given = named
        memory, observer = self._memory, Observer()
        recording = CallRecorder(structure, self._where.running, self._where.user_line())
        if not observer.start():
            return plain(module, *asked[0], **asked[1])
        self._busy, memory.recording = True, recording
        try:
            out = plain(module, *asked[0], **asked[1])
        finally:
            self._busy, memory.recording = False, None
            observer.stop()
        record = recording.finished(out, given, memory.book.find) if observer.harmless else None
        if record is None:
            self._failed[structure.number] = self._failed.get(structure.number, 0) + 1
        else:
            self._records[key] = record, observer
        return out

    def _again(
        self, record: Record, module: torch.nn.Module, structure: ModuleStructure, given: list[torch.Tensor]
    ) -> Any:
        """Run a record: the same requests, then tensors as the call returned them."""
        memory, where = self._memory, self._where
        outside, names = where.user_line(), where.names
        entries: list[StorageEntry] = []
        try:
            for event in record.events:
                if isinstance(event, Birth):
                    entry = StorageEntry(event.nbytes)
                    maker = module if not event.place else structure.children[event.place - 1]
                    entry.category, entry.guessed = event.category, event.guessed
                    entry.module, entry.line = names.get(id(maker), ""), event.line or outside
                    memory.operator = event.operator
                    memory.retake(entry)
                    entries.append(entry)
                else:
                    memory.release(entries[~event])
        except BaseException:
            for entry in entries:
                memory.release(entry)
            raise
        mode = next((tensor.fake_mode for tensor in given), None)  # type: ignore[attr-defined] # fake ones
        with torch._C._DisableTorchDispatch():
            return record.give(entries, given, mode, memory.book)
