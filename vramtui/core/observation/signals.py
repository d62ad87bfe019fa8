"""Signals that may be sent to a process, who sends them, and what came of one; those that end this one."""

import signal
from typing import Literal, Protocol, get_args

import msgspec

SignalName = Literal["SIGTERM", "SIGINT", "SIGKILL"]
SIGNALS: tuple[SignalName, ...] = get_args(SignalName)
MEANINGS: dict[SignalName, str] = {
    "SIGTERM": "asks it to end; most programs clean up first",
    "SIGINT": "as Ctrl-C would; many jobs write a checkpoint",
    "SIGKILL": "ends it at once; nothing is saved",
}

# What somebody, a limit (of CPU time: SIGXCPU) or a watchdog (SIGABRT) sends to end a program, and what ends it where
# it has no handler, real-time signals included.
_NAMES = ("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ABRT", "ALRM", "VTALRM", "PROF", "XCPU", "PWR", "POLL")
ENDING: tuple[int, ...] = (
    *(getattr(signal, f"SIG{name}") for name in (*_NAMES, "STKFLT") if hasattr(signal, f"SIG{name}")),
    *(range(signal.SIGRTMIN, signal.SIGRTMAX + 1) if hasattr(signal, "SIGRTMIN") else ()),
)

Outcome = Literal["sent", "gone", "reused", "refused", "elsewhere", "failed"]


class Sent(msgspec.Struct, frozen=True, kw_only=True):
    """The result of sending a signal.

    Attributes:
        outcome: sent; gone (there was no such process any more); reused (another process has that pid now); refused
            (this user may not); elsewhere (that pid belongs to another pid namespace, or this is unknown);
            failed otherwise. Only `sent` sent anything.
        owner: whose process it is, where that was in the way.
        detail: the system's own words, where there are no better ones.
    """

    outcome: Outcome
    owner: str = ""
    detail: str = ""


class Signaller(Protocol):
    """Sends signals on this machine. Never raises, and never blocks."""

    own_pid: int

    def send(self, pid: int, started_at: float | None, name: SignalName) -> Sent:
        """Send a signal, after seeing that `pid` still is the process that started then (seconds since the epoch)."""

    def is_there(self, pid: int, started_at: float | None) -> bool:
        """Return whether that process still runs."""
