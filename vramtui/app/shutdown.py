"""Running the dashboard and leaving it: at once, with the terminal restored, whatever the driver does."""

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
from vramtui.core.base.errors import CLOCK
from vramtui.core.observation.signals import ENDING

PATIENCE = 4.0  # seconds; longer than everything that leaving waits for, on a busy host
GARBAGE = 2_000  # new objects between collections; ten times as many take 3 MB more, and no less work
# Mouse, focus and paste reports off, keyboard protocol and line wrap as they were, main screen, cursor shown.
RESTORE = (
    b"\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[?2048l\x1b[?2026l"
    b"\x1b[<u\x1b[?7h\x1b[0m\x1b[?1049l\x1b[?25h"
)


CRASH = "_handle_exception"  # Textual has no public way to catch an exception before it is printed


def run_dashboard(app: Dashboard, *, in_alternate_screen: bool = False) -> int:
    """Run `app`. On `q`, Ctrl-C and signals the process ends here, with the app's exit code, which is returned if the
    app ended by itself (it crashed, or its terminal could not be used). With `in_alternate_screen` that screen is open:
    some terminals would wipe it if it was opened again.
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
    # The modules stay loaded: searching them for garbage would only cost time at every tick.
    gc.freeze()
    gc.set_threshold(GARBAGE, 20, 50)
    app.run()
    return app.return_code or 0


class _Leaver:
    """Ends the process, without waiting for the thread that reads the source."""

    __slots__ = ("_app", "_attributes", "_crash")

    def __init__(self, app: Dashboard) -> None:
        self._app = app
        self._crash: Callable[[Exception], None] = getattr(app, CRASH)
        self._attributes: list[Any] | None = None
        with contextlib.suppress(termios.error, OSError):
            self._attributes = termios.tcgetattr(0)

    def on_signal(self, number: int, frame: FrameType | None) -> None:
        self._watch(128 + number)
        self._app.call_later(self.leave, 128 + number)

    def on_error(self, error: Exception) -> None:
        """End in a traceback, as Textual does, or in a sentence if the clock is beyond what Python supports."""
        try:
            time.time()
        except OverflowError:
            self.leave(2, f"vramtui: {CLOCK}\n")
        else:
            self._crash(error)

    def leave(self, code: int, words: str = "") -> None:
        """Restore the terminal after all output, print the last words, and end, or become the command `app.next`."""
        self._watch(code)
        self._app.stop_reading()
        driver = self._app._driver  # noqa: SLF001 - Textual has no public way to it
        if isinstance(driver, LinuxDriver):
            # Its key thread may take a tenth of a second to notice, and the process ends before that.
            driver._key_thread = None  # noqa: SLF001 - the only way past the join
            driver.stop_application_mode()
            driver.close()
        words += self._app.parts.recording.last_words
        if words and sys.__stderr__ is not None:
            # Textual has redirected `sys.stderr`.
            with contextlib.suppress(OSError, ValueError):
                sys.__stderr__.write(words)
                sys.__stderr__.flush()
        if self._app.next:
            os.execv(self._app.next[0], self._app.next)  # noqa: S606 - this program itself
        os._exit(code)

    def _watch(self, code: int) -> None:
        """End anyway if leaving takes too long: a terminal that takes no more output blocks every write."""

        def leave_hard() -> None:
            with contextlib.suppress(OSError, ValueError):
                descriptor = sys.__stderr__.fileno() if sys.__stderr__ is not None else 2
                os.set_blocking(descriptor, False)
                os.write(descriptor, RESTORE)
            if self._attributes is not None:
                with contextlib.suppress(termios.error, OSError):
                    termios.tcsetattr(0, termios.TCSANOW, self._attributes)
            os._exit(code)

        timer = threading.Timer(PATIENCE, leave_hard)
        timer.daemon = True
        timer.start()
