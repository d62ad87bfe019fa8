"""The table of operators whose CUDA kernels take memory that fake tensors do not show."""

import functools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

Answer = TypeVar("Answer")
Kernel = Callable[[Any], Any]
Check = Callable[[dict[str, Any]], Iterable[str]]
# By the operator's id, as its hash is a function in Python.
_KERNELS: dict[int, Kernel] = {}
_RULES: dict[int, Kernel] = {}
_CHECKS: dict[int, tuple[Check, type[Exception]]] = {}


def kernel(*operators: str) -> Callable[[Kernel], Kernel]:
    """Register a rule for operators named `name.overload` of aten, or `namespace::name.overload`.

    The rule gets the Call; it takes scratch memory and runs the operator in the order the CUDA code does.
    """

    def register(rule: Kernel) -> Kernel:
        for operator in operators:
            func = _find_operator(operator)
            _RULES[id(func)] = rule
            _join(func)
        return rule

    return register


def check(*operators: str, error: type[Exception] = RuntimeError) -> Callable[[Check], Check]:
    """Register a check for operators named as above.

    It gets the arguments by their names and yields what is wrong with them; the first of that is raised as `error`.
    """

    def register(rule: Check) -> Check:
        for operator in operators:
            func = _find_operator(operator)
            _CHECKS[id(func)] = rule, error
            _join(func)
        return rule

    return register


def _find_operator(operator: str) -> Any:
    namespace, _, name = operator.rpartition("::")
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace or "aten"), packet), overload or "default")


def _join(func: Any) -> None:
    """Put check and rule of an operator into one."""
    rule, checks = _RULES.get(id(func)), _CHECKS.get(id(func))
    if checks is None:
        assert rule is not None
        _KERNELS[id(func)] = rule
        return
    refuse, error = checks
    arguments = func._schema.arguments

    def run_checked(call: Any) -> Any:
        given = {one.name: value for one, value in zip(arguments, call.args, strict=False)} | call.kwargs
        wrong = next(iter(refuse({one.name: one.default_value for one in arguments} | given)), None)
        if wrong is not None:
            raise error(wrong)
        return call.run() if rule is None else rule(call)

    _KERNELS[id(func)] = run_checked


def find_kernel(func: Any) -> Kernel | None:
    """The rule for an operator, or None: outputs only."""
    return _KERNELS.get(id(func))


def by_operator(ask: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Let `ask` be run once for each operator, none of which ends before the process."""
    known: dict[int, Answer] = {}

    @functools.wraps(ask)
    def answer(func: Any) -> Answer:
        key = id(func)
        if key not in known:
            known[key] = ask(func)
        return known[key]

    return answer
