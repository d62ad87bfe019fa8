"""One process's part in being watched: what it notes at each change of phase, and when it reports."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import atexit
import contextlib
import gc
import json
import os
import signal
import sys
import threading
import time
from time import perf_counter_ns
from typing import Any, NoReturn

from . import socket_dir
from .channel import Channel
from .epoch import Epoch
from .hooks import Hooks
from .import_hook import around
from .report import AWAITED, ENOUGH, LONG, Counters, Loaders, PhasePeaks, RepeatedPasses, TensorTotals

LONGEST_MESSAGE = 4000
BEAT = 0.4  # seconds between messages
LAST_WAIT = 0.5  # seconds for another thread of ours to have said what it is saying
SILENCE = 0.5  # seconds after which a thread reports what no hook did: taking turns with it costs the job more
TOGETHER = 30.0  # seconds in which all processes of a server tell their end: one that is gone may end the others
ALWAYS = 3  # the first steps are noted whatever it takes: they are where memory peaks for the first time
MOST_REST = 100  # ends of steps that are only counted
PARTS_EVERY = 10.0  # seconds between looks at the optimizers, once nothing new is expected there
SHARE = 0.002  # of the time that goes by
HEAD_START = 2_000_000  # ns
AFTER = 3  # times as much as a hook takes by itself does it cost the job, whose own code has left the caches


class Allowance:
    """A budget that fills with time: whoever does more than the least pays what it took."""

    def __init__(self) -> None:
        self._began = perf_counter_ns()
        self.spent = 0

    def affords(self) -> bool:
        return self.spent < HEAD_START + SHARE * (perf_counter_ns() - self._began)

    def missing(self) -> float:
        """Seconds until it affords anything, if nothing is spent till then."""
        return (((self.spent - HEAD_START) / SHARE) - (perf_counter_ns() - self._began)) / 1e9

    def pay(self, since: int) -> None:
        """The time from `since` (as of perf_counter_ns) until now was ours, and then some of the job's."""
        self.spent += AFTER * (perf_counter_ns() - since)


