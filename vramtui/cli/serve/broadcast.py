"""One collector's samples of any number of hosts for any number of readers, each of which misses samples rather than
hold up another. What was seen before a reader came begins its graphs with a past.
"""

import os
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vramtui.cli.record.follow import OVERDUE
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.writer import RecordingEncoder
from vramtui.sources.feed.served import ServedFailure, ServedHeader

if TYPE_CHECKING:
    from vramtui.core.observation.readings import ProcessKey
    from vramtui.core.observation.track import Peak
    from vramtui.records.recording.recording import RecordingHeader


SPAN = 900.0  # seconds, as much as is asked of a Prometheus and as the demo knows
# Moments of all hosts together, and of one. One of 8 GPUs with 8 processes each is 20 kB of JSON, which a tab reads
# in a tenth of a millisecond, and 2 to 3 kB here, compressed.
MOST, MOST_OF_HOST, LEAST_OF_HOST = 2048, 300, 8
QUICK = 1  # zlib's level


class Backlog:
    """The last quarter of an hour of one host: a moment every few seconds, each a recording of its own.

    Args:
        hosts: how many share the room that there is.
    """

    def __init__(self, hosts: int) -> None:
        most = min(MOST_OF_HOST, max(LEAST_OF_HOST, MOST // hosts))
        self._step = SPAN / most
        self._chunks: deque[bytes] = deque(maxlen=most)
        self._last = float("-inf")
        self._lock = threading.Lock()

    def fill(self, header: "RecordingHeader", samples: Iterable[Sample]) -> None:
        """Take what the source itself knows of the time before."""
        for sample in samples:
            self.add(header, RecordedTick(sample))

    def add(self, header: "RecordingHeader", tick: RecordedTick) -> None:
        """Take a moment that is not the newest any more, where it is time for one; the oldest goes."""
        at = tick.sample.taken_at
        if self._last <= at < self._last + self._step:
            return
        with self._lock:
            if at < self._last:  # the clock was set back: what was seen by it is later than what comes
                self._chunks.clear()
            self._last = at
            text = RecordingEncoder.header(header) + RecordingEncoder().lines(RecordedTick(tick.sample, tick.jobs))
            self._chunks.append(zlib.compress(text, QUICK))

    def lines(self) -> list[bytes]:
        """The lines of all recordings, the oldest first."""
        with self._lock:
            recordings = tuple(self._chunks)
        return [line for one in recordings for line in zlib.decompress(one).splitlines(keepends=True)]


class BroadcastTick(NamedTuple):
    """What a recording says of a moment of one host, with the recording's first line."""

    header: "RecordingHeader"
    tick: RecordedTick


class HostUpdate(NamedTuple):
    """What a reader has not been told yet of one host: the newest moment, and why there is none after it."""

    moment: BroadcastTick | None = None
    failure: str = ""


class Broadcast:
    """Takes what recordings of hosts would, and hands it to every reader there is.

    Args:
        header: the first line that each reader gets.
    """

    def __init__(self, header: ServedHeader) -> None:
        self._header = header
        self._readers: list[TabWriter] = []
        self._latest: dict[int, HostUpdate] = {}
        self._earlier = tuple(Backlog(len(header.hosts)) for _ in header.hosts)
        self._lock = threading.Lock()

    def host(self, number: int) -> "HostBroadcast":
        """Takes what comes of the host of that number."""
        return HostBroadcast(self, number)

    def earlier(self, number: int) -> Backlog:
        """What was seen of a host before its latest moment."""
        return self._earlier[number]

    def put(self, number: int, moment: BroadcastTick | None = None, failure: str = "") -> None:
        """Take one moment of a host, or why there is none; never waits."""
        with self._lock:
            former = self._latest.get(number, HostUpdate())
            if moment is not None and former.moment is not None:
                self._earlier[number].add(former.moment.header, former.moment.tick)
            self._latest[number] = HostUpdate(moment or former.moment, failure)
            self._readers = [reader for reader in self._readers if reader.is_alive()]
            for reader in self._readers:
                reader.put(number, HostUpdate(moment, failure))

    def add_reader(self) -> int:
        """The reading end of a pipe through which all comes from now on, beginning with what was seen before and each
        host's latest moment.
        """
        reading, writing = os.pipe()
        reader = TabWriter(writing, self._header, self._earlier)
        with self._lock:
            for number, news in self._latest.items():
                reader.put(number, news)
            self._readers.append(reader)
        reader.start()
        return reading


class HostBroadcast:
    """One host's place in a broadcast, as what follows that host sees it: a recording that is never full."""

    def __init__(self, broadcast: Broadcast, number: int) -> None:
        self._broadcast = broadcast
        self._number = number
        self._header: RecordingHeader | None = None

    @contextmanager
    def begin(self, header: "RecordingHeader") -> "Iterator[HostBroadcast]":
        """The host has answered."""
        self._header = header
        yield self

    def write(self, tick: RecordedTick) -> None:
        """Take one moment; never waits."""
        assert self._header is not None
        self._broadcast.put(self._number, BroadcastTick(self._header, tick))

    def took(self) -> None:
        """A sample is written."""

    def trouble(self, sentence: str) -> None:
        """Say why nothing comes; of a read that only takes long, silence says it: readers see how old all is."""
        if sentence != OVERDUE:
            self._broadcast.put(self._number, failure=sentence)


class TabWriter(threading.Thread):
    """Writes into one pipe, which it closes once nobody reads there any more."""

    def __init__(self, writing: int, header: ServedHeader, earlier: Sequence[Backlog] = ()) -> None:
        super().__init__(name="write to tab", daemon=True)
        self._writing = writing
        self._header = header
        self._earlier = earlier
        self._waiting: dict[int, HostUpdate] = {}
        self._encoders: dict[int, RecordingEncoder] = {}
        self._changed = threading.Condition()

    def put(self, number: int, news: HostUpdate) -> None:
        """Take the newest of a host in place of what still waits, whose peaks go with it."""
        with self._changed:
            waiting = self._waiting.get(number, HostUpdate()).moment
            moment = news.moment
            if waiting is not None and moment is not None:
                peaks = _joined(waiting.tick.peaks, moment.tick.peaks)
                moment = moment._replace(tick=moment.tick._replace(peaks=peaks))
            self._waiting[number] = HostUpdate(moment or waiting, news.failure)
            self._changed.notify()

    def run(self) -> None:
        try:
            earlier = [(number, one.lines()) for number, one in enumerate(self._earlier)]
            count = sum(len(lines) for _, lines in earlier)
            self._write(msgspec.json.encode(msgspec.structs.replace(self._header, earlier=count)) + b"\n")
            for number, lines in earlier:
                self._write(b"".join(b"%d<" % number + line for line in lines))
            del earlier
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._waiting)
                    waiting, self._waiting = self._waiting, {}
                for number, news in waiting.items():
                    self._write(self._lines(number, news))
        except OSError:
            os.close(self._writing)

    def _lines(self, number: int, news: HostUpdate) -> bytes:
        """Lines for one host, each behind its number."""
        text = b""
        if news.moment is not None:
            moment = news.moment
            encoder = self._encoders.get(number)
            if encoder is None:
                encoder = self._encoders[number] = RecordingEncoder()
                text = encoder.header(moment.header)
            text += encoder.lines(moment.tick)
        mark = b"%d:" % number
        lines = [mark + line for line in text.splitlines(keepends=True)]
        if news.failure:
            lines.append(b"%d!" % number + msgspec.json.encode(ServedFailure(news.failure)) + b"\n")
        return b"".join(lines)

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
