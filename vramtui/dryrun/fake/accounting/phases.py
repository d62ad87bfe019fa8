"""The line, the module and the phase in which the code is; hooks follow the phases."""

import contextlib
import functools
import gc
import os
import sys
import sysconfig
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import torch
import torch.autograd
import torch.nn.modules.module as module_hooks
import torch.optim.optimizer as optimizer_hooks

from vramtui.dryrun.fake.accounting.memory import SimulatedMemory, StorageEntry
from vramtui.dryrun.fake.device.patches import Patches

_OURS = __file__.partition(f"{os.sep}dryrun{os.sep}")[0] + os.sep
# Also those of another environment, which a .pth file, PYTHONPATH or --system-site-packages brings in.
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_LIBRARIES = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


class Whereabouts:
    """Keeps the stack of running modules and finds the nearest line that is the user's own."""

    def __init__(self) -> None:
        self.last_line = ""
        self._names: dict[int, str] = {}
        self._stacks = threading.local()
        # By id, as the hash of a code object goes through all of its bytes; kept, so that no other takes the id.
        self._users: dict[int, tuple[bool, CodeType]] = {}
        self._by_sequence: dict[int, tuple[str, str]] = {}

    @property
    def stack(self) -> list[int]:
        """The modules whose forward this thread is in, by id."""
        modules: list[int] | None = getattr(self._stacks, "modules", None)
        if modules is None:
            modules = self._stacks.modules = []
        return modules

    def entered(self, module: torch.nn.Module) -> None:
        if id(module) not in self._names:
            for path, one in module.named_modules(remove_duplicate=False):
                self._names.setdefault(id(one), f"{path} ({type(one).__name__})" if path else type(one).__name__)
        self.stack.append(id(module))

    def locate(self, entry: StorageEntry) -> None:
        """Fill in an entry's module and line."""
        if torch._C._current_graph_task_id() != -1 and not self.stack:
            node = torch._C._current_autograd_node()
            if node is not None:
                module, entry.line = self._by_sequence.get(node._sequence_nr(), ("", ""))
                entry.module = f"backward of {module}" if module else node.name()
        else:
            entry.module, entry.line = self._module(), self.user_line()
        self.last_line = entry.line or self.last_line

    def remember(self) -> None:
        """An operator is about to be dispatched in forward: its autograd node, just made, leads back here."""
        sequence = torch._C._autograd._get_sequence_nr() - 1
        if sequence not in self._by_sequence:
            self._by_sequence[sequence] = self._module(), self.user_line()

    def user_line(self, thread: int | None = None) -> str:
        """The nearest frame outside torch, libraries and this program, as `file:line`; empty when there is none."""
        frame = sys._getframe(1) if thread is None else sys._current_frames().get(thread)
        while frame is not None:
            code = frame.f_code
            known = self._users.get(id(code))
            if known is None:
                known = self._users[id(code)] = is_users(code.co_filename), code
            if known[0]:
                return f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _module(self) -> str:
        return self._names.get(self.stack[-1], "") if self.stack else ""


def is_users(filename: str) -> bool:
    if filename.startswith(("<", _OURS, *_LIBRARIES)):
        return False
    return not any(folder in filename for folder in _PACKAGES)


# Backward passes without a new peak, after which a loop that has no optimizer is taken to go on as it does.
_STEADY_PASSES = 16
STEADY_NOTE = (
    f"no optimizer of torch.optim is used, so no steps are counted: the trace ended after {_STEADY_PASSES} backward "
    "passes without a new peak"
)


class TraceFinished(BaseException):
    """Enough steps have been seen. No `except Exception` of the code is to catch it."""


