"""Start a dry run on fake tensors in a child process and wait for it; this side never imports torch."""

import contextlib
import json
import math
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.dryrun import result as results
from vramtui.dryrun.child import FROM_SIGNAL, run_supervised
from vramtui.dryrun.job_command import DryRunJob, Interpreter, RunTools, job_interpreter
from vramtui.dryrun.reads import CHEAP, LONGER, NUMBERS, leads_on
from vramtui.dryrun.result import BOUNDED, DECIDED, ChildLine, DryRun, Progress, TraceReads, TraceRequest
from vramtui.dryrun.shield import supervised
from vramtui.probe.peak import is_own
from vramtui.probe.reads import EMPTY

_WHAT = re.compile(r"^  what\(\):  (.+)$", re.MULTILINE)  # of an exception in C++ that was not caught
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in ', re.MULTILINE)  # as faulthandler writes it
START = Path(__file__).with_name("start.py")
CRASHES = {FROM_SIGNAL + sign for sign in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)}
# One thread is enough where nothing is computed, and what the code says comes in the order that it is said, also when
# it dies.
VARIABLES = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
VARIABLES |= dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), "")
VARIABLES["PYTHONUNBUFFERED"] = "1"


class TraceTimeoutError(UserError):
    """The trace took longer than it was given; the sentence says what it was doing."""


class TraceFailedError(UserError):
    """The code could not be traced to its end: `frames` are the user's own lines that led there, outermost first,
    `output` the last lines that it printed; `beyond_trace` is whether it may be a limit of the trace.
    """

    def __init__(self, answer: ChildLine, output: str) -> None:
        super().__init__(answer.error or "")
        self.frames, self.beyond_trace = answer.frames, answer.beyond_trace
        self.output = tuple(output.splitlines()[-20:])


def trace(
    request: TraceRequest,
    *,
    interpreter: Interpreter | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    timeout: float | None = None,
    show_output: bool = False,
) -> DryRun:
    """Trace as `run_fake` does, with `interpreter`, or the job's own Python, as `job_interpreter` finds it."""
    python = str((interpreter or job_interpreter(request.path, engine="fake")).path)
    job = DryRunJob(words=(python,), folder=str(Path.cwd()), environment=dict(os.environ), timeout=timeout)
    with tempfile.TemporaryFile() as output:
        tools = RunTools(lambda _: None, Path(), progress, cancel)  # no probe is heard, and no driver built
        return run_fake(request, job, None if show_output else output, tools)


def run_fake(request: TraceRequest, job: DryRunJob, output: IO[bytes] | None, tools: RunTools) -> DryRun:
    """Trace, and where the code reads unknown values, again with other ones, within `CHEAP` or the job's timeout.

    Raises:
        UserError: as `_run_once` has it.
    """
    began = time.monotonic()
    result, reads = _run_once(request, job, output, tools)
    result = replace(result, steps=last_step(result) + 1)
    seconds, limit = time.monotonic() - began, max(CHEAP, job.timeout or 0)
    if job.other_way is None or request.keep_files:
        return results.with_rest(result, None)
    again, quiet, own = replace(job, timeout=2 * seconds + LONGER, keyboard=None), replace(tools, progress=None), result
    with tempfile.TemporaryFile() as unread:
        if (reads.lines or reads.bounded) and (1 + len(NUMBERS)) * seconds < limit:
            result = by_other_runs(
                own, reads, lambda how: _run_once(replace(request, other_numbers=how), again, unread, quiet)
            )
        longer = None
        if own.cut_short and own.out_of_memory is None and time.monotonic() - began < limit:
            with contextlib.suppress(UserError):
                longer = _run_once(replace(request, rest=True), again, unread, quiet)[0]
                done = (row.step for row in longer.timeline if row.phase == "step")
                longer = replace(longer, steps=max(done, default=-1) + 1)
    return results.with_rest(result, longer)


def by_other_runs(own: DryRun, reads: TraceReads, rerun: Callable[[str], tuple[DryRun, TraceReads]]) -> DryRun:
    """The result, as `by_numbers` has it, and what the job takes if no unknown mask holds anywhere."""
    result = by_numbers(own, reads, with_other_numbers(rerun)) if reads.lines else own
    with contextlib.suppress(UserError):
        empty = rerun(EMPTY)[0] if any(results.PLACES_COUNTED in note for note in own.warnings) else own
        if not results.is_alike(own, empty):
            note = f"{BOUNDED}{format_bytes(empty.peak_allocated, 2)} allocated at the peak with empty masks"
            return replace(result, warnings=(*result.warnings, note), bounded=True)
    return result


def with_other_numbers(rerun: Callable[[str], Any]) -> list[Any]:
    """Runs of a job that read other numbers, of each kind of `NUMBERS` the first that does not fail."""
    runs = []
    for kind in NUMBERS:
        for numbers in kind:
            with contextlib.suppress(UserError):
                runs.append(rerun(numbers))
                break
    return runs


