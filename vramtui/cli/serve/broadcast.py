"""One collector's samples for any number of readers, each of which misses samples rather than hold up another."""

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from vramtui.core.observation.readings import Sample
from vramtui.records.recording.encoder import RecordingEncoder

if TYPE_CHECKING:
    from vramtui.core.estimate.prediction import Prediction
    from vramtui.core.observation.history import Peak
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.readings import ProcessKey
    from vramtui.records.recording.recording import RecordingHeader


class BroadcastTick(NamedTuple):
    """What a recording says of a moment."""

    sample: Sample
    jobs: "Sequence[ObservedJob]"
    predictions: "Mapping[ProcessKey, Prediction]"
    peaks: "Mapping[ProcessKey, Peak]"


class Broadcast:
    """Takes what a recording would, and hands it to every reader there is.

    Args:
        header: the first line that each reader gets.
    """

    def __init__(self, header: "RecordingHeader") -> None:
        self._header = header
        self._readers: list[TabWriter] = []
        self._latest: BroadcastTick | None = None
        self._lock = threading.Lock()

    def write(
        self,
        sample: Sample,
        jobs: "Sequence[ObservedJob]",
        predictions: "Mapping[ProcessKey, Prediction]",
        peaks: "Mapping[ProcessKey, Peak]",
    ) -> None:
        """Take one moment; never waits."""
        moment = BroadcastTick(sample, jobs, predictions, peaks)
        with self._lock:
            self._latest = moment
            self._readers = [reader for reader in self._readers if reader.is_alive()]
            for reader in self._readers:
                reader.put(moment)

    def took(self) -> None:
        """A sample is written."""

    def trouble(self, sentence: str) -> None:
        """Silence says it: every reader sees how old its last sample is."""
        del sentence

    def add_reader(self) -> int:
        """The reading end of a pipe through which a recording comes from now on, beginning with the latest moment."""
        reading, writing = os.pipe()
        reader = TabWriter(writing, self._header)
        with self._lock:
            if self._latest is not None:
                reader.put(self._latest)
            self._readers.append(reader)
        reader.start()
        return reading


class TabWriter(threading.Thread):
    """Writes into one pipe, which it closes once nobody reads there any more."""

    def __init__(self, writing: int, header: "RecordingHeader") -> None:
        super().__init__(name="write to tab", daemon=True)
        self._writing = writing
        self._header = header
        self._waiting: BroadcastTick | None = None
        self._changed = threading.Condition()

    def put(self, moment: BroadcastTick) -> None:
        """Take the newest moment in place of one that still waits, whose peaks go with it."""
        with self._changed:
            if self._waiting is not None:
                moment = moment._replace(peaks=_joined(self._waiting.peaks, moment.peaks))
            self._waiting = moment
            self._changed.notify()

    def run(self) -> None:
        """Write on, until nobody reads."""
        encoder = RecordingEncoder()
        try:
            self._write(encoder.header(self._header))
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting is not None)
                    moment, self._waiting = self._waiting, None
                assert moment is not None
                self._write(encoder.lines(*moment))
        except OSError:
            os.close(self._writing)

    def _write(self, text: bytes) -> None:
        rest = memoryview(text)
        while rest:
            rest = rest[os.write(self._writing, rest) :]


def _joined(one: "Mapping[ProcessKey, Peak]", other: "Mapping[ProcessKey, Peak]") -> "Mapping[ProcessKey, Peak]":
    joined = dict(one)
    for key, peak in other.items():
        if key not in joined or peak.bytes >= joined[key].bytes:
            joined[key] = peak
    return joined