class ProbeSession:
    """Watches this process. A forked child begins anew, and says nothing until it trains a model of its own."""

    def __init__(self, torch: Any, at_end: Any = None, peak: Any = None) -> None:
        self._torch = torch
        self._peak = peak  # what keeps the history of allocations
        self._at_end = at_end  # what else is to be written down
        self._last = _number_in_environment((socket_dir.STEPS,)) or 0  # the step after which the job ends
        self._counters = Counters(torch)
        self._hooks = Hooks(
            torch,
            turn=self._quiet(self.turn),
            call_begins=self._quiet(self.call_begins),
            step_begins=self._quiet(self.step_begins),
            step_ends=self._quiet(self.step_ends),
            pass_begins=None if peak is None else self._quiet(self.pass_begins),
        )
        self._loaders = Loaders(torch, self._quiet)
        self._reset()

    def _reset(self) -> None:
        self._channel = Channel(self._hello)
        self._allowance = Allowance()
        self._moments = PhasePeaks(self._counters)
        self._holdings = TensorTotals(self._torch)
        self._passes = RepeatedPasses()
        self._epoch = Epoch(self._torch, lambda: self._figures()[0], self.leave, is_short=socket_dir.REST in os.environ)
        self._begun = self._beating = self._ended = self._is_steady = self._knows_devices = False
        self._phase, self._step = "build", 0
        self._next_parts = self._last_beat = self._first_step = self._last_step = self._done_at = 0.0

    def arm(self) -> None:
        self._hooks.put_on()
        self._quiet(self._loaders.put_on)()
        if self._peak is not None and self._last:
            from torch.utils.data.dataloader import _BaseDataLoaderIter

            # A forked child has an epoch of its own.
            around(_BaseDataLoaderIter, "__next__", lambda *given: self._epoch.load(*given))  # noqa: PLW0108 - as above
        os.register_at_fork(after_in_child=self._quiet(self._begin_in_child))
        until = _number_in_environment((socket_dir.UNTIL,))
        if until is not None:

            def end() -> None:  # at that second of `time.monotonic`, which all processes of a job share
                time.sleep(max(0.0, until - time.monotonic()))
                self.leave()

            threading.Thread(target=end, daemon=True).start()
        # A job that only computes is known by its beginning to use CUDA.
        lazily = getattr(self._torch.cuda, "_lazy_call", None)
        if lazily is not None:
            lazily(self._quiet(lambda: self._begin(cuda=True)))
            if self._peak is not None:
                lazily(self._quiet(self._peak.begin))

    def _quiet(self, act: Any) -> Any:
        """`act`, never raising, its time on our account."""

        def guarded(*arguments: Any) -> None:
            since = perf_counter_ns()
            try:
                act(*arguments)
            except Exception:
                pass
            self._allowance.pay(since)

        return guarded

    # What the hooks tell.

    def turn(self, phase: str) -> None:
        if _is_data_worker():
            return
        if phase == "backward" and self._epoch.is_over():  # it is of the next epoch
            self.leave()
        self._begin()
        if phase == "backward" and self._phase in {"build", "input"}:
            self._phase = "forward"  # which ran as compiled code, that calls no hook
        self._note()
        self._phase = phase
        self._beat_if_due(BEAT)

    def call_begins(self, module: Any) -> None:
        if not _is_data_worker() and self._holdings.meet(module, is_module=True):
            self._next_parts = 0.0
            if self._peak is not None:
                self._peak.look([], [module], stepped=False)

    def step_begins(self, optimizer: Any) -> None:
        if self._holdings.meet(optimizer, is_module=False):
            self._next_parts = 0.0
        if self._looks_at_parts():
            self._holdings.look(stepped=False)
        if self._peak is not None:
            self._peak.look(*self._holdings.alive(), stepped=False)

    def step_ends(self, _optimizer: Any) -> None:
        if _is_data_worker():
            return
        now, before = time.monotonic(), (self._step, self._last_step)
        self._last_step = now
        watched = self._hooks.watching
        if self._peak is not None:
            self._peak.look(*self._holdings.alive(), stepped=True)
        if watched:
            if self._looks_at_parts():
                self._holdings.look(stepped=True)
                self._next_parts = self._last_step + PARTS_EVERY
            self._note()
        if not self._step:
            self._first_step = self._last_step
        self._step = self._hooks.steps
        self._phase = "input"
        # The next step is watched whole or not at all: a peak that grew between two notes belongs to what is between.
        self._hooks.watching = self._step < ALWAYS or self._peak is not None or self._allowance.affords()
        if self._hooks.watching and not watched:
            self._note(keep=False)
        self._beat_if_due(BEAT)
        if 0 < self._last <= self._step:  # ranks end after the same step
            self._done_at = self._done_at or now
            is_late = self._step >= AWAITED * self._last or (now > self._done_at + LONG and "RANK" not in os.environ)
            if (is_late or not self._awaits_step(min(2, self._last))) and not self._epoch.goes_on(self._step):
                self.leave()
        if not self._hooks.watching:  # ends of steps are left out until there is something to do, at this pace
            step, last_step = before
            pace = (now - last_step) / (self._step - step) if self._step > step else 0.0
            due = min(self._allowance.missing(), self._last_beat + BEAT - now)
            self._hooks.rest = min(MOST_REST, int(due / pace)) if pace > 0 and due > 0 else 0

    def pass_begins(self, name: str) -> None:
        if _is_data_worker():
            return
        now, figures, passes = time.monotonic(), self._figures(), self._passes
        passes.begin(f"{name} at {self._peak.own_line()}", figures, now)
        if passes.summary()["repeat"]:
            self._peak.look_back(figures[1], (self._phase, self._step))
        is_long = self._last and now >= passes.since + LONG and passes.summary(ENOUGH)["repeat"]
        if is_long and max(passes.alike.values()) % ENOUGH == 0 and not self._awaits_step():
            self._is_steady = True
            self.leave()

    def _figures(self) -> Any:
        """Bytes allocated, and the peaks of allocated and reserved, of all devices."""
        read = self._counters.read(time.monotonic()).values()
        return tuple(sum(one[key] or 0 for one in read) for key in ("allocated", "allocated_peak", "reserved_peak"))

    def _awaits_step(self, least: int = 2) -> bool:
        """Return whether an optimizer, and none that wraps another, has stepped less often: no backward pass has met
        what it keeps before its second step.
        """
        kind, counts = self._torch.optim.Optimizer, self._hooks.counts
        optimizers = [one for one in gc.get_objects() if issubclass(type(one), kind)]
        with contextlib.suppress(Exception):  # of a library's own properties
            own = [one for one in optimizers if not any(issubclass(type(inner), kind) for inner in vars(one).values())]
            own = [one for one in own if getattr(one, "param_groups", True)]
            return any(counts.get(id(one), 2 if getattr(one, "state", 0) else 0) < least for one in own)
        return False

    def leave(self) -> None:
        self._epoch.is_cut = True
        self._quiet(self._end)()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)

    def _looks_at_parts(self) -> bool:
        return not self._step or (time.monotonic() >= self._next_parts and self._allowance.affords())

    def _note(self, *, keep: bool = True) -> None:
        if self._peak is not None:
            self._peak.turn(self._phase, self._step)
        self._moments.note(self._phase, self._step, every=self._step < ALWAYS, keep=keep)

    # What is reported.

    def _begin(self, *, cuda: bool = False) -> None:
        if not self._begun:
            self._begun = True
            end, util = self._quiet(self._end), sys.modules.get("multiprocessing.util")
            process = sys.modules.get("multiprocessing.process")
            if util is not None and process is not None and process.parent_process() is not None:
                # `multiprocessing` ends it without Python's own exit, and while the exception that ends it passes.
                util.Finalize(None, lambda: end(sys.exc_info()[1]), exitpriority=100)
            else:
                atexit.register(end)
            plain = os._exit

            def leave(status: int) -> NoReturn:
                end()
                plain(status)

            os._exit = leave
        self._meet_devices()
        if not self._beating and (cuda or self._counters.ready):
            self._beating = True
            self._beat_if_due(BEAT)  # a process that is killed in its first moments is known
            threading.Thread(target=self._beat_on, name="vramtui-probe", daemon=True).start()

    def _beat_on(self) -> None:
        channel, beat = self._channel, self._quiet(self._beat_if_due)
        reports = os.environ.get(socket_dir.REPORTS, "")
        while self._channel is channel and not self._ended:
            beat(SILENCE)
            for sign in (signal.SIGKILL, signal.SIGTERM) if reports else ():
                asked = os.path.join(reports, socket_dir.ASKED.format(os.getpid(), int(sign)))
                if os.path.exists(asked):
                    if signal.getsignal(sign) == signal.SIG_DFL:  # else the job ends, or goes on, in its own way
                        self._quiet(self._end)()
                    os.unlink(asked)
            if reports and os.path.exists(os.path.join(reports, socket_dir.SERVED)):
                self._quiet(self._end)()
                open(os.path.join(reports, f"{os.getpid()}.told"), "w").close()
                last = time.monotonic() + TOGETHER
                while time.monotonic() < last and not _are_done(reports):
                    time.sleep(BEAT)
                self.leave()
            time.sleep(SILENCE)

    def _beat_if_due(self, every: float) -> None:
        now = time.monotonic()
        if now - self._last_beat >= every:
            self._last_beat = now
            self._beat()

    def _meet_devices(self) -> None:
        if not self._knows_devices and self._counters.ready:
            self._knows_devices = True
            attach = getattr(getattr(self._torch, "_C", None), "_cuda_attach_out_of_memory_observer", None)
            if attach is not None:
                attach(self._out_of_memory)
            self._channel.greet_again()

    def _beat(self) -> None:
        self._meet_devices()
        span, known = self._last_step - self._first_step, self._step
        moments, self._moments.noted = self._moments.noted, []
        is_sent = self._tell(
            "beat",
            phase=self._phase if self._hooks.watching else None,  # it is unknown in a step that is not watched
            step=self._hooks.steps,
            step_seconds=span / (known - 1) if known > 1 else None,
            lost=self._channel.lost,
            devices=[{"index": index, **read} for index, read in self._counters.read(time.monotonic()).items()],
            parts=self._holdings.sizes,
            moments=moments,
            loaders=self._loaders.sizes(),
        )
        if not is_sent:
            self._moments.noted[:0] = moments

    def _hello(self) -> bytes:
        return _message(
            "hello",
            run=os.environ.get(socket_dir.RUN),
            preset=os.environ.get(socket_dir.PRESET),
            command=[_shortened(argument) for argument in sys.argv[:8]],
            python=sys.version.split()[0],
            torch=str(self._torch.__version__),
            devices=self._counters.devices(),
            rank=_number_in_environment(("RANK", "SLURM_PROCID")),
        )

    def _out_of_memory(self, device: int, asked: int, allowed: int, free: int) -> None:
        """Report that the allocator gives up, in bytes. Observers get the limit of set_per_process_memory_fraction in
        the place of the card's total, where there is one (c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13).
        """
        limit = None
        with contextlib.suppress(Exception):
            limit = int(allowed) if allowed < self._torch.cuda.mem_get_info(device)[1] else None
        with contextlib.suppress(Exception):
            figures = self._counters.read(time.monotonic()).get(int(device), {})
            sizes = {name: figures.get(name) for name in ("allocated", "reserved")}
            sizes.update(asked=int(asked), free=int(free), limit=limit)
            phase = self._phase if self._hooks.watching else None
            self._tell("oom", device=int(device), phase=phase, step=self._hooks.steps, **sizes)

    def _end(self, passing: BaseException | None = None) -> None:
        if not self._begun or self._ended:
            return
        self._ended = True
        if self._at_end is not None:
            self._at_end()
        if self._hooks.watching:
            self._note()
        if self._peak is not None:
            with contextlib.suppress(Exception):  # a server may have called none of its models yet
                models = [one for one in gc.get_objects() if issubclass(type(one), self._torch.nn.Module)]
                inner = {id(child) for model in models for child in model.children()}
                self._peak.look([], [model for model in models if id(model) not in inner], stepped=False)
            with contextlib.suppress(Exception):
                passes = {**self._passes.summary(), "is_end": self._is_steady, "awaits_step": self._awaits_step()}
                passes["epoch"] = self._epoch.summary()
                self._peak.write(os.environ[socket_dir.REPORTS], self._figures()[1], passes)
        self._beat()
        # The exception that ends the interpreter: its class, its text, and whether it is an OutOfMemoryError.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        error = None if isinstance(passing, SystemExit) else passing or error
        kind = getattr(getattr(self._torch, "cuda", None), "OutOfMemoryError", ())
        cause, depth = error, 0
        while cause is not None and not isinstance(cause, kind) and depth < 8:
            cause, depth = cause.__cause__ or cause.__context__, depth + 1
        is_full, name = isinstance(cause, kind), None if error is None else type(error).__name__
        message = "" if error is None else _shortened(str(cause if is_full else error), LONGEST_MESSAGE)
        self._tell("end", error=name, message=message, out_of_memory=is_full)
        self._channel.close()

    def _tell(self, kind: str, **what: Any) -> bool:
        # There is another beat after this one, but not another end.
        return self._channel.send(_message(kind, **what), wait=0.0 if kind == "beat" and not self._ended else LAST_WAIT)

    def _begin_in_child(self) -> None:
        self._channel.close()
        self._reset()
        self._loaders.seen = {}  # a forked child has loaders of its own
        self._hooks.begin_again()


