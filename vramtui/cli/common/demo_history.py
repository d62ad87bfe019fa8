"""What the demo knows of the time before it was opened, so that its graphs begin with a past."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vramtui.core.observation.readings import Sample
from vramtui.sources.demo import DemoSource

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

PAST, RECENT = 900, 120  # seconds before the demo was opened that are known, and that are known by the second


class DemoHistory:
    """The samples of those seconds, and what jobs told in them.

    Args:
        demo: the host.
    """

    def __init__(self, demo: DemoSource) -> None:
        self._demo = demo

    def samples(self) -> Iterator[Sample]:
        """Its samples, the oldest first."""
        return (self._demo.read(before) for before in _before())

    def jobs(self) -> "Iterator[tuple[float, tuple[ObservedJob, ...]]]":
        """What its jobs had told by the times of those samples."""
        from vramtui.cli.common.demo_probe import demo_jobs

        now = self._demo.began + self._demo.elapsed
        return ((now - before, demo_jobs(self._demo, before)) for before in _before())


def _before() -> Iterator[float]:
    """How many seconds before it was opened the demo was looked at: every second of late, then now and then."""
    yield from (float(seconds) for seconds in (*range(PAST, RECENT, -10), *range(RECENT, 0, -1)))
