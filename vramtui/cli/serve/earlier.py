"""What was seen of hosts before a tab opens, so that its graphs begin with a past."""

import threading
import zlib
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vramtui.core.observation.readings import Sample
from vramtui.records.recording.encoder import RecordingEncoder

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.records.recording.recording import RecordingHeader

SPAN = 900.0  # seconds, as much as is asked of a Prometheus and as the demo knows
# Moments of all hosts together, and of one. One of 8 GPUs with 8 processes each is 20 kB of JSON, which a tab reads
# in a tenth of a millisecond, and 2 to 3 kB here, compressed.
MOST, MOST_OF_HOST, LEAST_OF_HOST = 2048, 300, 8
QUICK = 1  # zlib's level


class EarlierMoments:
    """The last quarter of an hour of one host: a moment every few seconds, each a recording of its own.

    Args:
        hosts: how many share the room that there is.
    """

    def __init__(self, hosts: int) -> None:
        most = min(MOST_OF_HOST, max(LEAST_OF_HOST, MOST // hosts))
        self._step = SPAN / most
        self._kept: deque[bytes] = deque(maxlen=most)
        self._last = float("-inf")
        self._lock = threading.Lock()

    def fill(self, header: "RecordingHeader", samples: Iterable[Sample]) -> None:
        """Take what the source itself knows of the time before."""
        for sample in samples:
            self.add(header, sample)

    def add(self, header: "RecordingHeader", sample: Sample, jobs: "Sequence[ObservedJob]" = ()) -> None:
        """Take a moment that is not the newest any more, where it is time for one; the oldest goes."""
        at = sample.taken_at
        if self._last <= at < self._last + self._step:
            return
        with self._lock:
            if at < self._last:  # the clock was set back: what was seen by it is later than what comes
                self._kept.clear()
            self._last = at
            text = RecordingEncoder.header(header) + RecordingEncoder().lines(sample, jobs)
            self._kept.append(zlib.compress(text, QUICK))

    def lines(self) -> list[bytes]:
        """The lines of all recordings, the oldest first."""
        with self._lock:
            kept = tuple(self._kept)
        return [line for one in kept for line in zlib.decompress(one).splitlines(keepends=True)]