def arm(torch: Any) -> None:
    if socket_dir.CARD in os.environ:
        from . import emulated
        from .peak import PeakHistory

        reads = emulated.prepare(torch)
        peak = PeakHistory(torch, reads.workspaces) if socket_dir.REPORTS in os.environ else None
        ProbeSession(torch, reads.end, peak).arm()
    else:
        ProbeSession(torch).arm()


def _number_in_environment(names: tuple[str, ...]) -> int | None:
    values = (os.environ.get(name, "") for name in names)
    return next((int(one) for one in values if one.isascii() and one.isdigit() and len(one) < 10), None)


def _shortened(text: str, longest: int = 200) -> str:
    return text[:longest].encode("utf-8", "replace").decode()


def _are_done(reports: str) -> bool:
    """Return whether all processes that used the card reported their end, or are gone."""
    names = os.listdir(reports)
    users = {name.partition("-")[0] for name in names if name.endswith(".report")}
    return not any(os.path.exists(f"/proc/{user}") and f"{user}.told" not in names for user in users)


def _is_data_worker() -> bool:
    return getattr(sys.modules.get("torch.utils.data._utils.worker"), "_worker_info", None) is not None


def _message(kind: str, **what: Any) -> bytes:
    return json.dumps({"kind": kind, "v": 1, "pid": os.getpid(), "at": time.time(), **what}).encode()
