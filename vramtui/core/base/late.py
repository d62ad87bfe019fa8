"""Functions whose modules are loaded when they are first called: of many ways to answer, a command needs one."""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def late(place: str) -> Callable[..., Any]:
    """The function at `place`, as `package.module:function`; nothing is loaded until it is called."""
    module, _, name = place.partition(":")

    def call(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as that function takes and gives
        return getattr(import_module(module), name)(*arguments, **options)

    return call
