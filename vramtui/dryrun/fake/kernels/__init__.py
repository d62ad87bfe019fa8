"""CUDA kernels that allocate more than their outputs, one small function per operator."""

from collections.abc import Callable
from typing import Any

import torch

Kernel = Callable[[Any], Any]
# By the operator's id, as its hash is a function in Python.
_KERNELS: dict[int, Kernel] = {}


def kernel(*operators: str) -> Callable[[Kernel], Kernel]:
    """Register a rule for operators named `name.overload` of aten, or `namespace::name.overload`.

    The rule gets the Call; it takes scratch memory and runs the operator in the order the CUDA code does.
    """

    def register(rule: Kernel) -> Kernel:
        for operator in operators:
            namespace, _, name = operator.rpartition("::")
            packet, _, overload = name.partition(".")
            func = getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), overload or "default")
            _KERNELS[id(func)] = rule
        return rule

    return register


def after(*operators: str) -> Callable[[Callable[[Any, Any], None]], Callable[[Any, Any], None]]:
    """Register a rule that takes memory once an operator's results are there, for as long as the kernel runs."""

    def register(rule: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
        def run(call: Any) -> Any:
            out = call.run()
            rule(call, out)
            return out

        kernel(*operators)(run)
        return rule

    return register


def find_kernel(func: Any) -> Kernel | None:
    """The rule for an operator, or None: outputs only."""
    return _KERNELS.get(id(func))
