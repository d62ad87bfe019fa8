"""The rest of an epoch, made short: its largest batch, then what follows it, for a job that has taken its steps."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import ast
import contextlib
import ctypes
import dis
import functools
import gc
import inspect
import linecache
import math
import re
import sys
import threading
import time
import weakref
from collections import Counter
from typing import Any

from .peak import is_own
from .report import tensors_of

BATCHES = 32  # of another DataLoader that run, as a validation's, before its largest is looked for
EPOCHS, MORE_STEPS = 2, 8  # as memory may be kept from one to the next; and steps, where the loop does not end
MOST_LOOKED, SECONDS, SHORTLY = 10_000, 5.0, 1.0  # batches that are looked at, and how long; shortly if all are alike
GROWN = 4  # batches that show by how much each leaves more than the one before
LATE = 30.0  # seconds from the last step asked for, after which each loop gives one batch, and no epoch more begins
LATER = 5.0  # by `_clock`: for epochs after those, as of layers that train later, or to the job's own end

# Numbers of steps, or of epochs, after which a library's loop evaluates (transformers 5.23, Lightning 2.6).
EVALUATES = {
    "transformers.trainer_callback.TrainerState": ("eval_steps",),
    "pytorch_lightning.trainer.trainer.Trainer": ("val_check_batch", "check_val_every_n_epoch"),
    "lightning.pytorch.trainer.trainer.Trainer": ("val_check_batch", "check_val_every_n_epoch"),
}

# Names for numbers of steps or epochs after which a job's own loop does more. A checkpoint only costs time.
INTERVAL = re.compile(
    r"(?i)(?!.*(save|ckpt|checkpoint))(.*(interval|freq|every|period)|"
    r"(eval|val|test|log|print|disp|sample|show|plot|vis|summary|growth)\w*(steps?|iters?|epochs?))"
)


class _Loop:
    """One pass over a DataLoader: batches that it gave the job and that were looked at, and how large they were."""

    def __init__(self, length: int | None, sampler: Any, data: Any) -> None:
        self.length, self.sampler, self.data = length, sampler, data  # of all passes over a DataLoader, or its like
        self.ran = self.looked = self.most = self.first = self.last = 0  # batches of all loops before its own
        self.is_whole = self.is_larger = False
        self.waiting: list[Any] | None = None  # batches that the pass ends with, once they are known
        self.allocated: list[int] = []  # at the beginning of each batch

    @property
    def grown(self) -> int:
        """Bytes by which each of the last batches left more than the one before."""
        sizes = self.allocated if len(self.allocated) > GROWN else [0] * (GROWN + 1)
        return max(0, min(sizes[at + 1] - sizes[at] for at in range(-GROWN - 1, -1)))

    @property
    def left(self) -> int:
        """Batches that did not run."""
        return max(0, (self.length or self.looked) - self.ran)


class Epoch:
    """Watches the loops over DataLoaders. Once the job has taken its steps, the one that it trains with gives the
    largest of its batches and ends; those behind it give their first ones, their largest, and end; so do all in one
    epoch more, and in those that time is left for. `is_cut` is whether the job was ended before its own end, as whoever
    ends it says. A job without a DataLoader goes on as it is.
    """

    def __init__(self, torch: Any, allocated: Any, end: Any, *, is_short: bool) -> None:
        self._torch, self._allocated, self._end_job, self._is_short = torch, allocated, end, is_short
        self._loops: weakref.WeakKeyDictionary[Any, _Loop] = weakref.WeakKeyDictionary()
        self._others: dict[int, _Loop] = {}  # by their data
        self._latest: _Loop | None = None
        self._training: _Loop | None = None
        self._loads, self.is_cut = 0, False
        self._before: dict[tuple[str, str], int] = {}  # what intervals of the job's loops were, by their file and text
        self._intervals = self._turns = self._calls = 0
        self._left, self.has_left = math.inf, False  # until when it is let go on behind its loops, and whether it is
        self._loaded: _Loop | None = None  # that of the latest batch, but for an evaluation's
        self._ended: Counter[int] = Counter()  # passes over each DataLoader that trains, by its sampler
        # Steps that were taken when the last pass over the DataLoader that trains ended; when it began, and is over.
        self._steps = self._began = self._until = self._rest_until = math.inf

    @property
    def _used(self) -> _Loop | None:
        """The loop that the job's steps are in, if any: it gave more than a first batch, and not its last."""
        loop = self._training or self._latest
        return None if loop is None or (loop is not self._training and (loop.ran < 2 or loop.is_whole)) else loop

    def goes_on(self, steps: int) -> bool:
        """Return whether the job, which has taken its steps, goes on to the end of its epoch."""
        if self._began == math.inf and self._is_short:
            self._training, self._began, self._rest_until = self._used, time.monotonic(), _clock() + LATER
            first = self._training.first if self._training else 0
            loops = [one for one in self._loops.values() if one.last >= first]  # that take turns or go together
            for one in gc.get_objects():
                for name in EVALUATES.get(f"{type(one).__module__}.{type(one).__qualname__}", ()):
                    if type(getattr(one, name, None)) in (int, float):
                        setattr(one, name, 1)
            turn_intervals(sys._getframe(1), self._before)  # noqa: SLF001 - frames of this thread have no other name
            self._intervals = len(self._before)
            self._ended = Counter({id(one.sampler): 0 for one in loops if one.ran > 1 and not one.is_whole})
        self._turns += 1
        if self._before and self._turns > MORE_STEPS and (self._training is None or self._passes >= EPOCHS):
            turn_intervals(sys._getframe(1), self._before, back=True)  # noqa: SLF001 - as above; what is kept would add up
            self._before.clear()
        self._steps = min(self._steps, steps)
        by_steps = self._training is not None or self._is_rank  # else there is no DataLoader, or its first batch
        goes_on = steps < self._steps + MORE_STEPS if by_steps else _clock() < self._rest_until
        return self._is_short and (goes_on or self._leaves_loops())

    def is_over(self) -> bool:
        """Return whether enough passes over the DataLoader that trains have ended. Called at each backward: the batch
        that was loaded last trains.
        """
        latest = self._loaded if self._began < math.inf else None
        if latest is not None and id(latest.sampler) not in self._ended:  # as of a DataLoader that is made for an epoch
            self._training = self._training or latest
            self._ended = Counter({id(latest.sampler): self._passes})
            self._others = {data: one for data, one in self._others.items() if one is not latest}
        is_over = self._passes >= 1 if self._is_late else _clock() > self._until
        return is_over and not self._leaves_loops()

    def _leaves_loops(self) -> bool:
        """Let the job leave its loops for what follows them, once and for some time; return whether it is doing so."""
        if self._left == math.inf and not self._is_rank and sys.gettrace() is None:
            self._left = _clock() + LATER
            self.has_left = leave_loops(sys._getframe(2), self._watch)  # noqa: SLF001 - as above
        return self.has_left and _clock() < self._left

    def _watch(self, *_: Any) -> None:
        """End the job in time: called where Python calls any function."""
        self._calls += 1
        if self._calls % 256 == 0 and _clock() > self._left:
            sys.settrace(None)
            self._end_job()

    def _end_pass(self, loop: _Loop) -> None:
        if id(loop.sampler) in self._ended:
            self._ended[id(loop.sampler)] += 1
            self._steps = math.inf  # counted from the next one on
            if self._passes >= EPOCHS and self._until == math.inf:
                self._until = _clock() + LATER * (not self._is_rank)

    @property
    def _is_rank(self) -> bool:  # which ends after the same steps as others
        return bool(self._torch.distributed.is_available() and self._torch.distributed.is_initialized())

    @property
    def _passes(self) -> int:
        return max(self._ended.values(), default=0)

    @property
    def _is_late(self) -> bool:
        return time.monotonic() > self._began + LATE

    def load(self, plain: Any, iterator: Any) -> Any:
        """The next batch of an iterator, in the place of its `__next__`."""
        if threading.current_thread() is not threading.main_thread():
            return plain(iterator)
        loop = self._loops.get(iterator)
        if loop is None or not getattr(iterator, "_num_yielded", 1):  # persistent workers keep theirs
            length = None
            with contextlib.suppress(Exception):  # of an IterableDataset
                length = len(iterator)
            loop = self._loops[iterator] = _Loop(
                length, *(getattr(iterator, name, None) for name in ("_index_sampler", "_dataset"))
            )
        self._loaded = loop if self._torch.is_grad_enabled() else None
        trains = self._began < math.inf and id(loop.sampler) in self._ended
        if self._began < math.inf and not trains:
            self._others.setdefault(id(loop.data), loop)
        is_known = trains or (self._passes > EPOCHS and self._others.get(id(loop.data)) is not loop)
        if self._began == math.inf or loop.ran < (1 if is_known or self._is_late else BATCHES):
            loop.allocated.append(self._allocated())
            try:
                batch = plain(iterator)
            except StopIteration:
                loop.is_whole = True
                self._end_pass(loop)
                raise
            self._meet(loop, batch)
            self._loads += 1
            loop.first, loop.last = loop.first or self._loads, self._loads
            loop.ran += 1
            self._latest = loop
            return batch
        if loop.waiting is None:
            loop.waiting = self._end(plain, iterator, loop)
        if not loop.waiting:
            self._end_pass(loop)
            raise StopIteration
        loop.ran += 1
        return loop.waiting.pop(0)

    def _end(self, plain: Any, iterator: Any, loop: _Loop) -> list[Any]:
        """The largest of the batches that are left, or of those that were looked at in time, if any is left: also if
        none before was smaller, as each rank of a job has as many. Then the last, if it has fewer samples: sizes of its
        own make the allocator reserve more.
        """
        largest, last, most, before, is_alike = None, None, -1, loop.most, True
        began, is_in_time = time.monotonic(), not self._is_late
        while largest is None or (is_in_time and loop.looked < MOST_LOOKED):
            try:
                last = plain(iterator)
            except StopIteration:
                loop.is_whole = True
                break
            size = self._meet(loop, last)
            is_alike = is_alike and size == before
            is_in_time = is_in_time and time.monotonic() < began + (SHORTLY if is_alike else SECONDS)
            is_in_time = is_in_time and _clock() < self._until
            if size > most:
                largest, most = last, size
        loop.is_larger = most > before
        end, sampler = None, loop.sampler
        with contextlib.suppress(Exception):  # of any class
            is_plain = type(sampler) is self._torch.utils.data.BatchSampler and not sampler.drop_last
            if is_plain and (samples := len(sampler.sampler)) % sampler.batch_size:
                end = last if loop.is_whole else None
                if end is None and samples <= 100 * MOST_LOOKED and not self._is_late:
                    sent = getattr(iterator, "_send_idx", iterator._num_yielded)  # noqa: SLF001 - to its workers, if any
                    for _ in range(len(iterator) - sent - 1):
                        next(iterator._sampler_iter)  # noqa: SLF001 - as above
                    while True:
                        end = plain(iterator)
        gives = end is not None and end is not largest and not any(one.is_cuda for one in tensors_of(self._torch, end))
        return ([] if largest is None else [largest]) + [end] * gives

    def _meet(self, loop: _Loop, batch: Any) -> int:
        """How large a batch is, as attention has it: its bytes, times its longest dimension behind the first."""
        tensors: list[Any] = []
        with contextlib.suppress(Exception):  # a batch may be of any class
            tensors.extend(tensors_of(self._torch, batch))
        longest = max((size for one in tensors for size in one.shape[1:]), default=1)
        size: int = sum(one.numel() * one.element_size() for one in tensors) * longest
        loop.looked, loop.most = loop.looked + 1, max(loop.most, size)
        return size

    def summary(self) -> dict[str, Any] | None:
        """The batches of the loop that trains and of those behind it; without them None, but in a job's rest."""
        none = _Loop(0, None, None) if self._began < math.inf else None
        loop, others = self._used or none, [one for one in self._others.values() if one.ran]
        if loop is None:
            return None
        keeps = max(others, key=lambda one: one.grown * one.left, default=loop)
        return {
            "looked": loop.looked,
            "length": loop.looked if loop.is_whole else loop.length,
            "is_larger": loop.is_larger,
            "others": sum(one.ran for one in others),
            "others_length": sum(one.ran + one.left for one in others),
            "grown": keeps.grown * (keeps is not loop),
            "left": keeps.left,
            "is_cut": self.is_cut,
            "intervals": self._intervals,
            "has_left": self.has_left,
        }


