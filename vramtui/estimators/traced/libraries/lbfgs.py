"""L-BFGS, which goes on for as long as the loss falls: nobody computes in a trace whether it does."""

import math
from typing import Any

import torch

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches

NOTE = (
    "L-BFGS is taken to go on for all {} iterations of a step: nobody computes here whether the loss still falls; each "
    "keeps two vectors of all parameters, up to {} pairs, which steps beyond those traced may add to"
)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Let none of the tests that end a step early hold (`tolerance_change` in torch/optim/lbfgs.py, 2.13): each loss is
    the same constant, which would end the first iteration.
    """
    plain: Any = torch.optim.LBFGS.step

    def step(optimizer: Any, closure: Any) -> Any:
        group = optimizer.param_groups[0]
        memory.warn(NOTE.format(group["max_iter"], group["history_size"]))
        tolerance = group["tolerance_change"]
        group["tolerance_change"] = -math.inf
        try:
            return plain(optimizer, closure)
        finally:
            group["tolerance_change"] = tolerance

    patches.set(torch.optim.LBFGS, "step", step)
