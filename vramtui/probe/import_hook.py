"""Notice when the job imports a module, without importing it and without standing in the way."""

from __future__ import annotations  # what the annotations name would cost every Python its start

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

    Act = Callable[..., Any]


def when_imported(name: str, ready: Callable[[ModuleType], object]) -> None:
    """Call `ready` with the module `name`: now if it is there, or else as soon as it has been imported."""
    module = sys.modules.get(name)
    if module is not None:
        _quietly(ready, module)
    else:
        sys.meta_path.insert(0, _Finder(name, ready))


def _quietly(ready: Callable[[ModuleType], object], module: ModuleType) -> None:
    try:
        ready(module)
    except Exception:
        pass


class _Finder:
    """Lets the other finders find, and puts itself between the module and its loader."""

    def __init__(self, name: str, ready: Callable[[ModuleType], object]) -> None:
        self._name = name
        self._ready = ready

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        # Those behind this one: another of the same name asks this one, and would be asked again.
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :] if self in sys.meta_path else ():
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self)  # type: ignore[assignment]  # one in all but name
                return spec
        return None

    def finish(self, module: ModuleType) -> None:
        """The module has been imported: the job's imports are its own again."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            _quietly(self._ready, module)


class _Loader:
    """A loader that is the job's own except that it reports when it has finished."""

    def __init__(self, loader: Any, finder: _Finder) -> None:
        self._loader = loader
        self._finder = finder

    def __getattr__(self, name: str) -> Any:
        # A copy that is still empty has no loader to ask, and asks for these names first.
        if name.startswith("__") or name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.finish(module)


def around(owner: Any, name: str, act: Any) -> None:
    """Call `act(function, ...)` instead of a function or method of this name, if there is one."""
    from functools import wraps

    plain = getattr(owner, name, None)
    if plain is not None:

        @wraps(plain)
        def call(*arguments: Any, **named: Any) -> Any:
            return act(plain, *arguments, **named)

        setattr(owner, name, call)


class ModuleChanges:
    """Changes of modules that a job may import, each made by a decorated function as soon as its module is there."""

    def __init__(self) -> None:
        self._acts: list[tuple[str, Act]] = []

    def when(self, name: str) -> Callable[[Act], Act]:
        """Have the decorated function change the module `name`."""

        def decorate(act: Act) -> Act:
            self._acts.append((name, act))
            return act

        return decorate

    def around(self, name: str, path: str) -> Callable[[Act], Act]:
        """Have the decorated function stand around one of the module, or a method `CLASS.NAME`; see `around`."""
        owner, _, attribute = path.rpartition(".")

        def decorate(act: Act) -> Act:
            self.when(name)(lambda module: around(getattr(module, owner) if owner else module, attribute, act))
            return act

        return decorate

    def put_on(self) -> None:
        for name, act in self._acts:
            when_imported(name, act)
