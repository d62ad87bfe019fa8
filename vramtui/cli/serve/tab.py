"""A dashboard in a pseudo-terminal, for one tab of a browser."""

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
from collections.abc import AsyncIterator

from vramtui.cli.common.settings import VARIABLES

PIECE = 1 << 16
LARGEST = 1000  # columns or rows
PATIENCE = 2.0  # seconds in which a dashboard ends when asked to
KEPT = (
    *("HOME", "LANG", "LC_ALL", "LC_CTYPE", "PATH", "TMPDIR", "TZ", "USER"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"),
    *("VRAMTUI_CONFIG_DIR", "VRAMTUI_DATA_DIR", *VARIABLES),
)


class Tab:
    """One dashboard. It reads samples from a pipe, and has neither a terminal nor a descriptor of anybody else's."""

    def __init__(self) -> None:
        self._main = -1
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, feed: int, width: int, height: int) -> None:
        """Open it; `feed` is the end of a pipe through which recordings come, and is closed here."""
        self._main, terminal = os.openpty()
        try:
            self.resize(width, height)
            os.set_blocking(self._main, False)
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P" if sys.version_info >= (3, 11) else "-I", "-m", "vramtui"),
                *("--view-only", "--served", str(feed)),
                stdin=terminal,
                stdout=terminal,
                stderr=terminal,
                pass_fds=(feed,),
                start_new_session=True,
                env={
                    **{name: os.environ[name] for name in KEPT if name in os.environ},
                    "TERM": "xterm-256color",
                    "COLORTERM": "truecolor",
                },
            )
        finally:
            os.close(terminal)
            os.close(feed)

    def resize(self, width: int, height: int) -> None:
        """Another size; figures that no terminal has are brought to those that one could have."""
        columns, rows = (max(1, min(LARGEST, number)) for number in (width, height))
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGWINCH)

    def type(self, text: str) -> None:
        """Send keys; what a dashboard that stands still cannot take is lost."""
        with contextlib.suppress(OSError):
            os.write(self._main, text.encode(errors="replace"))

    async def output(self) -> AsyncIterator[bytes]:
        """What it draws, piece by piece, until it ends; it waits for whoever takes the pieces."""
        loop = asyncio.get_running_loop()
        while True:
            readable: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._main, _resolve, readable)
            try:
                await readable
            finally:
                loop.remove_reader(self._main)
            try:
                piece = os.read(self._main, PIECE)
            except BlockingIOError:
                continue
            except OSError:  # its end of the terminal is closed
                return
            if not piece:
                return
            yield piece

    async def stop(self) -> None:
        """End it, if it has not ended."""
        process = self._process
        if process is not None and process.returncode is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    process.send_signal(number)
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), PATIENCE)
                    break
        if self._main >= 0:
            os.close(self._main)
            self._main = -1


def _resolve(waited: "asyncio.Future[None]") -> None:
    if not waited.done():
        waited.set_result(None)
