from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.installed.conftest import Open, Run
from tests.installed.stand_in import StandIn
from tests.installed.terminal import Terminal

CTRL_Z = "\x1a"
BASH = Path("/bin/bash")
PROMPT = "the-shell>"
pytestmark = pytest.mark.skipif(not BASH.exists(), reason="wants a shell with job control")


@pytest.fixture
def shell(stand_in: StandIn) -> Iterator[Terminal]:
    command = (str(BASH), "--norc", "--noprofile", "--noediting", "-i")
    with Terminal(command, env={**stand_in.environment, "PS1": PROMPT, "HISTFILE": None}) as terminal:
        terminal.wait_for(PROMPT)
        yield terminal
        for child in psutil.Process(terminal.process.pid).children(recursive=True):
            child.kill()


def _stopped(terminal: Terminal, times: int) -> None:
    terminal.wait(lambda _: terminal.sent.count(b"Stopped") >= times, "the shell to say that the job has stopped")
    on = {mode for mode, is_on in terminal.modes.items() if is_on} - {7, 25, 2004}
    assert on == set()
    assert terminal.makes_signals


def _goes_on(terminal: Terminal, times: int, *texts: str) -> None:
    terminal.wait(lambda _: terminal.sent.count(b"\x1b[?1049h") >= times, "the alternate screen")
    terminal.wait_for(*texts)


@pytest.mark.parametrize("wrapped", ["{}", "/bin/sh -c '{}; true'"], ids=["alone", "in a script"])
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_comes_back(shell: Terminal, program: str, wrapped: str) -> None:
    shell.send(wrapped.format(program) + "\n")
    shell.wait_for("train_llama.py", "Processes")
    for times in (1, 2):
        shell.rest()
        shell.send(CTRL_Z)
        _stopped(shell, times)
        shell.send("fg\n")
        _goes_on(shell, times + 1, "train_llama.py", "Processes")
    shell.rest()
    shell.send("q")
    shell.wait(lambda _: not psutil.Process(shell.process.pid).children(), "the dashboard to end")
    shell.send("echo code $?\n")
    shell.wait_for("code 0")


def test_in_the_background_it_draws_nothing(shell: Terminal, program: str) -> None:
    shell.send(f"{program} --demo --interval 0.2\n")
    shell.wait_for("train.py", "Processes")
    shell.rest()
    shell.send(CTRL_Z)
    _stopped(shell, 1)
    (job,) = psutil.Process(shell.process.pid).children()
    before = job.num_ctx_switches()
    shell.send("bg\n")
    shell.wait(
        lambda _: job.num_ctx_switches() != before and job.status() == psutil.STATUS_STOPPED,
        "it to be continued, and to stop for the terminal",
    )
    assert shell.sent.count(b"\x1b[?1049h") == 1
    shell.send("fg\n")
    _goes_on(shell, 2, "train.py", "Processes")


def test_a_recording_is_played_on(shell: Terminal, program: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    run("record", str(path), "--duration", "1", "--interval", "0.1")
    shell.send(f"{program} --replay {path}\n")
    shell.wait_for("train_llama.py", "Processes")
    shell.rest()
    shell.send(CTRL_Z)
    _stopped(shell, 1)
    shell.send("fg\n")
    _goes_on(shell, 2, "train_llama.py", "Processes")


def test_without_a_shell_it_goes_on_and_says_why(open_terminal: Open) -> None:
    terminal = open_terminal(size=(160, 40))
    terminal.wait_for("train_llama.py", "Processes")
    terminal.send(CTRL_Z)
    terminal.wait_for("No shell started this dashboard")
    assert psutil.Process(terminal.process.pid).status() != psutil.STATUS_STOPPED
    terminal.leave()
