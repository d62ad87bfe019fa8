"""Traces for tests, each in a fork of one process that loads torch once: a child of its own takes seconds to begin.

python warm_traces.py     requests as JSON lines on standard input, a ChildLine for each on standard output
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.process.results import ChildLine, TraceRequest, TraceResult

ROOT = Path(__file__).parents[1]
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore"}


def trace_all(requests: Sequence[TraceRequest]) -> list[TraceResult]:
    """What the traces answer, in the order they are asked for.

    Raises:
        UserError: one of them failed.
    """
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve())],
        input=b"".join(msgspec.json.encode(request) + b"\n" for request in requests),
        env={**os.environ, **QUIET, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    lines = [msgspec.json.decode(line, type=ChildLine) for line in done.stdout.splitlines()]
    for line in lines:
        if line.error is not None:
            raise UserError(line.error)
    return [line.result for line in lines if line.result is not None]


def _answered(request: TraceRequest) -> bytes:
    """A fork's answer, as a line."""
    from vramtui.estimators.traced.process.child import trace_here  # noqa: PLC0415 - for the warm process alone

    reader, writer = os.pipe()
    if not os.fork():
        os.dup2(2, 1)  # what the code prints is not the answer
        try:
            answer = ChildLine(result=trace_here(request, lambda _progress: None))
        except BaseException as error:  # noqa: BLE001 - it is the answer
            answer = ChildLine(error=f"{type(error).__name__}: {error}")
        with os.fdopen(writer, "wb") as pipe:
            pipe.write(msgspec.json.encode(answer))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read()
    os.wait()
    return said or msgspec.json.encode(ChildLine(error="the fork ended without an answer"))


def main() -> None:
    """Load torch, then answer."""
    import vramtui.estimators.traced.session  # noqa: F401,PLC0415 - loaded once for all forks

    asked = [msgspec.json.decode(line, type=TraceRequest) for line in sys.stdin.buffer]
    for request in asked:
        sys.stdout.buffer.write(_answered(request) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
