"""Maps of what fits: over two keys, over cards, and over several cards that share a job."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, UNKNOWN, format_gib
from vramtui.core.estimate.devices import CARD_GROUPS, COMPARED, CardGroup, Device, group_of
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import Fit, unknown_of
from vramtui.core.schema.models import PipelineModel
from vramtui.core.schema.workload import Parallel, TrainRun, Workload, own_length
from vramtui.estimators.planner import planner

NODES = 24
Axis = tuple[str, Sequence[int]]


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """A map of the process's bytes, a row for each value of `down`; None if the estimator refuses. `fits` is exact in
    every cell as long as memory only grows along both axes; unless `exact`, sizes between nodes are interpolated.
    """

    across: tuple[str, tuple[int, ...]]
    down: tuple[str, tuple[int, ...]]
    sizes: tuple[tuple[int | None, ...], ...]
    fits: tuple[tuple[bool, ...], ...]
    exact: bool


def plan_grid(estimator: Estimator, workload: Workload, device: Device, across: Axis, down: Axis) -> Grid:
    """The process's bytes for pairs of two keys' values; raises UserError if a key is not a whole number."""
    for key in (across[0], down[0]):
        planner.value_at(workload, key, "--over")
    xs, ys = tuple(sorted(set(across[1]))), tuple(sorted(set(down[1])))
    room = device.total_memory

    @cache
    def size(x: int, y: int) -> int | None:
        try:
            return estimator.estimate(planner.with_values(workload, {across[0]: x, down[0]: y}), device).process
        except UserError:
            return None

    # Along the limit of what fits, from the top right down: each step asks for one estimate.
    fits, column = [], len(xs)
    for y in ys:
        while column and (size(xs[column - 1], y) or room + 1) > room:
            column -= 1
        fits.append(tuple(number < column for number in range(len(xs))))
    nodes_x, nodes_y = (
        tuple(dict.fromkeys((*values[:: max(1, -(-len(values) // NODES))], *values[-1:]))) for values in (xs, ys)
    )
    if len(nodes_x) == len(xs) and len(nodes_y) == len(ys):
        sizes = tuple(tuple(size(x, y) for x in xs) for y in ys)
        return Grid(across=(across[0], xs), down=(down[0], ys), sizes=sizes, fits=tuple(fits), exact=True)

    def between(x: int, y: int, *, is_enough: bool) -> int | None:
        """Interpolate between the nodes around it, on its own side of the limit."""
        left, right, along = _around(nodes_x, x)
        upper, lower, beyond = _around(nodes_y, y)
        top, bottom = (_mixed(size(left, row), size(right, row), along) for row in (upper, lower))
        mixed = _mixed(top, bottom, beyond)
        return None if mixed is None else min(round(mixed), room) if is_enough else max(round(mixed), room + 1)

    sizes = tuple(
        tuple(between(x, y, is_enough=fit) for x, fit in zip(xs, row, strict=True))
        for y, row in zip(ys, fits, strict=True)
    )
    return Grid(across=(across[0], xs), down=(down[0], ys), sizes=sizes, fits=tuple(fits), exact=False)


def _around(nodes: tuple[int, ...], value: int) -> tuple[int, int, float]:
    """The nodes around `value`, and how far between them it is."""
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


# Over so many cards FSDP is tried: one machine has at most eight that are linked, two machines sixteen.
FSDP = (1, 2, 4, 8, 16)
FSDP_NOTE = f"FSDP: the fewest of {', '.join(map(str, FSDP))} such cards that hold it when they share it"
LARGEST_TITLES = {"run.batch_size": "max batch", "run.max_num_seqs": "max seqs", "run.max_model_len": "context"}
"""Titles of the column with the largest value of a key."""


class CardFit(msgspec.Struct, frozen=True, kw_only=True):
    """One job on one card.

    Attributes:
        fit: the verdict; None if it cannot be estimated for this `reason`.
        key: the number whose largest value is searched.
        largest: None if not even 1 fits; with `is_quick` a nearer method may find one more or less.
        own: the longest sequence that the model was made for.
        fsdp: the fewest of FSDP cards over which it fits; None if there is no such number, or if it is not asked.
    """

    card: Device
    group: CardGroup
    fit: Fit | None
    key: str
    largest: int | None = None
    is_quick: bool = False
    fsdp: int | None = None
    reason: str = ""
    own: int | None = None

    @property
    def spare_label(self) -> str:
        """The spare memory in a table: `✓ 10.3 GiB`, `✗ −3.5 GiB`."""
        if self.fit is None:
            return f"{UNKNOWN} not possible"
        size = abs(self.fit.spare)
        spare = f"{'−' if self.fit.spare < 0 else ''}{format_gib(size, 1 if size >= GIB // 10 else 2)} GiB"
        return f"{self.fit.sign} {'too large' if self.fit.refused else spare}"

    @property
    def fsdp_label(self) -> str:
        return UNKNOWN if self.fsdp is None else str(self.fsdp)

    @property
    def largest_label(self) -> str:
        """`largest` in a table: `>131,072` where the model's length ends before the memory, `≈9` of a quick figure."""
        if self.largest is None:
            return UNKNOWN
        beyond = self.own is not None and self.key in planner.LENGTHS and self.largest > self.own
        return f">{self.own:,}" if beyond else f"{'≈' if self.is_quick else ''}{self.largest:,}"


