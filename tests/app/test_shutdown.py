import signal
import sys
from pathlib import Path

import pytest

from tests.installed.terminal import PATIENCE, Terminal

pytestmark = pytest.mark.pty
ROOT = Path(__file__).parents[2]


def opened(*arguments: str) -> Terminal:
    command = [sys.executable, "-m", "tests.app.leaving_program", *arguments]
    return Terminal(command, size=(100, 30), env={"PYTHONPATH": str(ROOT), "COLUMNS": None}, cwd=ROOT)


def check_end(terminal: Terminal, code: int) -> None:
    assert (terminal.ended(), terminal.left_behind()) == (code, [])
    # The other screen is empty when it is left (tmux would keep lines of it), and this one is not emptied.
    wiped = terminal.sent.rindex(b"\x1b[H\x1b[2J")
    assert b"\x1b[?1049l" in terminal.sent[wiped:]
    assert b"\x1b[?1049l" not in terminal.sent[:wiped]


@pytest.mark.parametrize(("end", "code"), [
    ("q", 0),
    ("\x03", 130),
    *(
        (getattr(signal, f"SIG{name}"), 128 + getattr(signal, f"SIG{name}"))
        for name in ("TERM", "HUP", "INT", "QUIT", "USR1", "XCPU", "ABRT", "RTMAX")
    ),
])  # fmt: skip
def test_keys_and_signals(end: str | signal.Signals, code: int) -> None:
    with opened() as terminal:
        terminal.wait_for("jupyter")
        if isinstance(end, str):
            terminal.send(end)
        else:
            terminal.process.send_signal(end)
        check_end(terminal, code)


def test_a_terminal_that_takes_no_more_output() -> None:
    """Nobody reads: every write blocks, and the program ends all the same."""
    with opened() as terminal:
        terminal.wait_for("jupyter")
        terminal.hold()
        for _ in range(200):
            terminal.send("\x14")
        terminal.process.terminate()
        assert terminal.process.wait(PATIENCE) == 143


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [("break", 1, "ZeroDivisionError"), ("clock", 2, "vramtui: this machine's clock is beyond the year 2262")],
)
def test_a_crash_or_a_clock_that_jumps_is_told(how: str, code: int, said: str) -> None:
    with opened(how) as terminal:
        check_end(terminal, code)
        assert said in terminal.text
        assert ("Traceback" in terminal.text) is (how == "break")
