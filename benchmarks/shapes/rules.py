"""What is alike in tensors of many layers, as lines with loops: their sizes and on what condition they are there."""

import ast
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

from benchmarks.shapes.places import LOOPS, Index, Predicate, predicates
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import MOST_ROUNDS, evaluate

# Of the likeliest conditions, those of which two are tried together; and how often places are split.
PAIRED, DEEPEST = 40, 3
NUMBER = re.compile(r"(?<![\w.])\d+(?![\w.])")
Case = tuple[str, tuple[str, ...]]


class _Simpler(ast.NodeTransformer):
    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        one = isinstance(node.right, ast.Constant) and node.right.value == 1
        if one and isinstance(node.op, (ast.Mult, ast.FloorDiv)):
            return node.left
        if isinstance(node.op, ast.FloorDiv) and ast.dump(node.left) == ast.dump(node.right):
            return ast.Constant(1)
        nothing = isinstance(node.right, ast.Constant) and node.right.value == 0
        if nothing and isinstance(node.op, (ast.Add, ast.Sub)):
            return node.left
        if isinstance(node.left, ast.Constant) and node.left.value == 0 and isinstance(node.op, ast.Add):
            return node.right
        if isinstance(node.left, ast.Constant) and node.left.value == 1 and isinstance(node.op, ast.Mult):
            return node.right
        return node


@cache
def simpler(text: str) -> str:
    """The same expression, shorter."""
    return ast.unparse(_Simpler().visit(ast.parse(text, mode="eval")))


def fit(texts: Mapping[Index, str]) -> str | None:
    """One expression over the loops that is each of these; None where there is none that is simple."""
    first = next(iter(texts.values()))
    if all(text == first for text in texts.values()):
        return first
    skeletons = {NUMBER.sub("#", text) for text in texts.values()}
    if len(skeletons) > 1:
        return None
    columns = zip(*(map(int, NUMBER.findall(text)) for text in texts.values()), strict=True)
    found = [_number(list(texts), list(column)) for column in columns]
    if None in found:
        return None
    parts = iter(found)
    return simpler(NUMBER.sub(lambda _match: str(next(parts)), first))


def _number(places: Sequence[Index], values: Sequence[int]) -> str | None:
    if len(set(values)) == 1:
        return str(values[0])
    for level, name in enumerate(LOOPS[: len(places[0])]):
        at = [place[level] for place in places]
        if len({value - here for value, here in zip(values, at, strict=True)}) == 1:
            more = values[0] - at[0]
            return name if not more else f"({name} + {more})" if more > 0 else f"({name} - {-more})"
        low = min(at)
        start = values[at.index(low)]
        if all(value == start * 2 ** (here - low) for value, here in zip(values, at, strict=True)):
            shift = f"({name} - {low})" if low else name
            return f"({start} * 2 ** {shift})"
        for step in {v - start for v, here in zip(values, at, strict=True) if here == low + 1}:
            if all(value == start + step * (here - low) for value, here in zip(values, at, strict=True)):
                base = start - step * low
                return f"({base} + {step} * {name})" if base >= 0 else f"({step} * {name} - {-base})"
    return None


def cases(
    texts: Mapping[Index, tuple[str, ...]], universe: Sequence[Index], known: Sequence[Predicate], depth: int = 0
) -> list[Case] | None:
    """(condition, expressions) that give each of `texts` at its place and nothing elsewhere; None where none do.

    Args:
        texts: the sizes at each place where there is a tensor.
        universe: every place.
        known: what may be said of places.
        depth: how often it was split already.
    """
    fitted = _fit_all(texts)
    if fitted is not None:
        condition = _condition(frozenset(texts), universe, known)
        if condition is not None:
            return [(condition, fitted)]
    return None if depth > DEEPEST else _split(texts, universe, known, depth)


def _condition(present: frozenset[Index], universe: Sequence[Index], known: Sequence[Predicate]) -> str | None:
    """What holds at these places alone."""
    if len(present) == len(universe):
        return ""
    for text, members in known:
        if members == present:
            return text
    for (one, first), (two, second) in product(known[:PAIRED], known[:PAIRED]):
        if first & second == present:
            return f"{one} and {two}"
        if first | second == present:
            return f"({one} or {two})"
    return None


def _split(
    texts: Mapping[Index, tuple[str, ...]], universe: Sequence[Index], known: Sequence[Predicate], depth: int
) -> list[Case] | None:
    """As `cases`, those where something holds apart from the others."""
    for text, members in known:
        inside = {place: one for place, one in texts.items() if place in members}
        outside = {place: one for place, one in texts.items() if place not in members}
        if not inside or not outside or (not depth and _fit_all(inside) is None and _fit_all(outside) is None):
            continue
        here = [place for place in universe if place in members]
        there = [place for place in universe if place not in members]
        yes = cases(inside, here, [(one, at & members) for one, at in known], depth + 1)
        no = yes and cases(outside, there, [(one, at - members) for one, at in known], depth + 1)
        if yes and no:
            opposite = _not(text)
            return [(_both(text, one), sizes) for one, sizes in yes] + [
                (_both(opposite, one), sizes) for one, sizes in no
            ]
    return None


