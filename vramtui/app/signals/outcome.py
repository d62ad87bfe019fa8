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
    pursuit: SignalOutcome, now: float, sample: Sample | None, *, there: bool
) -> tuple[SignalOutcome | None, str]:
    """How it goes on (None: it is over), and a sentence when there is something to say.

    Args:
        pursuit: as it was.
        now: seconds, of the clock that samples go by.
        sample: the latest.
        there: whether the process still runs.
    """
    if there:
        waited = now - pursuit.sent_at
        if waited >= GIVE_UP:
            return None, ""
        if waited < STUBBORN or pursuit.warned:
            return pursuit, ""
        words = f"pid {pursuit.pid} is still running after {STUBBORN:.0f} s; {_NEXT[pursuit.name]}."
        return msgspec.structs.replace(pursuit, warned=True), words
    if pursuit.ended_at is None:
        pursuit = msgspec.structs.replace(pursuit, ended_at=now)
    ended_at = pursuit.ended_at if pursuit.ended_at is not None else now
    left = _left(pursuit, sample, ended_at)
    late = now - ended_at >= LINGERING
    if (left is None or left > 0) and not late:
        return pursuit, ""
    return None, _ending(pursuit, ended_at, left)


def _left(pursuit: SignalOutcome, sample: Sample | None, ended_at: float) -> int | None:
    """Bytes that are still listed with it; None while there is no word from after its end."""
    if sample is None or sample.taken_at <= ended_at:
        return None
    gpus = [gpu for gpu in sample.gpus if gpu.uuid in pursuit.held]
    if any(gpu.state != "ok" or "processes" in gpu.absent for gpu in gpus):
        return None
    rows = [row for gpu in gpus for row in gpu.processes if row.pid == pursuit.pid]
    return sum(row.used_memory or 0 for row in rows if row.started_at in (pursuit.started_at, None))


def _ending(pursuit: SignalOutcome, ended_at: float, left: int | None) -> str:
    took = f"pid {pursuit.pid} ended {max(0.0, ended_at - pursuit.sent_at):.1f} s later"
    had = sum(pursuit.held.values())
    if left is None or not had:
        return f"{took}."
    if left:
        return f"{took}, but the driver still lists {format_bytes(left)} for it."
    return f"{took}, {format_bytes(had)} freed."
