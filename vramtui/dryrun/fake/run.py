"""Start a trace in a child process and wait for it; this side never imports torch."""

import contextlib
import functools
import io
import math
import os
import pickle
import re
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.dryrun.child import FROM_SIGNAL, let_others_go_first
from vramtui.dryrun.job_command import Interpreter, job_interpreter
from vramtui.dryrun.result import ChildLine, DryRun, Progress, TraceRequest
from vramtui.dryrun.shield import end_supervised, supervised

_OURS = str(Path(__file__).parents[2])
_WHAT = re.compile(r"^  what\(\):  (.+)$", re.MULTILINE)  # of an exception in C++ that was not caught
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in ', re.MULTILINE)  # as faulthandler writes it
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python3")
START = Path(__file__).with_name("start.py")
_CHILD = "vramtui.dryrun.fake.child"
CRASHES = {FROM_SIGNAL + sign for sign in (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)}
_LOOK_EVERY = 0.05  # seconds
# One thread is enough where nothing is computed, and what the code says comes in the order that it is said, also when
# it dies.
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1"}
NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ROCR_VISIBLE_DEVICES": ""}


class TraceCancelledError(Exception):
    """The trace was called off."""


class TraceTimeoutError(UserError):
    """The trace took longer than it was given; the sentence says what it was doing."""


class TraceFailedError(UserError):
    """The code could not be traced to its end.

    Attributes:
        frames: the user's own lines that led there, outermost first.
        output: the last lines that the code itself printed.
        beyond_trace: whether it is, or may be, a limit of the trace and none of the code.
    """

    def __init__(self, sentence: str, frames: tuple[str, ...], output: tuple[str, ...], *, beyond_trace: bool) -> None:
        super().__init__(sentence)
        self.frames, self.output, self.beyond_trace = frames, output, beyond_trace


class ChildStart(NamedTuple):
    """A child process: its Python, its variables, its folder (None: this one), and whether others go first."""

    python: str
    environment: Mapping[str, str]
    folder: str | None = None
    is_idle: bool = False


def trace(
    request: TraceRequest,
    *,
    interpreter: Interpreter | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    timeout: float | None = None,
    show_output: bool = False,
) -> DryRun:
    """Trace with `interpreter`, or the job's own Python, as `job_interpreter` finds it.

    Args: as `run_child` has them; `show_output` lets what the code prints through to standard error.

    Raises:
        UserError: no torch that traces is within reach, or one of `run_child`.
    """
    start = ChildStart(str((interpreter or job_interpreter(request.path)).path), os.environ)
    with tempfile.TemporaryFile() as errors:
        return run_child(request, start, progress, cancel, timeout, None if show_output else errors)


def run_child(
    request: TraceRequest,
    start: ChildStart,
    progress: Callable[[Progress], None] | None,
    cancel: threading.Event | None,
    timeout: float | None,
    errors: IO[bytes] | None,
) -> DryRun:
    """Trace in a child process, which ends when this one does.

    Args:
        request: what to trace on which card.
        start: how to start the child.
        progress: called for each phase that has ended, from this thread.
        cancel: set it from another thread to end the child and raise TraceCancelledError.
        timeout: seconds after which the child is ended.
        errors: where to write what the code prints, kept for a failure; None: through to standard error.

    Raises:
        TraceFailedError: the code cannot be traced.
        TraceTimeoutError: it took too long.
        TraceCancelledError: `cancel` was set.
        KeyboardInterrupt: somebody pressed Ctrl-C; its argument is a sentence that says what the trace was doing.
    """
    answer, rest, until = ChildLine(), b"", time.monotonic() + (timeout or math.inf)
    last: Progress | None = None
    with tempfile.TemporaryDirectory(prefix="vramtui-", ignore_cleanup_errors=True) as scratch:
        asked = request if request.keep_files else msgspec.structs.replace(request, scratch=scratch)
        child = subprocess.Popen(  # noqa: S603 - our own module, by this Python
            supervised([start.python, str(START), _CHILD], (scratch,)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**start.environment, **QUIET},
            cwd=start.folder,
            pass_fds=() if request.keyboard is None else (request.keyboard,),
            # Ctrl-C is for this process, which then ends the child and whatever it has started.
            start_new_session=True,
        )
        assert child.stdin is not None
        assert child.stdout is not None
        if start.is_idle:
            let_others_go_first(child.pid)
        try:
            with contextlib.suppress(BrokenPipeError):
                child.stdin.write(pickled(asked).hex().encode() + b"\n")
                child.stdin.flush()
            while answer.error is None and answer.result is None:
                if cancel is not None and cancel.is_set():
                    raise TraceCancelledError
                if time.monotonic() > until:
                    raise TraceTimeoutError(f"the trace was ended after {timeout:g} s, {_words(last)}")
                if not select.select([child.stdout], [], [], _LOOK_EVERY)[0]:
                    continue
                if not (read := os.read(child.stdout.fileno(), 1 << 16)):
                    break
                *lines, rest = (rest + read).split(b"\n")
                for line in lines:
                    answer = msgspec.json.decode(line, type=ChildLine)
                    if answer.progress is not None:
                        last = last if answer.progress.notice else answer.progress
                        if progress is not None:
                            progress(answer.progress)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"the trace was stopped {_words(last)}") from None
        finally:
            code = end_supervised(child)
            for pipe in (child.stdin, child.stdout):
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
    if answer.result is not None:
        return answer.result
    text = ""
    if errors is not None:
        errors.seek(0)
        text = errors.read().decode(errors="replace")
    printed = tuple(text.splitlines()[-20:])
    if answer.error is not None:
        raise TraceFailedError(answer.error, answer.frames, printed, beyond_trace=answer.beyond_trace)
    raise TraceFailedError(_sentence(code, text), (), printed, beyond_trace=code in CRASHES)


def _words(last: Progress | None) -> str:
    """Say where the trace was by its last progress: the phase, its step and the user's line."""
    if last is None:
        return "while PyTorch was loaded, before the code began"
    step = f" of step {last.step}" if last.step >= 0 else ""
    if last.line is None:
        return f"after {last.phase}{step}"
    line = f", at {last.line.replace(f'{Path.cwd()}{os.sep}', '')}" if last.line else ""
    return f"in {last.phase}{step}{line}" if step else f"while the {last.phase} was made{line}"


class _Pickler(pickle.Pickler):
    """Writes Structs as calls by name, which a Python without msgspec can make too."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, msgspec.Struct):
            return functools.partial(type(value), **msgspec.structs.asdict(value)), ()
        return NotImplemented


def pickled(request: TraceRequest) -> bytes:
    """The request as the child reads it, under another Python and without msgspec."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(request)
    return buffer.getvalue()


def _sentence(code: int, errors: str) -> str:
    """How a child ended by its exit code (128 and a signal's number), where the code was, and whose that is.

    `errors` is its standard error, with the frames that Python's faulthandler wrote; "" if unknown.
    """
    plain = f"the job ended with {code} before the dry run was done"
    if code not in CRASHES:
        return plain
    what, place = _WHAT.search(errors), ""
    for match in _FRAME.finditer(errors):
        if not match["file"].startswith(("<", _OURS)) and not any(part in match["file"] for part in _LIBRARIES):
            place = f" at {match['file']}:{match['line']}"
            break
    why = f": {what[1]}" if what else ""
    return (
        f"{plain}: a library in C++ ended it by {signal.Signals(code - FROM_SIGNAL).name}{place}{why}; where the same "
        "line runs without a trace, that is a limit of the trace, and then trace a function of the file that goes "
        "without it (FILE.py:FUNCTION)"
    )
