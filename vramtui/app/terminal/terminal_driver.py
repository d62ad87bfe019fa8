"""Textual's driver for terminals that do what real ones do: send what is no text, lose the end of a pasted text, claim
any size, and are stopped and continued faster than anybody looks.
"""

import codecs
import os
import selectors
import signal
import threading
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from time import monotonic
from types import SimpleNamespace
from typing import Any

from textual import events
from textual.app import App
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.keys import Keys
from textual.message import Message

from vramtui.app.terminal.textual_private import XTermParser

# tmux (3.3a) puts lines of the alternate screen above those that it restores, where it was resized meanwhile.
ALTERNATE = "\x1b[?1049h"
WIPE = "\x1b[m\x1b[H\x1b[2J"  # in the terminal's own colours, whatever was drawn last
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
AT_ONCE = 0.01  # seconds between two signals that are heard of in one turn of the loop
SETTLING = 0.05  # seconds in which what continues it may follow what stops it
QUIET = 2.0  # seconds without a key after which nothing waits for the rest of one
PASTING = 1.0  # seconds without a character, after which a pasted text is taken to be over
# Of a screen that is drawn: an 8K one with letters of 8 x 16 pixels has 960 x 270. Of 65,535 x 65,535, which any
# program on the terminal can set, a drawing would take all memory; of this it takes two seconds.
MOST_COLUMNS, MOST_ROWS = 1000, 300
BEHIND = 8  # writes that wait for the terminal, from which on nothing new is drawn