def known_cards() -> tuple[Device, ...]:
    """Every card that has a name: data centre first, and in each group the smallest first."""
    return tuple(
        sorted(COMPARED, key=lambda card: (CARD_GROUPS.index(group_of(card.name)), card.total_memory, card.name))
    )


def card_fits(
    estimator: Estimator, workload: Workload, cards: Iterable[Device], exact: Estimator | None = None
) -> Iterator[CardFit]:
    """The job on each of `cards`, one at a step. `exact`, which may take a hundred times as long, says what it needs;
    the largest size is one of `estimator`, moved by the difference between the two.
    """
    key = planner.usual_key(workload)
    for card in cards:
        answer, group = planner.answer_for(exact or estimator, workload, card), group_of(card.name)
        if answer.process is None:
            yield CardFit(card=card, group=group, fit=None, key=key, reason=answer.reason)
            continue
        fit = Fit(
            needs=answer.process,
            has=card.total_memory,
            error=answer.error,
            refused=bool(answer.reason) and not answer.fits,
            note=answer.reason,
            unknown=unknown_of(workload.model),
        )
        quick = planner.answer_for(estimator, workload, card).process
        correction = (
            None if quick in {None, answer.process} else planner.Correction(answer.process, quick or answer.process)
        )
        fewest = 1 if answer.fits and can_share(workload) else None
        if can_share(workload) and not answer.fits:
            shared = ((count, planner.answer_for(estimator, over_fsdp(workload, count), card)) for count in FSDP[1:])
            fewest = next((count for count, one in shared if one.fits), None)
        yield CardFit(
            card=card,
            group=group,
            fit=fit,
            key=key,
            largest=planner.Planner(estimator, workload, card).edge(key, correction).largest,
            is_quick=correction is not None,
            fsdp=fewest,
            reason=answer.reason,
            own=own_length(workload),
        )


def can_share(workload: Workload) -> bool:
    """Return whether FSDP is a question: a training job that is not spread in another way already, nor a pipeline's."""
    parallel = workload.parallel or Parallel()
    if isinstance(workload.model, PipelineModel):
        return False
    return isinstance(workload.run, TrainRun) and parallel.ranks == parallel.data


def over_fsdp(workload: Workload, cards: int) -> Workload:
    """The job with parameters, gradients and optimizer states shared over so many cards by FSDP."""
    former = workload.parallel or Parallel()
    if cards == 1 and workload.parallel is None:
        return workload
    shared = msgspec.structs.replace(former, data=cards, strategy="fsdp", zero_stage=3)
    return msgspec.structs.replace(workload, parallel=shared)


BY_FSDP, TENSOR = "FSDP", "tensor parallel"


class SharedJob(NamedTuple):
    """One way to spread a job: `FSDP`, `tensor parallel` or nothing, over how many cards, and what each holds then."""

    way: str
    cards: int
    workload: Workload
    answer: planner.FitResult

    @property
    def settings(self) -> str:
        """The options that shard a job so, as one would type them."""
        return f"--set parallel.tensor={self.cards}" if self.way == TENSOR else f"--fsdp {self.cards}"

    @property
    def words(self) -> str:
        """`FSDP over 4`; empty if it is on one card."""
        return f"{self.way} over {self.cards}" if self.way else ""


def shared_job(
    estimator: Estimator, workload: Workload, device: Device, cards: int, *, linked: bool = True
) -> SharedJob | None:
    """How to spread a job on one card over so many, which are `linked` in one machine; None if it cannot be.

    Of the ways that fit (if none does: that can be estimated) it is the usual one: torchrun's FSDP for training, where
    each card has its own batch, else tensor parallel.
    """
    if cards == 1:
        return SharedJob("", 1, workload, planner.answer_for(estimator, workload, device))
    former, shares = workload.parallel or Parallel(), dict[str, Workload]()
    if can_share(workload):
        shares[BY_FSDP] = over_fsdp(workload, cards)
    if former.ranks == 1 and linked:
        tensor = msgspec.structs.replace(former, tensor=cards)
        shares[TENSOR] = msgspec.structs.replace(workload, parallel=tensor)
    ways = (SharedJob(way, cards, job, planner.answer_for(estimator, job, device)) for way, job in shares.items())
    known = [one for one in ways if one.answer.process is not None]
    usual = BY_FSDP if isinstance(workload.run, TrainRun) else TENSOR
    return min(known, key=lambda one: (not one.answer.fits, one.way != usual), default=None)
