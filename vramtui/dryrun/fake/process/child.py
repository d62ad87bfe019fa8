"""The child process: reads a request, runs the code on the simulated card, writes lines of JSON.

`start.py` runs it with a TraceRequest as a line on standard input, a pickle in hexadecimal; the end of standard input
is the end of this process too. What the code itself prints goes to standard error.
"""

import faulthandler
import gc
import importlib
import linecache
import logging
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from io import RawIOBase
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.dryrun.reads import HEALTHY, may_decide
from vramtui.dryrun.result import ChildLine, DryRun, Progress, TraceRequest
from vramtui.dryrun.shield import protect
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.estimators.torch_facts.releases import note_on, release_of

if TYPE_CHECKING:
    from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
    from vramtui.dryrun.fake.session import TraceSession

MOST_LINES = 3  # that a note names
BEAT = 1.0  # seconds between two words of where a running trace is


def main() -> None:
    """Answer one request and end the process at once, whatever threads the code has left behind."""
    faulthandler.enable()  # a library in C++ that ends the process leaves no other word of where that was
    # Torch would complain that there is a CUDA compiler and no card, which is what a trace is for.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    asked = os.fdopen(os.dup(0), "rb", buffering=0)
    # Whoever started this may hold signals back for a job of its own.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    request: TraceRequest = pickle.loads(bytes.fromhex(asked.readline().decode()))  # noqa: S301 - by our own parent
    threading.Thread(target=_end_with, args=(asked,), daemon=True).start()
    typed = os.devnull if request.keyboard is None else request.keyboard
    sys.stdin = open(typed, encoding="utf-8")  # noqa: SIM115,PTH123 - it stands in for the rest of the process

    one_at_a_time = threading.Lock()  # what says where the trace is is a thread of its own

    def say(line: ChildLine) -> None:
        with one_at_a_time:
            answers.write(msgspec.json.encode(line) + b"\n")

    try:
        notices = protect(request.scratch) if request.scratch else ()
        for notice in notices:
            start = Progress(phase="start", step=-1, allocated=0, peak_allocated=0, notice=notice)
            say(ChildLine(progress=start))
        load()
        gc.freeze()  # looking through torch for garbage took a tenth of a trace
        result = trace_here(request, lambda progress: say(ChildLine(progress=progress)))
        say(ChildLine(result=with_notices(result, notices)))
    except UserError as error:
        say(ChildLine(error=str(error), frames=_own_frames(error), beyond_trace=isinstance(error, BeyondTraceError)))
    except Exception as error:  # noqa: BLE001 - the parent makes one sentence of it, and shows this above
        traceback.print_exc()
        say(ChildLine(error=f"the trace itself failed: {type(error).__name__}: {error}", beyond_trace=True))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def with_notices(result: DryRun, notices: tuple[str, ...]) -> DryRun:
    """The result with them before its own warnings."""
    return msgspec.structs.replace(result, warnings=(*notices, *result.warnings)) if notices else result


def load() -> None:
    """Load torch and all of this program that a trace needs; then nothing stands in for msgspec any more.

    Raises:
        UserError: torch cannot be loaded.
    """
    try:
        importlib.import_module("torch")
    except Exception as error:  # noqa: BLE001 - a library that is missing, or of another build: whatever it is, it is torch's
        why = str(error).strip().partition("\n")[0] or type(error).__name__
        raise UserError(f"the torch of {sys.executable} cannot be imported, there or in a trace: {why}") from None
    from vramtui.dryrun.fake import session  # noqa: F401,PLC0415 - torch takes seconds to load
    from vramtui.dryrun.fake.kernels import load_all  # noqa: PLC0415 - loads torch

    load_all()
    if sys.modules["msgspec"].__spec__ is None:
        del sys.modules["msgspec"]


def _end_with(asked: RawIOBase) -> None:
    """Wait for the end of standard input, which comes with the end of the process that asked."""
    asked.read(1)
    os._exit(1)


def _own_frames(error: UserError) -> tuple[str, ...]:
    """The lines of the user's own files that led to what the error was made from."""
    cause = error.__cause__
    if cause is None:
        return ()
    from vramtui.dryrun.fake.accounting.call_site import is_users  # noqa: PLC0415 - torch takes seconds to load

    frames = traceback.extract_tb(cause.__traceback__)
    return tuple(
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in frames if is_users(frame.filename)
    )


