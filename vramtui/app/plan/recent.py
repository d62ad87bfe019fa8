"""What was worked at lately, kept by name."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class Latest(Generic[Thing]):
    """At most `most` things; the one that was asked for longest ago gives way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._things: OrderedDict[object, Thing] = OrderedDict()

    def __len__(self) -> int:
        return len(self._things)

    def of(self, name: object, make: Callable[[], Thing]) -> Thing:
        """The thing of this name, made now where there is none."""
        thing = self._things.get(name)
        if thing is None:
            thing = self._things[name] = make()
        self._things.move_to_end(name)
        while len(self._things) > self._most:
            self._things.popitem(last=False)
        return thing
