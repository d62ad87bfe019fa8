import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from tests.installed.sleepers import sleepers
from tests.installed.stand_in import COMMANDS, StandIn
from tests.installed.terminal import PATIENCE, Terminal


class Open(Protocol):
    def __call__(self, *arguments: str, size: tuple[int, int] = ..., cwd: Path | None = ..., **env: str) -> Terminal:
        """`env` is added to the stand-in's environment."""


class Run(Protocol):
    def __call__(self, *arguments: str, code: int = 0, **env: str) -> "subprocess.CompletedProcess[str]":
        """`env` is added to the stand-in's environment."""


@pytest.fixture
def program() -> str:
    return str(Path(sys.executable).with_name("vramtui"))


@pytest.fixture
def stand_in(tmp_path: Path) -> Iterator[StandIn]:
    with sleepers(COMMANDS) as pids:
        yield StandIn(tmp_path, pids)


@pytest.fixture
def open_terminal(program: str, stand_in: StandIn) -> Iterator[Open]:
    with ExitStack() as opened:

        def start(*arguments: str, size: tuple[int, int] = (120, 35), cwd: Path | None = None, **env: str) -> Terminal:
            environment = {**stand_in.environment, **env}
            return opened.enter_context(Terminal([program, *arguments], size=size, env=environment, cwd=cwd))

        yield start


@pytest.fixture
def run(program: str, stand_in: StandIn) -> Run:
    def start(*arguments: str, code: int = 0, **env: str) -> "subprocess.CompletedProcess[str]":
        ended = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            env=stand_in.whole_environment(**env), timeout=PATIENCE, check=False,
        )  # fmt: skip
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended

    return start
