"""Replace attributes for as long as a trace runs, those of modules too that a script may import later on."""

import contextlib
import functools
import importlib.abc
import importlib.machinery
import inspect
import sys
from collections.abc import Callable, Sequence
from types import FunctionType, ModuleType
from typing import Any

_ABSENT: Any = object()


class Patches:
    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`; a function that stands in for another has its signature and its name."""
        original = vars(owner).get(name, _ABSENT)
        self._undo.append((owner, name, original))
        before = getattr(owner, name, None)
        now = value.__func__ if isinstance(value, staticmethod) else value
        if isinstance(now, FunctionType) and callable(before):
            stands_for_another = "__signature__" in vars(now) or now.__globals__["__name__"].startswith("torch")
            if stands_for_another and now is value:
                value = now = copy_of(now)
            # `inspect.getfullargspec` follows no `__wrapped__`; what is written in C mostly tells no signature.
            with contextlib.suppress(TypeError, ValueError):
                signature = inspect.signature(before)
                functools.update_wrapper(now, before, updated=())
                vars(now)["__signature__"] = signature
        elif isinstance(value, type) and isinstance(original, type):
            with contextlib.suppress(TypeError, ValueError):
                value.__signature__ = inspect.signature(original)  # type: ignore[attr-defined] # read by `inspect`
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            _put(*self._undo.pop())


def copy_of(function: FunctionType) -> FunctionType:
    copied = FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)


def for_module(patches: Patches, name: str, done: Callable[[ModuleType], None]) -> None:
    """Call `done` with the module called `name`: now where it is imported already, else as soon as it is."""
    if name in sys.modules:
        done(sys.modules[name])
    else:
        patches.set(sys, "meta_path", [_AfterImport(name, done), *sys.meta_path])


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Calls `done` with a module as soon as it was imported."""

    def __init__(self, name: str, done: Callable[[ModuleType], None]) -> None:
        self._name, self._done = name, done
        self._loader: Any = None
        self._is_done = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name or self._is_done:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._loader, spec.loader = spec.loader, self
                return spec
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._finish(module)

    def _finish(self, module: ModuleType) -> None:
        if not self._is_done:
            self._is_done = True
            self._done(module)