def by_numbers(own: DryRun, reads: TraceReads, others: list[tuple[DryRun, TraceReads]]) -> DryRun:
    """The result, not bounded by what it read if that decided nothing in runs that read other numbers."""
    differing = [
        other
        for other, asked in others
        if not results.is_alike(own, other)
        # Where fewer steps were taken, the same was asked for less often.
        or asked.requests.keys() != reads.requests.keys()
        or (last_step(other) == last_step(own) and asked.requests != reads.requests)
    ]
    notes = [note for note in own.warnings if not note.startswith(DECIDED)]
    decided = next((note for note in own.warnings if note.startswith(DECIDED)), "")
    if len(others) < len(NUMBERS):
        lines = [line for line in reads.lines if leads_on(line)]
        note = decided or "\n  ".join((DECIDED, *lines))
        return replace(own, warnings=(*notes, note), bounded=True) if decided or lines else own
    if not differing:
        return replace(own, warnings=tuple(notes), bounded=reads.bounded)
    low, *_, high = sorted(one.peak_allocated for one in (own, *differing))
    decided = decided or "\n  ".join((DECIDED, *reads.lines))
    figures = f"{format_bytes(low, 2)} to {format_bytes(high, 2)} allocated at the peak with these and other numbers"
    bounds = own.bounds | dict.fromkeys(re.findall(r"^  (.+?:\d+)(?:: |$)", decided, re.MULTILINE)[:1], (low, high))
    return replace(own, warnings=(*notes, f"{decided}\n  {figures}"), bounded=True, bounds=bounds)


def last_step(result: DryRun) -> int:
    return max((row.step for row in result.timeline), default=-1)


def _run_once(
    request: TraceRequest, job: DryRunJob, output: IO[bytes] | None, tools: RunTools
) -> tuple[DryRun, TraceReads]:
    """Trace in a child process, which ends when this one does. Raises TraceFailedError if the code cannot be traced,
    TraceTimeoutError if it took too long, CancelledError if it was cancelled, and after Ctrl-C KeyboardInterrupt with a
    sentence that says what the trace was doing. The only word of `job` is its Python; `output` is as of
    `run_supervised`, and the tools are told of each phase that has ended, from this thread.
    """
    answer, rest, until = ChildLine(), b"", time.monotonic() + (job.timeout or math.inf)
    reads = TraceReads(lines=(), requests={}, bounded=False)
    last: Progress | None = None
    with tempfile.TemporaryDirectory(prefix="vramtui-", ignore_cleanup_errors=True) as folder:
        answers, scratch = Path(folder, "answers"), Path(folder, "scratch")
        answers.touch()
        scratch.mkdir()
        asked = request if request.keep_files else replace(request, scratch=str(scratch))
        Path(folder, "request").write_text(json.dumps(msgspec.to_builtins(asked)), encoding="ascii")

        def is_answered() -> bool:
            nonlocal answer, last, reads, rest
            *lines, rest = (rest + stream.read()).split(b"\n")
            for line in lines:
                answer = msgspec.json.decode(line, type=ChildLine)
                reads = answer.reads or reads
                if answer.progress is not None:
                    last = last if answer.progress.notice else answer.progress
                    if tools.progress is not None:
                        tools.progress(answer.progress)
            is_over = answer.error is not None or answer.result is not None
            if not is_over and time.monotonic() > until:
                raise TraceTimeoutError(f"the trace was ended after {job.timeout:g} s, {_words(last)}")
            return is_over

        command = supervised([*job.words, str(START), "vramtui.dryrun.fake.child", folder], (folder,))
        with answers.open("rb") as stream:
            try:
                code = run_supervised(job, command, {**job.environment, **VARIABLES}, output, tools.cancel, is_answered)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"the trace was stopped {_words(last)}") from None
            is_answered()
    if answer.result is not None:
        return answer.result, reads
    printed = ""
    if output is not None:
        output.seek(0)
        printed = output.read().decode(errors="replace")
    if answer.error is None:
        answer = ChildLine(error=_sentence(code, printed), beyond_trace=code in CRASHES)
    raise TraceFailedError(answer, printed)


def _words(last: Progress | None) -> str:
    """Say where the trace was by its last progress: the phase, its step and the user's line."""
    if last is None:
        return "while PyTorch was loaded, before the code began"
    step = f" of step {last.step}" if last.step >= 0 else ""
    if last.line is None:
        return f"after {last.phase}{step}"
    line = f", at {last.line.replace(f'{Path.cwd()}{os.sep}', '')}" if last.line else ""
    return f"in {last.phase}{step}{line}" if step else f"while the {last.phase} was made{line}"


def _sentence(code: int, printed: str) -> str:
    """How a child ended by its exit code, where the code was by what faulthandler wrote, and whose that is."""
    plain = f"the job ended with {code} before the dry run was done"
    if code not in CRASHES:
        return plain
    own = (f" at {match['file']}:{match['line']}" for match in _FRAME.finditer(printed) if is_own(match["file"]))
    what = _WHAT.search(printed)
    why = f": {what[1]}" if what else ""
    return (
        f"{plain}: a library in C++ ended it by {signal.Signals(code - FROM_SIGNAL).name}{next(own, '')}{why}; where "
        "the same line runs without a trace, that is a limit of the trace, and then trace a function of the file that "
        "goes without it (FILE.py:FUNCTION)"
    )
