"""What fits a card: the largest batch or sequence, what each change would free, and the cheapest set that is enough."""

from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.estimate.fits import Fit, fits_in
from vramtui.core.schema.workload import ServeRun, Workload
from vramtui.estimators.analytic.serving.parts import TooLarge
from vramtui.estimators.planner.largest import CEILING, by_lines, largest_from, largest_that
from vramtui.estimators.planner.mitigations import Mitigation, mitigations_for

MOST_CHANGES = 4
# A nearer estimate is below the other by less than this; so many sets of changes are decided by it.
NEAR, MOST_NEAR = 1.15, 12
LENGTHS = ("run.sequence_length", "run.max_model_len")


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The largest value of one key that still fits.

    Attributes:
        key: as in a preset, `run.batch_size`.
        largest: None when not even 1 fits.
        process: bytes of the process at `largest`; `beyond` at one more.
        reason: why one more does not do, in a sentence.
    """

    key: str
    largest: int | None
    process: int | None
    beyond: int | None
    reason: str


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What one mitigation alone would do; `frees` is in bytes and negative when it costs memory."""

    mitigation: str
    changes: dict[str, Any]
    cost: str
    process: int
    frees: int
    fits: bool
    largest: int | None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The planner's answer for one workload on one card.

    Attributes:
        error: the stated relative error of `process`.
        reason: why it does not start, where a server says more than that it is too large.
        edge: of the key that was asked for; `also` of others that people ask about.
        cheapest: the mitigations to take together, none when it fits as it is, None when no set of them is enough.
        cheapest_process: bytes of the process with them.
    """

    fits: bool
    process: int
    room: int
    error: float | None = None
    reason: str = ""
    edge: Edge
    also: tuple[Edge, ...] = ()
    effects: tuple[Effect, ...]
    cheapest: tuple[Mitigation, ...] | None
    cheapest_process: int | None

    @property
    def fit(self) -> Fit:
        """The verdict on the workload as it is."""
        return Fit(needs=self.process, has=self.room, error=self.error, refused=bool(self.reason) and not self.fits)


class FitResult(NamedTuple):
    """Bytes of the process, None where the estimator refuses; whether it fits; why not, where there is more to say; the
    stated error of the bytes, and by which method they are.
    """

    process: int | None
    fits: bool
    reason: str = ""
    error: float | None = None
    method: str = ""


class Nearer(NamedTuple):
    """Bytes of a process by a nearer estimate and by the other; other sizes have nearly the same share of it cached."""

    process: int
    other: int

    def moved(self, process: int) -> int:
        """The bytes of another size of the same job, as the nearer estimate would have them."""
        return process * self.process // self.other


class Planner:
    """Asks one estimator about variations of one workload on one card.

    Args:
        estimator: what searches ask; takes a millisecond or two.
        workload: the job as it is.
        device: the card.
        gpus: how many of them there are.
        near: what decides where a search has come to, and on the workload as it is; may take a hundred times as
            long. The first where there is none.
    """

    def __init__(
        self,
        estimator: Estimator,
        workload: Workload,
        device: Device,
        gpus: int = 1,
        near: Estimator | None = None,
    ) -> None:
        self._estimator = estimator
        self._nearest = near
        self._workload = workload
        self._device = device
        self._known: dict[Workload, FitResult] = {}
        self._most_ranks = max(gpus, _ranks(workload))
        self._mitigations = mitigations_for(workload, gpus)

    def plan(self, key: str | None = None) -> Plan:
        """Everything at once; the largest batch where no `key` is given, or a server's longest context.

        Raises:
            UserError: the workload cannot be estimated, or `key` is no whole number of it.
        """
        key = key or usual_key(self._workload)
        now = self._near(self._workload)
        if now.process is None:
            raise UserError(now.reason)
        cheapest = () if now.fits else self.cheapest()
        with_them = None if cheapest is None else self._near(_changed(self._workload, *cheapest)).process
        return Plan(
            fits=now.fits,
            process=now.process,
            room=self.room,
            error=now.error,
            reason=now.reason,
            edge=self.edge(key),
            also=tuple(self.edge(other) for other in other_keys(self._workload) if other != key),
            effects=tuple(self.effects(now.process, key)),
            cheapest=cheapest,
            cheapest_process=with_them,
        )

    @property
    def room(self) -> int:
        """Bytes the process may take."""
        return self._device.total_memory

    def edge(self, key: str, nearer: Nearer | None = None) -> Edge:
        """The largest value of `key` that fits, exact: one more does not.

        `nearer` is what a nearer estimate said of the workload as it is, where every answer is to be moved by that.

        Raises:
            UserError: `key` is no whole number of the workload.
        """
        return self._edge(self._workload, key, nearer, near=self._nearest is not None)

    def cheapest(self) -> tuple[Mitigation, ...] | None:
        """The set of at most four changes with the least cost together that makes it fit; None when there is none."""
        tries = MOST_NEAR
        for mitigations in _by_cost(self._mitigations):
            workload = _changed(self._workload, *mitigations)
            if _ranks(workload) > self._most_ranks:
                continue
            found = self._answer(workload)
            if tries and self._nearest is not None and self._may_fit(found):
                tries -= 1
                found = self._near(workload)
            if found.fits:
                return mitigations
        return None

    def _may_fit(self, found: FitResult) -> bool:
        """Whether a nearer estimate could say that it fits."""
        return found.process is not None and found.process <= self.room * NEAR

    def effects(self, before: int, key: str | None = None) -> Iterator[Effect]:
        """What each change would do to a process of `before` bytes, and the largest value of `key` then, if given.

        A job that the nearer estimator cannot make nearer than the other is moved by what it made of the workload as it
        is, so that a change is never set beside the answer of another method.
        """
        now = self._near(self._workload)
        own = self._answer(self._workload).process if self._nearest is not None else None
        usual = Nearer(before, own) if own else None
        for mitigation in self._mitigations:
            workload = _changed(self._workload, mitigation)
            then = self._near(workload)
            if then.process is None:
                continue
            alike = then.method == now.method
            size = then.process if alike or usual is None else usual.moved(then.process)
            largest = None
            if key is not None and key not in mitigation.changes:
                near = alike and self._nearest is not None
                largest = self._edge(workload, key, usual if not alike or near else None, near=near).largest
            yield Effect(
                mitigation=mitigation.name,
                changes=mitigation.changes,
                cost=mitigation.cost,
                process=size,
                frees=before - size,
                fits=then.fits if alike else fits_in(size, self.room),
                largest=largest,
            )

    def _edge(
        self, workload: Workload, key: str, nearer: Nearer | None = None, *, near: bool = False, rough: bool = False
    ) -> Edge:
        """The edge by the nearer estimate where `near`, or else by the other, moved by what is `nearer`; `rough` where
        it is only to start from.
        """
        current = value_at(workload, key)

        @cache
        def answer(value: int) -> FitResult:
            changed = with_values(workload, {key: value})
            found = self._near(changed) if near else self._answer(changed)
            if near or nearer is None or found.process is None:
                return found
            process = nearer.moved(found.process)
            return found._replace(process=process, fits=fits_in(process, self.room))

        def fits(value: int) -> bool:
            return answer(value).fits

        def start(second: int) -> int:
            return by_lines(lambda value: answer(value).process, self.room, max(current, 1), second)

        at = 1
        if near:  # each question is costly, and the other estimate is nearly right: whether 1 fits is mostly not asked
            at = start(self._edge(workload, key, nearer, rough=True).largest or 1)
        if not (near and fits(at)) and not fits(1):
            one = answer(1)
            return Edge(key=key, largest=None, process=one.process, beyond=one.process, reason="not even 1 fits")
        if near:
            largest = largest_from(fits, at)
        else:
            largest = largest_from(fits, start(1 if current > 1 else 2))
            largest = largest if rough else largest_that(fits, largest)
        beyond = answer(largest + 1)
        reason = f"{largest + 1:,} does not fit" if beyond.process is not None else beyond.reason
        if largest >= CEILING:
            reason = f"nothing up to {CEILING:,} is too much"
        own = own_length(workload)
        if key in LENGTHS and own is not None and largest > own:
            reason += f"; beyond the model's own {own:,}"
        return Edge(key=key, largest=largest, process=answer(largest).process, beyond=beyond.process, reason=reason)

    def _near(self, workload: Workload) -> FitResult:
        if workload not in self._known:
            self._known[workload] = self._answer(workload, self._nearest)
        return self._known[workload]

    def _answer(self, workload: Workload, estimator: Estimator | None = None) -> FitResult:
        try:
            found = (estimator or self._estimator).estimate(workload, self._device)
        except TooLarge as error:
            return FitResult(error.needed, fits=False, reason=str(error))
        except UserError as error:
            return FitResult(None, fits=False, reason=str(error))
        return FitResult(found.process, fits_in(found.process, self.room), error=found.error, method=found.method)


def own_length(workload: Workload) -> int | None:
    """The longest sequence that the model was made for, in tokens; None where it does not say."""
    found = getattr(workload.model, "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def usual_key(workload: Workload) -> str:
    """What people ask the largest of."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return "run.batch_size"
    return "run.max_num_seqs" if run.max_model_len is None else "run.max_model_len"


