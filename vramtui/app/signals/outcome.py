"""What becomes of a process after a signal: whether and when it ended, and what that freed."""

import msgspec

from vramtui.core.base.units import format_bytes
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.signals import SignalName

STUBBORN = 10.0  # seconds after which a process counts as one that takes no notice
GIVE_UP = 60.0
LINGERING = 3.0  # seconds that a driver may go on listing a process that has ended
_NEXT: dict[SignalName, str] = {
    "SIGINT": "SIGTERM is next",
    "SIGTERM": "SIGKILL is next",
    "SIGKILL": "it is blocked in the kernel, most likely in the driver",
}


class SignalOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A process that was sent a signal. `held` is what it had in bytes by GPU uuid; times are seconds of one clock."""

    pid: int
    started_at: float | None
    name: SignalName
    held: dict[str, int]
    sent_at: float
    ended_at: float | None = None
    warned: bool = False


def progress(
    sent: SignalOutcome, now: float, sample: Sample | None, *, there: bool
) -> tuple[SignalOutcome | None, str]:
    """How it goes on (None: it is over), and a sentence when there is something to say.

    Args:
        sent: as it was.
        now: seconds, of the clock that samples go by.
        sample: the latest.
        there: whether the process still runs.
    """
    if there:
        waited = now - sent.sent_at
        if waited >= GIVE_UP:
            return None, ""
        if waited < STUBBORN or sent.warned:
            return sent, ""
        words = f"pid {sent.pid} is still running after {STUBBORN:.0f} s; {_NEXT[sent.name]}."
        return msgspec.structs.replace(sent, warned=True), words
    if sent.ended_at is None:
        sent = msgspec.structs.replace(sent, ended_at=now)
    ended_at = sent.ended_at if sent.ended_at is not None else now
    left = _left(sent, sample, ended_at)
    late = now - ended_at >= LINGERING
    if (left is None or left > 0) and not late:
        return sent, ""
    return None, _ending(sent, ended_at, left)


def _left(sent: SignalOutcome, sample: Sample | None, ended_at: float) -> int | None:
    """Bytes that are still listed with it; None while there is no word from after its end."""
    if sample is None or sample.taken_at <= ended_at:
        return None
    gpus = [gpu for gpu in sample.gpus if gpu.uuid in sent.held]
    if any(gpu.state != "ok" or "processes" in gpu.absent for gpu in gpus):
        return None
    rows = [row for gpu in gpus for row in gpu.processes if row.pid == sent.pid]
    return sum(row.used_memory or 0 for row in rows if row.started_at in (sent.started_at, None))


def _ending(sent: SignalOutcome, ended_at: float, left: int | None) -> str:
    took = f"pid {sent.pid} ended {max(0.0, ended_at - sent.sent_at):.1f} s later"
    had = sum(sent.held.values())
    if left is None or not had:
        return f"{took}."
    if left:
        return f"{took}, but the driver still lists {format_bytes(left)} for it."
    return f"{took}, {format_bytes(had)} freed."
