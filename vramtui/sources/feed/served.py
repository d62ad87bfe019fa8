"""What `vramtui serve` sends to a tab: the recordings of any number of hosts, side by side in one pipe.

The first line is a ServedHeader. Every other begins with the number of a host among its `hosts`; after that comes `:`
and a line of that host's recording, or `!` and a ServedFailure. Right after the header come as many lines as its
`earlier` says with `<`: recordings of one moment each, the oldest first, of the time before.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import silence_limit
from vramtui.sources.feed.latest import LatestSample, LineSplitter, LineTooLargeError

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.readings import ProcessKey
    from vramtui.core.observation.track import Peak

PIECE = 1 << 16
BEGINNING = b'{"vramtui_recording"'  # of a recording's first line
FIRST = 60.0  # seconds in which a host's first sample comes: it may have to be reached first


class ServedHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the hosts' names (empty of what nobody named: the server's own), seconds between samples, the
    sentence to show above them, how many lines tell of the time before, and the names of the hosts whose past runs may
    be shown, as the server's history has them.
    """

    vramtui_served: int = 1
    hosts: tuple[str, ...]
    interval: float
    banner: str | None = None
    earlier: int = 0
    runs_of: tuple[str, ...] = ()


class ServedFailure(msgspec.Struct, frozen=True):
    """Why a host tells nothing now."""

    sentence: str


class SampleDecoder(Protocol):
    """Knows what the lines of a recording tell."""

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells; None where it tells something else.

        Raises:
            UserError: it is no line of a recording, or of a newer version.
        """
        ...

    def jobs(self) -> "tuple[ObservedJob, ...]":
        """What each job has told by now."""
        ...

    def peaks(self, when: float) -> "Sequence[tuple[ProcessKey, Peak]]":
        """The peaks up to the sample of `when` that no sample shows; each is given once."""
        ...


class ServedPast:
    """What was seen of a host before the first sample that it sends; given away once, for whoever takes it keeps it."""

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self._jobs: list[tuple[float, tuple[ObservedJob, ...]]] = []

    def add(self, sample: Sample, jobs: "tuple[ObservedJob, ...]") -> None:
        self._samples.append(sample)
        if jobs:
            self._jobs.append((sample.taken_at, jobs))

    def samples(self) -> Iterator[Sample]:
        """The oldest first."""
        samples, self._samples = self._samples, []
        return iter(samples)

    def jobs(self) -> "Iterator[tuple[float, tuple[ObservedJob, ...]]]":
        """What jobs had told by the times of the samples."""
        jobs, self._jobs = self._jobs, []
        return iter(jobs)


class ServedHost:
    """One host of it, as a source.

    Attributes:
        past: what was seen of it before.
        jobs: what each of its jobs has told by now.
        peaks: as SampleDecoder's.
        machine: what it calls itself, which need not be how people name it; empty until it has sent something.
    """

    name = "feed"

    def __init__(self, host: str, interval: float, decoder: SampleDecoder) -> None:
        self.past = ServedPast()
        self.jobs, self.peaks = decoder.jobs, decoder.peaks
        self.machine = ""
        self._interval = interval
        self._decoder = decoder
        self._latest = LatestSample(host or "the server")

    def read(self) -> Sample:
        """The newest sample that was not given yet, for which it waits.

        Raises:
            SourceFailed: the server cannot read it, or has sent nothing for three intervals.
        """
        return self._latest.next(silence_limit(self._interval) + 1.0, FIRST)

    def close(self) -> None:
        """The pipe is the feed's."""

    def take(self, line: bytes) -> None:
        """The next line of its recording.

        Raises:
            UserError: it is none.
        """
        sample = self._decoder.take(line)
        if sample is not None:
            self.machine = sample.host.name
            self._latest.deliver(sample)

    def fail(self, sentence: str) -> None:
        """Store a failure: nothing comes from the host for now."""
        self._latest.fail(SourceFailed(printable(sentence)))


class ServedFeed:
    """Reads a descriptor, which it closes; the first line and what was seen before at once, all else on a thread.

    Args:
        descriptor: open for reading.
        decoder: makes what reads one recording; called once for each host, in their order, and then for each
            moment before.

    Attributes:
        header: the first line.
        hosts: a source for each host, in the order of the header.

    Raises:
        UserError: it does not begin as what a server sends.
    """

    def __init__(self, descriptor: int, decoder: Callable[[], SampleDecoder]) -> None:
        self._descriptor = descriptor
        self._lines = LineSplitter()
        lines = self._more()
        if not lines:
            raise UserError("nothing is served there any more")
        try:
            self.header = msgspec.json.decode(lines[0], type=ServedHeader)
        except msgspec.DecodeError as error:
            raise UserError(f"that is nothing that vramtui serve sends: {error}") from None
        interval = self.header.interval
        self.hosts = tuple(ServedHost(name, interval, decoder()) for name in self.header.hosts)
        try:
            lines = self._read_earlier(lines[1:], decoder)
        except (UserError, ValueError, IndexError, LineTooLargeError) as error:
            raise UserError(f"that is nothing that vramtui serve sends: {error}") from None
        threading.Thread(target=self._read_more, args=(lines,), name="read hosts", daemon=True).start()

    def run_hosts(self) -> tuple[str, ...]:
        """The hosts whose past runs may be shown, as people and as they themselves name them; none where none are."""
        named = self.header.runs_of
        return (*named, *(host.machine for host in self.hosts if host.machine)) if named else ()

    def _read_earlier(self, lines: list[bytes], decoder: Callable[[], SampleDecoder]) -> list[bytes]:
        """Take the lines of the time before; those after them, as far as they have come."""
        left = self.header.earlier
        reader, sample, host = decoder(), None, self.hosts[0]
        while left and (lines or (lines := self._more())):
            for line in lines[:left]:
                number, _, text = line.partition(b"<")
                if text.startswith(BEGINNING):
                    if sample is not None:
                        host.past.add(sample, reader.jobs())
                    reader, sample, host = decoder(), None, self.hosts[int(number)]
                sample = reader.take(text) or sample
            left, lines = left - len(lines[:left]), lines[left:]
        if sample is not None:
            host.past.add(sample, reader.jobs())
        return lines

    def _more(self) -> list[bytes]:
        """Lines that come next; none once nothing comes any more."""
        while piece := os.read(self._descriptor, PIECE):
            if lines := self._lines.add(piece):
                return lines
        return []

    def _read_more(self, lines: list[bytes]) -> None:
        ended = "vramtui serve has ended."
        try:
            while True:
                for line in lines:
                    self._take(line)
                lines = self._more()
                if not lines:
                    break
        except (OSError, UserError, ValueError, IndexError, LineTooLargeError) as error:
            ended = f"What vramtui serve sends cannot be read: {error}."
        finally:
            os.close(self._descriptor)
        for host in self.hosts:
            host.fail(ended)

    def _take(self, line: bytes) -> None:
        number, mark, rest = line.partition(b":")
        if number.isdigit() and mark:
            self.hosts[int(number)].take(rest)
            return
        number, _, rest = line.partition(b"!")
        self.hosts[int(number)].fail(msgspec.json.decode(rest, type=ServedFailure).sentence)
