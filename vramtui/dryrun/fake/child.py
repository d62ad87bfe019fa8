"""The child process: reads a request, runs the code on the simulated GPU, writes lines of JSON."""

import faulthandler
import gc
import importlib
import importlib.util
import inspect
import linecache
import logging
import os
import pickle
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.errors import BeyondTraceError, UserError, nearest
from vramtui.dryrun.reads import HEALTHY, decides
from vramtui.dryrun.result import ChildLine, DryRun, Progress, TraceRequest
from vramtui.dryrun.shield import protect
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.estimators.torch_facts.releases import note_on, release_of

if TYPE_CHECKING:
    from vramtui.dryrun.fake.accounting.memory import SimulatedMemory
    from vramtui.dryrun.fake.session import TraceSession


def run_script(path: str, arguments: tuple[str, ...]) -> None:
    """The file as `__main__`, with `arguments` behind its name in `sys.argv`."""
    _enter_script_dir(path, arguments)
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, arguments: tuple[str, ...]) -> None:
    """The module as `python -m` runs it, with the current folder in front of the search path."""
    sys.argv = [name, *arguments]
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python sets it itself
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_function(path: str, function: str, arguments: tuple[str, ...]) -> None:
    """Import the file under its own name and call one function of it, without arguments.

    Raises:
        UserError: the file has no such function.
    """
    _enter_script_dir(path, arguments)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    called = getattr(module, function, None)
    if not callable(called):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UserError(f"{path} has no function {function!r}{nearest(function, known)}")
    _refuse_arguments(path, function, called)
    called()


def run_pickled(path: str, steps: int, session: "TraceSession") -> None:
    """Call a pickled function of this user's process `steps` times; its modules go to "cuda", its optimizers follow."""
    with open(path, "rb") as file:  # noqa: PTH123 - one file is read twice
        preparation = pickle.load(file)  # noqa: S301 - our own process wrote it, in a folder of its own
        sys.path[:] = preparation.pop("sys_path", sys.path)
        spawn.prepare(preparation)
        step, arguments = pickle.load(file)  # noqa: S301 - as above
    session.begin_again()
    _move_to_card(arguments)
    session.phases.adopt([one for one in arguments if hasattr(one, "param_groups")])
    for _ in range(steps):
        step(*arguments)


def _move_to_card(arguments: tuple[Any, ...]) -> None:
    """Modules go to the card. Theirs are new parameters then, which the optimizers take for the old ones."""
    moved: dict[int, Any] = {}
    for module in arguments:
        if hasattr(module, "named_parameters"):
            before = dict(module.named_parameters())
            on_meta = any(parameter.is_meta for parameter in before.values())
            module.to_empty(device="cuda") if on_meta else module.to("cuda")
            moved |= {id(before[name]): parameter for name, parameter in module.named_parameters()}
    for optimizer in arguments:
        for group in getattr(optimizer, "param_groups", ()):
            group["params"] = [moved.get(id(parameter), parameter) for parameter in group["params"]]


def _refuse_arguments(path: str, function: str, called: Callable[..., object]) -> None:
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return
    optional = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in optional]
    if needed:
        raise UserError(
            f"{function} in {path} needs {', '.join(needed)}; a function to trace takes no arguments, so write one "
            "that calls it"
        )


def _enter_script_dir(path: str, arguments: tuple[str, ...]) -> None:
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # noqa: PTH100,PTH120 - as Python sets it itself


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

    def end_with_parent() -> None:  # standard input ends with the process that asked
        asked.read(1)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
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


def _own_frames(error: UserError) -> tuple[str, ...]:
    """The lines of the user's own files that led to what the error was made from."""
    cause = error.__cause__
    if cause is None:
        return ()
    from vramtui.dryrun.fake.accounting.phases import is_users  # noqa: PLC0415 - torch takes seconds to load

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
    from vramtui.dryrun.fake.failures import in_words, out_of_memory  # noqa: PLC0415 - torch takes seconds to load
    from vramtui.dryrun.fake.session import TraceSession  # noqa: PLC0415 - loads torch

    # It tells of every error that it passes on; the code's own words are enough.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    device = request.device
    release = release_of(torch.__version__)
    allocator = CachingAllocator(device.total_memory, AllocatorConfig.parse(request.alloc_conf), release)
    context = cuda_context_bytes(device.capability)
    allocator.hold_outside(context)
    session = TraceSession(allocator, device, steps=request.steps, progress=progress, ranks=request.ranks)
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
        text, use = "".join(linecache.getlines(path)), memory.guess_uses[line]
        if path and not inside.startswith(HEALTHY) and decides(text, int(number), use):
            lines.append(f"  {line}: {linecache.getline(path, int(number)).strip()}")
    if lines:
        memory.bounded = True
        memory.warn(
            "\n".join(
                ["bounded: its way may depend on unknown values, which read as ones or zeros:", *lines[:MOST_LINES]]
            )
        )


class Heartbeat(threading.Thread):
    """Says where a trace is, again and again; its own `run`, so that no mode follows it."""

    def __init__(self, tell: Callable[[], None]) -> None:
        super().__init__(daemon=True)
        self._tell, self._over = tell, threading.Event()

    def run(self) -> None:
        self._tell()
        while not self._over.wait(BEAT):
            self._tell()

    def __enter__(self) -> None:
        """The trace has begun."""

    def __exit__(self, *_error: object) -> None:
        self._over.set()


def _run(request: TraceRequest, session: "TraceSession") -> Any:
    try:
        if request.pickled:
            return run_pickled(request.pickled, request.steps, session)
        if request.function is not None:
            return run_function(request.path, request.function, request.arguments)
        if request.is_module:
            return run_module(request.path, request.arguments)
        return run_script(request.path, request.arguments)
    except SystemExit as stop:
        if not stop.code:
            return None
        if isinstance(stop.code, int):
            raise UserError(f"the code ended itself with exit code {stop.code}") from None
        raise UserError(f"the code ended itself: {stop.code}") from None


if __name__ == "__main__":
    main()
