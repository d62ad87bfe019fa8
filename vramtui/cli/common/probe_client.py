"""Listening to what this user's jobs tell of themselves, for as long as a command wants to."""

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramtui.core.base.errors import SourceFailed

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.sources.probe_listener import ProbeListener

# A probe looks for new listeners once a second, and says how it is every half second at the latest.
HEARD_WITHIN = 1.6


class ProbeClient:
    """Hears this user's jobs from `listen` on; nothing if no socket can be made.

    Args:
        name: what the socket is called in the folder that probes look in; the pid is added.

    Attributes:
        problem: why no socket can be made; empty where one was.
    """

    def __init__(self, name: str) -> None:
        self.problem = ""
        self._name = name
        self._listener: ProbeListener | None = None
        self._since: float | None = None

    def listen(self) -> None:
        """Begin, unless that is done already."""
        if self._since is not None:
            return
        from vramtui.sources.probe_listener import ProbeListener

        self._since = time.monotonic()
        try:
            self._listener = ProbeListener(f"{self._name}-{os.getpid()}")
        except SourceFailed as error:
            self.problem = error.sentence

    def jobs(self) -> "Sequence[ObservedJob]":
        """The reports of each job that was started with a probe."""
        self.listen()
        return () if self._listener is None else self._listener.jobs()

    def wait(self) -> None:
        """Until everyone who is there has had the time to say something."""
        self.listen()
        if self._listener is not None and self._since is not None:
            time.sleep(max(0.0, self._since + HEARD_WITHIN - time.monotonic()))

    def close(self) -> None:
        """Listen no longer; what was told can still be asked for."""
        if self._listener is not None:
            self._listener.close()

    def vanish(self) -> None:
        """The process ends: remove the socket's name, which takes no time."""
        if self._listener is not None:
            self._listener.path.unlink(missing_ok=True)