class TerminalParser(XTermParser):
    """Takes Esc and a key behind it in the same read for these two keys, in place of Alt with that key: nothing here is
    bound to Alt and a character. A terminal that can tell the two apart says so by another sequence.

    Ends a pasted text whose end does not come: until then every key, Ctrl+C too, would be part of it. Leaves out
    keys by numbers that are no character's, which end Textual's own.
    """

    _tail = ""
    _is_pasting = False
    _last_fed = 0.0

    def feed(self, data: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - Textual's own
        """Note whether a pasted text has begun and not ended."""
        seen = self._tail + data
        begun, ended = seen.rfind(PASTE_BEGINS), seen.rfind(PASTE_ENDS)
        if begun != ended:
            self._is_pasting = begun > ended
        self._tail = seen[1 - len(PASTE_BEGINS) :]
        self._last_fed = monotonic()
        yield from super().feed(data)

    def tick(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as above
        """Called ten times a second."""
        if self._is_pasting and monotonic() - self._last_fed > PASTING:
            yield from self.feed(PASTE_ENDS)
        yield from super().tick()

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 2 and sequence[0] == "\x1b" and sequence[1].isdigit():
            sequence, alt = sequence[1], True  # Textual has it for what a Mac's Option key writes
        if alt:
            yield events.Key("escape", "\x1b")
        try:
            yield from super()._sequence_to_key_events(sequence)
        except (ValueError, OverflowError):
            yield events.Key(Keys.Ignore.value, None)  # of nothing at all it would wait for the rest


class InputEnding:
    """An event, set when the thread of the keys is to end; `reader` can be read from then on, which wakes who waits for
    keys without a limit.
    """

    __slots__ = ("_event", "_writer", "reader")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reader, self._writer = os.pipe()

    def is_set(self) -> bool:
        """Whether it is to end."""
        return self._event.is_set()

    def set(self) -> None:
        """Ask it to end."""
        if not self.is_set():
            self._event.set()
            os.write(self._writer, b".")

    def clear(self) -> None:
        """Forget that the input ended, so that the next one can be read."""
        if self.is_set():
            os.read(self.reader, 1)
            self._event.clear()


class InputSelector(selectors.SelectSelector):
    """Waits for keys. Textual asks ten times a second, so that its parser can tell a lone Esc and end what has no end:
    where nothing was typed for a while there is neither, and the thread sleeps until something is.
    """

    def __init__(self, ending: InputEnding) -> None:
        super().__init__()
        self._ending = ending
        self._last = monotonic()
        self.register(ending.reader, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What can be read within `timeout` seconds, of which there is no limit once it is quiet."""
        ready = super().select(timeout if monotonic() - self._last < QUIET else None)
        typed = [(key, mask) for key, mask in ready if key.fileobj != self._ending.reader]
        if typed:
            self._last = monotonic()
        return typed


def is_behind(driver: object) -> bool:
    """Whether the terminal takes less than it is sent, or nothing any more, as one whose connection hangs."""
    writer = driver._writer_thread if isinstance(driver, TerminalDriver) else None  # noqa: SLF001 - of our own driver
    return writer is not None and writer._queue.qsize() >= BEHIND  # noqa: SLF001 - Textual has no public way


class TerminalDriver(LinuxDriver):
    """Stops and continues between two turns of the loop: a signal may come while a lock of the writer's is held. Never
    waits for a terminal that takes nothing: what is drawn goes by `is_behind`.
    """

    skips_opening = False  # the alternate screen is open already when it is first asked for
    _is_shown = False
    _is_to_stop = False
    _was_continued = False
    _continued_at = float("-inf")

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - Textual's own
        super().__init__(*arguments, **named)
        self._ending = InputEnding()
        self.exit_event = self._ending  # type: ignore[assignment]  # all that Textual asks of an event

    def run_input_thread(self) -> None:
        """Wait for keys; Textual makes its selector by its name."""
        linux_driver.selectors = SimpleNamespace(  # type: ignore[assignment,attr-defined]  # in its module's place
            SelectSelector=partial(InputSelector, self._ending), EVENT_READ=selectors.EVENT_READ
        )
        super().run_input_thread()

    def write(self, data: str) -> None:
        """Send it, but for what has been sent before Textual was there."""
        if self.skips_opening and data == ALTERNATE:
            self.skips_opening = False
        else:
            super().write(data)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's own
        if self._writer_thread is not None:
            # Of Textual's own 30 the next would hold the loop, and no key that leaves would be heard.
            self._writer_thread._queue.maxsize = 0  # noqa: SLF001 - Textual has no public way
        self._is_shown = True
        # The loop hears of signals nearly in the order in which they came; Python's own handlers go by their numbers.
        self._loop.add_signal_handler(signal.SIGTSTP, self._is_asked_to_stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._is_continued)
        # Noted at once besides: the loop hears of nothing while the terminal is given back, which takes 0.1 s.
        signal.signal(signal.SIGCONT, self._note_continued)

    def stop_application_mode(self) -> None:
        """Give it back as it was."""
        if self._is_shown:  # never what was on the terminal before
            self.write(WIPE)
        self._is_shown = False
        super().stop_application_mode()

    def stop_job(self) -> None:
        """Restore the terminal and stop, with all that the shell started as one job; `fg` takes it again."""
        self.suspend_application_mode()
        self._must_signal_resume = True
        # By the signal's own action, after the terminal is restored: the shell writes on it as soon as whoever leads
        # the job has stopped.
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.killpg(os.getpgrp(), signal.SIGTSTP)

    def process_message(self, message: Message) -> None:
        """Hand on what the terminal says; of a size no more than can be drawn."""
        if isinstance(message, events.Resize):
            wide, high = message.size
            if wide > MOST_COLUMNS or high > MOST_ROWS:
                message = events.Resize.from_dimensions((min(wide, MOST_COLUMNS), min(high, MOST_ROWS)), None)
        super().process_message(message)

    def _get_terminal_size(self) -> tuple[int, int]:
        columns, rows = super()._get_terminal_size()
        return min(columns, MOST_COLUMNS), min(rows, MOST_ROWS)

    def _is_asked_to_stop(self) -> None:
        if monotonic() - self._continued_at < AT_ONCE:
            # Of two signals at once the kernel runs the handler of the later first. It is taken for what came first
            # then: one that goes on can be stopped again, and one that nobody continues is lost.
            return
        self._is_to_stop, self._was_continued = True, False
        self._loop.call_later(SETTLING, self._stop)

    def _is_continued(self) -> None:
        self._is_to_stop = False
        self._go_on()
        self._continued_at = monotonic()

    def _note_continued(self, *_: object) -> None:
        self._was_continued = True

    def _stop(self) -> None:
        # Continued before it came to this: whoever did so would not do it again, and the loop is about to hear of it.
        if self._is_to_stop and not self._was_continued:
            self._is_to_stop = False
            if self._auto_restart:
                self.suspend_application_mode()
                self._must_signal_resume = True
            if not self._was_continued:
                os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self) -> None:
        # Where somebody else stopped it (SIGSTOP) everything is set as yet. Set twice, the terminal's settings would
        # be taken for those from before, and left so at the end.
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
        self._sigcont_application()


def use_terminal_driver() -> None:
    """Let Textual's driver make our parser, and read letters of other encodings as letters that are not known: one
    typed at a terminal set to Latin-1 would end its thread. It makes both by their names.
    """
    linux_driver.XTermParser = TerminalParser  # type: ignore[attr-defined]  # as above
    decoder = partial(codecs.getincrementaldecoder("utf-8"), "replace")
    linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined]  # as above


NO_SHELL = "No shell started this dashboard, so none could continue it: Ctrl+Z does nothing here."


def suspend_job(app: App[None]) -> None:
    """Ctrl+Z: stop, with all that the shell started as one job, where there is a shell to come back from.

    In raw mode the terminal makes no signal of the key, so the whole job is sent one here, as the terminal would: a
    program that started this one waits for it otherwise, and the shell never hears that the job has stopped.
    """
    driver = app._driver  # noqa: SLF001 - there is no public way to it
    if not isinstance(driver, TerminalDriver):
        return
    if shell_waits():
        driver.stop_job()
    else:
        app.notify(NO_SHELL, markup=False)


def shell_waits() -> bool:
    """Whether somebody is there to continue this job: a process of this terminal's session outside the job, which
    started it. Where there is none (`ssh -t host vramtui`, a container's first process, `xterm -e`) the kernel lets a
    key stop no program either (POSIX: an orphaned process group).
    """
    above = os.getppid()
    try:
        while above and os.getpgid(above) == os.getpgrp():
            stat = Path(f"/proc/{above}/stat").read_bytes()
            above = int(stat.rpartition(b")")[2].split()[1])  # behind the name, which may hold brackets, and the state
        return above > 0 and os.getsid(above) == os.getsid(0)
    except (OSError, ValueError, IndexError):
        return False
