"""The table of operators whose CUDA kernels take memory that fake tensors do not show."""

from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[[Any], Any]
_KERNELS: dict[int, Kernel] = {}  # by the operator's id, as its hash is a function in Python


def kernel(*operators: str) -> Callable[[Kernel], Kernel]:
    """Register a rule for operators named `name.overload` of aten, or `namespace::name.overload`.

    The rule gets the Call; it takes scratch memory and runs the operator in the order the CUDA code does.
    """

    def register(rule: Kernel) -> Kernel:
        for operator in operators:
            namespace, _, name = operator.rpartition("::")
            packet, _, overload = name.partition(".")
            known = getattr(torch.ops, namespace or "aten")
            _KERNELS[id(getattr(getattr(known, packet), overload or "default"))] = rule
        return rule

    return register


def find_kernel(func: Any) -> Kernel | None:
    """The rule for an operator, or None: outputs only."""
    return _KERNELS.get(id(func))
