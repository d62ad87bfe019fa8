"""Memory over two keys at once, for a map of what fits: 100 x 100 cells from about a thousand estimates."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cache

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import fits_in
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.planner.keys import value_at, with_values
from vramtui.estimators.planner.planner import FitResult

NODES = 24
Axis = tuple[str, Sequence[int]]
Size = Callable[[int, int], int | None]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A map of the process's bytes.

    Attributes:
        across: the key whose values are the columns, and `down` the rows', each with its values in rising order.
        sizes: a row for each value of `down`; None where the estimator refuses.
        fits: whether the card holds it: exact in every cell, as long as memory only grows along both axes.
        exact: False where sizes between the nodes of a coarser net are interpolated.
    """

    across: tuple[str, tuple[int, ...]]
    down: tuple[str, tuple[int, ...]]
    sizes: tuple[tuple[int | None, ...], ...]
    fits: tuple[tuple[bool, ...], ...]
    exact: bool


def plan_grid(estimator: Estimator, workload: Workload, device: Device, across: Axis, down: Axis) -> Grid:
    """The process's bytes for every pair of values of two keys.

    Raises:
        UserError: a key is no whole number of the workload.
    """
    for key in (across[0], down[0]):
        value_at(workload, key, "--over")
    xs, ys = tuple(sorted(set(across[1]))), tuple(sorted(set(down[1])))

    @cache
    def size(x: int, y: int) -> int | None:
        try:
            return estimator.estimate(with_values(workload, {across[0]: x, down[0]: y}), device).process
        except UserError:
            return None

    fits = _fitting(size, xs, ys, device.total_memory)
    nodes_x, nodes_y = _nodes(xs), _nodes(ys)
    exact = len(nodes_x) == len(xs) and len(nodes_y) == len(ys)
    if exact:
        sizes = tuple(tuple(size(x, y) for x in xs) for y in ys)
    else:
        between = _Net(size, nodes_x, nodes_y)
        sizes = tuple(
            tuple(_bounded(between.at(x, y), device.total_memory, fit) for x, fit in zip(xs, row, strict=True))
            for y, row in zip(ys, fits, strict=True)
        )
    return Grid(across=(across[0], xs), down=(down[0], ys), sizes=sizes, fits=fits, exact=exact)


def answer_for(estimator: Estimator, workload: Workload, device: Device) -> FitResult:
    """One cell of a map of anything: the process's bytes and whether the card holds them, or why it cannot be."""
    try:
        estimate = estimator.estimate(workload, device)
    except TooLargeError as error:
        return FitResult(error.needed, fits=False, reason=str(error))
    except UserError as error:
        return FitResult(None, fits=False, reason=str(error))
    return FitResult(
        estimate.process, fits_in(estimate.process, device.total_memory), error=estimate.error, method=estimate.method
    )


def spread(columns: int, rows: int, start: tuple[int, int] = (0, 0)) -> Iterator[tuple[int, int]]:
    """Every cell of a map once, `start` first and then from a coarse net to a fine one, so that its outlines are seen
    long before it is whole.
    """
    seen = {start} if start[0] < columns and start[1] < rows else set()
    yield from seen
    for step in (8, 4, 2, 1):
        for y in range(0, rows, step):
            for x in range(0, columns, step):
                if (x, y) not in seen:
                    seen.add((x, y))
                    yield x, y


def _fitting(size: Size, xs: tuple[int, ...], ys: tuple[int, ...], room: int) -> tuple[tuple[bool, ...], ...]:
    """Walks along the limit of what fits, from the top right down: each step asks for one estimate."""
    column = len(xs)
    rows = []
    for y in ys:
        while column:
            memory = size(xs[column - 1], y)
            if memory is not None and memory <= room:
                break
            column -= 1
        rows.append(tuple(number < column for number in range(len(xs))))
    return tuple(rows)


def _nodes(values: tuple[int, ...]) -> tuple[int, ...]:
    """At most NODES of `values` and the last one, evenly chosen."""
    step = max(1, -(-len(values) // NODES))
    return tuple(dict.fromkeys((*values[::step], *values[-1:])))


class _Net:
    """Exact sizes at the nodes, and straight lines between them."""

    def __init__(self, size: Size, xs: tuple[int, ...], ys: tuple[int, ...]) -> None:
        self._size, self._xs, self._ys = size, xs, ys

    def at(self, x: int, y: int) -> int | None:
        left, right, along = _between(self._xs, x)
        upper, lower, beyond = _between(self._ys, y)
        top = _mixed(self._size(left, upper), self._size(right, upper), along)
        bottom = _mixed(self._size(left, lower), self._size(right, lower), along)
        mixed = _mixed(top, bottom, beyond)
        return None if mixed is None else round(mixed)


def _between(nodes: tuple[int, ...], value: int) -> tuple[int, int, float]:
    """The nodes around `value`, and how far between them it lies."""
    if len(nodes) == 1:
        return value, value, 0.0
    after = min(max(bisect_right(nodes, value), 1), len(nodes) - 1)
    low, high = nodes[after - 1], nodes[after]
    return low, high, (value - low) / (high - low)


def _mixed(first: float | None, second: float | None, share: float) -> float | None:
    if share == 0 or second is None:
        return first if share == 0 else None
    if share == 1 or first is None:
        return second if share == 1 else None
    return first + (second - first) * share


def _bounded(size: int | None, room: int, fits: bool) -> int | None:
    """An interpolated size, on its own side of the edge."""
    if size is None:
        return None
    return min(size, room) if fits else max(size, room + 1)
