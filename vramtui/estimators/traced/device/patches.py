"""Replace attributes for as long as a trace runs."""

import contextlib
import inspect
from collections.abc import Iterator
from types import FunctionType
from typing import Any

_ABSENT: Any = object()


class Patches:
    """Remembers what it replaced."""

    def __init__(self) -> None:
        self._undo: list[tuple[Any, str, Any]] = []

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`; what makes an object says as before which arguments it takes."""
        original = vars(owner).get(name, _ABSENT)
        self._undo.append((owner, name, original))
        if name == "__init__" and isinstance(original, FunctionType):
            # What reads settings files asks inspect.getfullargspec, which follows no `__wrapped__`.
            value.__signature__ = inspect.signature(original)
        setattr(owner, name, value)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Restore what was patched while this lasts."""
        patched = [(owner, name, vars(owner).get(name, _ABSENT)) for owner, name, _original in self._undo]
        for owner, name, original in reversed(self._undo):
            _put(owner, name, original)
        try:
            yield
        finally:
            for owner, name, value in patched:
                _put(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            _put(*self._undo.pop())


def _put(owner: Any, name: str, value: Any) -> None:
    if value is _ABSENT:
        delattr(owner, name)
    else:
        setattr(owner, name, value)
