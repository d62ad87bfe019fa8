"""The job's phase (build, input, forward, backward or step), by torch's own global hooks.

Hooks on every module would cost every module's call. Only the first, outermost call after a step or a backward pass
says anything new, so the hook is taken off by the very call that it saw and put back by the next backward pass or
step. Nothing is ever put on a module or a tensor of the job: what it copies or saves stays as it is.
"""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from .import_hook import around

if TYPE_CHECKING:
    from collections.abc import Callable
COMPILED_WARNING = r"Using `torch\.compile\(module\)` when there are global hooks"


class _Arguments(tuple):  # type: ignore[type-arg] # noqa: SLOT001 - of anything; a tuple has room for no slot
    """Arguments that an outermost call lets go of as it returns (`_call_impl`, torch/nn/modules/module.py, 2.13)."""

    returned: Callable[[], None]

    def __del__(self) -> None:
        self.returned()


class Hooks:
    """Calls `turn(phase)` when a phase begins, `step_ends(optimizer)` after a step, `call_begins(module)` at a forward
    of another module than before; and `pass_begins(name)`, if given, at every outermost forward and backward pass.

    Phases: `forward` from the outermost module's call on, `backward` from `torch.autograd.backward` on, `step` while
    an optimizer steps. Where `watching` is set to False, only ends of steps are reported, and those only where `rest`
    is over: so many ends of steps are counted and nothing else, for each call costs a job that has left the caches.
    """

    def __init__(
        self,
        torch: Any,
        *,
        turn: Callable[[str], None],
        call_begins: Callable[[Any], None],
        step_begins: Callable[[Any], None],
        step_ends: Callable[[Any], None],
        pass_begins: Callable[[str], None] | None,
    ) -> None:
        self._torch = torch
        self._turn = turn
        self._call_begins = call_begins
        self._step_begins = step_begins
        self._step_ends = step_ends
        self._pass_begins = pass_begins
        self.watching = True
        self.rest = 0
        self.counts: dict[int, int] = {}  # of steps, by optimizer
        self._waiting: Any = None  # torch's own table of hooks on every call, and our place in it
        self._key = 0
        self._is_new = True  # a step or a backward pass has ended since the last call
        self._last_called: Callable[[], Any] = lambda: None
        self._stepping: Any = None
        # A compiler that follows the job's code meets the hook: this is what it knows by itself to be true.
        self._compiling = torch.compiler.is_compiling
        self._depth = 0  # of backward passes: a checkpointed layer begins another inside of one

    def put_on(self) -> None:
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        # The hook is off again before a compiled module's own code is looked at, so what this warns of cannot happen.
        warnings.filterwarnings("ignore", message=COMPILED_WARNING)
        register_optimizer_step_pre_hook(self._before_step)
        register_optimizer_step_post_hook(self._after_step)

        def observed(backward: Any, *arguments: Any, **named: Any) -> Any:
            if not self.watching or self._stepping is not None:
                return backward(*arguments, **named)
            if not self._depth:
                self._turn("backward")
                if self._pass_begins is not None:
                    self._pass_begins("backward")
            self._depth += 1
            try:
                return backward(*arguments, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._await_call()

        around(self._torch.autograd, "backward", observed)
        self._await_call()

    def begin_again(self) -> None:
        self.watching, self.rest, self._stepping, self._depth = True, 0, None, 0
        self.counts = {}
        self._await_call()

    @property
    def steps(self) -> int:
        """Steps of the job so far. Where several optimizers take turns, a step of the job is one of each."""
        return max(list(self.counts.values()), default=0)

    def _await_call(self) -> None:
        if self._waiting is None:
            handle = self._torch.nn.modules.module.register_module_forward_pre_hook(self._before_call)
            self._waiting = handle.hooks_dict_ref()
            self._key = handle.id
        self._is_new = True
        self._put_back()

    def _put_back(self) -> None:
        if self.watching:
            self._waiting[self._key] = self._before_call

    def _before_call(self, module: Any, arguments: Any) -> Any:
        if self._compiling():
            return None
        if threading.current_thread() is not threading.main_thread() or self._depth or self._stepping is not None:
            return None
        if module is not self._last_called() and next(self._torch.nn.Module.parameters(module), None) is None:
            return None  # a transform of the data, or a loss: no model; a job's own `parameters` may give a list
        self._waiting.pop(self._key, None)
        if module is not self._last_called():
            self._last_called = weakref.ref(module)
            self._call_begins(module)
        if self._is_new:
            self._turn("forward")
        self._is_new = False
        if self._pass_begins is None or module._backward_hooks or module._backward_pre_hooks:  # noqa: SLF001 - which copy it
            return None
        self._pass_begins(type(module).__name__)
        inside = _Arguments(arguments)
        inside.returned = self._put_back
        return inside

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        # An optimizer that steps others inside of its own step is one; one that failed may begin again.
        if self.watching and (self._stepping is None or self._stepping() in {None, optimizer}):
            self._stepping = weakref.ref(optimizer)
            self._step_begins(optimizer)
            self._turn("step")

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        if self.rest:
            self.rest -= 1
            self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
            return
        if not self.watching or (self._stepping is not None and self._stepping() is optimizer):
            self._stepping = None
            if getattr(optimizer, "param_groups", True):  # Lightning has one without any if a module configures none
                self.counts[id(optimizer)] = self.counts.get(id(optimizer), 0) + 1
                self._step_ends(optimizer)
            self._await_call()
