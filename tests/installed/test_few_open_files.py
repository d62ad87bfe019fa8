"""The installed program in a shell that lets it open few files (`ulimit -n`): it works, or it says so and ends."""

import subprocess
from pathlib import Path

import pytest

from tests.installed.stand_in import StandIn
from tests.installed.terminal import PATIENCE, Terminal

TOLD = "too many open files: this shell lets a program open"


def _limited(files: int, program: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', program, *arguments]


def _ended(stand_in: StandIn, command: list[str], folder: Path | None = None) -> "subprocess.CompletedProcess[str]":
    """What came of a command that needs no terminal."""
    return subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        env=stand_in.whole_environment(),
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize("files", [8, 10, 16])
@pytest.mark.parametrize("arguments", [(), ("--demo",)])
def test_a_dashboard_without_room_says_so_and_touches_no_terminal(
    files: int, arguments: tuple[str, ...], program: str, stand_in: StandIn
) -> None:
    with Terminal(_limited(files, program, *arguments), env=stand_in.environment) as terminal:
        assert terminal.ended() == 2
        assert terminal.modes == {}
        assert f"{TOLD} {files}" in terminal.text
        assert "Traceback" not in terminal.text


def test_with_a_few_more_it_works(program: str, stand_in: StandIn) -> None:
    with Terminal(_limited(24, program), env=stand_in.environment) as terminal:
        terminal.wait_for("train_llama.py")
        terminal.send("q")
        assert terminal.ended() == 0


@pytest.mark.parametrize("files", [7, 8, 10])
@pytest.mark.parametrize(
    "arguments", [("ps",), ("record", "it.jsonl", "--duration", "0.5"), ("run", "--", "/bin/echo", "the job")]
)
def test_a_command_works_or_says_so(
    files: int, arguments: tuple[str, ...], program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    ended = _ended(stand_in, _limited(files, program, *arguments), tmp_path)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == 0 or (ended.returncode == 2 and TOLD in ended.stderr), ended.stderr
    if arguments[0] == "run" and files == 10:  # the job starts all the same
        assert (ended.returncode, ended.stdout) == (0, "the job\n")
        assert f"the job runs without the driver's figures: {TOLD} 10" in ended.stderr