def other_keys(workload: Workload) -> tuple[str, ...]:
    """What else people ask the largest of, where it stands in the workload."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return ("run.batch_size",) if run.sequence_length is None else ("run.batch_size", "run.sequence_length")
    return () if run.engine == "llama.cpp" else ("run.max_num_seqs",)


def key_in_full(workload: Workload, key: str) -> str:
    """`batch_size` as `run.batch_size`, where a number of that name is in one of the workload's tables."""
    return next((f"{head}.{name}" for head, name, _ in _numbers(workload) if name == key), key)


def value_at(workload: Workload, key: str, option: str = "--vary") -> int:
    """The whole number that stands at `key`, which `option` named.

    Raises:
        UserError: there is none.
    """
    table: Any = msgspec.to_builtins(workload)
    parts = key.split(".")
    for part in parts[:-1]:
        table = table.get(part) if isinstance(table, dict) else None
    value = table.get(parts[-1]) if isinstance(table, dict) else None
    if value is None and isinstance(table, dict) and parts[-1] in table:
        value = _first_of(workload, key)
    if isinstance(value, bool) or not isinstance(value, int):
        numbers = [f"{head}.{name}" for head, name, _ in _numbers(workload)]
        raise UserError(
            f"{option} {key}: not a key with a whole number{nearest(key, numbers)}; there are: {', '.join(numbers)}"
        )
    return value


