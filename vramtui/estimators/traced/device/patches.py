"""Replace attributes for as long as a trace runs."""

import inspect
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

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            owner, name, original = self._undo.pop()
            if original is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
