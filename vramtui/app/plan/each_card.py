"""`o` on Plan: a dry run of a script on each of several GPUs, in one table that fills."""

import shlex
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

import msgspec
from textual.app import ComposeResult
from textual.widgets import Input, Static

from vramtui.app.context import AppContext
from vramtui.app.ui.dialog import Window
from vramtui.app.ui.lines import fit
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import card
from vramtui.dryrun.result import JobCommand

USUAL_CARDS = "RTX4090, L40S, A100-80GB, H100"
STEPS = 3
ABOUT = (
    "Runs three steps of it on a simulated GPU of each kind, as `vramtui dry-run` does. What it writes is thrown away, "
    "and it reaches no network."
)
NO_RUNNER = "Nothing can be run here."
NAME, SIZE = 14, 11


class CardRun(msgspec.Struct, frozen=True, kw_only=True):
    """Result on one card: peaks of the job's largest process, and the card's memory, in bytes; None is unknown."""

    card: str
    allocated: int | None
    reserved: int | None
    process: int | None
    memory: int
    verdict: str


class CardRunner(Protocol):
    """Makes a dry run of a command, in a process of its own."""

    def command_of(self, pid: int, command: str) -> JobCommand:
        """The command of the process `pid` of this machine; raises UserError if it has no Python script."""
        ...

    def run(self, words: Sequence[str], job: JobCommand | None, name: str, cancel: threading.Event) -> CardRun | None:
        """Result of `words` in the folder and with the variables of `job`; None when `cancel` was set."""
        ...


def ask_cards(shared: AppContext, runner: CardRunner | None) -> None:
    """Open the window that asks for the command and the cards; the selected process's command is proposed.

    Without a runner, notify the user that nothing can be run.
    """
    if runner is None:
        shared.app.notify(NO_RUNNER, markup=False)
        return
    row, job = shared.state.view().chosen, None
    if row is not None and row.process is not None:
        with suppress(UserError):
            job = runner.command_of(row.process.pid, row.process.command or "")
    shared.app.push_screen(EachCardWindow(runner, job))


class EachCardWindow(Window[None]):
    """A command, cards, and the result on each; a selected job's command is proposed, and its folder and environment
    are used. Closing it stops the running job.
    """

    def __init__(self, runner: CardRunner, job: JobCommand | None) -> None:
        super().__init__("This script on each card", "Enter run · Tab next field · Esc close")
        self._runner, self._job = runner, job
        self._names: tuple[str, ...] = ()
        self._ended: list[CardRun] = []
        self._cancel = threading.Event()
        self._at_work = False

    def inside(self) -> ComposeResult:
        yield Static(ABOUT, markup=False)
        proposed = "python train.py" if self._job is None else shlex.join(self._job.words)
        for value, identity in ((proposed, "command"), (USUAL_CARDS, "cards")):
            line = Input(printable(value), id=identity)
            line.cursor_blink = False
            yield line
        folder = "this program's folder" if self._job is None else printable(self._job.folder)
        yield Static(f"in {folder}", id="where", markup=False)
        yield Static("", id="rows", markup=False)
        yield Static("", id="wrong", markup=False)

    def on_mount(self) -> None:
        self.query_one("#command", Input).focus()

    def on_unmount(self) -> None:
        """Stop the running job."""
        self._cancel.set()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the command on each card, or show what is wrong with the input."""
        event.stop()
        if self._at_work:
            return
        fault = self.query_one("#wrong", Static)
        try:
            words = shlex.split(self.query_one("#command", Input).value)
            names = [name.strip() for name in self.query_one("#cards", Input).value.split(",") if name.strip()]
            self._names = tuple(dict.fromkeys(card(name).name for name in names))
        except (UserError, ValueError) as error:
            fault.update(str(error))
            return
        if not words or not self._names:
            fault.update("a command and a card are needed")
            return
        fault.update("")
        self._ended, self._at_work = [], True
        self._show()
        threading.Thread(target=self._run, args=(words,), name="each card", daemon=True).start()

    def _run(self, words: Sequence[str]) -> None:
        """Run on one card after another, on a thread; an error ends them all."""
        app = self.app

        def take(ran: CardRun) -> None:
            self._ended.append(ran)
            self._at_work = len(self._ended) < len(self._names)
            self._show()

        def fail(problem: str) -> None:
            self._at_work = False
            if self.is_attached:
                self.query_one("#wrong", Static).update(printable(problem))
            self._show()

        for name in self._names:
            try:
                ran = self._runner.run(words, self._job, name, self._cancel)
            except (UserError, OSError) as error:
                app.call_later(fail, str(error))
                return
            if ran is None:
                return
            app.call_later(take, ran)

    def _show(self) -> None:
        if not self.is_attached:
            return
        heading = "".join(f"{one:>{SIZE}}" for one in ("ALLOCATED", "RESERVED", "PROCESS", "OF"))
        lines = [f"{'CARD':<{NAME}}{heading}  VERDICT"]
        for ran in self._ended:
            sizes = "".join(
                f"{format_bytes(size):>{SIZE}}" for size in (ran.allocated, ran.reserved, ran.process, ran.memory)
            )
            lines.append(f"{fit(ran.card, NAME):<{NAME}}{sizes}  {ran.verdict}")
        for at, name in enumerate(self._names[len(self._ended) :]):
            lines.append(f"{name:<{NAME}}" + ("  runs …" if self._at_work and not at else ""))
        self.query_one("#rows", Static).update("\n".join(lines))
