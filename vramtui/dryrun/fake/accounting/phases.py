"""The line, the module and the phase in which the code is; hooks follow the phases."""

import functools
import os
import sys
import sysconfig
import threading
import traceback
import weakref
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

import torch
import torch.autograd
import torch.nn.modules.module as hooks
import torch.nn.modules.module as module_hooks
import torch.optim.optimizer as optimizer_hooks

from vramtui.dryrun.fake.accounting.memory import StorageEntry
from vramtui.dryrun.fake.device.patches import Patches

_OURS = __file__.partition(f"{os.sep}dryrun{os.sep}")[0] + os.sep
# Also those of another environment, which a .pth file, PYTHONPATH or --system-site-packages brings in.
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
# A missing module or file, or an argument of another type: none of them hangs on what a tensor holds.
OF_NO_VALUE = (ImportError, OSError, TypeError, NameError)
_LIBRARIES = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


class Whereabouts:
    """Keeps the stack of running modules and finds the nearest line that is the user's own."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.last_line = ""
        self._stacks = threading.local()
        # By id, as the hash of a code object goes through all of its bytes; kept, so that no other takes the id.
        self._users: dict[int, tuple[bool, CodeType]] = {}
        self._by_sequence: dict[int, tuple[str, str]] = {}
        self._handles: list[Any] = []

    def install(self) -> None:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._entered),
            hooks.register_module_forward_hook(self._left, always_call=True),
        ]

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def depth(self) -> int:
        return len(self._stack())

    def locate(self, entry: StorageEntry) -> None:
        """Fill in an entry's module and line."""
        if torch._C._current_graph_task_id() != -1 and not self._stack():
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

    def user_line(self) -> str:
        """The nearest frame outside torch, libraries and this program, as `file:line`; empty when there is none."""
        return self._nearest_line(sys._getframe(1))

    def line_of(self, thread: int) -> str:
        return self._nearest_line(sys._current_frames().get(thread))

    def _nearest_line(self, frame: FrameType | None) -> str:
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
        stack = self._stack()
        return self.names.get(stack[-1], "") if stack else ""

    def _stack(self) -> list[int]:
        frames: list[int] | None = getattr(self._stacks, "modules", None)
        if frames is None:
            frames = self._stacks.modules = []
        return frames

    def _entered(self, module: torch.nn.Module, _args: Any) -> None:
        key = id(module)
        if key not in self.names:
            for path, one in module.named_modules(remove_duplicate=False):
                self.names.setdefault(id(one), f"{path} ({type(one).__name__})" if path else type(one).__name__)
        self._stack().append(key)

    def _left(self, _module: torch.nn.Module, _args: Any, _out: Any) -> None:
        stack = self._stack()
        if stack:
            stack.pop()


def is_users(filename: str) -> bool:
    if filename.startswith(("<", _OURS, *_LIBRARIES)):
        return False
    return not any(folder in filename for folder in _PACKAGES)


