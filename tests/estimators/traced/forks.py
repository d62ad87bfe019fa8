"""Trace several scripts, each in a fork of one process that loads torch once: `python forks.py REQUESTS ANSWERS`.

REQUESTS is a JSON list of `[code, request]`: a TraceRequest, and Python that runs as it is before it. ANSWERS becomes
the list of ChildLines that the child process of a trace would have written.
"""

import os
import subprocess
import sys
from pathlib import Path

import msgspec

from vramtui.estimators.traced.process.results import ChildLine, TraceRequest

ASKED = list[tuple[str, TraceRequest]]


def traced_in_forks(folder: Path, asked: ASKED) -> list[ChildLine]:
    """The answers to all requests; files are kept in `folder`."""
    requests, answers = folder / "requests.json", folder / "answers.json"
    requests.write_bytes(msgspec.json.encode(asked))
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    subprocess.run([sys.executable, __file__, requests, answers], check=True, cwd=folder, env=environment)
    return msgspec.json.decode(answers.read_bytes(), type=list[ChildLine])


def in_a_fork(code: str, request: TraceRequest) -> ChildLine:
    """What one request is answered."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        line = ChildLine(error="it ended without an answer")
        try:
            line = answer(code, request)
        except BaseException as error:  # noqa: BLE001 - it is the answer
            line = ChildLine(error=f"{type(error).__name__}: {error}")
        finally:
            os.write(writer, msgspec.json.encode(msgspec.structs.replace(line, frames=())))
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        said = answers.read()
    os.waitpid(child, 0)
    return msgspec.json.decode(said, type=ChildLine) if said else ChildLine(error="it ended without an answer")


def answer(code: str, request: TraceRequest) -> ChildLine:
    """The answer of this process, which is of no use for anything else afterwards."""
    from vramtui.core.base.errors import UserError  # noqa: PLC0415 - pytest needs none of it
    from vramtui.estimators.traced.process.child import trace_here  # noqa: PLC0415 - as above

    exec(compile(code, "before", "exec"), {})  # noqa: S102 - the test's own
    try:
        return ChildLine(result=trace_here(request, lambda _progress: None))
    except UserError as error:
        return ChildLine(error=str(error))


def main(source: str, target: str) -> None:
    """Answer all requests of a file."""
    # What every trace loads is loaded once, before the forks.
    import torch._dynamo  # noqa: PLC0415 - as above
    import torch._inductor.config  # noqa: F401,PLC0415 - as above

    import vramtui.estimators.traced.session  # noqa: F401,PLC0415 - as above

    asked = msgspec.json.decode(Path(source).read_bytes(), type=ASKED)
    Path(target).write_bytes(msgspec.json.encode([in_a_fork(*one) for one in asked]))


if __name__ == "__main__":
    main(*sys.argv[1:])
