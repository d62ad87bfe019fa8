"""A dict that forgets: what was put in or made last stays."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


class Latest(OrderedDict[Key, Value]):
    """At most `most` values; the one that was put in, or asked for with `get_or_make`, longest ago gives way."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def __setitem__(self, key: Key, value: Value) -> None:
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self._most:
            self.popitem(last=False)

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of this key, made now where there is none."""
        if key not in self:
            self[key] = make()
        self.move_to_end(key)
        return self[key]
