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
        held = vars(owner).get(name, _ABSENT)
        self._undo.append((owner, name, held))
        if name == "__init__" and isinstance(held, FunctionType):
            # What reads settings files asks inspect.getfullargspec, which follows no `__wrapped__`.
            value.__signature__ = inspect.signature(held)
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, the last change first."""
        while self._undo:
            owner, name, held = self._undo.pop()
            if held is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, held)
