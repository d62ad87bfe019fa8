"""Samples from recordings: one that still grows (a pipe or a file), and one played back at its own pace."""

import os
import stat
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Protocol

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.file_limits import RECORDING
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample, silence_limit

PIECE = 1 << 16
LOOK_EVERY = 0.1  # seconds between looks at a file that may have grown
USUAL = 1.0  # seconds between samples, if no header says so
FIRST = 60.0  # seconds in which the first sample comes: the writer may have to be started
GZIP = b"\x1f\x8b"


class LatestSample:
    """One thread delivers, another reads: each sample once. Silence is measured on this machine's own clock, as the
    sender's may be wrong.
    """

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self._clock = clock
        self._changed = threading.Condition()
        self._sample: Sample | None = None
        self._failure: SourceFailed | None = None
        self._since = clock()
        self._has_come = False

    def deliver(self, sample: Sample) -> None:
        with self._changed:
            self._sample, self._failure = sample, None
            self._since, self._has_come = self._clock(), True
            self._changed.notify_all()

    def fail(self, failure: SourceFailed) -> None:
        """Store a failure: no sample comes until the next `deliver`."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def next(self, limit: float, first: float) -> Sample:
        """Wait for the newest sample that was not read: `limit` seconds after the one before, `first` for the first
        one. Raises SourceFailed if it fails, or no sample came in that time.
        """
        with self._changed:
            while self._sample is None:
                if self._failure is not None:
                    raise SourceFailed(self._failure.message, self._failure.hint)
                left = self._since + (limit if self._has_come else first) - self._clock()
                if left <= 0:
                    raise SourceFailed(f"{self.name} has sent nothing for {self._clock() - self._since:.0f} s.")
                self._changed.wait(left)
            sample, self._sample = self._sample, None
            return sample


class LineTooLargeError(Exception):
    """A line of more than RECORDING.size bytes: not a recording."""


class LineSplitter:
    """Splits the pieces of a stream into lines; keeps the rest without a newline."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """Return the lines that `piece` completes; raises LineTooLargeError if a line does not end."""
        if b"\n" not in piece:
            self._rest += piece
            if len(self._rest) > RECORDING.size:
                raise LineTooLargeError
            return []
        first, *lines = piece.split(b"\n")
        lines.insert(0, bytes(self._rest) + first)
        self._rest = bytearray(lines.pop())
        return lines


class LineDecoder(Protocol):
    @property
    def interval(self) -> float | None:
        """Seconds between samples, as the header has it."""

    def take(self, line: bytes) -> Sample | None:
        """Read the next line; return its sample, None if it holds something else. Raises UserError if it is not a line
        of a recording, or of a newer version.
        """


class PipeSource:
    """Gives the newest sample of a recording that is read from a file descriptor, which it closes: standard input, a
    named pipe, or a file that another program still writes.

    Args:
        descriptor: open for reading.
        title: how sentences call it.
        decoder: reads the lines.
    """

    name = "feed"

    def __init__(self, descriptor: int, title: str, decoder: LineDecoder) -> None:
        self._descriptor = descriptor
        self._title = printable(title)
        self._decoder = decoder
        self._latest = LatestSample(self._title)
        self._grows = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._lines = LineSplitter()
        self._number = 0
        self._waiting: Sample | None = None
        self._is_closed = False
        threading.Thread(target=self._read_lines, name="read feed", daemon=True).start()

    def read(self) -> Sample:
        """Wait for the newest sample that was not given yet. Raises SourceFailed if it has ended, is silent for three
        intervals, or is not a recording.
        """
        return self._latest.next(silence_limit(self._decoder.interval or USUAL), FIRST)

    def close(self) -> None:
        """Read no more; the thread that waits for the pipe is a daemon."""
        self._is_closed = True

    def _read_lines(self) -> None:
        try:
            while not self._is_closed:
                piece = os.read(self._descriptor, PIECE)
                if not self._number and piece.startswith(GZIP):
                    self._latest.fail(
                        SourceFailed(f"{self._title} is compressed, so it cannot be followed.", "Use --replay.")
                    )
                    return
                for line in self._lines.add(piece):
                    self._number += 1
                    self._waiting = self._decoder.take(line) or self._waiting
                # Only the last sample of those that are in a file already is news.
                if self._waiting is not None and not (self._grows and piece):
                    self._latest.deliver(self._waiting)
                    self._waiting = None
                if not piece and not self._grows:  # an empty piece is the end of a pipe, or the present end of a file
                    self._latest.fail(SourceFailed(f"{self._title} has ended."))
                    return
                if not piece:
                    time.sleep(LOOK_EVERY)
        except UserError as error:
            self._latest.fail(SourceFailed(f"{self._title}, line {self._number}: {error}"))
        except LineTooLargeError:
            self._latest.fail(SourceFailed(f"{self._title}, line {self._number + 1} does not end; is it a recording?"))
        except OSError as error:
            self._latest.fail(SourceFailed(f"{self._title} cannot be read: {error.strerror}."))
        finally:
            os.close(self._descriptor)


class ReplaySource:
    """Gives the sample that was current at the same moment of the recording; after the end, the last one. `times` are
    those of the samples, if they are known without looking at each.
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
        """Return the sample for now; the first call begins the playing."""
        if self._start is None:
            self._start = self._clock()
        position = self._times[0] + (self._clock() - self._start) * self._speed
        return self._samples[max(0, bisect_right(self._times, position) - 1)]

    def close(self) -> None:
        """Close; there is nothing to release."""