def _fit_all(texts: Mapping[Index, tuple[str, ...]]) -> tuple[str, ...] | None:
    if len({len(one) for one in texts.values()}) > 1:
        return None
    found = [fit({place: dims[at] for place, dims in texts.items()}) for at in range(len(next(iter(texts.values()))))]
    return None if None in found else tuple(str(one) for one in found)


def _not(text: str) -> str:
    for sign, other in (
        ("==", "!="),
        ("!=", "=="),
        (" < ", " >= "),
        (" > ", " <= "),
        (" >= ", " < "),
        (" not in ", " in "),
        (" in ", " not in "),
    ):
        if sign in text and " and " not in text and " or " not in text:
            return text.replace(sign, other)
    return text[4:] if text.startswith("not ") and " and " not in text else f"not ({text})"


def _both(one: str, other: str) -> str:
    return " and ".join(filter(None, (one, other)))


# Loops, a name, sizes, a condition, and the full name.
Line = tuple[tuple[str, ...], str, tuple[str, ...], str, str]


def lines(
    dims: Mapping[str, tuple[str, ...]],
    counts: Mapping[str, str],
    values: Mapping[str, Any],
) -> list[Line]:
    """Tensors by their full names as lines.

    Args:
        dims: the sizes of each tensor.
        counts: the expression of how often a list of modules repeats, by its path; of those that have one.
        values: the config's keys by their paths.
    """
    groups: dict[tuple[str, ...], dict[Index, tuple[str, ...]]] = {}
    for name, sizes in dims.items():
        parts = name.split(".")
        pattern: list[str] = []
        index: list[int] = []
        for at, part in enumerate(parts):
            if part.isdigit() and ".".join(parts[:at]) in counts and len(index) < len(LOOPS):
                pattern.append("*")
                index.append(int(part))
            else:
                pattern.append(part)
        groups.setdefault(tuple(pattern), {})[tuple(index)] = sizes
    out: list[Line] = []
    for full, texts in groups.items():
        path = ".".join(full)
        name = _last(full)
        depth = full.count("*")
        if not depth:
            out.append(((), name, texts[()], "", path))
            continue
        loops, universe = _loops(full, counts, values)
        found = None
        if loops is not None:
            found = (
                None if texts.keys() - set(universe) else cases(texts, universe, predicates(universe, loops, values))
            )
            found = found if found is None or _holds(found, texts, universe, values) else None
        if found is None or loops is None:
            out += [((), name, sizes, "", f"{path} {place}") for place, sizes in texts.items()]
        else:
            out += [(loops, name, sizes, condition, path) for condition, sizes in found]
    return out


def _holds(
    found: Sequence[Case], texts: Mapping[Index, Any], universe: Sequence[Index], values: Mapping[str, Any]
) -> bool:
    """Whether of the conditions one is met at each place where there is a tensor, and none elsewhere."""
    for place in universe:
        names = Paths(values, numbers=dict(zip(LOOPS, place, strict=False)))
        met = sum(not condition or bool(evaluate(condition, names)) for condition, _sizes in found)
        if met != (place in texts):
            return False
    return True


class Paths:
    """Keys by their paths, as an expression names them, and the numbers of loops.

    Args:
        values: the keys.
        path: of the part that it stands for.
        numbers: of the loops.
    """

    def __init__(self, values: Mapping[str, Any], path: str = "", numbers: Mapping[str, int] | None = None) -> None:
        self.values, self.path, self.numbers = values, path, numbers or {}

    def value(self, name: str) -> Any:
        """A number, a key or a part."""
        if name in self.numbers:
            return self.numbers[name]
        path = f"{self.path}{name}"
        return self.values[path] if path in self.values else Paths(self.values, f"{path}.")


def _last(pattern: Sequence[str]) -> str:
    names = [part for part in pattern if not part.isdigit() and part != "*" and part not in {"weight", "bias"}]
    if not names:
        return "weight"
    return f"experts_{names[-1]}" if names[-2:-1] == ["experts"] else names[-1]


def _loops(
    pattern: Sequence[str], counts: Mapping[str, str], values: Mapping[str, Any]
) -> tuple[tuple[str, ...] | None, list[Index]]:
    """The expressions of a pattern's loops and every place in them as they run; None where they do not run so."""
    places: list[tuple[Index, str]] = [((), "")]
    loops: list[str] = []
    for part in pattern:
        if part != "*":
            places = [(index, f"{path}.{part}".strip(".")) for index, path in places]
            continue
        texts = {index: counts[path] for index, path in places if path in counts}
        text = fit(texts) if texts else None
        if text is None:
            return None, []
        loops.append(text)
        inner: list[tuple[Index, str]] = []
        for index, path in places:
            times = _times(text, Paths(values, numbers=dict(zip(LOOPS, index, strict=False))))
            if times is None:
                return None, []
            inner += [((*index, at), f"{path}.{at}") for at in range(times)]
        places = inner
    return tuple(loops), [index for index, _path in places]


def _times(text: str, names: "Paths") -> int | None:
    try:
        found = evaluate(text, names)
    except DamagedError:
        return None
    return int(found) if isinstance(found, (int, float)) and 0 <= found <= MOST_ROUNDS else None
