"""A recording played back at its own pace, as if it were happening."""

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample


class ReplaySource:
    """Gives the sample that was current at the same moment of the recording; after the last one it stays there.

    Args:
        samples: in the order they were taken.
        speed: seconds of the recording per second of the clock.
        clock: seconds, of which only differences matter.
        times: of the samples, where they are known without looking at each.
    """

    name = "replay"

    def __init__(
        self,
        samples: Sequence[Sample],
        speed: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        times: Sequence[float] | None = None,
    ) -> None:
        if not samples:
            raise SourceFailed("the recording holds no samples")
        self._samples = samples
        self._times = [sample.taken_at for sample in samples] if times is None else times
        self._speed = speed
        self._clock = clock
        self._start: float | None = None

    def read(self) -> Sample:
        """The sample for now; the first call begins the playing."""
        if self._start is None:
            self._start = self._clock()
        position = self._times[0] + (self._clock() - self._start) * self._speed
        return self._samples[max(0, bisect_right(self._times, position) - 1)]

    def close(self) -> None:
        """Close; there is nothing to release."""
