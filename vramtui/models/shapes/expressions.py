"""Arithmetic over a config's keys, as the generated shapes are written: `num_attention_heads * head_dim`."""

import ast
import operator
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import ceil, floor
from typing import Any, Protocol

from vramtui.models.readers.bounded import DamagedError

LARGEST = 2**40
# Layers, stages and blocks of a model together.
MOST_ROUNDS = 20_000
MOST_DOUBLINGS = 40
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": ceil, "floor": floor, "int": int, "len": len, "max": max, "min": min, "round": round, "sum": sum,
}  # fmt: skip


class Names(Protocol):
    def value(self, name: str) -> Any:  # noqa: ANN401 - what JSON can hold
        """The value of a key, None if the config says that it has none."""


def evaluate(text: str, names: Names) -> Any:  # noqa: ANN401 - a number, a text or a list
    """The value of an expression.

    Raises:
        DamagedError: a key is missing, or is of a kind that nothing can be made of.
    """
    try:
        return _value(parsed(text), names)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise DamagedError(f"has keys from which `{text[:80]}` cannot be worked out") from error


def whole_number(value: object, what: str) -> int:
    """The value, a whole number from 0 to 2^40.

    Raises:
        DamagedError: it is something else; `what` names it.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise DamagedError(f"has keys from which {what} cannot be worked out")
    return value


@cache
def parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


@cache
def names_in(text: str) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name))


def _value(node: ast.expr, names: Names) -> Any:  # noqa: ANN401 - one line a kind of node
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names.value(node.id)
        case ast.Attribute():
            return _value(node.value, names).value(node.attr)
        case ast.BinOp():
            one, other = _value(node.left, names), _value(node.right, names)
            # With numbers only: a list times a number would be as long as a file says.
            if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
                raise TypeError(one)
            if isinstance(node.op, ast.Pow) and other > MOST_DOUBLINGS:
                raise OverflowError(other)
            return _bounded(_OPERATORS[type(node.op)](one, other))
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, names)
        case ast.UnaryOp():
            return -_value(node.operand, names)
        case ast.BoolOp(op=ast.And()):
            return all(_value(one, names) for one in node.values)
        case ast.BoolOp():
            return any(_value(one, names) for one in node.values)
        case ast.Compare(ops=[op], comparators=[other]):
            return _OPERATORS[type(op)](_value(node.left, names), _value(other, names))
        case ast.IfExp():
            return _value(node.body if _value(node.test, names) else node.orelse, names)
        case ast.Tuple() | ast.List():
            return [_value(one, names) for one in node.elts]
        case ast.Subscript():
            return _value(node.value, names)[_value(node.slice, names)]
        case ast.ListComp(elt=one, generators=[ast.comprehension(target=ast.Name(id=name), iter=ast.Call(args=[end]))]):
            rounds = _value(end, names)
            if not isinstance(rounds, int) or rounds > MOST_ROUNDS:
                raise OverflowError(rounds)
            return [_value(one, _With(names, name, at)) for at in range(rounds)]
        case ast.Call(func=ast.Name(id="has"), args=[key]):
            with suppress(DamagedError):
                return _value(key, names) is not None
            return False
        case ast.Call(func=ast.Name(id=name)):
            return _bounded(_FUNCTIONS[name](*(_value(one, names) for one in node.args)))
    raise TypeError(ast.dump(node))


class _With:
    """Names, and one more that is a number."""

    def __init__(self, names: Names, name: str, number: int) -> None:
        self._names, self._name, self._number = names, name, number

    def value(self, name: str) -> Any:  # noqa: ANN401 - as Names
        """The number, or as before."""
        return self._number if name == self._name else self._names.value(name)


def _bounded(value: Any) -> Any:  # noqa: ANN401 - as evaluate
    if isinstance(value, (int, float)) and abs(value) > LARGEST:
        raise OverflowError(value)
    return value
