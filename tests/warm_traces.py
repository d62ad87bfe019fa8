"""Traces for tests, each in a fork of one process that loads torch once: a child of its own takes seconds to begin.

python warm_traces.py     `[code, request]` as JSON lines on standard input, a ChildLine for each on standard output

The code is Python that runs as it is in the fork, before the trace.
"""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import msgspec

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.estimators.traced.process.results import ChildLine, TraceRequest, TraceResult

ROOT = Path(__file__).parents[1]
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


class WarmTraces:
    """Answers as `traced.process.run.trace` does, from a process that is started once."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._turn = threading.Lock()

    def trace(self, request: TraceRequest, **_how: object) -> TraceResult:
        """What the trace answers.

        Raises:
            UserError: the code cannot be traced.
        """
        of_torch = {name: value for name, value in os.environ.items() if name.startswith("TORCH_")}
        answer = self.answer(request, f"import os; os.environ.update({of_torch!r})")
        if answer.result is None:
            raise UserError(answer.error or "no answer")
        return answer.result

    def answer(self, request: TraceRequest, before: str = "") -> ChildLine:
        """The trace's last line, after `before` has run."""
        with self._turn:
            return self._asked(request, before)

    def _asked(self, request: TraceRequest, before: str) -> ChildLine:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).resolve())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, **QUIET, "PYTHONPATH": str(ROOT)},
            )
            atexit.register(self._process.kill)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode((before, request)) + b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=ChildLine)


WARM = WarmTraces()


def _answered(before: str, request: TraceRequest) -> bytes:
    """A fork's answer, as a line."""
    from vramtui.estimators.traced.process.child import trace_here  # noqa: PLC0415 - for the warm process alone

    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(2, 1)  # what the code prints is not the answer
        try:
            exec(compile(before, "before", "exec"), {})  # noqa: S102 - the test's own
            answer = ChildLine(result=trace_here(request, lambda _progress: None))
        except BaseException as error:  # noqa: BLE001 - it is the answer
            text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
            answer = ChildLine(error=text, beyond_trace=isinstance(error, BeyondTraceError))
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(msgspec.json.encode(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.wait()
    return said or msgspec.json.encode(ChildLine(error="the fork ended without an answer"))


def main() -> None:
    """Load torch, then answer until nobody asks any more."""
    # Loaded once for all forks: torch, what fake tensors and checkpointing bring along, and transformers' own.
    import torch._dynamo  # noqa: PLC0415 - for the warm process alone
    import torch._inductor.config  # noqa: PLC0415 - as above
    import torch.utils.checkpoint  # noqa: F401,PLC0415 - as above

    import vramtui.estimators.traced.session  # noqa: F401,PLC0415 - as above

    with contextlib.suppress(ImportError):
        import transformers.models.llama.modeling_llama  # noqa: F401,PLC0415 - as above

    for line in iter(sys.stdin.buffer.readline, b""):
        before, request = msgspec.json.decode(line, type=tuple[str, TraceRequest])
        sys.stdout.buffer.write(_answered(before, request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
