"""What can be varied about a workload: the axes of a map, their values, and the workload at a pair of them."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import msgspec

from vramtui.app.plan.axis_kinds import BY_NAME, KINDS, SIZES, Amount, Kind, short, with_present
from vramtui.app.plan.sharding import AS_IS, shared
from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TorchModel
from vramtui.core.schema.workload import Workload, own_length
from vramtui.estimators.planner.keys import with_values

# So many sizes stand beyond the last that fits at all, and so many at least on an axis.
BEYOND, LEAST_AMOUNTS = 3, 8
# What a job that does not fit in any size is varied by instead: what shares or shrinks its weights.
SHRINKING = ("FSDP", "GPUs", "sharding", "quantized", "LoRA", "precision")


class Axis(msgspec.Struct, frozen=True):
    """One thing to vary.

    Attributes:
        name: what it is called everywhere.
        title: what it is, in a list.
        amounts: its values in order.
        labels: each in a few characters.
        present: which of them the workload has now; None where it has none of them.
        own: the longest that the model was made for, where a value is beyond it.
    """

    name: str
    title: str
    amounts: tuple[Amount, ...]
    labels: tuple[str, ...]
    present: int | None
    own: int | None = None

    def words(self, at: int) -> str:
        """The axis and one of its values."""
        amount = self.amounts[at]
        text = f"{amount:,}" if isinstance(amount, int) and self.name != "image" else self.labels[at]
        return f"{self.name} {text}"


def axes_of(workload: Workload, original: Workload, cards: int) -> tuple[Axis, ...]:
    """The axes that `workload` has; none for somebody's own code.

    Args:
        workload: as it is now.
        original: as the preset's file has it: ladders stand around its values, so that they stay put while the
            present ones change.
        cards: over how many GPUs a job is spread that is on one now.
    """
    if isinstance(workload.model, TorchModel):
        return ()
    return tuple(_axis(kind, workload, original, cards) for kind in KINDS if kind.known(workload))


def _axis(kind: Kind, workload: Workload, original: Workload, cards: int) -> Axis:
    return _standing(kind, workload, kind.amounts(original, kind.read(original)), cards)


def _standing(kind: Kind, workload: Workload, amounts: tuple[Amount, ...], cards: int) -> Axis:
    """An axis with these amounts, and with the present one among them."""
    present = kind.read(workload)
    numbers = tuple(amount for amount in amounts if type(amount) is int)
    if len(numbers) == len(amounts) and (present is None or type(present) is int):
        amounts = with_present(numbers, present)
    elif present not in amounts:
        shares = [amount for amount in (*amounts, present) if isinstance(amount, float)]
        amounts = tuple(sorted(shares)) if len(shares) > len(amounts) else (*amounts, present)
    title = kind.title.format(cards=cards_of(workload, cards))
    labels = tuple(_label(amount) for amount in amounts)
    own = own_length(workload) if kind.name in {"seq", "context"} else None
    if own is not None and all(number <= own for number in numbers):
        own = None
    return Axis(kind.name, title, amounts, labels, amounts.index(present) if present in amounts else None, own)


def begin_where_it_fits(
    axes: tuple[Axis, Axis], workload: Workload, cards: int, fits: Callable[[Workload], bool]
) -> tuple[Axis, Axis]:
    """Two axes whose first cell fits: where it does not, their sizes begin lower; as they are where none fits. They end
    soon after the last size that fits beside the other's first. Of an axis that is of no sizes any value may fit.

    Args:
        axes: the columns' and the rows'.
        workload: as it is now.
        cards: over how many GPUs a job is spread that is on one now.
        fits: whether the card holds a variant.
    """

    def first_fits(tried: tuple[Axis, Axis]) -> bool:
        return any_fits({axis.name: axis.amounts[:1] if axis.name in SIZES else axis.amounts for axis in tried})

    def any_fits(amounts: Mapping[str, tuple[Amount, ...]]) -> bool:
        tried = (dict(zip(amounts, values, strict=True)) for values in product(*amounts.values()))
        return any(_fits(workload, one, cards, fits) for one in tried)

    if not SIZES & {axis.name for axis in axes}:
        return axes
    at = axes
    while not first_fits(at):
        lower = _lower(at[0], workload, cards), _lower(at[1], workload, cards)
        if lower == at:
            return axes
        single = [(lower[0], at[1]), (at[0], lower[1])]
        at = next((tried for tried in single if tried != at and first_fits(tried)), lower)
    x, y = at
    return _end_after(x, y, any_fits), _end_after(y, x, any_fits)


def _end_after(axis: Axis, other: Axis, any_fits: Callable[[Mapping[str, tuple[Amount, ...]]], bool]) -> Axis:
    """The axis without the sizes that are far beyond the last that fits beside the other's first; the present one
    stays.
    """
    if axis.name not in SIZES:
        return axis
    other_amounts = other.amounts[:1] if other.name in SIZES else other.amounts
    fitting = bisect_left(
        axis.amounts, 1, key=lambda amount: not any_fits({axis.name: (amount,), other.name: other_amounts})
    )
    end = max(fitting + BEYOND, LEAST_AMOUNTS, 0 if axis.present is None else axis.present + 1)
    return msgspec.structs.replace(axis, amounts=axis.amounts[:end], labels=axis.labels[:end])


def _lower(axis: Axis, workload: Workload, cards: int) -> Axis:
    """The axis around the size that it begins with; as it is where there are no smaller ones, or it is of no sizes."""
    if axis.name not in SIZES:
        return axis
    amounts = BY_NAME[axis.name].amounts(workload, axis.amounts[0])
    return axis if amounts[0] == axis.amounts[0] else _standing(BY_NAME[axis.name], workload, amounts, cards)


def _label(amount: Amount) -> str:
    if amount is None:
        return "none"
    if isinstance(amount, float):
        return f"{amount:.0%}"
    return short(amount) if isinstance(amount, int) else amount


def fitted(axis: Axis, workload: Workload) -> Axis:
    """`axis` as another workload has it: the same values, and its own present one where it is among them."""
    kind = BY_NAME[axis.name]
    present = kind.read(workload) if kind.known(workload) else None
    at = axis.amounts.index(present) if kind.known(workload) and present in axis.amounts else None
    return msgspec.structs.replace(axis, present=at)


def cards_of(workload: Workload, cards: int) -> int:
    """Over how many GPUs sharding is tried: those the job has, or `cards` where it has one."""
    ranks = workload.parallel.ranks if workload.parallel is not None else 1
    return ranks if ranks > 1 else cards


def usual_axes(axes: tuple[Axis, ...]) -> tuple[str, str]:
    """What is varied until somebody chooses: sizes before anything else, but of a server not how many it serves: vLLM
    fills its share of the card, and llama.cpp keeps one cache for all.
    """
    names = [axis.name for axis in axes]
    across = next(name for name in ("share", "batch", "quantized", *names) if name in names)
    wanted = ("seq", "context", "image", "precision", *names)
    return across, next(name for name in wanted if name in names and name != across)


def rows_that_fit(axes: tuple[Axis, ...], workload: Workload, cards: int, fits: Callable[[Workload], bool]) -> str:
    """The axis for the rows of a job that fits in none of its sizes, but by a value of that axis; empty where the sizes
    do, or nothing does. The arguments are those of `begin_where_it_fits`.
    """
    named = {axis.name: axis for axis in axes}
    across, down = usual_axes(axes)

    def some_fit(name: str) -> bool:
        x, y = begin_where_it_fits((named[across], named[name]), workload, cards, fits)
        columns, rows = x.amounts[:1], y.amounts[:1] if name in SIZES else y.amounts
        return any(_fits(workload, {across: columns[0], name: amount}, cards, fits) for amount in rows)

    if some_fit(down):
        return ""
    return next((name for name in SHRINKING if name in named and name != across and some_fit(name)), "")


def _fits(workload: Workload, amounts: Mapping[str, Amount], cards: int, fits: Callable[[Workload], bool]) -> bool:
    try:
        return fits(variant(workload, amounts, cards))
    except UserError:
        return False


def variant(workload: Workload, amounts: Mapping[str, Amount], cards: int) -> Workload:
    """`workload` with these amounts, by the names of their axes.

    Raises:
        UserError: it has no such axis, or cannot be so.
    """
    changes: dict[str, Any] = {}
    for name, amount in amounts.items():
        kind = BY_NAME[name]
        if not kind.known(workload):
            raise UserError(f"this preset has no {name} to vary")
        if amount != kind.read(workload):
            changes |= kind.changes(workload, amount)
    gpus, scheme = amounts.get("GPUs"), amounts.get("sharding", AS_IS)
    try:
        changed = with_values(workload, changes) if changes else workload
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    if "GPUs" not in amounts and "sharding" not in amounts:
        return changed
    over = gpus if isinstance(gpus, int) else None
    return msgspec.structs.replace(changed, parallel=shared(changed, str(scheme), over, cards_of(workload, cards)))
