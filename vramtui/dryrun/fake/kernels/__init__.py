"""CUDA kernels that allocate more than their outputs: a rule for each operator."""

from collections.abc import Callable, Iterable
from typing import Any

import torch

Rule = Callable[[Any], Any]
KERNELS: dict[int, Rule] = {}  # by the operator's id, as its hash is a function in Python


def operator_of(name: str) -> Any:
    namespace, _, name = name.rpartition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), overload or "default")


def kernel(*operators: str) -> Callable[[Rule], Rule]:
    """Register a rule, which gets the Call: it takes memory and runs the operator in the order of CUDA's code."""

    def register(rule: Rule) -> Rule:
        KERNELS.update((id(operator_of(name)), rule) for name in operators)
        return rule

    return register


def after(*operators: str) -> Callable[[Callable[[Any, Any], object]], Rule]:
    """Register a rule that takes memory once an operator's results are there, for as long as the kernel runs."""

    def register(rule: Callable[[Any, Any], object]) -> Rule:
        @kernel(*operators)
        def run(call: Any) -> Any:
            out = call.run()
            rule(call, out)
            return out

        return run

    return register


def works_in(*operators: str, first: bool = False) -> Callable[[Callable[[Any], Iterable[int]]], Rule]:
    """Register the bytes of each piece of memory that a kernel works in; `first`: it takes them before its results."""

    def register(rule: Callable[[Any], Iterable[int]]) -> Rule:
        @kernel(*operators)
        def run(call: Any) -> Any:
            out = None if first else call.run()
            call.scratch(*rule(call))
            return call.run() if first else out

        return run

    return register
