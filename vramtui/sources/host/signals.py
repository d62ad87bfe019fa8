"""Signals to processes of this machine: only ever to the very process that was meant."""

import os
import pwd
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from vramtui.core.base.text import printable
from vramtui.core.observation.signals import Outcome, Sent, SignalName
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import CLOCK_TICKS, boot_time, read_stat, real_user

SAME = 0.5 / CLOCK_TICKS  # seconds: the kernel counts start times in ticks
_DEAD = (b"Z", b"X", b"x")


class Signals:
    """Sends signals to processes that are known by pid and start time.

    Where the system has pidfds, the process is taken hold of before it is looked at, so that a pid which changes
    hands in between cannot be hit.

    Args:
        namespace: tells whether a pid of the driver's is one of ours; this process's by default.
    """

    def __init__(self, namespace: PidNamespace | None = None) -> None:
        self._namespace = namespace or PidNamespace()
        self._boot = boot_time()
        self.own_pid = os.getpid()

    def send(self, pid: int, started_at: float | None, name: SignalName) -> Sent:
        """Send the signal, if `pid` still is the process that started then.

        Args:
            pid: as the driver lists it.
            started_at: seconds since the epoch; None is never sent to, as it could be anybody.
            name: which.
        """
        if pid < 1:  # to the system these are whole groups of processes
            return Sent(outcome="gone")
        if not self._namespace.is_certain(pid):
            return Sent(outcome="elsewhere")
        try:
            outcome = self._send(pid, started_at, getattr(signal, name))
        except ProcessLookupError:
            outcome = "gone"
        except PermissionError:
            return Sent(outcome="refused", owner=_owner(pid))
        except (OSError, OverflowError) as error:
            return Sent(outcome="failed", detail=printable(getattr(error, "strerror", None) or str(error)))
        return Sent(outcome=outcome)

    def _send(self, pid: int, started_at: float | None, number: signal.Signals) -> Outcome:
        with _holding(pid) as pidfd:
            process = self._look(pid, started_at)
            if process is not None:
                return process
            if pidfd is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(pidfd, number)
        return "sent"

    def is_there(self, pid: int, started_at: float | None) -> bool:
        """Whether that process still runs. One that has ended and waits for its parent (a zombie) does not."""
        try:
            return self._look(pid, started_at) is None
        except OSError as error:
            return isinstance(error, PermissionError)

    def _look(self, pid: int, started_at: float | None) -> Outcome | None:
        """What is wrong with taking `pid` for that process; None when it is the one.

        Raises:
            PermissionError: it is there, and hidden from this user (`hidepid`).
            ProcessLookupError: there is no such process.
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
    """A pidfd of that process, closed at the end; None where the system has none.

    Raises:
        ProcessLookupError: there is no such process.
    """
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


def _owner(pid: int) -> str:
    try:
        uid = real_user(pid)
    except OSError:
        return ""
    try:
        return printable(pwd.getpwuid(uid).pw_name)
    except KeyError:
        return str(uid)
