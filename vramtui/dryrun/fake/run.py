"""Start a dry run on fake tensors in a child process and wait for it; this side never imports torch."""

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
from typing import IO

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.dryrun.child import FROM_SIGNAL, run_supervised
from vramtui.dryrun.job_command import DryRunJob, Interpreter, job_interpreter
from vramtui.dryrun.result import ChildLine, DryRun, Progress, TraceRequest
from vramtui.dryrun.shield import supervised
from vramtui.probe.peak import is_own

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
        return run_fake(request, job, None if show_output else output, progress, cancel)


def run_fake(
    request: TraceRequest,
    job: DryRunJob,
    output: IO[bytes] | None,
    progress: Callable[[Progress], None] | None,
    cancel: threading.Event | None,
) -> DryRun:
    """Trace in a child process, which ends when this one does. Raises TraceFailedError if the code cannot be traced,
    TraceTimeoutError if it took too long, CancelledError if `cancel` was set, and after Ctrl-C KeyboardInterrupt with a
    sentence that says what the trace was doing. The only word of `job` is its Python; `output` and `cancel` are as of
    `run_supervised`, and `progress` is called from this thread for each phase that has ended.
    """
    answer, rest, until = ChildLine(), b"", time.monotonic() + (job.timeout or math.inf)
    last: Progress | None = None
    with tempfile.TemporaryDirectory(prefix="vramtui-", ignore_cleanup_errors=True) as folder:
        answers, scratch = Path(folder, "answers"), Path(folder, "scratch")
        answers.touch()
        scratch.mkdir()
        asked = request if request.keep_files else msgspec.structs.replace(request, scratch=str(scratch))
        Path(folder, "request").write_text(json.dumps(msgspec.to_builtins(asked)), encoding="ascii")

        def is_answered() -> bool:
            nonlocal answer, last, rest
            *lines, rest = (rest + stream.read()).split(b"\n")
            for line in lines:
                answer = msgspec.json.decode(line, type=ChildLine)
                if answer.progress is not None:
                    last = last if answer.progress.notice else answer.progress
                    if progress is not None:
                        progress(answer.progress)
            is_over = answer.error is not None or answer.result is not None
            if not is_over and time.monotonic() > until:
                raise TraceTimeoutError(f"the trace was ended after {job.timeout:g} s, {_words(last)}")
            return is_over

        command = supervised([*job.words, str(START), "vramtui.dryrun.fake.child", folder], (folder,))
        with answers.open("rb") as stream:
            try:
                code = run_supervised(job, command, {**job.environment, **VARIABLES}, output, cancel, is_answered)
            except KeyboardInterrupt:
                raise KeyboardInterrupt(f"the trace was stopped {_words(last)}") from None
            is_answered()
    if answer.result is not None:
        return answer.result
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
