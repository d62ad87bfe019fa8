"""What `vramtui serve` sends to a tab: the recordings of any number of hosts, side by side in one pipe.

The first line is a ServedHeader. Every other begins with the number of a host among its `hosts`; after that comes `:`
and a line of that host's recording, or `!` and a ServedFailure.
"""

import os
import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import silence_limit
from vramtui.sources.feed.latest import LatestSample
from vramtui.sources.feed.line_splitter import LineSplitter, LineTooLarge

PIECE = 1 << 16
FIRST = 60.0  # seconds in which a host's first sample comes: it may have to be reached first


class ServedHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first line: the hosts' names (empty of what nobody named: the server's own), seconds between samples, and the
    sentence to show above them.
    """

    vramtui_served: int = 1
    hosts: tuple[str, ...]
    interval: float
    banner: str | None = None


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


class ServedHost:
    """One host of it, as a source."""

    name = "feed"

    def __init__(self, host: str, interval: float, decoder: SampleDecoder) -> None:
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
            self._latest.deliver(sample)

    def fail(self, sentence: str) -> None:
        """Nothing comes from it for now."""
        self._latest.fail(SourceFailed(printable(sentence)))


class ServedFeed:
    """Reads a descriptor, which it closes; the first line at once, all else on a thread.

    Args:
        descriptor: open for reading.
        decoder: makes what reads one host's recording; called once for each, in their order.

    Attributes:
        header: the first line.
        hosts: a source for each host, in the order of the header.

    Raises:
        UserError: it does not begin as what a server sends.
    """

    def __init__(self, descriptor: int, decoder: Callable[[], SampleDecoder]) -> None:
        self._descriptor = descriptor
        self._lines = LineSplitter()
        lines: list[bytes] = []
        while not lines:
            piece = os.read(descriptor, PIECE)
            if not piece:
                raise UserError("nothing is served there any more")
            lines = self._lines.add(piece)
        try:
            self.header = msgspec.json.decode(lines[0], type=ServedHeader)
        except msgspec.DecodeError as error:
            raise UserError(f"that is nothing that vramtui serve sends: {error}") from None
        interval = self.header.interval
        self.hosts = tuple(ServedHost(name, interval, decoder()) for name in self.header.hosts)
        threading.Thread(target=self._read_on, args=(lines[1:],), name="read hosts", daemon=True).start()

    def _read_on(self, lines: list[bytes]) -> None:
        ended = "vramtui serve has ended."
        try:
            while True:
                for line in lines:
                    self._take(line)
                piece = os.read(self._descriptor, PIECE)
                if not piece:
                    break
                lines = self._lines.add(piece)
        except (OSError, UserError, ValueError, IndexError, LineTooLarge) as error:
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
