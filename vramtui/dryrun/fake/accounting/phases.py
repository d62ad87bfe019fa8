"""The line, the module and the phase in which the code is, and the journal of the phases as a dry run's answer."""

import gc
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import torch
import torch.autograd
import torch.nn.modules.module as module_hooks
import torch.optim.optimizer as optimizer_hooks
from torch.utils.data.dataloader import _BaseDataLoaderIter

from vramtui.core.base.units import format_bytes
from vramtui.dryrun import result as results
from vramtui.dryrun.fake import LISTS
from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.fake.device.patches import Patches
from vramtui.dryrun.result import CATEGORIES, DryRun, LiveAllocation, Progress, TracePoint, TraceRequest, TraceRow
from vramtui.probe.epoch import Epoch
from vramtui.probe.import_hook import when_imported
from vramtui.probe.peak import GARBAGE_NOTE, is_asked, is_own, parts_of
from vramtui.probe.report import ALIKE, AWAITED, ENOUGH, LONG, NO_END, RepeatedPasses


class _Stack(threading.local):
    """The modules whose forward this thread is in, by id."""

    def __init__(self) -> None:
        self.modules: list[int] = []


class Whereabouts:
    """Keeps the stack of running modules and finds the nearest line that is the user's own."""

    def __init__(self) -> None:
        self.last_line = ""
        self.running = _Stack()
        self._names: dict[int, str] = {}
        # By id, as the hash of a code object goes through all of its bytes; kept, so that no other takes the id.
        self._users: dict[int, tuple[bool, CodeType]] = {}
        self._by_sequence: dict[int, tuple[str, str]] = {}

    def entered(self, module: torch.nn.Module) -> None:
        if id(module) not in self._names:
            for path, one in module.named_modules(remove_duplicate=False):
                self._names.setdefault(id(one), f"{path} ({type(one).__name__})" if path else type(one).__name__)
        self.running.modules.append(id(module))

    def locate(self, entry: StorageEntry) -> None:
        if torch._C._current_graph_task_id() != -1 and not self.running.modules:
            node = torch._C._current_autograd_node()
            if node is not None:
                module, entry.line = self._by_sequence.get(node._sequence_nr(), ("", ""))
                entry.module = f"backward of {module}" if module else node.name()
        else:
            entry.module, entry.line = self._place()
        self.last_line = entry.line or self.last_line

    def remember(self) -> None:
        sequence = torch._C._autograd._get_sequence_nr() - 1
        if sequence not in self._by_sequence:
            self._by_sequence[sequence] = self._place()

    def user_line(self, thread: int | None = None) -> str:
        """The nearest frame outside torch, libraries and this program, as `file:line`; empty when there is none."""
        frame = sys._getframe(1) if thread is None else sys._current_frames().get(thread)
        while frame is not None:
            code = frame.f_code
            known = self._users.get(id(code))
            if known is None:
                known = self._users[id(code)] = is_own(code.co_filename), code
            if known[0]:
                return f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _place(self) -> tuple[str, str]:
        modules = self.running.modules
        return self._names.get(modules[-1], "") if modules else "", self.user_line()


_CACHE_NAME = re.compile(r"(^|[._])(k|v|kv|key|value|key_value)s?_?cache", re.IGNORECASE)
_LARGEST = 10
_POINTS = 2000
LEAST_SHARE = 0.01  # of the peak; less does not matter


class TraceFinished(BaseException):
    """Enough steps have been seen, or the passes that it is given. No `except Exception` of the code is to catch it."""


