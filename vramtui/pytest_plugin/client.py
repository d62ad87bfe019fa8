"""Limits of vram tests, and the second pytest that runs them: started once for a file, asked test by test."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest

from vramtui.api.dry_runs import answer_of, dry_run
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import format_bytes, parse_size
from vramtui.core.estimate.devices import DEFAULT_CARD
from vramtui.dryrun.command import parse_gpu
from vramtui.dryrun.job_command import DryRunJob, Engine, own_interpreter
from vramtui.dryrun.result import DryRun

Total = Literal["allocated", "reserved", "process"]
PIPES = "VRAMTUI_TEST_PIPES"
LEFT_OUT = ("no:xdist", "no:cacheprovider", "no:randomly", "no:cov")
# How pytest (9) prints a skipped test, and a failed one up to its last line.
SKIPPED = re.compile(r"^SKIPPED \[1\] .*?(?::(\d+))?: (.*)$", re.MULTILINE)
FAILURE = re.compile(
    r"^=+ (?:FAILURES|ERRORS) =+\n(?:_+ .* _+\n)?(.*?)^(?:=+ short test summary|\d+ (?:failed|error|passed))",
    re.MULTILINE | re.DOTALL,
)


class VramLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A marker's arguments: the limit in bytes of one total, the GPU, and the engine."""

    peak: int
    device: str = DEFAULT_CARD
    memory: str | int | None = None
    of: Total = "allocated"
    steps: int = 3
    engine: Engine = "fake"

    def excess(self, result: DryRun, where: str = "") -> str | None:
        """Why `result` is over the limit, with the largest allocations; None if it is not."""
        sizes = {"allocated": result.peak_allocated, "reserved": result.peak_reserved, "process": result.process}
        size = sizes[self.of]
        if size <= self.peak:
            return None
        peak = f"peak {self.of} is {format_bytes(size, 2)} ({size:,} B){where}"
        lines = [f"{peak}, {size - self.peak:,} B over the limit of {format_bytes(self.peak, 2)}"]
        for one in result.largest[:5]:
            place = one.line.replace(f"{Path.cwd()}{os.sep}", "") or one.module or "PyTorch"
            lines.append(f"  {place} ({one.operator}): {format_bytes(one.bytes, 2)}")
        return "\n".join(lines)


def limit_of(given: dict[str, Any], unnamed: tuple[object, ...] = ()) -> VramLimit:
    """The limit with these arguments.

    Raises:
        UserError: one is missing, unknown, or has a wrong value.
    """
    if unnamed:
        raise UserError('vram takes its arguments by name: @pytest.mark.vram(peak="9.5 GiB", device="A100-80GB")')
    for name in given:
        if name not in VramLimit.__struct_fields__:
            raise UserError(f"vram has no argument {name!r}{nearest(name, VramLimit.__struct_fields__)}")
    if given.get("peak") is None:
        raise UserError('vram needs the limit: peak="9.5 GiB"')
    if isinstance(given["peak"], str):
        given["peak"] = parse_size(given["peak"])
    for name, values in (("of", get_args(Total)), ("engine", get_args(Engine))):
        if name in given and given[name] not in values:
            raise UserError(f"vram: {name}={given[name]!r} is not one of {', '.join(values)}")
    limit = VramLimit(**given)
    if limit.engine == "cuda" and limit.memory is not None:
        raise UserError("vram: engine='cuda' uses the GPU's own memory; leave memory out")
    return limit


class TraceQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """One test to run: its id, the GPU and its memory, and the optimizer steps after which it ends."""

    nodeid: str
    device: str
    memory: str | int | None
    steps: int


class TraceAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A test's reports as pytest serializes them, and its dry run if it came that far; or an error."""

    reports: tuple[Any, ...] = ()
    result: DryRun | None = None
    error: str | None = None


