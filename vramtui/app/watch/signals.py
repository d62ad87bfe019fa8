"""Actions on the chosen process: a signal after a yes, and what follows; and its pid or command to the clipboard."""

from collections.abc import Callable

import msgspec
from textual.notifications import SeverityLevel
from textual.timer import Timer

from vramtui.app.context import AppContext
from vramtui.app.state.view import ProcessRow
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.observation.readings import Gpu, Process, Sample
from vramtui.core.observation.signals import Sent, Signaller, SignalName

STUBBORN = 10.0  # seconds after which a process counts as one that ignores the signal
GIVE_UP = 60.0
LINGERING = 3.0  # seconds for which a driver may still list a process that has ended
_NEXT: dict[SignalName, str] = {
    "SIGINT": "SIGTERM is next",
    "SIGTERM": "SIGKILL is next",
    "SIGKILL": "it is blocked in the kernel, most likely in the driver",
}
LOOK_EVERY = 0.2
LONGEST_COMMAND = 400


class SignalOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """A process that got a signal. `memory` is what it held, bytes by GPU uuid; times are seconds of one clock."""

    pid: int
    started_at: float | None
    name: SignalName
    memory: dict[str, int]
    sent_at: float
    ended_at: float | None = None
    warned: bool = False


def progress(
    sent: SignalOutcome, now: float, sample: Sample | None, *, there: bool
) -> tuple[SignalOutcome | None, str]:
    """Return the next state (None: it is over), and a sentence if there is news."""
    if there:
        waited = now - sent.sent_at
        if waited >= GIVE_UP:
            return None, ""
        if waited < STUBBORN or sent.warned:
            return sent, ""
        words = f"pid {sent.pid} is still running after {STUBBORN:.0f} s; {_NEXT[sent.name]}."
        return msgspec.structs.replace(sent, warned=True), words
    ended_at = now if sent.ended_at is None else sent.ended_at
    left: int | None = None  # bytes still listed for it, once a sample is newer than its end
    if sample is not None and sample.taken_at > ended_at:
        gpus = [gpu for gpu in sample.gpus if gpu.uuid in sent.memory]
        if all(gpu.state == "ok" and "processes" not in gpu.absent for gpu in gpus):
            rows = [row for gpu in gpus for row in gpu.processes if row.pid == sent.pid]
            left = sum(row.used_memory or 0 for row in rows if row.started_at in (sent.started_at, None))
    if (left is None or left > 0) and now - ended_at < LINGERING:
        return msgspec.structs.replace(sent, ended_at=ended_at), ""
    took, had = f"pid {sent.pid} ended {max(0.0, ended_at - sent.sent_at):.1f} s later", sum(sent.memory.values())
    if left is None or not had:
        return None, f"{took}."
    if left:
        return None, f"{took}, but the driver still lists {format_bytes(left)} for it."
    return None, f"{took}, {format_bytes(had)} freed."


