"""`o` on Plan: a dry run of a script on each of several GPUs, in one table that fills."""

import shlex
import threading
from collections.abc import Sequence
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
    """What a job came to on a card: peaks of its largest process and the card's memory, in bytes; None: not known."""

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
    """Open the window that asks which command, and on which cards; the selected process's own is proposed.

    Without a runner, say that nothing can be run.
    """
    if runner is None:
        shared.app.notify(NO_RUNNER, markup=False)
        return
    shared.app.push_screen(EachCardWindow(runner, _selected_job(shared, runner)))


def _selected_job(shared: AppContext, runner: CardRunner) -> JobCommand | None:
    row = shared.state.view().chosen
    if row is None or row.process is None:
        return None
    try:
        return runner.command_of(row.process.pid, row.process.command or "")
    except UserError:
        return None


class EachCardWindow(Window[None]):
    """A command, cards, and what came of it on each. Closing it ends what still runs.

    Args:
        runner: what runs it.
        job: whose command is proposed, and in whose folder and environment it runs; None where none is selected.
    """

    DEFAULT_CSS = """
    EachCardWindow Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0 0 0; }
    EachCardWindow Input:focus { border: none; }
    EachCardWindow #where { color: $muted; height: auto; }
    EachCardWindow #rows { height: auto; margin: 1 0 0 0; }
    EachCardWindow #fault { color: $error; height: auto; }
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
        yield Static("", id="fault", markup=False)

    def on_mount(self) -> None:
        self.query_one("#command", Input).focus()

    def on_unmount(self) -> None:
        """End what runs."""
        self._cancel.set()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Run the command on each card, or say what is wrong with either."""
        event.stop()
        if self._at_work:
            return
        try:
            words = shlex.split(self.query_one("#command", Input).value)
            names = [name.strip() for name in self.query_one("#cards", Input).value.split(",") if name.strip()]
            self._names = tuple(dict.fromkeys(card(name).name for name in names))
        except (UserError, ValueError) as error:
            self.query_one("#fault", Static).update(str(error))
            return
        if not words or not self._names:
            self.query_one("#fault", Static).update("a command and a card are needed")
            return
        self.query_one("#fault", Static).update("")
        self._ended, self._at_work = [], True
        self._show()
        threading.Thread(target=self._run, args=(words,), name="each card", daemon=True).start()

    def _run(self, words: Sequence[str]) -> None:
        """Run on one card after another, on a thread; an error on one is reported and ends all."""
        app = self.app
        for name in self._names:
            try:
                ran = self._runner.run(words, self._job, name, self._cancel)
            except (UserError, OSError) as error:
                app.call_later(self._fail, str(error))
                return
            if ran is None:
                return
            app.call_later(self._take, ran)

    def _take(self, ran: CardRun) -> None:
        self._ended.append(ran)
        self._at_work = len(self._ended) < len(self._names)
        self._show()

    def _fail(self, problem: str) -> None:
        self._at_work = False
        if self.is_attached:
            self.query_one("#fault", Static).update(printable(problem))
            self._show()

    def _show(self) -> None:
        if self.is_attached:
            self.query_one("#rows", Static).update("\n".join(self._lines()))

    def _lines(self) -> list[str]:
        heading = f"{'CARD':<{NAME}}" + "".join(f"{one:>{SIZE}}" for one in ("ALLOCATED", "RESERVED", "PROCESS", "OF"))
        lines = [f"{heading}  VERDICT"]
        for at, name in enumerate(self._names):
            if at < len(self._ended):
                lines.append(_line(self._ended[at]))
            else:
                lines.append(f"{name:<{NAME}}" + ("  runs …" if self._at_work and at == len(self._ended) else ""))
        return lines


def _line(ran: CardRun) -> str:
    sizes = (ran.allocated, ran.reserved, ran.process, ran.memory)
    return (
        f"{fit(ran.card, NAME):<{NAME}}"
        + "".join(f"{format_bytes(size):>{SIZE}}" for size in sizes)
        + f"  {ran.verdict}"
    )
