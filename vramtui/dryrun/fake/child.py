"""The child process: reads a request, runs the code on the simulated GPU, writes lines of JSON."""

import _thread
import faulthandler
import fcntl
import gc
import importlib
import importlib.util
import inspect
import json
import linecache
import logging
import os
import pickle
import resource
import runpy
import sys
import threading
import traceback
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.core.base.errors import BeyondTraceError, UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.dryrun.result import DECIDED, ChildLine, DryRun, Progress, TraceReads, TraceRequest, later_steps, repeated
from vramtui.dryrun.shield import protect
from vramtui.probe.peak import is_own
from vramtui.probe.report import NO_END

if TYPE_CHECKING:
    from vramtui.dryrun.fake.session import TraceSession

MOST_LINES = 3  # that a note names
BEAT = 1.0  # seconds between two words of where a running trace is


def _run(request: TraceRequest, session: "TraceSession") -> object:
    """Run the code as Python would: a file or a module as `__main__`, a function of a file, or a pickled step."""
    try:
        if request.pickled:
            _run_pickled(request, session)
            return None
        sys.argv = [request.path, *request.arguments]
        if request.is_module:
            sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python sets it itself
            return runpy.run_module(request.path, run_name="__main__", alter_sys=True)
        sys.path.insert(0, os.path.dirname(os.path.abspath(request.path)))  # noqa: PTH100,PTH120 - as above
        if request.function is None:
            return runpy.run_path(request.path, run_name="__main__")
        return _function_of(request.path, request.function)()
    except SystemExit as stop:
        if stop.code:
            raise
        return None


def _function_of(path: str, name: str) -> Callable[[], object]:
    """A function without arguments, of a file that is imported under its own name; raises UserError without one."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Any = getattr(module, name, None)
    if not callable(function):
        known = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        raise UserError(f"{path} has no function {name!r}{nearest(name, known)}")
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise UserError(f"{name} in {path}: {error}; a dry run gives it none, so write one that calls it") from None
    except ValueError:  # it tells no signature
        pass
    return function  # type: ignore[no-any-return] # it is called and no more


def _run_pickled(request: TraceRequest, session: "TraceSession") -> None:
    """Call a pickled function of this user's process for each step; modules go to "cuda"."""
    with open(request.pickled, "rb") as file:  # noqa: PTH123 - one file is read twice
        preparation = pickle.load(file)  # noqa: S301 - our own process wrote it, in a folder of its own
        sys.path[:] = preparation.pop("sys_path", sys.path)
        spawn.prepare(preparation)
        step, arguments = pickle.load(file)  # noqa: S301 - as above
    session.phases.rows.clear()  # nothing that has run so far is a part of the job
    session.phases.begin_again()
    for module in arguments:
        if hasattr(module, "named_parameters"):
            on_meta = any(parameter.is_meta for parameter in module.parameters())
            module.to_empty(device="cuda") if on_meta else module.to("cuda")
    session.phases.adopt(one for one in arguments if hasattr(one, "param_groups"))
    for _ in range(request.steps):
        step(*arguments)


