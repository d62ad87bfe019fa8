"""Start a trace in a child process and wait for it; this side never imports torch."""

import importlib.util
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vramtui.core.errors import UserError
from vramtui.estimators.traced.results import Line, Progress, TraceRequest, TraceResult

MISSING = 'tracing runs your code with PyTorch, which is not installed here: pip install "vramtui[trace]"'
_CHILD = "vramtui.estimators.traced.child"
_LAST_WORDS = 400


class TraceCancelled(Exception):
    """The trace was called off."""


def require_torch() -> None:
    """Raise UserError with how to install it where torch is missing; it is looked for, not imported."""
    if importlib.util.find_spec("torch") is None:
        raise UserError(MISSING)


def split_target(target: str) -> tuple[str, str | None]:
    """`FILE.py[:FUNCTION]` as a path and a function's name.

    Raises:
        UserError: there is no such file.
    """
    path, colon, function = target.rpartition(":")
    if not colon or not path or not function.isidentifier():
        path, function = target, ""
    if not Path(path).is_file():
        raise UserError(f"{path} is not a file")
    return str(Path(path).resolve()), function or None


def trace(
    request: TraceRequest,
    *,
    progress: Callable[[Progress], None] | None = None,
    cancel: threading.Event | None = None,
    timeout: float | None = None,
) -> TraceResult:
    """Trace in a child process.

    Args:
        request: what to trace on which card.
        progress: told of each phase that has ended, from this thread.
        cancel: set it from another thread to end the child and raise TraceCancelled.
        timeout: seconds after which the child is ended.

    Raises:
        UserError: torch is missing, the code cannot be traced, or it took too long.
        TraceCancelled: `cancel` was set.
    """
    require_torch()
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(  # noqa: S603 - our own module, by this Python
            [sys.executable, "-m", _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            env=_environment(),
        )
        watcher = _Watcher(child, cancel, timeout)
        watcher.start()
        try:
            result = _converse(child, request, progress)
        finally:
            watcher.over.set()
            child.kill()
            child.wait()
        watcher.raise_reason()
        if result is not None:
            return result
        said.seek(0)
        words = said.read().decode(errors="replace").strip()[-_LAST_WORDS:]
    raise UserError(f"the traced process ended without an answer (exit code {child.returncode}): {words or 'no word'}")


class _Watcher(threading.Thread):
    """Ends the child when it is called off or late."""

    def __init__(self, child: "subprocess.Popen[bytes]", cancel: threading.Event | None, timeout: float | None) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self._child = child
        self._cancel = cancel
        self._timeout = timeout
        self._deadline = None if timeout is None else time.monotonic() + timeout
        self._reason: Exception | None = None

    def run(self) -> None:
        while not self.over.wait(0.05):
            if self._cancel is not None and self._cancel.is_set():
                self._reason = TraceCancelled()
            elif self._deadline is not None and time.monotonic() > self._deadline:
                self._reason = UserError(f"the trace was ended after {self._timeout:g} s without an answer")
            if self._reason is not None:
                self._child.kill()
                return

    def raise_reason(self) -> None:
        """Raise why the child was ended, if it was."""
        if self._reason is not None:
            raise self._reason


def _converse(
    child: "subprocess.Popen[bytes]", request: TraceRequest, progress: Callable[[Progress], None] | None
) -> TraceResult | None:
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(msgspec.json.encode(request))
        child.stdin.close()
    except BrokenPipeError:
        return None
    for text in child.stdout:
        line = msgspec.json.decode(text, type=Line)
        if line.error is not None:
            raise UserError(line.error)
        if line.progress is not None and progress is not None:
            progress(line.progress)
        if line.result is not None:
            return line.result
    return None


def _environment() -> dict[str, str]:
    """One thread is enough where nothing is computed; the program is found however it was started."""
    here = str(Path(__file__).resolve().parents[3])
    paths = [here, *filter(None, [os.environ.get("PYTHONPATH")])]
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **quiet, "PYTHONPATH": os.pathsep.join(paths)}
