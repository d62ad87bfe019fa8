"""Iterations that go on by a value that nobody computes in a trace: L-BFGS, for as long as the loss falls, and solvers
of differential equations, whose steps are as long as an error allows.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches, for_module
from vramtui.estimators.traced.dispatch import values

# torchdiffeq 0.2.5: its steps with an error are taken in `rk_common`, by a function that is imported by its name.
_MODULE, _NAME = "torchdiffeq._impl.rk_common", "_compute_error_ratio"
# Its `_optimal_step_size` makes 0.9 / ratio ** (1 / order) of it: twice the step, by a method of order 5.
RATIO = 0.45**5
LONGER_STEPS = (
    "torchdiffeq chooses its steps by an error that nobody computes here: each is taken to be twice as long as the one "
    "before; a stiff equation takes more of them, and without the adjoint method each keeps its activations"
)

ALL_ITERATIONS = (
    "L-BFGS is taken to go on for all {} iterations of a step: nobody computes here whether the loss still falls; each "
    "keeps two vectors of all parameters, up to {} pairs, which steps beyond those traced may add to"
)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let iterations go on as they would."""
    _lbfgs(patches, memory)
    _solvers(patches, memory)


def _lbfgs(patches: Patches, memory: SimulatedMemory) -> None:
    """Let none of the tests that end a step early hold (`tolerance_change` in torch/optim/lbfgs.py, 2.13): each loss is
    the same constant, which would end the first iteration.
    """
    plain: Any = torch.optim.LBFGS.step

    def step(optimizer: Any, closure: Any) -> Any:
        group = optimizer.param_groups[0]
        memory.warn(ALL_ITERATIONS.format(group["max_iter"], group["history_size"]))
        tolerance = group["tolerance_change"]
        group["tolerance_change"] = -math.inf
        try:
            return plain(optimizer, closure)
        finally:
            group["tolerance_change"] = tolerance

    patches.set(torch.optim.LBFGS, "step", step)


def _solvers(patches: Patches, memory: SimulatedMemory) -> None:
    """Let each step be accepted, and the next be longer; a constant for the error would make each shorter."""
    for_module(patches, _MODULE, lambda module: patches.set(module, _NAME, _accepting(vars(module)[_NAME], memory)))


def _accepting(plain: Callable[..., Any], memory: SimulatedMemory) -> Callable[..., Any]:
    @functools.wraps(plain)
    def ratio_of(*args: Any, **kwargs: Any) -> Any:
        ratio = plain(*args, **kwargs)
        entry = memory.book.find(ratio)
        if entry is not None and entry.guessed:
            memory.warn(LONGER_STEPS)
            with values.plainly():
                values.put(memory.book, ratio, torch.full((), RATIO))
            entry.guessed = True
        return ratio

    return ratio_of