class PhaseTracker:
    """Follows the phases and calls `ended(phase, step)` at the end of each."""

    def __init__(
        self, memory: SimulatedMemory, where: Whereabouts, steps: int, ended: Callable[[str, int], None]
    ) -> None:
        # Models and optimizers are held weakly, so that what the code deletes is gone.
        self.models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        # Those that have taken the last step, and those that take one together: a GAN's two or one for each parameter.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._together: weakref.WeakSet[torch.optim.Optimizer] | None = None
        self._memory, self._where, self._steps, self._ended = memory, where, steps, ended
        self._busy = self._alike = 0
        self._last_highest: object = None
        self._handles: list[Any] = []
        memory.phase = lambda: self.now
        self.begin_again()

    def begin_again(self) -> None:
        """Forget models and optimizers: those of the job come now."""
        self.now, self.steps_done, self._trains = "model", 0, False
        self._is_first_use_awaited = False  # an optimizer is there, and nothing has run since
        self._together = None
        for seen in (self.models, self.optimizers, self._stepped):
            seen.clear()

    @contextlib.contextmanager
    def _is_within(self, is_phase: bool) -> Iterator[None]:
        self._busy += is_phase
        try:
            yield
        finally:
            self._busy -= is_phase

    @contextlib.contextmanager
    def _zeroes(self, *_owner: Any) -> Iterator[None]:
        yield
        if self.now == "zero_grad" and not self._busy:
            self.end("zero_grad", self.steps_done - 1)
            self.now = "input"
            self._stop_if_enough()

    @contextlib.contextmanager
    def _constructs(self, optimizer: torch.optim.Optimizer, *_args: Any) -> Iterator[None]:
        if not self._trains and not self._busy:
            # A job loads torch._dynamo with its first optimizer: so many objects that Python's collector looks through
            # all of them (torch/_compile.py, 2.13). Here it is loaded before the code begins.
            gc.collect()
            self.end("model" if self.now in {"model", "input"} else self.now)
            self.now = "optimizer"
        with self._is_within(is_phase=True):
            yield
        if not self._busy:
            self.optimizers.add(optimizer)
            if not self._trains:  # what ran without one were no steps of training
                self._trains, self.steps_done = True, 0
            if self.now == "optimizer":
                self.end("optimizer")
                self.now, self._is_first_use_awaited = "input", True

    @contextlib.contextmanager
    def _goes_backward(self, *_args: Any) -> Iterator[None]:
        is_outer, is_phase = not self._busy, not self._busy and self.now != "model"
        if is_phase:
            if self.now in {"input", "zero_grad"}:
                self._stop_if_enough()
                self.end("input")
            self.end("forward")
            self.now = "backward"
        with self._is_within(is_phase):
            yield
        if is_phase:
            self.end("backward")
            self.now = "input"
        if not is_outer or self._trains:
            return
        # Code that updates its weights by hand has no steps to count: it ends when its passes set no new peak.
        highest = (self._memory.peak, self._memory.allocator.stats.reserved)
        self._alike = self._alike + 1 if highest == self._last_highest else 0
        self._last_highest = highest
        if self._alike >= _STEADY_PASSES:
            self._memory.warn(STEADY_NOTE)
            if self.now == "model":  # no module was called: what the passes held is that phase's
                self.end("model")
            raise TraceFinished

    def install(self, patches: Patches) -> None:
        def within(owner: Any, name: str, around: Callable[..., Any]) -> None:
            plain = getattr(owner, name)

            @functools.wraps(plain)
            def call(*args: Any, **kwargs: Any) -> Any:
                with around(*args):
                    return plain(*args, **kwargs)

            patches.set(owner, name, call)

        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._module_called),
            module_hooks.register_module_forward_hook(self._module_returned, always_call=True),
            optimizer_hooks.register_optimizer_step_pre_hook(self._step_begins),
            optimizer_hooks.register_optimizer_step_post_hook(self._step_done),
        ]
        kinds: list[type] = [torch.optim.Optimizer]
        for kind in kinds:  # grows as subclasses are found
            kinds += kind.__subclasses__()
            if "__init__" in vars(kind):
                within(kind, "__init__", self._constructs)
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            within(owner, "zero_grad", self._zeroes)
        within(torch.autograd, "backward", self._goes_backward)

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def adopt(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Follow optimizers that were made in another process; their models are there by now."""
        for optimizer in optimizers:
            self.optimizers.add(optimizer)
        if self.optimizers:
            self._trains = True
            self.end("model")
            self.end("optimizer")
            self.now, self._is_first_use_awaited = "input", True

    def finish(self) -> None:
        has_something = self.now == "input" and (not self._trains or self._is_first_use_awaited)
        if self.now in {"model", "forward"} or has_something:
            self.end(self.now)

    def step_of(self, phase: str) -> int:
        if phase in {"model", "optimizer"}:
            return -1
        together = self.optimizers if self._together is None else self._together
        is_open = bool(self._stepped) and any(one not in self._stepped for one in together)
        return self.steps_done - is_open  # one of the optimizers that take the last step has yet to

    def end(self, phase: str, step: int | None = None) -> None:
        self._is_first_use_awaited = False
        self._ended(phase, self.step_of(phase) if step is None else step)

    def _stop_if_enough(self) -> None:
        """Inference has no steps to count: it runs to its end."""
        if self._trains and self.steps_done >= self._steps:
            raise TraceFinished

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
        self.end("step", self.steps_done - 1)
        self.now = "zero_grad"

    def _module_called(self, module: torch.nn.Module, _args: Any) -> None:
        self._where.entered(module)
        if self._busy or len(self._where.stack) > 1 or self.now in {"optimizer", "forward"}:
            return
        if not self._is_model(module):
            return
        if self.now == "model":
            self.end("model")
        else:
            self._stop_if_enough()
            self.end("input")
        self.now = "forward"

    def _module_returned(self, module: torch.nn.Module, _args: Any, out: Any) -> None:
        """Without gradients no backward ends the forward phase: the model's return does; an error returns None."""
        stack = self._where.stack
        if stack:
            stack.pop()
        if self.now != "forward" or torch.is_grad_enabled() or self._busy or stack or out is None:
            return
        if self._is_model(module):
            self.end("forward")
            self.steps_done += not self._trains
            self.now = "input"

    def _is_model(self, module: torch.nn.Module) -> bool:
        if module in self.models:
            return True
        if next(module.parameters(), None) is None:
            return False
        if self._trains:
            optimized = {id(p) for o in self.optimizers for group in o.param_groups for p in group["params"]}
            if not any(id(p) in optimized for p in module.parameters()):
                return False
        self.models.add(module)
        return True