@functools.lru_cache(1024)
def _intervals(path: str) -> frozenset[str]:
    """The intervals that a file divides numbers by, as `args.eval_interval` in `step % args.eval_interval`."""
    from .guards import tree_of  # needed in the rest of a job alone

    source = "".join(linecache.getlines(path))
    nodes = [one for one in ast.walk(tree_of(path)) if type(one) is ast.BinOp and type(one.op) is ast.Mod]
    texts = [ast.get_source_segment(source, one.right) or "" for one in nodes]
    words = {one: re.findall(r"[A-Za-z]\w*", one) for one in texts if "(" not in one}
    return frozenset(one for one, parts in words.items() if parts and INTERVAL.fullmatch(parts[-1]))


def turn_intervals(frame: Any, before: dict[tuple[str, str], int], *, back: bool = False) -> None:
    """Let what the job's loops do at intervals come at each step: every interval that a running function knows becomes
    1, and what it was is kept in `before`; or turn them back.
    """
    while frame is not None:
        path, known = frame.f_code.co_filename, frame.f_globals
        for text in _intervals(path) if is_own(path) else ():
            with contextlib.suppress(Exception):  # of whatever the job's objects do
                local, key = frame.f_locals, (path, text)
                number = eval(text, known, local)  # noqa: S307 - a name, attribute or item in the job's own code
                if type(number) is int and (number > 1 or (back and key in before)):
                    new = before.pop(key) if back else 1
                    before.update({} if back else {key: number})
                    exec(f"{text} = {new}", known, known if text.isidentifier() and text not in local else local)  # noqa: S102 - as above
                    ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))  # before 3.13
        if sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED and is_own(path):
            frame.f_locals.clear()  # copies of a function's variables, which would keep its tensors
        frame = frame.f_back


