"""Leaving with the reader stuck in the driver: at once, with the app's exit code, and the terminal as it was."""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.pty
ROOT = Path(__file__).parents[2]
PATIENCE = 90.0
# What was switched on, and what has to be sent to switch it off.
MODES = {
    b"\x1b[?1049h": b"\x1b[?1049l",
    b"\x1b[?25l": b"\x1b[?25h",
    b"\x1b[?1000h": b"\x1b[?1000l",
    b"\x1b[?1003h": b"\x1b[?1003l",
    b"\x1b[?1006h": b"\x1b[?1006l",
    b"\x1b[?1004h": b"\x1b[?1004l",
    b"\x1b[?2004h": b"\x1b[?2004l",
    b"\x1b[?7l": b"\x1b[?7h",
}


class Terminal:
    """The program in a pseudo-terminal of 100 x 30."""

    def __init__(self, *arguments: str) -> None:
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        environment.pop("COLUMNS", None)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.app.leaving_program", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            cwd=ROOT,
            env=environment,
            start_new_session=True,
        )
        os.close(slave)
        self.output = b""

    def read(self, seconds: float) -> bool:
        """Take what comes within `seconds`; False at the end of the output."""
        ready, _, _ = select.select([self.fd], [], [], seconds)
        if not ready:
            return True
        try:
            piece = os.read(self.fd, 65536)
        except OSError:
            return False
        self.output += piece
        return bool(piece)

    def until(self, text: bytes) -> None:
        end = time.monotonic() + PATIENCE
        while text not in self.output:
            assert self.read(0.1), self.output
            assert time.monotonic() < end, self.output

    def exit_code(self) -> int:
        end = time.monotonic() + PATIENCE
        while self.read(0.05):
            assert time.monotonic() < end, self.output
        return self.process.wait(PATIENCE)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    opened = Terminal()
    yield opened
    opened.close()


def restored(terminal: Terminal) -> None:
    for on, off in MODES.items():
        if on in terminal.output:
            assert terminal.output.rindex(off) > terminal.output.rindex(on), (on, terminal.output[-400:])
    # The other screen is empty when it is left (tmux would keep lines of it), and this one is not emptied.
    wiped = terminal.output.rindex(b"\x1b[H\x1b[2J")
    assert b"\x1b[?1049l" in terminal.output[wiped:]
    assert b"\x1b[?1049l" not in terminal.output[:wiped]


@pytest.mark.parametrize(("keys", "code"), [(b"q", 0), (b"\x03", 130)])
def test_keys(terminal: Terminal, keys: bytes, code: int) -> None:
    terminal.until(b"jupyter")
    os.write(terminal.fd, keys)
    assert terminal.exit_code() == code
    restored(terminal)


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGXCPU]
)
def test_signals(terminal: Terminal, number: signal.Signals) -> None:
    terminal.until(b"jupyter")
    terminal.process.send_signal(number)
    assert terminal.exit_code() == 128 + number
    restored(terminal)


def test_a_terminal_that_takes_no_more_output(terminal: Terminal) -> None:
    """Nobody reads: every write blocks, and the program ends all the same."""
    terminal.until(b"jupyter")
    for _ in range(200):
        os.write(terminal.fd, b"\x14")
    terminal.process.terminate()
    assert terminal.process.wait(PATIENCE) == 143


def test_a_crash_is_told_and_has_its_code() -> None:
    terminal = Terminal("break")
    assert terminal.exit_code() == 1
    assert b"ZeroDivisionError" in terminal.output
    restored(terminal)
    terminal.close()


def test_a_clock_that_jumps_beyond_what_can_be_told_is_a_sentence() -> None:
    terminal = Terminal("clock")
    assert terminal.exit_code() == 2
    assert b"vramtui: this machine's clock is beyond the year 2262" in terminal.output
    assert b"Traceback" not in terminal.output
    restored(terminal)
    terminal.close()