def main() -> None:
    """Answer the request in a folder and end the process at once, whatever threads the code has left behind."""
    faulthandler.enable()  # a library in C++ that ends the process leaves no other word of where that was
    # Torch would complain that there is a CUDA compiler and no card, which is what a trace is for.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    folder = Path(sys.argv.pop())
    asked = json.loads((folder / "request").read_bytes())
    device = asked["device"] | {"capability": tuple(asked["device"]["capability"])}
    request = TraceRequest(**asked | {"device": Device(**device)})
    # Above the descriptors that daemons and launchers close.
    high = min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
    with (folder / "answers").open("ab") as file:
        answers = os.fdopen(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, high), "ab", buffering=0)
    one_at_a_time = threading.Lock()  # what says where the trace is is a thread of its own

    def say(**line: Any) -> None:
        with one_at_a_time:
            answers.write(msgspec.json.encode(ChildLine(**line)) + b"\n")

    try:
        notices = protect(request.scratch) if request.scratch else ()
        for notice in notices:
            say(progress=Progress(phase="start", step=-1, allocated=0, peak_allocated=0, notice=notice))
        gc.disable()
        try:
            importlib.import_module("torch")
        except Exception as error:  # noqa: BLE001 - a library is missing, or of another build: whatever it is, it is torch's
            why = str(error).strip().partition("\n")[0] or type(error).__name__
            raise UserError(f"the torch of {sys.executable} cannot be imported, there or in a trace: {why}") from None
        from vramtui.dryrun.fake import session  # noqa: F401,PLC0415 - torch takes seconds to load

        if sys.modules["msgspec"].__spec__ is None:
            del sys.modules["msgspec"]  # all of this program that a trace needs is loaded
        gc.enable()
        gc.collect()
        gc.freeze()  # looking through torch for garbage took a tenth of a trace, and a tenth of the time to load it
        result = trace_here(request, lambda progress: say(progress=progress), tell_reads=lambda reads: say(reads=reads))
        say(result=msgspec.structs.replace(result, warnings=(*notices, *result.warnings)))
    except UserError as error:
        frames: list[str] = []  # the lines of the user's own files that led to what the error was made from
        if error.__cause__ is not None:
            led = traceback.extract_tb(error.__cause__.__traceback__)
            frames = [f"{one.filename}:{one.lineno} in {one.name}: {one.line}" for one in led if is_own(one.filename)]
        say(error=str(error), frames=tuple(frames), beyond_trace=isinstance(error, BeyondTraceError))
    except Exception as error:  # noqa: BLE001 - the parent makes one sentence of it, and shows this above
        traceback.print_exc()
        say(error=f"the trace itself failed: {type(error).__name__}: {error}", beyond_trace=True)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def trace_here(
    request: TraceRequest,
    progress: Callable[[Progress], None],
    code: Callable[[], object] | None = None,
    tell_reads: Callable[[TraceReads], object] = bool,
) -> DryRun:
    """Trace in this process, which is of no use for anything else with torch afterwards: `code`, or what the request
    names. `progress` is called at each phase's end, and each second with the line at which the code is; `tell_reads`
    once at the end. Raises UserError if the code failed, did what cannot be followed, or ran out of the card's memory.
    """
    from vramtui.dryrun.fake.accounting.phases import TraceFinished  # noqa: PLC0415 - loads torch
    from vramtui.dryrun.fake.failures import deciding_reads, in_words, open_reads, out_of_memory  # noqa: PLC0415 - torch takes seconds to load
    from vramtui.dryrun.fake.session import TraceSession  # noqa: PLC0415 - loads torch

    # It reports every error that it passes on; the code's own words are enough.
    logging.getLogger("torch._subclasses.fake_tensor").setLevel(logging.CRITICAL)
    session = TraceSession(request, progress)
    memory, phases, thread, is_over = session.memory, session.phases, threading.get_ident(), threading.Event()

    def tell_place() -> None:
        phase, allocated = phases.now, memory.allocator.stats.allocated
        step, line = phases.step_of(phase), memory.where.user_line(thread)
        progress(Progress(phase=phase, step=step, allocated=allocated, peak_allocated=memory.peak, line=line))

    def tell_places() -> None:
        while not is_over.wait(BEAT):
            tell_place()

    tell_place()
    with session:
        _thread.start_new_thread(tell_places, ())  # no `threading.Thread`, whose modes follow what it runs
        full: str | None = None
        try:
            outcome = _run(request, session) if code is None else code()
            phases.finish()
            lines = sorted(filter(None, memory.guesses_read))
            if lines and 0 < phases.steps_done < request.steps < NO_END:
                more = f" and {len(lines) - MOST_LINES} lines more" if len(lines) > MOST_LINES else ""
                memory.warn(
                    f"the code ended itself after {phases.steps_done} of {request.steps} steps, perhaps by "
                    f"unknown values, which read as ones or zeros at {', '.join(lines[:MOST_LINES])}{more}"
                )
        except TraceFinished as finished:
            outcome = finished
            if finished.args:
                memory.warn(repeated(*finished.args))
        except BaseException as error:  # whatever stopped the code is put in words
            full = out_of_memory(error, session)
            if full is None and not phases.epoch.has_left:  # a loop that was left early may lack what follows asks for
                raise in_words(error, session) from error
            outcome = TraceFinished() if full is None else error
            phases.end(phases.now)
        finally:
            is_over.set()
        is_cut = isinstance(outcome, TraceFinished)
        awaits = request.steps > 1 and phases.steps_done >= request.steps and phases.awaits_step()
        for note in later_steps(phases.rows, phases.steps_done * awaits) if is_cut and not request.rest else ():
            memory.warn(note)
            memory.bounded = True
        tell_reads(TraceReads(lines=open_reads(memory), requests=memory.requests, bounded=memory.bounded))
        if (reads := deciding_reads(memory)) and not request.rest:
            memory.bounded = True
            places = (line.rpartition(":") for line in reads[:MOST_LINES])
            shown = [f"  {path}:{number}: {linecache.getline(path, int(number)).strip()}" for path, _, number in places]
            memory.warn("\n".join([DECIDED, *shown]))
        result = phases.result(session.context, full, is_cut=is_cut)
        del outcome
    return result


if __name__ == "__main__":
    main()
