"""Textual's driver for real terminals: they send bytes that are not text, lose the end of pasted text, claim any size,
and are stopped and continued quickly.
"""

import codecs
import contextlib
import os
import selectors
import signal
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
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
from textual.message_pump import MessagePump

from vramtui.app.terminal.textual_private import XTermParser, call_after

# tmux (3.3a) puts lines of the alternate screen above those that it restores, where it was resized meanwhile.
ALTERNATE = "\x1b[?1049h"
WIPE = "\x1b[m\x1b[H\x1b[2J"  # in the terminal's own colours
PASTE_BEGINS, PASTE_ENDS = "\x1b[200~", "\x1b[201~"
AT_ONCE = 0.01  # seconds between two signals that arrive in one turn of the loop
SETTLING = 0.05  # seconds in which a signal to continue may follow one to stop
QUIET = 2.0  # seconds without a key after which the thread sleeps
PASTING = 1.0  # seconds without a character after which pasted text ends
# An 8K screen with letters of 8 x 16 pixels has 960 x 270. Any program on the terminal can set 65,535 x 65,535, for
# which a drawing would take all memory; for this it takes two seconds.
MOST_COLUMNS, MOST_ROWS = 1000, 300
BEHIND = 8  # writes that wait for the terminal, from which on nothing new is drawn


class TerminalParser(XTermParser):
    """Takes Esc and a key in the same read as two keys, not as Alt with the key, to which nothing is bound; a terminal
    that distinguishes the two uses another sequence.

    It ends pasted text whose end does not come: until then every key, Ctrl+C too, would be part of it. It ignores key
    numbers that are not a character's, which would crash Textual's parser.
    """

    _tail = ""
    _is_pasting = False
    _last_fed = 0.0

    def feed(self, data: str):  # type: ignore[no-untyped-def]  # noqa: ANN201 - Textual's own
        seen = self._tail + data
        begun, ended = seen.rfind(PASTE_BEGINS), seen.rfind(PASTE_ENDS)
        if begun != ended:
            self._is_pasting = begun > ended
        self._tail = seen[1 - len(PASTE_BEGINS) :]
        self._last_fed = monotonic()
        yield from super().feed(data)

    def tick(self):  # type: ignore[no-untyped-def]  # noqa: ANN201 - as above
        if self._is_pasting and monotonic() - self._last_fed > PASTING:
            yield from self.feed(PASTE_ENDS)
        yield from super().tick()

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if len(sequence) == 2 and sequence[0] == "\x1b" and sequence[1].isdigit():
            sequence, alt = sequence[1], True  # Textual takes it for a Mac's Option key
        if alt:
            yield events.Key("escape", "\x1b")
        try:
            yield from super()._sequence_to_key_events(sequence)
        except (ValueError, OverflowError):
            yield events.Key(Keys.Ignore.value, None)  # without any key it would wait for the rest


class InputEnding:
    """An event that ends the thread of the keys; `reader` can be read from then on, which wakes it."""

    __slots__ = ("_event", "_writer", "reader")

    def __init__(self) -> None:
        self._event = threading.Event()
        self.reader, self._writer = os.pipe()

    def is_set(self) -> bool:
        return self._event.is_set()

    def set(self) -> None:
        if not self.is_set():
            self._event.set()
            os.write(self._writer, b".")

    def clear(self) -> None:
        if self.is_set():
            os.read(self.reader, 1)
            self._event.clear()