class TraceRecorder:
    """Follows the phases, takes a row at each end, and knows what the bytes are; then calls `progress`."""

    def __init__(self, memory: SimulatedMemory, request: TraceRequest, progress: Callable[[Progress], None]) -> None:
        self.rows: list[TraceRow] = []
        # Models and optimizers are held weakly, so that what the code deletes is gone.
        self.models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        # Those that have taken the last step, and those that take one together: a GAN's two or one for each parameter.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._memory, self._where, self._steps, self._progress = memory, memory.where, request.steps, progress
        self._caches: weakref.WeakSet[Any] = weakref.WeakSet()
        self._busy = self._most_garbage = self._before_collection = 0
        self._passes = RepeatedPasses()
        self.epoch = Epoch(torch, lambda: memory.allocator.stats.allocated, self._end_job, is_short=request.rest)
        memory.phase = lambda: self.now
        self.begin_again()

    def begin_again(self) -> None:
        self.now, self.steps_done, self._trains, self._done_at = "model", 0, False, 0.0
        self._counts: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._is_first_use_awaited = False  # an optimizer is there, and nothing has run since
        self._together: weakref.WeakSet[torch.optim.Optimizer] | None = None
        for seen in (self.models, self.optimizers, self._stepped):
            seen.clear()

    def _run(self, plain: Any, args: Any, kwargs: Any, *, is_phase: bool = True) -> None:
        self._busy += is_phase
        try:
            plain(*args, **kwargs)
        finally:
            self._busy -= is_phase

    def _zero(self, plain: Any, *args: Any, **kwargs: Any) -> None:
        plain(*args, **kwargs)
        if self.now == "zero_grad" and not self._busy:
            self.end("zero_grad", self.steps_done - 1)
            self.now = "input"
            self._stop_if_enough()

    def _construct(self, plain: Any, optimizer: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> None:
        if not self._trains and not self._busy:
            # A job loads torch._dynamo with its first optimizer: so many objects that Python's collector looks through
            # all of them (torch/_compile.py, 2.13). Here it is loaded before the code begins.
            gc.collect()
            self.end("model" if self.now in {"model", "input"} else self.now)
            self.now = "optimizer"
        self._run(plain, (optimizer, *args), kwargs)
        if not self._busy:
            self.optimizers.add(optimizer)
            if not self._trains:  # what ran without one were no steps of training
                self._trains, self.steps_done = True, 0
            if self.now == "optimizer":
                self._await_first_use()

    def _await_first_use(self) -> None:
        self.end("optimizer")
        self.now, self._is_first_use_awaited = "input", True

    def _go_backward(self, plain: Any, *args: Any, **kwargs: Any) -> None:
        is_outer, is_phase = not self._busy, not self._busy and self.now != "model"
        if is_phase:
            if self.epoch.is_over():  # it is of the next epoch
                raise TraceFinished
            if self.now in {"input", "zero_grad"}:
                self._stop_if_enough()
                self.end("input")
            self.end("forward")
            self.now = "backward"
        self._run(plain, args, kwargs, is_phase=is_phase)
        if is_phase:
            self.end("backward")
            self.now = "input"
        if is_outer:
            self._begin_pass("backward")

    def _begin_pass(self, name: str) -> None:
        """End a job whose passes repeat, if no optimizer has yet to step twice; one that has none after a few."""
        now, stats = time.monotonic(), self._memory.allocator.stats
        place = f"{name} at {Path(self._where.user_line()).name}"
        self._passes.begin(place, (stats.allocated, self._memory.peak, stats.reserved), now)
        is_long = self._steps < NO_END and now >= self._passes.since + LONG
        is_awaited = self.awaits_step() or self.steps_done == 1
        is_by_hand = name == "backward" and not self._trains
        repeats = self._passes.summary(ALIKE + 1 if is_by_hand else ENOUGH)["repeat"]
        if repeats and (is_by_hand or (is_long and not is_awaited)):
            if self.now == "model":  # no module was called: what the passes held is that phase's
                self.end("model")
            raise TraceFinished(self._passes.summary())

    def install(self, patches: Patches) -> None:
        for handle in (
            module_hooks.register_module_forward_pre_hook(self._module_called),
            module_hooks.register_module_forward_hook(self._module_returned, always_call=True),
            optimizer_hooks.register_optimizer_step_pre_hook(self._step_begins),
            optimizer_hooks.register_optimizer_step_post_hook(self._step_done),
        ):
            patches.callback(handle.remove)
        kinds: list[type] = [torch.optim.Optimizer]
        for kind in kinds:  # grows as subclasses are found
            kinds += kind.__subclasses__()
            if "__init__" in vars(kind):
                patches.around(kind, "__init__")(self._construct)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            patches.around(owner, "zero_grad")(self._zero)
        patches.around(torch.autograd, "backward")(self._go_backward)

        def watch_caches(module: ModuleType) -> None:
            @patches.around(module.Cache, "__init__")
            def construct(plain: Any, cache: Any, *args: Any, **kwargs: Any) -> None:
                plain(cache, *args, **kwargs)
                self._caches.add(cache)

        when_imported("transformers.cache_utils", watch_caches)
        patches.around(_BaseDataLoaderIter, "__next__")(self.epoch.load)
        gc.callbacks.append(self._collects)
        patches.callback(gc.callbacks.remove, self._collects)

    def adopt(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        for optimizer in optimizers:
            self.optimizers.add(optimizer)
        if self.optimizers:
            self._trains = True
            self.end("model")
            self._await_first_use()

    def _end_job(self) -> None:
        raise TraceFinished

    def finish(self) -> None:
        grew = self._memory.peak > max((row.peak_allocated for row in self.rows), default=0)
        has_something = grew or (self.now == "input" and (not self._trains or self._is_first_use_awaited))
        if self.now in {"model", "forward"} or has_something:
            self.end(self.now)

    def step_of(self, phase: str) -> int:
        if phase in {"model", "optimizer"}:
            return -1
        together = self.optimizers if self._together is None else self._together
        is_open = bool(self._stepped) and any(one not in self._stepped for one in together)
        return self.steps_done - is_open  # one of the optimizers that take the last step has yet to

    def _stop_if_enough(self) -> None:
        """Inference has no steps to count: it runs to its end."""
        if self._trains and self.steps_done >= self._steps:
            self._done_at = self._done_at or time.monotonic()
            is_late = self.steps_done >= AWAITED * self._steps or time.monotonic() > self._done_at + LONG
            if (is_late or not self.awaits_step(min(2, self._steps))) and not self.epoch.goes_on(self.steps_done):
                raise TraceFinished

    def awaits_step(self, least: int = 2) -> bool:
        """Return whether an optimizer, and none that wraps another, has stepped less often."""
        kind = torch.optim.Optimizer
        own = [one for one in self.optimizers if not any(isinstance(inner, kind) for inner in vars(one).values())]
        return any(self._counts.get(one, 0) < least and getattr(one, "param_groups", True) for one in own)

    def _step_begins(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.now == "forward":
            self.end("forward")
        self.now = "step"
        self._busy += 1

    def _step_done(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        self._busy -= 1
        if optimizer in self._stepped:  # a step of the job is one of each of its optimizers, as for `vramtui run`
            self._together = weakref.WeakSet(self._stepped)
            self._stepped.clear()
        if not self._stepped:
            self.steps_done += 1
        self._stepped.add(optimizer)
        self._counts[optimizer] = self._counts.get(optimizer, 0) + 1
        self.end("step", self.steps_done - 1)
        self.now = "zero_grad"

    def _module_called(self, module: torch.nn.Module, _args: Any) -> None:
        self._where.entered(module)
        if self._busy or len(self._where.running.modules) > 1 or not self._is_model(module):
            return
        self._begin_pass(type(module).__name__)
        if self.now in {"optimizer", "forward"}:
            return
        if self.now == "model":
            self.end("model")
        else:
            self._stop_if_enough()
            self.end("input")
        self.now = "forward"

    def _module_returned(self, module: torch.nn.Module, _args: Any, out: Any) -> None:
        """Without gradients no backward ends the forward phase: the model's return does; an error returns None."""
        modules = self._where.running.modules
        if modules:
            modules.pop()
        is_inner = self.now != "forward" or torch.is_grad_enabled() or self._busy or modules or out is None
        if not is_inner and self._is_model(module):
            self.end("forward")
            self.steps_done += not self._trains
            self.now = "input"

    def _is_model(self, module: torch.nn.Module) -> bool:
        if module not in self.models:
            own = {id(p) for p in torch.nn.Module.parameters(module)}
            optimized = {id(p) for o in self.optimizers for group in o.param_groups for p in group["params"]}
            if not own or (self._trains and not own & optimized):
                return False
            self.models.add(module)
        return True

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        allocated = self._memory.allocator.stats.allocated
        if phase == "start":
            self._before_collection = allocated
        elif not is_asked(sys._getframe().f_back):
            self._most_garbage = max(self._most_garbage, self._before_collection - allocated)

    def _mark(self) -> None:
        """Mark entries by their holders; without one, the phase of birth decides."""

        def mark(value: Any, category: str) -> None:
            entry = self._memory.find(value) if isinstance(value, torch.Tensor) else None
            if entry is not None:
                entry.category = category

        for tensor, kind, name in parts_of(self.models, self.optimizers):
            is_cache = _CACHE_NAME.search(name) and not isinstance(tensor, torch.nn.Parameter) and kind == "weights"
            mark(tensor, "kv_cache" if is_cache else kind)
        for layer in (layer for cache in list(self._caches) for layer in getattr(cache, "layers", ())):
            mark(getattr(layer, "keys", None), "kv_cache")
            mark(getattr(layer, "values", None), "kv_cache")

    def end(self, phase: str, step: int | None = None) -> None:
        """A phase has ended: take its row and begin its successor's peaks; its step is the current one if not given."""
        step = self.step_of(phase) if step is None else step
        self._is_first_use_awaited = False
        stats = self._memory.allocator.stats
        self._mark()
        peak_allocated, peak_reserved = self._memory.end_phase()
        self.rows.append(
            TraceRow(
                phase=phase,
                step=step,
                allocated=stats.allocated,
                reserved=stats.reserved,
                peak_allocated=peak_allocated,
                peak_reserved=peak_reserved,
                categories=_sums(list(self._memory.alive.values())),
            )
        )
        self._progress(Progress(phase=phase, step=step, allocated=stats.allocated, peak_allocated=peak_allocated))

    def result(self, context: int, out_of_memory: str | None, *, is_cut: bool) -> DryRun:
        """The answer, after the code has ended, or was cut; `context` is the CUDA context in bytes."""
        memory, card, refused = self._memory, self._memory.device, self._memory.refused
        self.epoch.is_cut = is_cut
        self._mark()
        at_peak = memory.alive_at_peak()
        peak_row = max(self.rows, key=lambda row: row.peak_allocated, default=None)
        peak_reserved = max((row.peak_reserved for row in self.rows), default=0)
        notes = [*memory.warnings.values(), *results.differing_batches(self.rows if is_cut else ())]
        if out_of_memory is None and refused is not None:
            asked, missing = (format_bytes(size) for size in (refused.segment_size, refused.missing))
            line = memory.refused_at and f" at {memory.refused_at}"
            notes.append(
                f"the code caught PyTorch's out-of-memory error{line}, which asked for {asked} with {missing} too few, "
                "and went on: these are the figures of what ran all the same"
            )
        if self._most_garbage > LEAST_SHARE * memory.peak:
            notes.append(GARBAGE_NOTE.format(format_bytes(self._most_garbage)))
        largest = [
            LiveAllocation(
                bytes=entry.size,
                category=_category_of(entry),
                operator=str(entry.operator),
                **{name: getattr(entry, name) for name in ("module", "line", "phase")},
            )
            for entry in sorted(at_peak, key=lambda entry: -entry.size)[:_LARGEST]
        ]
        # The trace is thinned: of each stretch of events its highest and its last.
        changes, every, chosen = memory.changes, max(1, len(memory.changes) // _POINTS), set[int]()
        for start in range(0, len(changes), every):
            stretch = range(start, min(start + every, len(changes)))
            chosen |= {max(stretch, key=lambda i: changes[i][0]), stretch[-1]}
        return DryRun(
            torch=str(torch.__version__),
            device=card.name,
            capability=card.capability,
            total_memory=card.total_memory,
            timeline=tuple(self.rows),
            peak_allocated=peak_row.peak_allocated if peak_row else 0,
            peak_reserved=peak_reserved,
            peak_phase=peak_row.phase if peak_row else "",
            peak_step=peak_row.step if peak_row else -1,
            process=peak_reserved + context,
            unseen=int(peak_reserved * memory.unseen_share),
            context=context,
            peak_categories=_sums(at_peak),
            largest=tuple(largest),
            warnings=tuple(notes),
            bounded=memory.bounded,
            cut_short=is_cut,
            epoch=None if (epoch := self.epoch.summary()) is None else results.SeenEpoch(**epoch),
            out_of_memory=out_of_memory,
            exit_code=int(out_of_memory is not None),
            asked=refused.segment_size if refused is not None else None,
            missing=refused.missing if refused is not None else None,
            series=tuple(
                TracePoint(event=i + 1, allocated=changes[i][0], reserved=changes[i][1]) for i in sorted(chosen)
            ),
            events=len(changes),
        )


def _category_of(entry: StorageEntry) -> str:
    if entry.category is not None:
        return entry.category
    if entry.phase == "backward" and entry.module and not entry.module.startswith("backward of"):
        return "activations"  # made anew by checkpointing
    return str(LISTS["by_birth"].get(entry.phase, "temporaries"))


def _sums(entries: Iterable[StorageEntry]) -> dict[str, int]:
    totals = dict.fromkeys(CATEGORIES, 0)
    for entry in entries:
        totals[_category_of(entry)] += entry.size
    return totals