def guess_read_before(error: BaseException, memory: Any, *, by_operator: bool) -> str:
    """The line of a constant that the failed function has read, or that decided a loop before it; or empty."""
    guesses = memory.guesses_read
    users = [frame for frame, _line in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename)]
    if not users or isinstance(error, OF_NO_VALUE):
        return ""
    for frame in reversed(users):
        code = frame.f_code
        lines = [f"{code.co_filename}:{line}" for _, _, line in code.co_lines()]
        read = next((line for line in reversed(lines) if line in guesses), "")
        # What is counted in one function is divided by in another; a comprehension has its numbers from around it.
        if read or not (isinstance(error, ZeroDivisionError) or code.co_name.startswith("<")):
            return read or (memory.loop_decided if by_operator else "")
    return memory.loop_decided if by_operator else ""


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

    def __init__(self, whereabouts: Whereabouts, steps: int, ended: Callable[[str, int], None]) -> None:
        self.now, self.steps_done = "model", 0
        # Weak, so that what the code deletes is gone.
        self.models: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self.optimizers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._trains = False
        self._is_first_use_awaited = False  # an optimizer is there, and nothing has run since
        self._where, self._steps, self._ended, self._busy = whereabouts, steps, ended, 0
        # Those that have taken the last step, and those that take one together: a GAN's two or one for each parameter.
        self._stepped: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._together: weakref.WeakSet[torch.optim.Optimizer] | None = None
        self._handles: list[Any] = []
        # What no longer changes once passes are alike, and who is told of it; the session says both.
        self.highest: Callable[[], object] = object
        self.warn: Callable[[str], None] = lambda _sentence: None
        self._last_highest: object = None
        self._alike = 0

    def install(self, patches: Patches) -> None:
        def around_zero_grad(plain: Any) -> Any:
            @functools.wraps(plain)
            def zero_grad(owner: Any, *args: Any, **kwargs: Any) -> None:
                plain(owner, *args, **kwargs)
                if self.now == "zero_grad" and not self._busy:
                    self._end("zero_grad", self.steps_done - 1)
                    self.now = "input"
                    self._stop_if_enough()

            return zero_grad

        def around_construction(plain: Any) -> Any:
            @functools.wraps(plain)
            def construct(optimizer: Any, *args: Any, **kwargs: Any) -> None:
                if not self._trains and not self._busy:
                    self._end("model" if self.now in {"model", "input"} else self.now)
                    self.now = "optimizer"
                self._busy += 1
                try:
                    plain(optimizer, *args, **kwargs)
                finally:
                    self._busy -= 1
                if not self._busy:
                    self.optimizers.add(optimizer)
                    if not self._trains:  # what ran without one were no steps of training
                        self._trains, self.steps_done = True, 0
                    if self.now == "optimizer":
                        self._end("optimizer")
                        self.now, self._is_first_use_awaited = "input", True

            return construct

        def around_backward(plain: Any) -> Any:
            @functools.wraps(plain)
            def backward(*args: Any, **kwargs: Any) -> Any:
                if self._busy:
                    return plain(*args, **kwargs)
                if self.now == "model":
                    out = plain(*args, **kwargs)
                    self._passed()
                    return out
                if self.now in {"input", "zero_grad"}:
                    self._stop_if_enough()
                    self._end("input")
                self._end("forward")
                self.now = "backward"
                self._busy += 1
                try:
                    out = plain(*args, **kwargs)
                finally:
                    self._busy -= 1
                self._end("backward")
                self.now = "input"
                self._passed()
                return out

            return backward

        self._handles = [
            module_hooks.register_module_forward_pre_hook(self._module_called),
            module_hooks.register_module_forward_hook(self._module_returned),
            optimizer_hooks.register_optimizer_step_pre_hook(self._step_begins),
            optimizer_hooks.register_optimizer_step_post_hook(self._step_done),
        ]
        kinds: list[type] = [torch.optim.Optimizer]
        for kind in kinds:  # grows as subclasses are found
            kinds += kind.__subclasses__()
            if "__init__" in vars(kind):
                patches.set(kind, "__init__", around_construction(vars(kind)["__init__"]))
        for owner in (torch.optim.Optimizer, torch.nn.Module):
            patches.set(owner, "zero_grad", around_zero_grad(owner.zero_grad))
        patches.set(torch.autograd, "backward", around_backward(torch.autograd.backward))

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()

    def begin_again(self) -> None:
        """Forget models and optimizers: those of the job come now."""
        self.now, self.steps_done, self._trains, self._is_first_use_awaited = "model", 0, False, False
        self.models.clear()
        self.optimizers.clear()
        self._stepped.clear()
        self._together = None

    def adopt(self, optimizers: Iterable[torch.optim.Optimizer]) -> None:
        """Follow optimizers that were made in another process; their models are there by now."""
        for optimizer in optimizers:
            self.optimizers.add(optimizer)
        if self.optimizers:
            self._trains = True
            self._end("model")
            self._end("optimizer")
            self.now, self._is_first_use_awaited = "input", True

    def finish(self) -> None:
        has_something = self.now == "input" and (not self._trains or self._is_first_use_awaited)
        if self.now in {"model", "forward"} or has_something:
            self._end(self.now)

    def abandon(self) -> None:
        self._end(self.now)

    def step_now(self) -> int:
        return self._step_of(self.now)

    def _step_of(self, phase: str) -> int:
        if phase in {"model", "optimizer"}:
            return -1
        together = self.optimizers if self._together is None else self._together
        is_open = bool(self._stepped) and any(one not in self._stepped for one in together)
        return self.steps_done - is_open  # one of the optimizers that take the last step has yet to

    def _end(self, phase: str, step: int | None = None) -> None:
        self._is_first_use_awaited = False
        self._ended(phase, self._step_of(phase) if step is None else step)

    def _stop_if_enough(self) -> None:
        """Inference has no steps to count: it runs to its end."""
        if self._trains and self.steps_done >= self._steps:
            raise TraceFinished

    # ---- optimizers

    def _step_begins(self, _optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if self.now == "forward":
            self._end("forward")
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
        self._end("step", self.steps_done - 1)
        self.now = "zero_grad"

    # ---- modules

    def _module_called(self, module: torch.nn.Module, _args: Any) -> None:
        if self._busy or self._where.depth() > 1 or self.now in {"optimizer", "forward"} or not self._is_model(module):
            return
        if self.now == "model":
            self._end("model")
        else:
            self._stop_if_enough()
            self._end("input")
        self.now = "forward"

    def _module_returned(self, module: torch.nn.Module, _args: Any, _out: Any) -> None:
        """Without gradients no backward ends the forward phase: the model's return does."""
        if self.now != "forward" or torch.is_grad_enabled() or self._busy or self._where.depth():
            return
        if self._is_model(module):
            self._end("forward")
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

    def _passed(self) -> None:
        """Code that updates its weights by hand has no steps to count: it ends when its passes set no new peak."""
        if self._trains:
            return
        highest = self.highest()
        self._alike = self._alike + 1 if highest == self._last_highest else 0
        self._last_highest = highest
        if self._alike >= _STEADY_PASSES:
            self.warn(STEADY_NOTE)
            if self.now == "model":  # no module was called: what the passes held is that phase's
                self._end("model")
            raise TraceFinished
