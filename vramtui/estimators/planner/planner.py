"""The largest batch or sequence that fits, what each change would free, and the cheapest set that is enough."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cached_property, reduce
from itertools import combinations
from typing import Any, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import BF16, Device, check_card
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.fits import CEILING, PROBES, Fit, fits_in, largest, search_largest, search_lines, unknown_of
from vramtui.core.schema.workload import ServeRun, TrainRun, Workload, own_length
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.planner.mitigations import Half, Mitigation, mitigations_for


def usual_key(workload: Workload) -> str:
    """The key whose largest value is usually asked for."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return "run.batch_size"
    return "run.max_num_seqs" if run.max_model_len is None and run.engine != "ollama" else "run.max_model_len"


def other_keys(workload: Workload) -> tuple[str, ...]:
    """Other keys whose largest value is asked for, if the workload has them."""
    run = workload.run
    if not isinstance(run, ServeRun):
        return ("run.batch_size",) if run.sequence_length is None else ("run.batch_size", "run.sequence_length")
    return () if run.is_llama_cpp else ("run.max_num_seqs",)


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
    if value is None and isinstance(table, dict) and parts[-1] in table:  # 1 if a whole number may be there
        with suppress(msgspec.ValidationError):
            value = reduce(lambda part, name: part[name], parts, msgspec.to_builtins(with_values(workload, {key: 1})))
    if isinstance(value, bool) or not isinstance(value, int):
        numbers = [f"{head}.{name}" for head, name, _ in _numbers(workload)]
        raise UserError(
            f"{option} {key}: not a key with a whole number{nearest(key, numbers)}; there are: {', '.join(numbers)}"
        )
    return value


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


MOST_CHANGES = 4
# A nearer estimate is below the other by less than this; so many sets of changes are decided by it.
NEAR, MOST_NEAR = 1.15, 12
# Less than this, or than so small a share of the process, is nothing that anybody would change a job for.
LEAST, LEAST_SHARE = 16 * MIB, 0.002
LENGTHS = ("run.sequence_length", "run.max_model_len")


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """The largest value of one key that still fits, None if not even 1 does; the bytes of the process there and at one
    more; and a sentence on why one more does not fit.
    """

    key: str = msgspec.field(name="vary")
    largest: int | None
    process: int | None = msgspec.field(name="process_at_largest")
    beyond: int | None = msgspec.field(name="process_beyond")
    reason: str


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of one mitigation; `frees` is in bytes and negative when it costs memory."""

    mitigation: str = msgspec.field(name="name")
    changes: dict[str, Any]
    cost: str
    process: int
    frees: int
    fits: bool
    largest: int | None


def worthwhile(effects: Iterable[Effect], process: int | None, edges: tuple[Edge, ...]) -> tuple[Effect, ...]:
    """The effects that free something, most first; then those with which a larger size fits than the first of `edges`.
    `process` is the bytes without any change.
    """
    least = max(LEAST, (process or 0) * LEAST_SHARE)
    before = edges[0].largest or 0 if edges else None
    useful = [
        effect
        for effect in effects
        if effect.frees >= least or (effect.frees >= 0 and before is not None and (effect.largest or 0) > before)
    ]
    return tuple(
        sorted(useful, key=lambda effect: (-effect.frees if effect.frees >= least else 0, -(effect.largest or 0)))
    )


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The planner's answer for one workload on one card.

    Attributes:
        reason: why a server does not start, if it is not only too large.
        edge: of the key that was asked for; `also` of others that people ask about.
        cheapest: the changes to take together; empty if it fits as it is, None if no set of them is enough.
    """

    fits: bool
    process: int
    room: int
    error: float | None = None
    reason: str = ""
    unknown: str = ""
    edge: Edge
    also: tuple[Edge, ...] = ()
    effects: tuple[Effect, ...]
    cheapest: tuple[Mitigation, ...] | None
    cheapest_process: int | None

    @property
    def fit(self) -> Fit:
        """The verdict on the workload as it is."""
        refused = bool(self.reason) and not self.fits
        return Fit(needs=self.process, has=self.room, error=self.error, refused=refused, unknown=self.unknown)


class FitResult(NamedTuple):
    """An estimator's answer for one workload: bytes, None if it refuses for that reason. A nearer estimate does not go
    below `at_least`.
    """

    process: int | None
    fits: bool
    reason: str = ""
    error: float | None = None
    method: str = ""
    at_least: int | None = None


class Correction(NamedTuple):
    """Bytes of a process by a nearer estimate and by the other; other sizes have nearly the same share of it cached."""

    process: int
    fast: int

    def moved(self, process: int) -> int:
        """The bytes of another size of the same job by the nearer estimate."""
        return process * self.process // self.fast


