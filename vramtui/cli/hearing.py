"""Listening to what this user's jobs tell of themselves, for as long as a command wants to."""

import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from vramtui.core.errors import SourceFailed

if TYPE_CHECKING:
    from vramtui.core.observed import ObservedJob

# A probe looks for new listeners once a second, and says how it is every half second at the latest.
HEARD_WITHIN = 1.6


class Probes:
    """Hears this user's jobs from `listen` on; where no socket can be made, nobody tells anything.

    Args:
        name: what the socket is called in the folder that probes look in; the pid is added.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: Callable[[], Sequence[ObservedJob]] | None = None
        self._close: Callable[[], None] | None = None
        self._since = -HEARD_WITHIN

    def listen(self) -> "Callable[[], Sequence[ObservedJob]]":
        """Begin, unless that is done already; returns what each job has told so far."""
        if self._jobs is None:
            from vramtui.sources.probe_listener import ProbeListener  # noqa: PLC0415 - not for the first paint

            self._since = time.monotonic()
            try:
                listener = ProbeListener(f"{self._name}-{os.getpid()}")
                self._jobs, self._close = listener.jobs, listener.close
            except SourceFailed:
                self._jobs, self._since = tuple, -HEARD_WITHIN
        return self._jobs

    def jobs(self) -> "Sequence[ObservedJob]":
        """What each job that was started with a probe has told so far."""
        return self.listen()()

    def wait(self) -> None:
        """Until everyone who is there has had the time to say something."""
        self.listen()
        time.sleep(max(0.0, self._since + HEARD_WITHIN - time.monotonic()))

    def __enter__(self) -> "Probes":  # noqa: PYI034 - Python 3.10 has no Self
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no longer; what was told can still be asked for."""
        if self._close is not None:
            self._close()
            self._close = None
