"""Memory of the card that Python's collector gives back, as objects that refer to one another hold it.

A trace makes objects of its own, so the collector runs at other moments than in the job: what it frees may go earlier
or later there.
"""

import gc
from collections.abc import Iterator
from typing import Any

from vramtui.core.base.units import format_bytes
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
from vramtui.dryrun.fake.device.patches import Patches

# Of the peak; less is no matter.
LEAST_SHARE = 0.01
NOTE = (
    "objects in cycles, as a model that refers to itself, held up to {} of the card until Python's collector ran; "
    "when it runs hangs on how many objects are made, which differs in a trace: the peak may be off by as much either "
    "way, and a `gc.collect()` behind the last use of such a model makes it certain"
)


class GarbageWatch:
    """Called by the collector at its start and end; runs that the code asks for do not count."""

    def __init__(self, patches: Patches, memory: SimulatedMemory) -> None:
        self.is_asked, self.most = False, 0
        self._memory, self._before = memory, 0
        plain = gc.collect

        def collect(*args: Any, **kwargs: Any) -> int:
            self.is_asked = True
            try:
                return plain(*args, **kwargs)
            finally:
                self.is_asked = False

        patches.set(gc, "collect", collect)
        gc.callbacks.append(self)

    def __call__(self, phase: str, _info: dict[str, int]) -> None:
        allocated = self._memory.allocator.stats.allocated
        if phase == "start":
            self._before = allocated
        elif not self.is_asked:
            self.most = max(self.most, self._before - allocated)

    def notes(self) -> Iterator[str]:
        """Say what was seen if it matters."""
        if self.most > LEAST_SHARE * self._memory.peak:
            yield NOTE.format(format_bytes(self.most))

    def remove(self) -> None:
        gc.callbacks.remove(self)
