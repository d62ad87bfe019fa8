"""Memory of the card that Python's collector gives back, as objects that refer to one another hold it.

The collector looks when enough objects were made and are still there (CPython, Modules/gcmodule.c; Python/gc.c since
3.13). A trace makes objects of its own and has frozen those of its libraries, so that it looks at other moments than in
a job: what it frees may have gone earlier there, or later.
"""

import gc
from collections.abc import Iterator
from typing import Any

from vramtui.core.base.units import format_bytes
from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches

# Of the peak; less is no matter.
LEAST_SHARE = 0.01
NOTE = (
    "objects in cycles, as a model that refers to itself, held up to {} of the card until Python's collector ran; "
    "when it runs hangs on how many objects are made, which differs in a trace: the peak may be off by as much either "
    "way, and a `gc.collect()` behind the last use of such a model makes it certain"
)


def install(patches: Patches, memory: SimulatedMemory) -> "GarbageWatch":
    """Watch the collector, but for the runs that the code asks for."""
    watch = GarbageWatch(memory)
    plain = gc.collect

    def collect(*args: Any, **kwargs: Any) -> int:
        watch.is_asked = True
        try:
            return plain(*args, **kwargs)
        finally:
            watch.is_asked = False

    patches.set(gc, "collect", collect)
    gc.callbacks.append(watch)
    return watch


class GarbageWatch:
    """Called by the collector at its start and at its end.

    Attributes:
        is_asked: whether the code has asked for the run.
        most: bytes of the card that one run gave back at most.
    """

    def __init__(self, memory: SimulatedMemory) -> None:
        self.is_asked, self.most = False, 0
        self._memory = memory
        self._before = 0

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        allocated = self._memory.allocator.stats.allocated
        if phase == "start":
            self._before = allocated
        elif not self.is_asked and self._before - allocated > self.most:
            self.most = self._before - allocated

    def notes(self) -> Iterator[str]:
        """Say what was seen where it matters."""
        if self.most > LEAST_SHARE * self._memory.peak:
            yield NOTE.format(format_bytes(self.most))

    def remove(self) -> None:
        """Watch no more."""
        gc.callbacks.remove(self)