def trace_here(
    request: TraceRequest, progress: Callable[[Progress], None], code: Callable[[], object] | None = None
) -> DryRun:
    """Trace in this process, which is of no use for anything else with torch afterwards: `code`, or what the request
    names.

    Raises:
        UserError: the code failed, did what cannot be followed, or ran out of the card's memory.
    """
    import torch  # noqa: PLC0415 - takes seconds to load

    from vramtui.dryrun.fake.accounting.phases import TraceFinished  # noqa: PLC0415 - loads torch
    from vramtui.dryrun.fake.process.failures import in_words, out_of_memory  # noqa: PLC0415 - torch takes seconds to load
    from vramtui.dryrun.fake.session import TraceSession  # noqa: PLC0415 - loads torch

    # It tells of every error that it passes on; the code's own words are enough.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    device = request.device
    release = release_of(torch.__version__)
    allocator = CachingAllocator(device.total_memory, AllocatorConfig.parse(request.alloc_conf), release)
    context = cuda_context_bytes(device.capability)
    allocator.hold_outside(context)
    session = TraceSession(
        allocator,
        device,
        steps=request.steps,
        progress=progress,
        ranks=request.ranks,
    )
    session.shielded = bool(request.scratch)
    if note := note_on(session.torch_version):
        session.memory.warn(note)
    signs = Heartbeat(session.tell_place)
    signs.start()
    with session, signs:
        full: str | None = None
        try:
            outcome = _run(request, session) if code is None else code()
            session.phases.finish()
            lines = sorted(filter(None, session.memory.guesses_read))
            if lines and 0 < session.phases.steps_done < request.steps:
                more = f" and {len(lines) - MOST_LINES} lines more" if len(lines) > MOST_LINES else ""
                session.memory.warn(
                    f"the code ended itself after {session.phases.steps_done} of {request.steps} steps, perhaps by "
                    f"unknown values, which read as ones or zeros at {', '.join(lines[:MOST_LINES])}{more}"
                )
        except TraceFinished as finished:
            outcome = finished
        except BaseException as error:  # whatever stopped the code is put in words
            outcome = error
            full = out_of_memory(error, session)
            if full is None:
                raise in_words(error, session) from error
            session.phases.abandon()
        _note_decisions(session.memory)
        result = session.recorder.result(context, full)
        result = msgspec.structs.replace(result, cut_short=isinstance(outcome, TraceFinished))
        del outcome
    return result


def _note_decisions(memory: "SimulatedMemory") -> None:
    """Note the lines that read unknown values, if the way of the code may depend on them."""
    lines = []
    for line, inside in memory.guesses_read.items():
        path, _, number = line.rpartition(":")
        if path and not inside.startswith(HEALTHY) and may_decide("".join(linecache.getlines(path)), int(number)):
            lines.append(f"  {line}: {linecache.getline(path, int(number)).strip()}")
    if lines:
        memory.bounded = True
        memory.warn(
            "\n".join(
                ["bounded: its way may depend on unknown values, which read as ones or zeros:", *lines[:MOST_LINES]]
            )
        )


class Heartbeat(threading.Thread):
    """Says where a trace is, again and again; its own `run`, so that no mode follows it.

    Args:
        tell: says it.
    """

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._tell, self._over = tell, threading.Event()

    def run(self) -> None:
        """Until the trace has ended."""
        self._tell()
        while not self._over.wait(BEAT):
            self._tell()

    def __enter__(self) -> None:
        """The trace has begun."""

    def __exit__(self, *_error: object) -> None:
        """Stop the thread that reports."""
        self._over.set()


def _run(request: TraceRequest, session: "TraceSession") -> Any:
    from vramtui.dryrun.fake.process import script  # noqa: PLC0415 - the code's own imports come with it

    try:
        if request.pickled:
            return script.run_pickled(request.pickled, request.steps, session)
        if request.function is not None:
            return script.run_function(request.path, request.function, request.arguments)
        if request.is_module:
            return script.run_module(request.path, request.arguments)
        return script.run_script(request.path, request.arguments)
    except SystemExit as stop:
        if not stop.code:
            return None
        if isinstance(stop.code, int):
            raise UserError(f"the code ended itself with exit code {stop.code}") from None
        raise UserError(f"the code ended itself: {stop.code}") from None


if __name__ == "__main__":
    main()
