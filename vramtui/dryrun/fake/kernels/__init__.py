"""CUDA kernels that allocate more than their outputs, one small function per operator."""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar

import torch

Answer = TypeVar("Answer")
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


def find_kernel(func: Any) -> Kernel | None:
    """The rule for an operator, or None: outputs only."""
    return _KERNELS.get(id(func))


def by_operator(ask: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Run `ask` once for each operator."""
    known: dict[int, Answer] = {}

    @functools.wraps(ask)
    def answer(func: Any) -> Answer:
        key = id(func)
        if key not in known:
            known[key] = ask(func)
        return known[key]

    return answer


_MODULES = ("attention", "convolution", "copies", "layers", "matmul", "recurrent", "reductions", "unshaped")


def load_all() -> None:
    for name in _MODULES:
        import_module(f"{__name__}.{name}")