@functools.lru_cache(1024)
def _loops(path: str) -> list[tuple[int, int, int, int]]:
    """The loops of a file, by lines: their first, that of their body, their last, and that of what follows them."""
    from .guards import tree_of

    loops = []

    def visit(owner: Any, follow: int, *, keeps: bool) -> None:
        for name, block in ast.iter_fields(owner):
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                after = follow if keeps and name != "finalbody" else 0
                for one, then in zip(block, [*(one.lineno for one in block[1:]), after]):  # noqa: B905 - 3.8 knows no `strict`
                    if isinstance(one, (ast.For, ast.While)) and then:
                        loops.append((one.lineno, one.body[0].lineno, one.end_lineno or 0, then))
                    visit(one, then, keeps=isinstance(one, (ast.For, ast.While, ast.If)))

    visit(tree_of(path), 0, keeps=False)
    return loops


class _Jump:
    """Traces a frame: at a line that turns a loop it goes on at what follows that."""

    def __init__(self, ends: dict[int, int]) -> None:
        self._ends = ends

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        if event == "line" and frame.f_lineno in self._ends:
            with contextlib.suppress(ValueError):
                frame.f_lineno = self._ends[frame.f_lineno]
        return self


def leave_loops(frame: Any, watch: Any) -> bool:
    """Let running functions jump, at the next turn of a loop that they are in, to what follows it, as a debugger does;
    `watch` is called with every function from now on. Return whether anything follows one.
    """
    has_left = False
    while frame is not None:
        path, at = frame.f_code.co_filename, frame.f_lineno
        loops = [one for one in _loops(path) if one[0] <= at <= one[2]] if is_own(path) else []
        lines = {line for _, line in dis.findlinestarts(frame.f_code)} if loops else set()
        ends = {}
        for first, body, _last, follow in loops:
            if not lines.isdisjoint(range(first, body)):  # a loop of this function, not of one around it
                ends.update(dict.fromkeys(range(first, body), follow))
        if ends:
            frame.f_trace, has_left = _Jump(ends), True
        frame = frame.f_back
    if has_left:
        sys.settrace(watch)
    return has_left


def _clock() -> float:
    """Seconds, about as many on a busy host as on a quiet one, where this thread runs half of the time."""
    return time.monotonic() / 4 + 1.5 * time.thread_time()
