"""Calls of modules without gradients that were seen before: a module of the same structure, given the same tensors but
for their values, allocates the same. Its second such call is recorded; from the third on the record runs instead, and
the allocator sees the same requests in the same order.

Whatever a record could not stand for is run as ever: a module with hooks of the code's or under autocast, one that is
given anything but tensors and plain values, that reads a value or returns what follows from one, writes into what it is
given, keeps memory beyond its results, or changes any object. A function that the code replaces between two calls
is noticed where the call reads it as a global of its module; a module's own attribute always.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.modules.module as hooks
from torch._subclasses.fake_tensor import FakeTensor

from vramtui.estimators.traced.accounting.call_site import Whereabouts
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.accounting.storages import StorageEntry
from vramtui.estimators.traced.device.device import SIM
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.dispatch.values import LOOPS
from vramtui.estimators.traced.repeats.observer import Observer
from vramtui.estimators.traced.repeats.record import Birth, CallRecorder, Record
from vramtui.estimators.traced.repeats.structure import (
    ModuleStructure,
    ModuleStructures,
    UnrecognisableError,
    describe_tensor,
)

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
            if torch.is_grad_enabled() or self._busy:
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
        again = functools.partial(self._again, record, module, structure, given)
        return again() if self._where.depth() else self._between_hooks(module, args, again)

    def _between_hooks(self, module: torch.nn.Module, args: tuple[Any, ...], again: Callable[[], Any]) -> Any:
        """Let the phases and their like know of an outermost module, as `Module.__call__` does."""
        for enter in hooks._global_forward_pre_hooks.values():  # all of them ours
            enter(module, args)
        try:
            out = again()
        except BaseException:
            for leave in hooks._global_forward_hooks_always_called:
                hooks._global_forward_hooks[leave](module, args, None)
            raise
        for hook in hooks._global_forward_hooks.values():
            hook(module, args, out)
        return out

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
                self._describe_values(value, parts)
                given.append(value)
            elif kind in _PLAIN:
                parts += (kind, value)
            elif kind is tuple or kind is list:
                parts += (kind, len(value))
                self._describe(value, parts, given)
            else:
                raise UnrecognisableError

    def _describe_values(self, tensor: FakeTensor, parts: list[Any]) -> None:
        """What of a tensor's values operators tell apart, but for these themselves."""
        entry = self._memory.book.find(tensor)
        if entry is None:
            parts.append(None)
        elif entry.ruled_out is not None or entry.places is not None:
            raise UnrecognisableError
        else:
            parts += (entry.mirror is None, entry.guessed, entry.is_filled, entry.below, entry.chances)

    def _recorded(
        self, plain: Any, module: Any, asked: tuple[Any, Any], named: tuple[ModuleStructure, Any, list[Any]]
    ) -> Any:
        """Run a call as ever, and keep a record of it."""
        structure, key, given = named
        memory, observer = self._memory, Observer()
        recording = CallRecorder(structure, self._where.running, self._where.user_line())
        if not observer.start():
            return plain(module, *asked[0], **asked[1])
        self._busy, memory.book.recording = True, recording
        try:
            out = plain(module, *asked[0], **asked[1])
        finally:
            self._busy, memory.book.recording = False, None
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
        LOOPS.let_go()
        try:
            for event in record.events:
                if isinstance(event, Birth):
                    entry = StorageEntry(event.nbytes)
                    maker = module if not event.place else structure.children[event.place - 1]
                    entry.category = event.category
                    entry.module, entry.line = names.get(id(maker), ""), event.line or outside
                    where.last_line = entry.line or where.last_line
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
