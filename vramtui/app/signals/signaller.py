"""Who may do something to a process: the app asks, and somebody else does it."""

from typing import Protocol

from vramtui.core.observation.signals import Sent, SignalName


class Signaller(Protocol):
    """Sends signals on this machine. Never raises, and never blocks.

    Attributes:
        own_pid: the dashboard's own.
    """

    own_pid: int

    def send(self, pid: int, started_at: float | None, name: SignalName) -> Sent:
        """Send a signal, after seeing that `pid` still is the process that started then (seconds since the epoch)."""
        ...

    def is_there(self, pid: int, started_at: float | None) -> bool:
        """Whether that process still runs."""
        ...