class SignalController:
    """Sends signals, and reports what follows for processes that may still end."""

    __slots__ = ("_app", "_shared", "outcomes", "refusal", "signaller", "timer")

    def __init__(self, shared: AppContext, signaller: Signaller | None, refusal: str) -> None:
        self._shared, self._app = shared, shared.app
        self.signaller, self.refusal = signaller, refusal
        self.outcomes: tuple[SignalOutcome, ...] = ()
        self.timer: Timer | None = None

    def ask(self) -> None:
        state, signaller, notify = self._shared.state, self.signaller, self._app.notify
        row, sample = state.view().chosen, state.sample
        if signaller is None:
            notify(self.refusal)
            return
        if row is None or row.process is None or sample is None:
            notify("Select a process first.")
            return
        process = row.process
        refusal = refused(row, process)
        if refusal:
            notify(refusal, severity="warning")
            return
        from vramtui.app.watch.windows import SignalWindow  # loads the list widgets

        listed = [(gpu, one) for gpu in sample.gpus for one in gpu.processes]
        same = [(gpu, one) for gpu, one in listed if (one.pid, one.started_at) == (process.pid, process.started_at)]
        memory = [(gpu, one.used_memory) for gpu, one in same]
        own = process.pid == signaller.own_pid
        window = SignalWindow(
            f"Send a signal to pid {process.pid}?",
            question(process, memory),
            "This is vramtui itself: it would end this dashboard." if own else "",
        )
        self._app.push_screen(window, lambda name: self._send(name, process, memory) if name else None)

    def _send(self, name: SignalName, process: Process, memory: list[tuple[Gpu, int | None]]) -> None:
        if self.signaller is None:
            return
        sent = self.signaller.send(process.pid, process.started_at, name)
        severity: SeverityLevel = "information" if sent.outcome == "sent" else "warning"
        self._app.notify(what_came_of_it(sent, process.pid, name), severity=severity)
        if sent.outcome != "sent":
            return
        held_now = {gpu.uuid: size for gpu, size in memory if size is not None}
        at = self._shared.clock()
        outcome = SignalOutcome(pid=process.pid, started_at=process.started_at, name=name, memory=held_now, sent_at=at)
        # A second signal to the same process replaces the first.
        self.outcomes = (*(one for one in self.outcomes if one.pid != process.pid), outcome)
        if self.timer is None:
            self.timer = self._app.set_interval(LOOK_EVERY, self.look)

    def look(self) -> None:
        if self.signaller is None:
            return
        now, sample = self._shared.clock(), self._shared.state.sample
        left: list[SignalOutcome] = []
        for outcome in self.outcomes:
            there = outcome.ended_at is None and self.signaller.is_there(outcome.pid, outcome.started_at)
            after, words = progress(outcome, now, sample, there=there)
            if words:
                self._app.notify(words, severity="warning" if after is not None else "information", timeout=8)
            if after is not None:
                left.append(after)
        self.outcomes = tuple(left)
        if not left and self.timer is not None:
            self.timer.stop()
            self.timer = None

    def copy_pid(self) -> None:
        self._copy("pid", lambda process: str(process.pid))

    def copy_command(self) -> None:
        self._copy("command", lambda process: process.command_or_name or "")

    def _copy(self, what: str, of: Callable[[Process], str]) -> None:
        row = self._shared.state.view().chosen
        if row is None or row.process is None:
            self._app.notify("Select a process first.")
            return
        text = pasteable(of(row.process))
        if not text:
            self._app.notify(f"The {what} of pid {row.process.pid} is not known.")
            return
        self._app.copy_to_clipboard(text)
        named = f"pid {text}" if what == "pid" else f"the command of pid {row.process.pid}"
        self._app.notify(f"Copied {named}, if this terminal allows it (OSC 52).", timeout=3)


def pasteable(text: str) -> str:
    """Return `text` without characters that a terminal or a shell could obey when it is pasted."""
    return "".join(character for character in text if character.isprintable())


def refused(row: ProcessRow, process: Process) -> str:
    pid = process.pid
    if row.kind == "exited" or process.state == "exited":
        return f"pid {pid} has already ended."
    if process.state == "zombie":
        return f"pid {pid} has already ended, and waits for its parent to reap it."
    if process.state == "unseen":
        return f"pid {pid} is outside this container; in here that pid may be another process."
    if process.started_at is None:
        return f"Nothing is known about pid {pid}, not even its start time: it could be another process by now."
    return ""


def question(process: Process, memory: list[tuple[Gpu, int | None]]) -> str:
    command = printable(process.command_or_name or "its command is not known")
    if len(command) > LONGEST_COMMAND:
        command = command[:LONGEST_COMMAND] + "…"
    parts = [
        f"{format_bytes(size)} on GPU {gpu.index}" if size is not None else f"GPU {gpu.index} (size unavailable)"
        for gpu, size in memory
    ]
    known = [size for _, size in memory if size is not None]
    total = f", {format_bytes(sum(known))} together" if len(known) > 1 else ""
    freed = f"Would free {', '.join(parts)}{total}." if parts else "It no longer uses a GPU."
    return f"pid {process.pid} of {printable(process.user or 'an unknown user')}\n{command}\n\n{freed}"


def what_came_of_it(sent: Sent, pid: int, name: SignalName) -> str:
    if sent.outcome == "sent":
        return f"{name} sent to pid {pid}."
    nothing = "No signal sent"
    reasons = {
        "gone": f"{nothing}: pid {pid} has already ended.",
        "reused": f"{nothing}: another process has pid {pid} now.",
        "refused": f"Not permitted: pid {pid} is {sent.owner or 'another user'}'s process.",
        "elsewhere": f"{nothing}: in this container it is not known which process pid {pid} is.",
    }
    return reasons.get(sent.outcome) or f"{nothing} to pid {pid}: {sent.detail}."