class Planner:
    """Asks one estimator about variations of one workload on one of `gpus` cards.

    Searches ask `estimator`, which takes a millisecond or two. `exact`, if given, may take a hundred times as long: it
    decides at the end of a search and on the workload as it is.
    """

    def __init__(
        self,
        estimator: Estimator,
        workload: Workload,
        device: Device,
        gpus: int = 1,
        exact: Estimator | None = None,
    ) -> None:
        self._estimator = estimator
        self._exact_estimator = exact
        # What the exact estimator's answer does not go below, by the fast one's, where it knows such a bound.
        self._bound: Callable[[Workload, Estimate], int | None] | None = getattr(exact, "at_least", None)
        self._workload = workload
        self._device = device
        self._answers: dict[Workload, FitResult] = {}
        self._exact_answers: dict[Workload, FitResult] = {}
        self._most_ranks = max(gpus, _ranks(workload))
        self._gpus = gpus

    @cached_property
    def mitigations(self) -> tuple[Mitigation, ...]:
        """The changes that are looked at, cheapest first."""
        half: Half = "bf16" if self._device.capability >= BF16 else "fp16"
        run, micro_batch = self._workload.run, 1
        if isinstance(run, TrainRun) and run.batch_size > 1 and not self.now.fits:
            most = min(self.edge("run.batch_size").largest or 1, run.batch_size // 2)
            micro_batch = next(size for size in range(most, 0, -1) if run.batch_size % size == 0)
        return mitigations_for(self._workload, self._gpus, half, micro_batch)

    def plan(self, key: str | None = None) -> Plan:
        """Everything at once; the largest batch where no `key` is given, or a server's longest context.

        Raises:
            UserError: the workload cannot be estimated, or `key` is not a whole number of it.
        """
        check_card(self._workload, self._device)
        key = key or usual_key(self._workload)
        now = self.now
        if now.process is None:
            raise UserError(now.reason)
        cheapest = () if now.fits else self.cheapest()
        with_them = None if cheapest is None else self._exact(_changed(self._workload, *cheapest)).process
        return Plan(
            fits=now.fits,
            process=now.process,
            room=self.room,
            error=now.error,
            reason=now.reason,
            unknown=unknown_of(self._workload.model),
            edge=self.edge(key),
            also=tuple(self.edge(other) for other in other_keys(self._workload) if other != key),
            effects=tuple(self.effects(now.process, key)),
            cheapest=cheapest,
            cheapest_process=with_them,
        )

    @property
    def now(self) -> FitResult:
        """The exact estimator's answer for the workload as it is."""
        return self._exact(self._workload)

    @property
    def room(self) -> int:
        return self._device.total_memory

    def edge(self, key: str, correction: Correction | None = None) -> Edge:
        """The largest value of `key` that fits: one more does not. Every answer is moved by `correction`, if given.

        Raises:
            UserError: `key` is not a whole number of the workload.
        """
        is_exact = self._exact_estimator is not None
        number = (
            self._largest_exact(self._workload, key) if is_exact else self._largest(self._workload, key, correction)
        )

        def answer(value: int) -> FitResult:
            if is_exact:
                return self._exact(with_values(self._workload, {key: value}))
            return self._answer_at(self._workload, key, value, correction)

        if not number:
            one = answer(1)
            return Edge(key=key, largest=None, process=one.process, beyond=one.process, reason="not even 1 fits")
        beyond = answer(number + 1)
        reason = f"{number + 1:,} does not fit" if beyond.process is not None else beyond.reason
        if number >= CEILING:
            reason = f"nothing up to {CEILING:,} is too much"
        own = own_length(self._workload)
        if key in LENGTHS and own is not None and number > own:
            reason += f"; beyond the model's own {own:,}"
        return Edge(key=key, largest=number, process=answer(number).process, beyond=beyond.process, reason=reason)

    def sizes(self, edge: Edge, most: int = 10) -> list[tuple[int, int]]:
        """Values of the key of `edge` from 1 to a tenth beyond the largest that fits, and bytes of the process."""
        last = max(2, (edge.largest or 1) + -(-(edge.largest or 1) // 10))
        values = sorted({1 + (last - 1) * at // (most - 1) for at in range(most)} | {edge.largest or 1})
        sizes = ((value, self._exact(with_values(self._workload, {edge.key: value})).process) for value in values)
        return [(value, size) for value, size in sizes if size is not None]

    def cheapest(self) -> tuple[Mitigation, ...] | None:
        """The set of at most four changes with the least cost together that makes it fit; None if there is none."""
        tries = MOST_NEAR
        sets = [
            chosen
            for size in range(1, MOST_CHANGES + 1)
            for chosen in combinations(self.mitigations, size)
            # None of them undoes another.
            if len({key for one in chosen for key in one.changes}) == sum(len(one.changes) for one in chosen)
        ]
        for mitigations in sorted(sets, key=lambda chosen: (sum(one.weight for one in chosen), len(chosen))):
            workload = _changed(self._workload, *mitigations)
            if _ranks(workload) > self._most_ranks:
                continue
            answer = self._answer(workload)
            is_near = answer.process is not None and answer.process <= self.room * NEAR
            if tries and self._exact_estimator is not None and is_near:
                tries -= 1
                answer = self._exact(workload)
            if answer.fits:
                return mitigations
        return None

    def effects(self, before: int, key: str | None = None) -> Iterator[Effect]:
        """The effect of each change on a process of `before` bytes, and the largest value of `key` then, if given.

        A job that the nearer estimator cannot make nearer than the other is moved by what it made of the workload as it
        is, so that a change is never set beside the answer of another method.
        """
        now = self.now
        own = self._answer(self._workload).process if self._exact_estimator is not None else None
        usual = Correction(before, own) if own else None
        for mitigation in self.mitigations:
            workload = _changed(self._workload, mitigation)
            then = self._exact(workload)
            if then.process is None:
                continue
            alike = then.method == now.method
            size = then.process if alike or usual is None else usual.moved(then.process)
            number = None
            if key is not None and key not in mitigation.changes:
                if alike and self._exact_estimator is not None:
                    number = self._largest_exact(workload, key) or None
                else:
                    number = self._largest(workload, key, None if alike else usual) or None
            yield Effect(
                mitigation=mitigation.name,
                changes=mitigation.changes,
                cost=mitigation.cost,
                process=size,
                frees=before - size,
                fits=then.fits if alike else fits_in(size, self.room),
                largest=number,
            )

    def _answer_at(self, workload: Workload, key: str, value: int, correction: Correction | None = None) -> FitResult:
        """The estimator's answer for another value of `key`, moved by `correction`."""
        result = self._answer(with_values(workload, {key: value}))
        if correction is None or result.process is None:
            return result
        process = correction.moved(result.process)
        return result._replace(process=process, fits=fits_in(process, self.room))

    def _largest(self, workload: Workload, key: str, correction: Correction | None = None) -> int:
        """The largest value of `key` that fits by the estimator, 0 where not even 1 does."""

        def needs(value: int) -> int | None:
            return _size(self._answer_at(workload, key, value, correction), self.room)

        current = max(value_at(workload, key), 1)
        if not self._answer_at(workload, key, 1, correction).fits:
            return 0
        return largest(needs, search_largest(self.room, self._about(workload, key, current, correction), probes=PROBES))

    def _about(self, workload: Workload, key: str, current: int, correction: Correction | None) -> int:
        """Nearly the largest value of `key` that fits by the estimator; it is `current` in `workload`."""
        lines = search_lines(self.room, current, 1 if current > 1 else 2)
        return largest(lambda value: self._answer_at(workload, key, value, correction).process, lines)

    def _largest_exact(self, workload: Workload, key: str) -> int:
        """The largest value of `key` that fits by the exact estimator, whose answers are costly.

        The fast one says where to begin, moved by what the exact one makes of the job as it is; what a bound of that
        answer refuses already is not asked.
        """

        def needs(value: int) -> int | None:
            changed = with_values(workload, {key: value})
            bound = self._answer(changed).at_least
            return bound if bound is not None and bound > self.room else _size(self._exact(changed), self.room)

        exact, fast = self._exact(workload).process, self._answer(workload).process
        now = max(value_at(workload, key), 1)
        about = self._about(workload, key, now, Correction(exact, fast) if exact and fast else None)
        # By its length a job grows steadily; of a net's batches some fit beyond one that does not.
        known = {now: needs(now)} if key in LENGTHS else None
        return largest(needs, search_largest(self.room, now if abs(about - now) <= 1 else about, known=known))

    def _exact(self, workload: Workload) -> FitResult:
        if self._exact_estimator is None:
            return self._answer(workload)
        if workload not in self._exact_answers:
            self._exact_answers[workload] = self._ask(workload, self._exact_estimator)
        return self._exact_answers[workload]

    def _answer(self, workload: Workload) -> FitResult:
        if workload not in self._answers:
            self._answers[workload] = self._ask(workload, self._estimator)
        return self._answers[workload]

    def _ask(self, workload: Workload, estimator: Estimator) -> FitResult:
        try:
            estimate = estimator.estimate(workload, self._device)
        except TooLargeError as error:
            return FitResult(error.needed, fits=False, reason=str(error))
        except UserError as error:
            return FitResult(None, fits=False, reason=str(error))
        at_least = None if self._bound is None else self._bound(workload, estimate)
        fits = fits_in(estimate.process, self.room)
        return FitResult(estimate.process, fits, error=estimate.error, method=estimate.method, at_least=at_least)


def _size(result: FitResult, room: int) -> int | None:
    """Bytes for a search; None if it does not fit for another reason than these."""
    return result.process if result.fits or (result.process or 0) > room else None


def _ranks(workload: Workload) -> int:
    return workload.parallel.ranks if workload.parallel is not None else 1


def _changed(workload: Workload, *mitigations: Mitigation) -> Workload:
    values = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
    return with_values(workload, values)
