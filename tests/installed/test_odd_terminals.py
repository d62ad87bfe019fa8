import signal
import time

import pytest

from tests.installed.conftest import Open
from tests.installed.stand_in import StandIn
from tests.installed.terminal import Terminal

SHOWN = ("H200 NVL", "Processes")
LATIN_1 = "\udce9\udcff\udcfe"  # what a terminal set to Latin-1 sends for é, ÿ and þ
HELP = "Focus next panel"


def _lives(terminal: Terminal) -> None:
    terminal.send("?")
    terminal.wait_for(HELP)
    terminal.leave("\x03", 130)
    assert b"Traceback" not in terminal.sent


def test_it_lives_whatever_is_typed_and_whatever_size_it_has(open_terminal: Open) -> None:
    """In an environment that is set for another program of Textual. The first two ended it with a traceback, after the
    third no key was one, and the sizes took all memory.
    """
    terminal = open_terminal(
        TEXTUAL_DRIVER="nowhere:Nothing", TEXTUAL_COLOR_SYSTEM="none", TEXTUAL_LOG="/nowhere/log", TEXTUAL="debug"
    )
    terminal.wait_for(*SHOWN)
    for sent in (
        LATIN_1,
        "\x1b[M\udcff\udcff\udcff",  # the mouse as X10 reports it, beyond column 222
        "\x1b[200~a text whose end is lost",
        "\x1b[200~" + "x" * 100_000 + "\x1b[201~",
        "\x1b[48;999999;999999;0;0t\x1b[48;35;120;0;0t",  # sizes that the terminal says of itself
        "\x1b[1114112u\x1b[55296u\x1b[0u",  # keys by numbers of no character
    ):
        terminal.send(sent)
        if sent.startswith("\x1b[200~a"):
            time.sleep(1.5)  # what comes at once is taken for more of the text
        terminal.send("?")
        terminal.wait_for(HELP)
        terminal.send("\x1b")
        terminal.wait(lambda screen: HELP not in screen, f"the help to close after {sent[:40]!r}")
    for size in ((1, 1), (20_000, 3), (120, 35)):
        terminal.resize(size)
        terminal.rest()
    _lives(terminal)


def test_stopped_and_continued_at_once_or_while_it_gives_the_terminal_back_it_goes_on(open_terminal: Open) -> None:
    """Continued before it came to stopping, it stopped for ever. Giving the terminal back takes a tenth of a second."""
    terminal = open_terminal()
    terminal.wait_for(*SHOWN)
    for _ in range(10):
        terminal.process.send_signal(signal.SIGTSTP)
        terminal.process.send_signal(signal.SIGCONT)
    terminal.rest()
    for gap in range(50, 170, 20):
        terminal.process.send_signal(signal.SIGTSTP)
        time.sleep(gap / 1000)
        terminal.process.send_signal(signal.SIGCONT)
        terminal.rest()
    _lives(terminal)


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-"])
def test_it_draws_where_its_output_goes(program: str, stand_in: StandIn, redirection: str) -> None:
    """Textual draws on what is for errors: with these there was nothing to see. Here also without whole frames."""
    command = ["/bin/sh", "-c", f'exec "$0" {redirection}', program]
    with Terminal(command, env={**stand_in.environment}, whole_frames=False) as terminal:
        terminal.wait_for(*SHOWN)
        _lives(terminal)


def test_without_an_input_it_says_so(program: str, stand_in: StandIn) -> None:
    with Terminal(["/bin/sh", "-c", 'exec "$0" <&-', program], env={**stand_in.environment}) as terminal:
        assert terminal.ended() == 2
        assert "the dashboard needs a terminal" in terminal.text


def test_a_terminal_that_takes_nothing_any_more_is_left_by_q(open_terminal: Open) -> None:
    """Thirty drawings waited for it, the next held the loop, and with it every key."""
    terminal = open_terminal()
    terminal.wait_for(*SHOWN)
    terminal.hold()
    for _ in range(40):
        terminal.send("21")
        time.sleep(0.15)  # each is drawn by itself
    terminal.send("q")
    assert terminal.ended(30.0) == 0
