"""Peaks against limits and against the baseline, for one run of pytest."""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import pytest

from vramtui.api.baseline import (
    TOTALS,
    BaselineEntry,
    Total,
    entry_of,
    over_baseline,
    read_baseline,
    tolerance_of,
    write_baseline,
)
from vramtui.api.tracing import answer_of, dry_run
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import format_bytes, parse_size
from vramtui.core.estimate.devices import DEFAULT_CARD
from vramtui.dryrun.command import parse_gpu
from vramtui.dryrun.job_command import DryRunJob, Engine
from vramtui.dryrun.result import DryRun
from vramtui.pytest_plugin.client import TestProcess, shared_arguments

# What pytest (9) prints of a test that it skipped, and of one that failed, up to its last line.
SKIPPED = re.compile(r"^SKIPPED \[1\] .*?(?::(\d+))?: (.*)$", re.MULTILINE)
FAILURE = re.compile(
    r"^=+ (?:FAILURES|ERRORS) =+\n(?:_+ .* _+\n)?(.*?)^(?:=+ short test summary|\d+ (?:failed|error|passed))",
    re.MULTILINE | re.DOTALL,
)


class VramLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What a marker asks: the most bytes of one total (None: only the baseline says), on which card, for how long.

    Engine `cuda` runs it with PyTorch's CUDA build on a simulated GPU.
    """

    peak: int | None = None
    device: str = DEFAULT_CARD
    memory: str | int | None = None
    of: Total = "allocated"
    steps: int = 3
    tolerance: float = 0.0
    engine: Engine = "fake"


def limit_of(marker: pytest.Mark) -> VramLimit:
    """The marker's arguments.

    Raises:
        UserError: one is not known, or its value is none.
    """
    if marker.args:
        raise UserError('vram takes its arguments by name: @pytest.mark.vram(peak="9.5 GiB", device="A100-80GB")')
    return checked_limit(dict(marker.kwargs))


def checked_limit(given: dict[str, Any]) -> VramLimit:
    """These arguments, sizes read from text.

    Raises:
        UserError: one is not known, or its value is none.
    """
    for name in given:
        if name not in VramLimit.__struct_fields__:
            raise UserError(f"vram has no argument {name!r}{nearest(name, VramLimit.__struct_fields__)}")
    if isinstance(given.get("peak"), str):
        given["peak"] = parse_size(given["peak"])
    if isinstance(given.get("tolerance"), str):
        given["tolerance"] = tolerance_of(given["tolerance"])
    if given.get("of", "allocated") not in TOTALS:
        raise UserError(f"vram: of={given['of']!r} is none of {', '.join(TOTALS)}")
    limit = VramLimit(**given)
    if limit.engine not in get_args(Engine):
        raise UserError(f"vram: engine={limit.engine!r} is not one of {', '.join(get_args(Engine))}")
    if limit.engine == "cuda" and (limit.peak is None or limit.memory is not None):
        raise UserError("vram: engine='cuda' needs peak=…, and takes the GPU's own memory: it has no baseline")
    return limit


class VramRun:
    """All vram tests of one run: the baseline as it was, what was measured, and the process that measures.

    Args:
        root: lines of code are named from this folder.
        path: the baseline file.
        update: write what was measured into it instead of comparing.
    """

    def __init__(self, root: Path, path: Path, *, update: bool) -> None:
        self.measured: dict[str, BaselineEntry] = {}
        self._root = root
        self._path = path
        self._update = update
        self._process: TestProcess | None = None
        self._shrunk: list[str] = []

    def reports(self, item: pytest.Item, marker: pytest.Mark) -> Iterator[pytest.TestReport]:
        """The reports of the test as it ran in the process that traces, its call held against the limit."""
        try:
            limit = limit_of(marker)
            if limit.engine == "cuda":
                yield cuda_report(item, limit)
                return
            answer, result = self._process_for(item).run(item, limit)
        except UserError as error:
            yield failed_report(item, str(error))
            return
        for report in answer:
            if report.when == "call" and report.passed and result is not None:
                wrong = self.verdict(item.nodeid, result, limit)
                if wrong is not None:
                    report.outcome, report.longrepr = "failed", wrong
            yield report

    def verdict(self, name: str, result: DryRun, limit: VramLimit) -> str | None:
        """Why the test fails; None where it does not."""
        if result.out_of_memory is not None:
            return f"out of memory: {result.out_of_memory}"
        now = entry_of(result, self._root)
        self.measured[name] = now
        size = now.total(limit.of)
        if limit.peak is not None and size > limit.peak:
            largest = "\n".join(f"  {line}: {format_bytes(peak, 2)}" for line, peak in list(now.lines.items())[:5])
            over = f"peak {limit.of} is {format_bytes(size, 2)} ({size:,} B)"
            return f"{over}, {size - limit.peak:,} B over the limit of {format_bytes(limit.peak, 2)}\n{largest}"
        if self._update:
            return None
        before = read_baseline(self._path).get(name)
        if before is None:
            peak = f"{format_bytes(size, 2)} of {limit.of}"
            first = (
                f"nothing is accepted yet: it peaks at {peak}; pytest --vram-update writes that to {self._path.name}"
            )
            return None if limit.peak is not None else first
        if size < before.total(limit.of):
            self._shrunk.append(f"{name}: {before.total(limit.of) - size:,} B less than the baseline")
        return over_baseline(before, now, of=limit.of, tolerance=limit.tolerance)

    def handed_over(self) -> dict[str, Any]:
        """What a worker of xdist measured, as plain values."""
        return {"measured": msgspec.to_builtins(self.measured), "shrunk": self._shrunk}

    def take(self, output: dict[str, Any]) -> None:
        self.measured |= msgspec.convert(output["measured"], dict[str, BaselineEntry])
        self._shrunk += output["shrunk"]

    def write(self) -> None:
        """Put what was measured into the baseline, beside what it has of others, where that was asked for."""
        if self._update and self.measured:
            write_baseline(self._path, read_baseline(self._path) | self.measured)

    def summary(self) -> Iterator[str]:
        """Lines for the end of the run."""
        if self._update:
            yield f"{len(self.measured)} peaks written to {self._path.name}"
        elif self._shrunk:
            yield from (*sorted(self._shrunk), "pytest --vram-update accepts what is less now")

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _process_for(self, item: pytest.Item) -> TestProcess:
        """The process for the item's file; only one is alive at a time."""
        if self._process is None or self._process.path != item.path:
            self.close()
            self._process = TestProcess(item.path, item.config)
        return self._process


