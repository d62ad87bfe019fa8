"""Replace attributes for as long as a trace runs."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

_ABSENT: Any = object()
Act = Callable[..., Any]


@contextlib.contextmanager
def holding(owner: Any, name: str, value: Any = True) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


class Patches(contextlib.ExitStack):
    """The replaced attributes: `close` puts everything back, the last change first."""

    def around(self, owner: Any, *names: str) -> Callable[[Act], Act]:
        """Replace functions by one that is given the replaced one, then what that was given."""

        def replace(act: Act) -> Act:
            for name in names:
                self.set(owner, name, _passing(act, getattr(owner, name)))
            return act

        return replace

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace `owner.name`; a function that stands in for another has its signature and its name."""
        original = vars(owner).get(name, _ABSENT)
        self.callback(*((delattr, owner, name) if original is _ABSENT else (setattr, owner, name, original)))
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


def _passing(act: Act, plain: Any) -> Act:
    @functools.wraps(plain, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        return act(plain, *args, **kwargs)

    return call