def _first_of(workload: Workload, key: str) -> int | None:
    """1 where nothing stands at `key` but a whole number may."""
    try:
        changed: Any = msgspec.to_builtins(with_values(workload, {key: 1}))
    except msgspec.ValidationError:
        return None
    for part in key.split("."):
        changed = changed[part]
    return changed if isinstance(changed, int) else None


def with_values(workload: Workload, values: Mapping[str, Any]) -> Workload:
    """`workload` with the values at some dotted keys replaced; a changed shape drops the card's parameter count.

    Raises:
        msgspec.ValidationError: a key or a value is not of the schema.
    """
    tables: Any = msgspec.to_builtins(workload)
    for key, value in values.items():
        table = tables
        *heads, last = key.split(".")
        for part in heads:
            if table.get(part) is None:
                table[part] = {}
            table = table[part]
        table[last] = value
        if heads[:1] == ["model"] and last != "parameters":
            tables["model"].pop("parameters", None)
    return msgspec.convert(tables, Workload)


def _numbers(workload: Workload) -> Iterator[tuple[str, str, int]]:
    tables = msgspec.to_builtins(workload)
    for head in ("run", "parallel"):
        for name, value in (tables.get(head) or {}).items():
            if isinstance(value, int) and not isinstance(value, bool):
                yield head, name, value


def _ranks(workload: Workload) -> int:
    return workload.parallel.ranks if workload.parallel is not None else 1


def _changed(workload: Workload, *mitigations: Mitigation) -> Workload:
    values = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
    return with_values(workload, values)


def _by_cost(mitigations: tuple[Mitigation, ...]) -> list[tuple[Mitigation, ...]]:
    """Sets of mitigations that do not undo one another, cheapest first, then fewest."""
    sets = [
        chosen
        for size in range(1, MOST_CHANGES + 1)
        for chosen in combinations(mitigations, size)
        if len({key for mitigation in chosen for key in mitigation.changes})
        == sum(len(mitigation.changes) for mitigation in chosen)
    ]
    return sorted(sets, key=lambda chosen: (sum(mitigation.weight for mitigation in chosen), len(chosen)))
