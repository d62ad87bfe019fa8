"""A second pytest that runs vram tests on fake tensors: started once for a file, asked test by test."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from vramtui.core.base.errors import UserError
from vramtui.dryrun.interpreters import own_interpreter
from vramtui.dryrun.result import DryRun

if TYPE_CHECKING:
    from vramtui.pytest_plugin.limits import VramLimit

PIPES = "VRAMTUI_TEST_PIPES"
LEFT_OUT = ("no:xdist", "no:cacheprovider", "no:randomly", "no:cov")


class TraceQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One test to run: its id, the card and its memory, and after how many optimizer steps to stop."""

    nodeid: str
    device: str
    memory: str | int | None
    steps: int


class TraceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A test's reports as pytest serializes them, and its trace where it came so far; or why there is neither."""

    reports: tuple[Any, ...] = ()
    result: DryRun | None = None
    error: str | None = None


class TestProcess:
    """The second pytest, for one file of tests.

    Torch is loaded in it once; each test runs in a fork of it, as it is after collection. That makes a test's figures
    the same whichever others run, and lets a file with many of them pay for torch once.
    """

    __test__ = False  # for pytest, which takes it for a class of tests

    def __init__(self, path: Path, config: pytest.Config) -> None:
        refusal = own_interpreter().refusal
        if refusal:
            raise UserError(refusal)
        self.path = path
        self._config = config
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        asks, self._asks = os.pipe()
        self._answers, answers = os.pipe()
        self._process = subprocess.Popen(  # noqa: S603 - this Python's own pytest
            [sys.executable, "-m", "pytest", *_arguments(path, config)],
            cwd=config.invocation_params.dir,
            env=_environment(asks, answers),
            pass_fds=(asks, answers),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        os.close(asks)
        os.close(answers)
        self._lines = os.fdopen(self._answers, "rb")

    def run(self, item: pytest.Item, limit: "VramLimit") -> tuple[list[pytest.TestReport], DryRun | None]:
        """The test's reports and its trace.

        Raises:
            UserError: it could not be run there; the sentence says why.
        """
        asked = TraceQuestion(nodeid=item.nodeid, device=limit.device, memory=limit.memory, steps=limit.steps)
        try:
            os.write(self._asks, msgspec.json.encode(asked) + b"\n")
            line = self._lines.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise UserError(f"the process that traces ended without an answer:\n{self._words()}")
        answered = msgspec.json.decode(line, type=TraceAnswer)
        if answered.error is not None:
            raise UserError(answered.error)
        hook = self._config.hook.pytest_report_from_serializable
        reports: list[pytest.TestReport] = [hook(config=self._config, data=data) for data in answered.reports]
        for report in reports:
            if isinstance(report.longrepr, list):  # where a skipped test stands: JSON has no tuples
                report.longrepr = tuple(report.longrepr)
        return reports, answered.result

    def close(self) -> None:
        os.close(self._asks)
        self._lines.close()
        self._process.wait()
        self._output.close()

    def _words(self) -> str:
        self._process.wait()
        self._output.seek(0)
        return "\n".join(self._output.read().decode(errors="replace").splitlines()[-30:])


def shared_arguments(config: pytest.Config) -> list[str]:
    """The arguments for the same root, settings and import mode; other options may be of plugins that are left out."""
    options = ["-o", "addopts=", f"--rootdir={config.rootpath}", f"--import-mode={config.getoption('importmode')}"]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    return [*options, *(part for plugin in LEFT_OUT for part in ("-p", plugin))]


def _arguments(path: Path, config: pytest.Config) -> list[str]:
    own = ("-p", "vramtui.pytest_plugin.plugin", "-p", "vramtui.pytest_plugin.server")
    return [*shared_arguments(config), *own, str(path)]


def _environment(asks: int, answers: int) -> dict[str, str]:
    """One thread, as a fork has no others, and the same order of sets each time."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {**others, **threads, "PYTHONHASHSEED": "0", PIPES: f"{asks},{answers}"}
