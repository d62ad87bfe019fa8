"""A recording that goes on, watched: standard input, a named pipe, or a file that somebody else still writes."""

import os
import stat
import threading
import time
from typing import Protocol

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import silence_limit
from vramtui.sources.feed.latest import LatestSample, LineSplitter, LineTooLargeError

PIECE = 1 << 16
LOOK_EVERY = 0.1  # seconds between looks at a file that may have grown
FIRST = 60.0  # seconds in which the first sample comes: whoever writes may have to be started
GZIP = b"\x1f\x8b"


class LineDecoder(Protocol):
    """Knows what the lines of a recording tell."""

    @property
    def interval(self) -> float | None:
        """Seconds between samples, as the header has it."""
        ...

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells; None where it tells something else.

        Raises:
            UserError: it is no line of a recording, or of a newer version.
        """
        ...


class PipeSource:
    """Gives the newest sample of what is read from a file descriptor, which it closes.

    Args:
        descriptor: open for reading.
        title: how sentences call it.
        decoder: reads the lines.
        interval: seconds between samples, where there is no header to say so.
    """

    name = "feed"

    def __init__(self, descriptor: int, title: str, decoder: LineDecoder, interval: float = 1.0) -> None:
        self._descriptor = descriptor
        self._title = printable(title)
        self._decoder = decoder
        self._interval = interval
        self._latest = LatestSample(self._title)
        self._grows = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._lines = LineSplitter()
        self._number = 0
        self._waiting: Sample | None = None
        self._is_closed = False
        threading.Thread(target=self._read_lines, name="read feed", daemon=True).start()

    def read(self) -> Sample:
        """The newest sample that was not given yet, for which it waits.

        Raises:
            SourceFailed: it has ended, is silent for three intervals, or is no recording.
        """
        return self._latest.next(silence_limit(self._decoder.interval or self._interval), FIRST)

    def close(self) -> None:
        """Read no more; what waits for the pipe is a daemon."""
        self._is_closed = True

    def _read_lines(self) -> None:
        try:
            while not self._is_closed:
                self._step(os.read(self._descriptor, PIECE))
        except SourceFailed as failure:
            self._latest.fail(failure)
        except UserError as error:
            self._latest.fail(SourceFailed(f"{self._title}, line {self._number}: {error}"))
        except LineTooLargeError:
            self._latest.fail(SourceFailed(f"{self._title}, line {self._number + 1} does not end; is it a recording?"))
        except OSError as error:
            self._latest.fail(SourceFailed(f"{self._title} cannot be read: {error.strerror}."))
        finally:
            os.close(self._descriptor)

    def _step(self, piece: bytes) -> None:
        """Take what was read next; nothing is the end of a pipe, and of a file no more than its end for now.

        Raises:
            SourceFailed: it has ended, or cannot be followed.
        """
        if not self._number and piece.startswith(GZIP):
            raise SourceFailed(f"{self._title} is compressed, so it cannot be followed.", "Use --replay.")
        for line in self._lines.add(piece):
            self._number += 1
            self._waiting = self._decoder.take(line) or self._waiting
        # Of what is in a file already only the last sample is news.
        if self._waiting is not None and not (self._grows and piece):
            self._latest.deliver(self._waiting)
            self._waiting = None
        if piece:
            return
        if not self._grows:
            raise SourceFailed(f"{self._title} has ended.")
        time.sleep(LOOK_EVERY)