class VramFixture:
    """The fixture `vram` of one test."""

    def __init__(self, run: VramRun, name: str) -> None:
        self._run = run
        self._name = name

    def dry_run(self, *arguments: Any, **options: Any) -> DryRun:  # noqa: ANN401 - those of `vramtui.dry_run`
        """Run `vramtui.dry_run`; an error fails the test in one sentence."""
        try:
            return dry_run(*arguments, **options)
        except UserError as error:
            sentence = str(error)
        pytest.fail(sentence, pytrace=False)  # outside of `except`: pytest would show what it came from

    def check(self, result: DryRun, name: str = "", **limit: Any) -> None:  # noqa: ANN401 - those of the marker
        """Fail the test where `result` is over `peak` or over the baseline's entry of this test (and `name`)."""
        wrong = self._run.verdict(f"{self._name}[{name}]" if name else self._name, result, checked_limit(limit))
        if wrong is not None:
            pytest.fail(wrong, pytrace=False)


def cuda_report(item: pytest.Item, limit: VramLimit) -> pytest.TestReport:
    """The report of a test that runs by itself on engine `cuda`, with this Python's CUDA build of PyTorch.

    Raises:
        UserError: it used no CUDA, or its GPU is not known.
    """
    name = f"{item.path}::{item.nodeid.partition('::')[2]}"
    words = (sys.executable, "-m", "pytest", *shared_arguments(item.config), "-q", "-rs", "--color=no", name)
    job = DryRunJob(words=words, folder=str(Path.cwd()), environment=dict(os.environ), engine="cuda", steps=limit.steps)
    answer = answer_of(job, parse_gpu(limit.device))
    result, printed = answer.result, "\n".join(answer.output)
    if result is None:
        skipped = SKIPPED.search(printed)
        if skipped is not None:
            return _report(item, "skipped", (str(item.path), int(skipped[1] or 0), f"Skipped: {skipped[2]}"))
        failure = FAILURE.search(printed)
        return failed_report(
            item, answer.error if failure is None else f"it fails on {answer.gpu}:\n{failure[1].strip()}"
        )
    if result.verdict == "does not fit":
        return failed_report(item, f"out of memory on {answer.gpu}: {result.out_of_memory}")
    size = {"allocated": result.peak_allocated, "reserved": result.peak_reserved, "process": result.process}[limit.of]
    if limit.peak is not None and size > limit.peak:
        over = f"peak {limit.of} is {format_bytes(size, 2)} ({size:,} B) on {answer.gpu}"
        return failed_report(item, f"{over}, {size - limit.peak:,} B over the limit of {format_bytes(limit.peak, 2)}")
    return _report(item, "passed", None)


def failed_report(item: pytest.Item, sentence: str) -> pytest.TestReport:
    """A report of a call that failed with a sentence."""
    return _report(item, "failed", sentence)


def _report(
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
