"""Numbers of a config that remember where they came from: what is computed of them is an expression over its keys."""

import builtins
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any

from typing_extensions import Self


def text_of(value: object) -> str:
    """The expression of a number."""
    return value.text if isinstance(value, (Size, Real)) else repr(value)


class Size(int):
    """A whole number with the expression that it is the value of."""

    text: str

    def __new__(cls, value: int, text: str) -> Self:
        """The number `value`, written `text`."""
        made = int.__new__(cls, value)
        made.text = text
        return made

    def __deepcopy__(self, memo: object) -> "Size":
        return self

    def __copy__(self) -> "Size":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Size, (int(self), self.text))


class Real(float):
    """A number that is not whole, as `Size`."""

    text: str

    def __new__(cls, value: float, text: str) -> Self:
        """The number `value`, written `text`."""
        made = float.__new__(cls, value)
        made.text = text
        return made

    def __deepcopy__(self, memo: object) -> "Real":
        return self

    def __copy__(self) -> "Real":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (Real, (float(self), self.text))

    def __ceil__(self) -> Size:
        return Size(math.ceil(float(self)), f"ceil({self.text})")

    def __floor__(self) -> Size:
        return Size(math.floor(float(self)), f"floor({self.text})")

    def __round__(self, digits: int | None = None) -> Any:  # type: ignore[override] # its own arithmetic
        if digits is None:
            return Size(round(float(self)), f"round({self.text})")
        return Real(round(float(self), digits), f"round({self.text}, {digits})")


def symbol(value: object, text: str) -> Any:
    """`value` as a number that remembers `text`; anything else as it is."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return Size(int(value), text)
    return Real(float(value), text) if isinstance(value, float) else value


def _binary(name: str, sign: str, plain: Callable[[Any, Any], Any]) -> None:
    def bare(value: object) -> Any:
        return int(value) if isinstance(value, int) else float(value)  # type: ignore[arg-type] # its own arithmetic

    def forward(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)) or isinstance(other, bool):
            return NotImplemented
        return symbol(plain(bare(self), bare(other)), f"({text_of(self)} {sign} {text_of(other)})")

    def backward(self: Any, other: Any) -> Any:
        if not isinstance(other, (int, float)) or isinstance(other, bool):
            return NotImplemented
        return symbol(plain(bare(other), bare(self)), f"({text_of(other)} {sign} {text_of(self)})")

    for kind in (Size, Real):
        setattr(kind, f"__{name}__", forward)
        setattr(kind, f"__r{name}__", backward)


for _name, _sign, _plain in (
    ("add", "+", operator.add), ("sub", "-", operator.sub), ("mul", "*", operator.mul),
    ("floordiv", "//", operator.floordiv), ("truediv", "/", operator.truediv), ("mod", "%", operator.mod),
    ("pow", "**", operator.pow),
):  # fmt: skip
    _binary(_name, _sign, _plain)


def _negated(self: Any) -> Any:
    bare = int(self) if isinstance(self, int) else float(self)
    return symbol(-bare, f"(-{self.text})")


Size.__neg__ = Real.__neg__ = _negated  # type: ignore[method-assign] # its own arithmetic

# The loop that ended last: the expression of how often it ran, and the number.
last_loop: list[tuple[str, int]] = []


class Sizes(list):  # type: ignore[type-arg] # its own arithmetic
    """A list of a config, whose items remember their place."""

    def __init__(self, items: list[Any] | tuple[Any, ...], text: str) -> None:
        super().__init__(_item(item, f"{text}[{place}]") for place, item in enumerate(items))
        self.text = text

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        last_loop[:] = [(f"len({self.text})", len(self))]

    def __deepcopy__(self, memo: object) -> "Sizes":
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return (list, (list(self),))


def _item(value: object, text: str) -> Any:
    return Sizes(list(value), text) if isinstance(value, (list, tuple)) else symbol(value, text)


class _Number(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.int)

    def __call__(cls, value: Any = 0, *rest: Any) -> Any:
        if isinstance(value, Size):
            return value
        if isinstance(value, Real):
            return Size(builtins.int(value), f"int({value.text})")
        return builtins.int(value, *rest)


class Whole(metaclass=_Number):
    """Stands in for `int` in the code of a model."""


class Counting:
    """Stands in for `range` in the code of a model."""

    def __new__(cls, *bounds: int) -> Any:
        """A range that says when it ended, where its end remembers where it came from."""
        if not any(isinstance(one, Size) for one in bounds):
            return range(*bounds)
        return super().__new__(cls)

    def __init__(self, *bounds: int) -> None:
        self.bounds = bounds
        self.plain = range(*map(int, bounds))

    def __iter__(self) -> Iterator[int]:
        yield from self.plain
        start, end = (0, self.bounds[0]) if len(self.bounds) == 1 else self.bounds[:2]
        text = text_of(end) if start == 0 else f"({text_of(end)} - {text_of(start)})"
        if len(self.bounds) < 3:
            last_loop[:] = [(text, len(self.plain))]

    def __len__(self) -> int:
        return len(self.plain)

    def __reversed__(self) -> Iterator[int]:
        return reversed(self.plain)

    def __contains__(self, value: object) -> bool:
        return value in self.plain

    def __getitem__(self, place: Any) -> Any:
        return self.plain[place]


def length(value: Any) -> int:
    """Stands in for `len` in the code of a model."""
    return Size(len(value), f"len({value.text})") if isinstance(value, Sizes) else len(value)


def _extreme(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*values: Any, **options: Any) -> Any:
        if len(values) == 1 and isinstance(values[0], Sizes) and not options:
            return symbol(plain(list(values[0])), f"{name}({values[0].text})")
        if len(values) > 1 and not options and any(isinstance(one, (Size, Real)) for one in values):
            bare = plain(int(one) if isinstance(one, int) else float(one) for one in values)
            return symbol(bare, f"{name}({', '.join(map(text_of, values))})")
        return plain(*values, **options)

    return chosen


def _sum(values: Any, start: Any = 0) -> Any:
    if isinstance(values, Sizes):
        return symbol(builtins.sum(map(int, values)), f"sum({values.text})")
    return builtins.sum(values, start)


STAND_INS = {
    "int": Whole, "range": Counting, "len": length, "max": _extreme("max", max), "min": _extreme("min", min),
    "sum": _sum,
}  # fmt: skip
