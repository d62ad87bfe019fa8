"""Running the dashboard and leaving it: at once, with the terminal as it was, whatever the driver does."""

import contextlib
import gc
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from textual.drivers.linux_driver import LinuxDriver

from vramtui.app.app import Dashboard
from vramtui.app.terminal.terminal_driver import TerminalDriver, use_terminal_driver
from vramtui.app.terminal.textual_private import forget_cut_strips
from vramtui.core.base.clock import clock_problem
from vramtui.core.observation.signals import ENDING

PATIENCE = 4.0  # seconds; longer than all that leaving waits for, on a host whose jobs leave it little time
GARBAGE = 2_000  # new objects; of ten times as many the garbage between two looks is 3 MB more, and no less work
# Mouse, focus and paste reports off, keyboard protocol and line wrap as they were, main screen, cursor shown.
RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?2048l\x1b[?2026l"
    b"\x1b[<u\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
)


# Textual has no public way to hear of an exception before it is printed.
CRASH = "_handle_exception"


def run_dashboard(app: Dashboard, *, in_alternate_screen: bool = False) -> int:
    """Run `app` until it is left. On `q`, Ctrl-C and signals the process ends here, with the app's exit code.

    Args:
        app: the dashboard.
        in_alternate_screen: the terminal shows that already. Asked for again, some terminals would wipe it.

    Returns:
        The exit code, where the app ended by itself (it crashed, or its terminal could not be used).
    """
    if app.driver_class is LinuxDriver:
        app.driver_class = TerminalDriver
        TerminalDriver.skips_opening = in_alternate_screen
        use_terminal_driver()
    forget_cut_strips()
    leaver = _Leaver(app)
    app.leave = leaver.leave
    setattr(app, CRASH, leaver.on_error)
    for number in ENDING:
        signal.signal(number, leaver.on_signal)
    app.colours.suit_terminal()
    # What is loaded by now stays for good: looking through it for garbage would only cost time at every tick.
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 50)
    app.run()
    return app.return_code or 0


class _Leaver:
    """Ends the process. Nothing it does can wait for the reader: that thread is simply left behind."""

    __slots__ = ("_app", "_attributes", "_crash")

    def __init__(self, app: Dashboard) -> None:
        self._app = app
        self._crash: Callable[[Exception], None] = getattr(app, CRASH)
        self._attributes = _terminal_attributes()

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        """Leave with the code a shell expects of a process that was told to end."""
        del frame
        self._watch(128 + number)
        self._app.call_later(self.leave, 128 + number)

    def on_error(self, error: Exception) -> None:
        """End in a traceback, as Textual does; in a sentence where the clock was set beyond what Python can tell."""
        problem = clock_problem(time.time) if isinstance(error, OverflowError) else ""
        if not problem:
            self._crash(error)
            return
        self.leave(2, f"vramtui: {problem}\n")

    def leave(self, code: int, words: str = "") -> None:
        """Restore the terminal in the order everything was written, say the last words, and end."""
        self._watch(code)
        self._app.stop_reading()
        driver = self._app._driver  # noqa: SLF001 - there is no public way to it
        if isinstance(driver, LinuxDriver):
            # Its key thread may take a tenth of a second to notice; the process will not be there by then.
            driver._key_thread = None  # noqa: SLF001 - there is no other way past the join
            driver.stop_application_mode()
            driver.close()
        words += self._app.parts.recording.last_words
        if words and sys.__stderr__ is not None:
            # Textual holds on to the other `sys.stderr`.
            with contextlib.suppress(OSError, ValueError):
                sys.__stderr__.write(words)
                sys.__stderr__.flush()
        os._exit(code)

    def _watch(self, code: int) -> None:
        """End anyway when leaving takes too long: a terminal that takes no more output blocks every write."""
        timer = threading.Timer(PATIENCE, self._leave_hard, (code,))
        timer.daemon = True
        timer.start()

    def _leave_hard(self, code: int) -> None:
        with contextlib.suppress(OSError, ValueError):
            descriptor = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
            os.set_blocking(descriptor, False)
            os.write(descriptor, RESTORE)
        if self._attributes is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(0, termios.TCSANOW, self._attributes)
        os._exit(code)


def _terminal_attributes() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except (termios.error, OSError):
        return None
