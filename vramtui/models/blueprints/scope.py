"""What the names in a blueprint stand for, and the arithmetic over them."""

import ast
import operator
from collections.abc import Callable, Mapping
from functools import cache
from math import ceil
from typing import Any

from vramtui.models.families.keys import FFN, HEADS, HIDDEN, LAYERS, Keys, labels_of
from vramtui.models.readers.bounded import Damaged

# Short names, each for the first of these keys that is there.
SHORT: dict[str, tuple[str, ...]] = {
    "h": HIDDEN,
    "n": (*LAYERS, "depth", "encoder_layers"),
    "heads": (*HEADS, "encoder_attention_heads"),
    "i": (*FFN, "mlp_dim", "encoder_ffn_dim"),
    "c": ("num_channels", "in_channels", "in_chans"),
    "p": ("patch_size",),
}
LARGEST = 2**40
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.Gt: operator.gt,
    ast.LtE: operator.le,
    ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}


def _length(value: object) -> int:
    return len(value) if isinstance(value, (list, dict)) else 1


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": ceil, "int": int, "len": _length, "log2": lambda value: int(value).bit_length() - 1, "max": max, "min": min,
    "sum": sum,
}  # fmt: skip


def whole_number(value: object, what: str) -> int:
    """The value, a whole number of 0 or more; `what` says of what.

    Raises:
        Damaged: it is something else.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise Damaged(f"has keys from which {what} cannot be worked out")
    return value


class Scope:
    """One table of a config, and those beside it.

    Args:
        values: its keys.
        parts: other tables by the names that expressions give them: `text.h`, `vision.patch_size`.
        inside: the name of the table, for sentences.
    """

    def __init__(self, values: Mapping[str, Any], parts: Mapping[str, "Scope"] | None = None, inside: str = "") -> None:
        self.values = dict(values)
        self.parts = dict(parts or {})
        self.inside = inside

    def value(self, name: str) -> Any:  # noqa: ANN401 - what JSON can hold
        """What a name stands for: what a blueprint calls so, else a key, else a short name.

        Raises:
            Damaged: nothing.
        """
        found = self.values.get(name)
        if found is not None:
            return found
        if name == "grid":
            return self._grid()
        if name in self.values:
            return None
        if name == "labels":
            return labels_of(Keys(self.values, self.inside))
        for key in SHORT.get(name, ()):
            found = self.values.get(key)
            if isinstance(found, list) and found:
                found = found[0]
            if isinstance(found, (int, float)):
                return int(found)
        if name == "c":
            return 3
        raise Damaged(f"has no {self.inside}{SHORT.get(name, (name,))[0]}, without which its tensors are not known")

    def _grid(self) -> int:
        """The patches of an image."""
        sides: list[list[int]] = []
        for name in ("image_size", "patch_size"):
            value = self.values.get(name)
            said = value if isinstance(value, list) else [value, value]
            side = [one for one in said if isinstance(one, int) and one > 0]
            if len(side) != 2:
                raise Damaged(f"has no {self.inside}{name}, without which its tensors are not known")
            sides.append(side)
        image, patch = sides
        return (image[0] // patch[0]) * (image[1] // patch[1])

    def evaluate(self, expression: str) -> Any:  # noqa: ANN401 - a number, a text or a list
        """The value of an expression of a blueprint.

        Raises:
            Damaged: a key is missing, or is of a kind that nothing can be made of.
        """
        try:
            return self._of(_parsed(expression))
        except (TypeError, ValueError, ArithmeticError, LookupError) as error:
            raise Damaged(f"has keys in {self.inside or 'it'} of which `{expression}` cannot be worked out") from error

    def _of(self, node: ast.expr) -> Any:  # noqa: ANN401, C901, PLR0911, PLR0912 - one line a kind of node
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self.value(node.id)
            case ast.Attribute(value=ast.Name(id=part)):
                return self.part(part).value(node.attr)
            case ast.BinOp():
                return _bounded(_OPERATORS[type(node.op)](self._of(node.left), self._of(node.right)))
            case ast.UnaryOp(op=ast.Not()):
                return not self._of(node.operand)
            case ast.UnaryOp():
                return -self._of(node.operand)
            case ast.BoolOp(op=ast.And()):
                return all(self._of(one) for one in node.values)
            case ast.BoolOp():
                return next((one for one in map(self._of, node.values) if one), False)
            case ast.Compare(ops=[op], comparators=[other]):
                return _OPERATORS[type(op)](self._of(node.left), self._of(other))
            case ast.IfExp():
                return self._of(node.body if self._of(node.test) else node.orelse)
            case ast.Tuple() | ast.List():
                return [self._of(one) for one in node.elts]
            case ast.Subscript():
                return self._of(node.value)[self._of(node.slice)]
            case ast.Call(func=ast.Name(id="has"), args=[ast.Name(id=part)]):
                return part in self.parts
            case ast.Call(func=ast.Name(id="get"), args=[ast.Name(id=key), default]):
                return self._get(self, key, default)
            case ast.Call(func=ast.Name(id="get"), args=[ast.Attribute(value=ast.Name(id=part), attr=key), default]):
                return self._get(self.part(part), key, default)
            case ast.Call(func=ast.Name(id=name)):
                return _FUNCTIONS[name](*map(self._of, node.args))
        raise TypeError(ast.dump(node))

    def _get(self, scope: "Scope", key: str, default: ast.expr) -> Any:  # noqa: ANN401 - as value
        found = scope.values.get(key)
        return self._of(default) if found is None else found

    def part(self, name: str) -> "Scope":
        """Another table.

        Raises:
            Damaged: there is none of that name.
        """
        if name not in self.parts:
            raise Damaged(f"has no {name}_config, without which its tensors are not known")
        return self.parts[name]


def _bounded(value: Any) -> Any:  # noqa: ANN401 - as evaluate
    if isinstance(value, (int, float)) and abs(value) > LARGEST:
        raise OverflowError(value)
    return value


@cache
def _parsed(expression: str) -> ast.expr:
    return ast.parse(expression, mode="eval").body
