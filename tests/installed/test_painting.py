"""What stands on the terminal after many small changes is what would stand there if everything were sent anew."""

import pytest

from tests.installed.conftest import Open
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import Terminal, seen
from tests.stub.world import StubProcess

DOWN, UP, REDRAW, ESCAPE = "\x1b[B", "\x1b[A", "\x0c", "\x1b"
HELP = "Down"


def _cells(terminal: Terminal) -> list[object]:
    """Every cell with the colours that are seen, and the text."""
    text, screen = terminal.text, terminal.screen
    return [[seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)] + [text]


def _pause(terminal: Terminal) -> None:
    """Let nothing change any more."""
    terminal.send(" ")
    terminal.wait_for("PAUSED")
    terminal.rest()


def _sent_anew(terminal: Terminal) -> list[object]:
    """The cells after a redraw of everything."""
    terminal.send(REDRAW)
    _look_at_help(terminal)
    terminal.rest()
    return _cells(terminal)


def _look_at_help(terminal: Terminal) -> None:
    terminal.send("?")
    terminal.wait_for(HELP)
    terminal.send(ESCAPE)
    terminal.wait(lambda screen: HELP not in screen)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_small_changes_add_up_to_the_whole(open_terminal: Open, stand_in: StandIn, size: tuple[int, int]) -> None:
    pid, other = stand_in.pids[:2]
    stand_in.busy.processes = [StubProcess(pid, 20 * GIB), StubProcess(other, 12 * GIB)]
    stand_in.show()
    terminal = open_terminal("--interval", "0.2", "--preset", "llama-3.1-8b-lora", size=size)
    terminal.wait_for("20.0")
    _look_at_help(terminal)  # the hint for newcomers goes with that
    for number, key in enumerate((DOWN, "]", DOWN, "}", UP, "[", "<", ">")):
        stand_in.busy.processes[0].used = (21 + number) * GIB
        stand_in.show()
        terminal.send(key)
        terminal.wait_for(f"{21 + number}.0")
    # What is found in the background is drawn later, and what a key answered goes by itself.
    terminal.wait(lambda screen: "empty card: about" not in screen and "What if" not in screen)
    _pause(terminal)
    painted = _cells(terminal)
    assert painted == _sent_anew(terminal)
    terminal.send("q")
    assert terminal.ended() == 0


def test_what_is_painted_under_a_message_is_there_when_the_message_goes(open_terminal: Open, stand_in: StandIn) -> None:
    terminal = open_terminal("--interval", "0.2")
    terminal.wait_for("33.0")
    _look_at_help(terminal)
    terminal.send("z")
    terminal.wait_for("Graph: ")
    for used in (34, 35, 36):
        stand_in.busy.processes[0].used = used * GIB
        stand_in.show()
        terminal.wait_for(f"{used}.0")
    terminal.wait(lambda screen: "Graph: " not in screen)
    _pause(terminal)
    assert _cells(terminal) == _sent_anew(terminal)