class InputSelector(selectors.SelectSelector):
    """Waits for keys. Textual asks ten times a second, so that its parser can detect a lone Esc and end pasted text;
    once nothing was typed for a while, the thread sleeps until something is.
    """

    def __init__(self, ending: InputEnding) -> None:
        super().__init__()
        self._ending = ending
        self._last = monotonic()
        self.register(ending.reader, selectors.EVENT_READ)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the readable keys within `timeout` seconds, or without a limit once it is quiet."""
        ready = super().select(timeout if monotonic() - self._last < QUIET else None)
        typed = [(key, mask) for key, mask in ready if key.fileobj != self._ending.reader]
        if typed:
            self._last = monotonic()
        return typed


def is_behind(driver: object) -> bool:
    """Return whether the terminal takes less than it is sent, as one whose connection hangs."""
    writer = driver._writer_thread if isinstance(driver, TerminalDriver) else None  # noqa: SLF001 - of our own driver
    return writer is not None and writer._queue.qsize() >= BEHIND  # noqa: SLF001 - Textual has no public way


class TerminalDriver(LinuxDriver):
    """Stops and continues between two turns of the loop, because a signal may come while the writer holds a lock. It
    never waits for a terminal that takes nothing: drawing depends on `is_behind`.
    """

    skips_opening = False  # the alternate screen is open already
    _is_shown = False
    _is_to_stop = False
    _was_continued = False
    _continued_at = float("-inf")

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - Textual's own
        super().__init__(*arguments, **named)
        self._ending = InputEnding()
        self.exit_event = self._ending  # type: ignore[assignment]  # has the methods that Textual calls

    def run_input_thread(self) -> None:
        """Wait for keys; Textual makes its selector by name."""
        linux_driver.selectors = SimpleNamespace(  # type: ignore[assignment,attr-defined]  # in its module's place
            SelectSelector=partial(InputSelector, self._ending), EVENT_READ=selectors.EVENT_READ
        )
        super().run_input_thread()

    def write(self, data: str) -> None:
        """Send the data, except for the opening that was sent before Textual started."""
        if self.skips_opening and data == ALTERNATE:
            self.skips_opening = False
        else:
            super().write(data)

    def start_application_mode(self) -> None:
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's own
        if self._writer_thread is not None:
            # With Textual's limit of 30 the next write would block the loop, and no key could leave.
            self._writer_thread._queue.maxsize = 0  # noqa: SLF001 - Textual has no public way
        self._is_shown = True
        # The loop gets signals nearly in their order; Python's own handlers go by their numbers.
        self._loop.add_signal_handler(signal.SIGTSTP, self._is_asked_to_stop)
        self._loop.add_signal_handler(signal.SIGCONT, self._is_continued)
        # Also noted at once: the loop is blocked while the terminal is restored, which takes 0.1 s.
        signal.signal(signal.SIGCONT, lambda *_: setattr(self, "_was_continued", True))

    def stop_application_mode(self) -> None:
        if self._is_shown:  # never wipe what was on the terminal before
            self.write(WIPE)
        self._is_shown = False
        super().stop_application_mode()

    def stop_job(self) -> None:
        """Restore the terminal and stop, with all that the shell started as one job; `fg` takes it again."""
        self.suspend_application_mode()
        self._must_signal_resume = True
        # By the signal's default action, after the terminal is restored: the shell writes on it as soon as the leader
        # of the job has stopped.
        self._loop.remove_signal_handler(signal.SIGTSTP)
        os.killpg(os.getpgrp(), signal.SIGTSTP)

    def process_message(self, message: Message) -> None:
        """Pass the message on; limit a size to what can be drawn."""
        if isinstance(message, events.Resize):
            wide, high = message.size
            if wide > MOST_COLUMNS or high > MOST_ROWS:
                message = events.Resize.from_dimensions((min(wide, MOST_COLUMNS), min(high, MOST_ROWS)), None)
        super().process_message(message)

    def _get_terminal_size(self) -> tuple[int, int]:
        columns, rows = 80, 25
        with contextlib.suppress(AttributeError, ValueError, OSError):
            columns, rows = os.get_terminal_size(sys.__stdout__.fileno())  # type: ignore[union-attr]  # None is suppressed
        return min(columns or 80, MOST_COLUMNS), min(rows or 25, MOST_ROWS)

    def _is_asked_to_stop(self) -> None:
        if monotonic() - self._continued_at < AT_ONCE:
            # The kernel runs the handler of the later of two signals first, so stop is assumed to come first: a job
            # that continues can be stopped again, but a stopped one might never be continued.
            return
        self._is_to_stop, self._was_continued = True, False
        self._loop.call_later(SETTLING, self._stop)

    def _is_continued(self) -> None:
        self._is_to_stop = False
        # After SIGSTOP everything is still set. Set twice, the terminal's settings would be taken for the original
        # ones, and left so at the end.
        if self._auto_restart and not self._must_signal_resume:
            self.suspend_application_mode()
        self._sigcont_application()
        self._continued_at = monotonic()

    def _stop(self) -> None:
        # If it was continued by now, the loop is about to get that signal, and there may be no other.
        if self._is_to_stop and not self._was_continued:
            self._is_to_stop = False
            if self._auto_restart:
                self.suspend_application_mode()
                self._must_signal_resume = True
            if not self._was_continued:
                os.kill(os.getpid(), signal.SIGSTOP)


def use_terminal_driver() -> None:
    """Let Textual's driver make our parser by name, and a decoder that replaces bytes that are not UTF-8: a letter
    typed at a terminal set to Latin-1 would end its thread.
    """
    linux_driver.XTermParser = TerminalParser  # type: ignore[attr-defined]  # as above
    decoder = partial(codecs.getincrementaldecoder("utf-8"), "replace")
    linux_driver.getincrementaldecoder = lambda _: decoder  # type: ignore[attr-defined]  # as above


NO_SHELL = "No shell started this dashboard, so none could continue it: Ctrl+Z does nothing here."


def suspend_job(app: App[None]) -> None:
    """Stop the whole job of the shell on Ctrl+Z, if a shell could continue it.

    In raw mode the terminal makes no signal of the key, so the job gets it from here: a parent process would wait
    otherwise, and the shell would not learn that the job has stopped.
    """
    driver = app._driver  # noqa: SLF001 - Textual has no public way to it
    if not isinstance(driver, TerminalDriver):
        return
    if shell_waits():
        driver.stop_job()
    else:
        app.notify(NO_SHELL)


def shell_waits() -> bool:
    """Return whether a process of this terminal's session outside the job started it, and can continue it.

    If none did (`ssh -t host vramtui`, a container's first process, `xterm -e`) the kernel does not let a key stop a
    program either (POSIX: an orphaned process group).
    """
    above = os.getppid()
    try:
        while above and os.getpgid(above) == os.getpgrp():
            stat = Path(f"/proc/{above}/stat").read_bytes()
            above = int(stat.rpartition(b")")[2].split()[1])  # behind the name, which may hold brackets, and the state
        return above > 0 and os.getsid(above) == os.getsid(0)
    except (OSError, ValueError, IndexError):
        return False


AGAIN = 0.01  # seconds between looks at whether the screen is complete
# Looks after which the next key passes although the one before is not done: a handler that waits for something must not
# block the keyboard. Not seconds: on a busy host a widget may take seconds to mount, with few looks meanwhile.
MOST_LOOKS = 300


class KeyHandled(events.InputEvent, bubble=True):
    """Follows a key on its way; when it is back at the app, every handler is done with the key."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyQueue:
    """Keys and pasted text in their order, given to the present focus; no key waits while they come one by one."""

    __slots__ = ("_app", "_give", "_looks", "_number", "_target", "_waiting")

    def __init__(self, app: App[None], forward: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._give = app, forward
        self._waiting: deque[events.InputEvent] = deque()
        self._number = 0
        self._target: MessagePump | None = None
        self._looks = 0

    async def takes(self, event: events.Event) -> bool:
        """Return whether an event is handled here: a key, pasted text, or the mark behind one. Ctrl+C never waits."""
        if isinstance(event, KeyHandled):
            if event.number == self._number:
                self._go_on(event.number)
            return True
        waits = isinstance(event, events.Paste) or (isinstance(event, events.Key) and event.key != "ctrl+c")
        if not waits or not isinstance(event, events.InputEvent) or event.is_forwarded:
            return False
        if self._target is None:
            await self._forward(event)
            return True
        if not self._waiting:
            call_after(self._app, AGAIN, self._look)
        self._waiting.append(event)
        return True

    async def _forward(self, event: events.InputEvent) -> None:
        self._number += 1
        self._looks = 0
        self._target = target = self._app.focused or self._app.screen
        await self._give(event)
        if not target.post_message(KeyHandled(self._number)):
            self._go_on(self._number)

    def _go_on(self, number: int) -> None:
        """Let the next key through as soon as the screen in front is complete."""
        if number != self._number or self._target is None:
            return
        self._looks += 1
        pumps: list[MessagePump] = [self._app.screen, *self._app.screen.walk_children()]
        is_complete = all(one._mounted_event.is_set() for one in pumps)  # noqa: SLF001 - Textual has no other way
        if is_complete or self._looks > MOST_LOOKS:
            # A widget that takes the focus when mounted has asked the app for it by now: this comes behind that.
            self._app.call_later(self._next, number)
        else:
            call_after(self._app, AGAIN, lambda: self._go_on(number))

    async def _next(self, number: int) -> None:
        if number != self._number:
            return
        self._target = None
        if self._waiting:
            await self._forward(self._waiting.popleft())

    def _look(self) -> None:
        """Check that the key before is still on its way: its target may be gone, and the mark with it."""
        if not self._waiting or self._target is None:
            return
        self._looks += 1
        if not self._target.is_attached or self._looks > MOST_LOOKS:
            self._go_on(self._number)
        call_after(self._app, AGAIN, self._look)
