"""Sends signals to processes of this machine, and only to the very process that was meant."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from vramtui.agent.ancestors import owner_of
from vramtui.core.base.text import printable
from vramtui.core.observation.signals import Outcome, Sent, SignalName
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import CLOCK_TICKS, boot_time, read_stat, user_name

SAME = 0.5 / CLOCK_TICKS  # seconds: the kernel counts start times in ticks
_DEAD = (b"Z", b"X", b"x")


class Signals:
    """Sends signals to processes that are known by pid and start time.

    If the system has pidfds, it opens the process before it looks at it, so that a pid that is reused in between
    cannot be hit.
    """

    def __init__(self, namespace: PidNamespace | None = None) -> None:
        self._namespace = namespace or PidNamespace()
        self._boot = boot_time()
        self.own_pid = os.getpid()

    def send(self, pid: int, started_at: float | None, name: SignalName) -> Sent:
        """Send the signal, if `pid` still is the process that started then (seconds since the epoch; never if None)."""
        if pid < 1:  # to the system these are whole groups of processes
            return Sent(outcome="gone")
        if not self._namespace.is_certain(pid):
            return Sent(outcome="elsewhere")
        try:
            with _holding(pid) as pidfd:
                outcome = self._look(pid, started_at)
                if outcome is None and pidfd is None:
                    os.kill(pid, getattr(signal, name))
                elif outcome is None and pidfd is not None:
                    signal.pidfd_send_signal(pidfd, getattr(signal, name))
        except ProcessLookupError:
            return Sent(outcome="gone")
        except PermissionError:
            owner = owner_of(pid)
            return Sent(outcome="refused", owner="" if owner is None else user_name(owner))
        except (OSError, OverflowError) as error:
            return Sent(outcome="failed", detail=printable(getattr(error, "strerror", None) or str(error)))
        return Sent(outcome=outcome or "sent")

    def is_there(self, pid: int, started_at: float | None) -> bool:
        """Return whether that process still runs; a zombie does not."""
        try:
            return self._look(pid, started_at) is None
        except OSError as error:
            return isinstance(error, PermissionError)

    def _look(self, pid: int, started_at: float | None) -> Outcome | None:
        """Return why `pid` is not that process; None if it is. Raises PermissionError if it exists, and is hidden from
        this user (`hidepid`), and ProcessLookupError if it does not exist.
        """
        status = read_stat(pid)
        if status is None:
            os.kill(pid, 0)  # asks whether it exists; sends nothing
        if status is None or status[1] in _DEAD:
            return "gone"
        if started_at is None or abs(self._boot + status[3] / CLOCK_TICKS - started_at) > SAME:
            return "reused"
        return None


@contextmanager
def _holding(pid: int) -> Iterator[int | None]:
    """Give a pidfd of that process, None if the system has none; raises ProcessLookupError if it does not exist."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except (AttributeError, OSError):
        pidfd = None
    try:
        yield pidfd
    finally:
        if pidfd is not None:
            os.close(pidfd)
