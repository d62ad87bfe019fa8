"""Replace attributes for as long as a trace runs."""

import contextlib
import functools
import inspect
from types import FunctionType
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
                code, names, closure = now.__code__, now.__globals__, now.__closure__
                value = FunctionType(code, names, now.__name__, now.__defaults__, closure)
                value.__kwdefaults__, now = now.__kwdefaults__, value
            # `inspect.getfullargspec` follows no `__wrapped__`; what is written in C mostly has no signature.
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
            owner, name, value = self._undo.pop()
            if value is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