class TestProcess:
    """The second pytest, for one file of tests.

    It loads torch once, and each test runs in a fork of it. So a test's figures do not depend on the tests that ran
    before, and a file with many tests pays for torch once.
    """

    __test__ = False  # for pytest, which takes it for a class of tests

    def __init__(self, path: Path, config: pytest.Config) -> None:
        own_interpreter().checked("fake")
        self.path = path
        self._config = config
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        asks, self._asks = os.pipe()
        answered, answers = os.pipe()
        # One thread, as a fork has no others, and the same order of sets each time.
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        own = ("-p", "vramtui.pytest_plugin.plugin", "-p", "vramtui.pytest_plugin.server")
        self._process = subprocess.Popen(  # noqa: S603 - this Python's own pytest
            [sys.executable, "-m", "pytest", *shared_arguments(config), *own, str(path)],
            cwd=config.invocation_params.dir,
            env={**environment, PIPES: f"{asks},{answers}"},
            pass_fds=(asks, answers),
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
        )
        os.close(asks)
        os.close(answers)
        self._lines = os.fdopen(answered, "rb")

    def run(self, item: pytest.Item, limit: VramLimit) -> tuple[list[pytest.TestReport], DryRun | None]:
        """The test's reports and its dry run.

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
            self._process.wait()
            self._output.seek(0)
            words = "\n".join(self._output.read().decode(errors="replace").splitlines()[-30:])
            raise UserError(f"the process that runs vram tests ended without an answer:\n{words}")
        answer = msgspec.json.decode(line, type=TraceAnswer)
        if answer.error is not None:
            raise UserError(answer.error)
        hook = self._config.hook.pytest_report_from_serializable
        reports: list[pytest.TestReport] = [hook(config=self._config, data=data) for data in answer.reports]
        for report in reports:
            if isinstance(report.longrepr, list):  # the place of a skipped test: JSON has no tuples
                report.longrepr = tuple(report.longrepr)
        return reports, answer.result

    def close(self) -> None:
        os.close(self._asks)
        self._lines.close()
        self._process.wait()
        self._output.close()


class VramRun:
    """The vram tests of one run of pytest; the process of one file is alive at a time."""

    def __init__(self) -> None:
        self._process: TestProcess | None = None

    def reports(self, item: pytest.Item, marker: pytest.Mark) -> Iterator[pytest.TestReport]:
        """The reports of the test as it ran in the other process; its call fails if the peak is over the limit."""
        try:
            limit = limit_of(dict(marker.kwargs), marker.args)
            if limit.engine == "cuda":
                yield cuda_report(item, limit)
                return
            if self._process is None or self._process.path != item.path:
                self.close()
                self._process = TestProcess(item.path, item.config)
            reports, result = self._process.run(item, limit)
        except UserError as error:
            yield call_report(item, "failed", str(error))
            return
        for report in reports:
            if report.when == "call" and report.passed and result is not None:
                failure = failure_of(result, limit)
                if failure is not None:
                    report.outcome, report.longrepr = "failed", failure
            yield report

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


class VramFixture:
    def dry_run(self, *arguments: Any, **options: Any) -> DryRun:  # noqa: ANN401 - those of `vramtui.dry_run`
        """Run `vramtui.dry_run`; an error fails the test in one sentence."""
        try:
            return dry_run(*arguments, **options)
        except UserError as error:
            sentence = str(error)
        pytest.fail(sentence, pytrace=False)  # outside of `except`: pytest would show what it came from

    def check(self, result: DryRun, **limit: Any) -> None:  # noqa: ANN401 - those of the marker
        """Fail the test if `result` is over `peak`."""
        failure = failure_of(result, limit_of(limit))
        if failure is not None:
            pytest.fail(failure, pytrace=False)


def failure_of(result: DryRun, limit: VramLimit) -> str | None:
    """Why a test with this result fails; None if it does not."""
    return f"out of memory: {result.out_of_memory}" if result.out_of_memory is not None else limit.excess(result)


def cuda_report(item: pytest.Item, limit: VramLimit) -> pytest.TestReport:
    """The report of a test that runs by itself on engine `cuda`, with this Python's CUDA build of PyTorch.

    Raises:
        UserError: the GPU is unknown, or the engine cannot run here.
    """
    name = f"{item.path}::{item.nodeid.partition('::')[2]}"
    words = (sys.executable, "-m", "pytest", *shared_arguments(item.config), "-q", "-rs", "--color=no", name)
    job = DryRunJob(words=words, folder=str(Path.cwd()), environment=dict(os.environ), engine="cuda", steps=limit.steps)
    answer = answer_of(job, parse_gpu(limit.device))
    result, printed = answer.result, "\n".join(answer.output)
    if result is None:
        skipped = SKIPPED.search(printed)
        if skipped is not None:
            return call_report(item, "skipped", (str(item.path), int(skipped[1] or 0), f"Skipped: {skipped[2]}"))
        failed = FAILURE.search(printed)
        failure = answer.error if failed is None else f"it fails on {answer.gpu}:\n{failed[1].strip()}"
        return call_report(item, "failed", failure)
    if result.verdict == "does not fit":
        return call_report(item, "failed", f"out of memory on {answer.gpu}: {result.out_of_memory}")
    excess = limit.excess(result, f" on {answer.gpu}")
    return call_report(item, "passed" if excess is None else "failed", excess)


def call_report(
    item: pytest.Item, outcome: Literal["passed", "failed", "skipped"], words: str | tuple[str, int, str] | None
) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=words,
        when="call",
    )


def shared_arguments(config: pytest.Config) -> list[str]:
    """The arguments for the same root, settings and import mode; other options may belong to plugins left out."""
    options = ["-o", "addopts=", f"--rootdir={config.rootpath}", f"--import-mode={config.getoption('importmode')}"]
    if config.inipath is not None:
        options += ["-c", str(config.inipath)]
    return [*options, *(part for plugin in LEFT_OUT for part in ("-p", plugin))]
