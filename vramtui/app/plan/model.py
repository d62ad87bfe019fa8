"""The Plan screen's model: axes, the maps made for them, the user's choices, and the view of one moment."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, get_args

import msgspec

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.base.text import printable
from vramtui.core.estimate.assumptions import settings_of
from vramtui.core.estimate.devices import COMPARED, Device, on_card
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.fits import fits_in
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema import workload as workloads
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.planner import planner as planners
from vramtui.estimators.planner.card_table import FSDP, CardFit, can_share, card_fits, spread
from vramtui.models.specs.decoder import adapted_modules

Amount = int | float | str | None
Known = Callable[[workloads.Workload], bool]
Amounts = Callable[[workloads.Workload, Amount], tuple[Amount, ...]]

DOUBLINGS = 40
MOST, FINE, COARSE = 24, 4, 2
USUAL_TOKENS, USUAL_SEQUENCES, MOST_CARDS = 4096, 256, 64
RANKS = (4, 8, 16, 32, 64, 128, 256)
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
# Axes on which a smaller number takes less memory.
SIZES = frozenset({"batch", "sequences", "seq", "context", "image"})
BEYOND, LEAST_AMOUNTS = 3, 8  # an axis ends this many sizes after the last that fits, and has at least LEAST_AMOUNTS
# If no size fits, the rows vary what shares or shrinks the weights.
SHRINKING = ("FSDP", "GPUs", "sharding", "quantized", "LoRA", "precision")
AS_IS = "as is"
STATES = {"DDP": ("ddp", 0), "ZeRO-1": ("zero", 1), "ZeRO-2": ("zero", 2), "ZeRO-3": ("zero", 3), "FSDP": ("fsdp", 3)}


def schemes_for(workload: workloads.Workload) -> tuple[str, ...]:
    """The ways to shard this kind of model and run; the present one first."""
    splits = isinstance(workload.model, TransformerModel)
    if not isinstance(workload.run, workloads.TrainRun):
        return (AS_IS, "tensor", "pipeline") if splits else (AS_IS,)
    return (AS_IS, *STATES, *(("tensor", "tensor+seq", "tensor+ZeRO-1", "pipeline", "context") if splits else ()))


def shared(workload: workloads.Workload, scheme: str, gpus: int | None, cards: int) -> workloads.Parallel | None:
    """The `[parallel]` table of `workload` under one of `schemes_for`, over `gpus`. If no axis varies their number,
    they are as many as now or, for another scheme, `cards`. UserError if the scheme cannot use this number of GPUs.
    """
    former = workload.parallel or workloads.Parallel()
    if scheme == AS_IS:
        if gpus is None or gpus == former.ranks:
            return workload.parallel
        # More GPUs: more replicas in training, thinner slices otherwise.
        name = "data"
        if not isinstance(workload.run, workloads.TrainRun):
            name = "pipeline" if former.pipeline > 1 and former.tensor == 1 else "tensor"
        others = former.ranks // getattr(former, name)
        if gpus % others:
            raise UserError(f"{gpus} GPUs cannot be divided into groups of {others}, which share one replica now")
        return msgspec.structs.replace(former, **{name: gpus // others})
    count = cards if gpus is None else gpus
    split: dict[str, Any] = {
        "data": 1, "strategy": "ddp", "zero_stage": 0, "tensor": 1, "sequence_parallel": False, "pipeline": 1,
        "virtual_pipeline": 1, "context": 1, "expert": 1,
    }  # fmt: skip
    if count == 1:
        return None if workload.parallel is None else msgspec.structs.replace(former, **split)
    if scheme in STATES:
        strategy, stage = STATES[scheme]
        split |= {"data": count, "strategy": strategy, "zero_stage": stage}
    elif scheme == "tensor+ZeRO-1":
        tensor = min(planners.ONE_MACHINE, count)
        if count % tensor:
            raise UserError(f"{count} GPUs cannot be divided into groups of {tensor}")
        split |= {"tensor": tensor, "data": count // tensor, "strategy": "zero", "zero_stage": 1}
    elif scheme in {"pipeline", "context"}:
        split[scheme] = count
    else:
        split |= {"tensor": count, "sequence_parallel": scheme == "tensor+seq"}
    return msgspec.structs.replace(former, **split)


def cards_of(workload: workloads.Workload, cards: int) -> int:
    """Number of GPUs for sharding: those of the job if it has several, else `cards`."""
    ranks = workload.parallel.ranks if workload.parallel is not None else 1
    return ranks if ranks > 1 else cards


def ladder(value: int, count: int, steps: int) -> tuple[int, ...]:
    """At most `count` rising numbers from 1 up; `value` is among them, and about a third are smaller. `steps` is rungs
    per doubling: 4 gives 4, 5, 6, 7, 8, 10, 12, 14, 16 …; 2 gives 2, 3, 4, 6, 8, 12 …
    """
    low = set(range(1, steps))
    rungs = sorted(low | {(steps + part) << power for power in range(DOUBLINGS) for part in range(steps)} | {value})
    start = max(0, rungs.index(value) - count // 3)
    return tuple(rungs[start : start + count])


def with_present(rungs: tuple[int, ...], present: int | None) -> tuple[int, ...]:
    """`rungs` with `present`; if it was missing, the rung farthest from it goes."""
    if present is None or present in rungs:
        return rungs
    more = sorted({*rungs, present})
    more.pop(-1 if present < rungs[-1] else 0)
    return tuple(more)


def short(number: int) -> str:
    """A number in at most five characters: 4096, 16k, 1M."""
    if number < 10_000:
        return str(number)
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if number >= unit and number % (unit // 2) == 0:
            return f"{number / unit:g}{letter}"
    return str(number)


class Kind(msgspec.Struct, frozen=True):
    """How one axis is made and applied: `read` gives the present amount, `changes` the keys that an amount sets."""

    name: str
    title: str
    known: Known
    read: Callable[[workloads.Workload], Amount]
    amounts: Amounts
    changes: Callable[[workloads.Workload, Amount], dict[str, Any]]


def _run_kind(name: str, title: str, key: str, amounts: Amounts, known: Known | None = None) -> Kind:
    """An axis over a key of the run; `known` if having the key is not enough."""

    def read(workload: workloads.Workload) -> Amount:
        value: Amount = getattr(workload.run, key)
        return value

    return Kind(
        name,
        title,
        known or (lambda workload: hasattr(workload.run, key)),
        read,
        amounts,
        lambda _, amount: {f"run.{key}": amount},
    )


def _around(usual: int, steps: int) -> Amounts:
    return lambda _, value: ladder(value if isinstance(value, int) else usual, MOST, steps)


def _lengths(workload: workloads.Workload, value: Amount) -> tuple[Amount, ...]:
    """A ladder that ends with the first length beyond the model's own."""
    rungs = ladder(value if isinstance(value, int) else USUAL_TOKENS, MOST, COARSE)
    most = workloads.own_length(workload)
    if most is None:
        return rungs
    beyond = [length for length in rungs if length > most]
    return tuple(length for length in rungs if length <= most or length in beyond[:1] or length == value)


def _image_key(workload: workloads.Workload) -> str | None:
    return next((key for key in ("image_size", "sample_size") if getattr(workload.model, key, None)), None)


def _quantizations(workload: workloads.Workload, value: Amount) -> tuple[Amount, ...]:
    run = workload.run
    choices: tuple[Amount, ...] = ("int8", "fp8", "int4", "nf4", "nf4-double")
    if isinstance(run, workloads.TrainRun):
        choices = ("int8", "nf4", "nf4-double")
    elif isinstance(run, workloads.ServeRun):
        llama_cpp = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
        choices = llama_cpp if run.is_llama_cpp else ("fp8", "int8", "int4")
    return (None, *choices) if value is None or value in choices else (None, *choices, value)


def _lora_keys(workload: workloads.Workload, amount: Amount) -> dict[str, Any]:
    if amount is None:
        return {"run.lora": None}
    if getattr(workload.run, "lora", None) is not None:
        return {"run.lora.rank": amount}
    return {"run.lora": {"rank": amount, "target_modules": list(adapted_modules(workload.model))}}


def _shards(workload: workloads.Workload) -> bool:
    """Return whether there is a way to shard it; llama.cpp has its own."""
    return len(schemes_for(workload)) > 1 and not getattr(workload.run, "is_llama_cpp", False)


def _trains(workload: workloads.Workload) -> bool:
    return isinstance(workload.run, workloads.TrainRun)


KINDS = (
    _run_kind("batch", "batch size of one GPU", "batch_size", _around(1, FINE)),
    _run_kind(
        "sequences", "sequences served at once", "max_num_seqs", _around(USUAL_SEQUENCES, FINE),
        # llama.cpp's context holds all sequences together, however many there are.
        lambda workload: isinstance(workload.run, workloads.ServeRun) and not workload.run.is_llama_cpp,
    ),
    _run_kind(
        "seq", "sequence length in tokens", "sequence_length", _lengths,
        lambda workload: (getattr(workload.run, "sequence_length", 0) or 0) > 0
        or (getattr(workload.run, "sequence_length", 0) is None and isinstance(workload.model, TransformerModel)),
    ),
    _run_kind("context", "longest sequence served, in tokens", "max_model_len", _lengths),
    Kind(
        "image", "height and width of an image, or of its latents",
        lambda workload: _image_key(workload) is not None,
        lambda workload: getattr(workload.model, _image_key(workload) or ""),
        # The sizes of a ladder that the model's patches divide.
        lambda workload, value: tuple(
            size for size in ladder(value if isinstance(value, int) else 1, MOST, FINE)
            if size == value or (size >= 8 and size % (getattr(workload.model, "patch_size", None) or 1) == 0)
        ),
        lambda workload, amount: {f"model.{_image_key(workload)}": amount},
    ),
    _run_kind(
        "precision", "precision of the numbers", "precision",
        lambda workload, _: get_args(workloads.Precision) if _trains(workload) else ("fp32", "bf16", "fp16")
        if isinstance(workload.run, workloads.ServeRun)
        else ("fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16"),
        lambda _: True,
    ),
    _run_kind(
        "checkpoint", "activation checkpointing (recomputed in backward)", "checkpointing",
        lambda _, __: get_args(workloads.Checkpointing), _trains,
    ),
    _run_kind("optimizer", "optimizer", "optimizer", lambda _, __: get_args(workloads.Optimizer), _trains),
    Kind(
        "LoRA", "rank of the adapters",
        lambda workload: isinstance(workload.run, workloads.TrainRun)
        and (workload.run.lora is not None or bool(adapted_modules(workload.model))),
        lambda workload: getattr(getattr(workload.run, "lora", None), "rank", None),
        lambda _, value: (None, *sorted({*RANKS, *([value] if isinstance(value, int) else [])})),
        _lora_keys,
    ),
    _run_kind(
        "quantized", "precision of frozen or served weights", "quantization", _quantizations,
        lambda workload: not (isinstance(workload.run, workloads.TrainRun) and workload.run.lora is None)
        and (isinstance(workload.model, TransformerModel) or workload.run.quantization is not None),
    ),
    _run_kind(
        "share", "fraction of the card that vLLM uses", "gpu_memory_utilization", lambda _, __: SHARES,
        lambda workload: isinstance(workload.run, workloads.ServeRun) and workload.run.engine == "vllm",
    ),
    Kind(
        "GPUs", "number of GPUs, sharded as now", _shards,
        lambda workload: (workload.parallel or workloads.Parallel()).ranks,
        lambda _, value: tuple(
            sorted(
                n for n in {1 << power for power in range(21)} | {3 << power for power in range(20)}
                if n <= max(MOST_CARDS, 4 * (value if isinstance(value, int) else 1))
            )
        )[-MOST:],
        lambda _, __: {},
    ),
    Kind(
        "FSDP", "number of GPUs that share parameters, gradients and optimizer states", can_share,
        lambda workload: one.data
        if (one := workload.parallel or workloads.Parallel()).strategy == "fsdp" or one.ranks == 1
        else None,
        lambda _, value: tuple(sorted({*FSDP, *([value] if isinstance(value, int) else [])})),
        lambda workload, amount: {} if not isinstance(amount, int) or (amount == 1 and workload.parallel is None) else {
            "parallel.data": amount, "parallel.strategy": "fsdp", "parallel.zero_stage": 3
        },
    ),
    Kind(
        "sharding", "what {cards} GPUs share: ZeRO stage, tensor, pipeline, context", _shards,
        lambda _: AS_IS, lambda workload, _: schemes_for(workload), lambda _, __: {},
    ),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}


class Axis(msgspec.Struct, frozen=True):
    """One thing to vary: its values in order, each with a short label, the index of the workload's `present` one if it
    has one of them, and the model's `own` length if a value is beyond it.
    """

    name: str
    title: str
    amounts: tuple[Amount, ...]
    labels: tuple[str, ...]
    present: int | None
    own: int | None = None

    def words(self, at: int) -> str:
        amount = self.amounts[at]
        text = f"{amount:,}" if isinstance(amount, int) and self.name != "image" else self.labels[at]
        return f"{self.name} {text}"


def axes_of(workload: workloads.Workload, original: workloads.Workload, cards: int) -> tuple[Axis, ...]:
    """The axes of `workload`; none for the user's own code. Ladders are made around the values of `original`, the
    preset's file, so that they stay while values change. A job on one GPU is sharded over `cards`.
    """
    if isinstance(workload.model, TorchModel):
        return ()
    kinds = (kind for kind in KINDS if kind.known(workload))
    return tuple(_axis(kind, workload, kind.amounts(original, kind.read(original)), cards) for kind in kinds)


def _axis(kind: Kind, workload: workloads.Workload, amounts: tuple[Amount, ...], cards: int) -> Axis:
    """An axis with these amounts and the present one."""
    present = kind.read(workload)
    numbers = tuple(amount for amount in amounts if type(amount) is int)
    if len(numbers) == len(amounts) and (present is None or type(present) is int):
        amounts = with_present(numbers, present)
    elif present not in amounts:
        shares = [amount for amount in (*amounts, present) if isinstance(amount, float)]
        amounts = tuple(sorted(shares)) if len(shares) > len(amounts) else (*amounts, present)
    labels = tuple(
        "none" if amount is None
        else f"{amount:.0%}" if isinstance(amount, float)
        else short(amount) if isinstance(amount, int)
        else amount
        for amount in amounts
    )  # fmt: skip
    own = workloads.own_length(workload) if kind.name in {"seq", "context"} else None
    if own is not None and all(number <= own for number in numbers):
        own = None
    title = kind.title.format(cards=cards_of(workload, cards))
    return Axis(kind.name, title, amounts, labels, amounts.index(present) if present in amounts else None, own)


def fitted(axis: Axis, workload: workloads.Workload) -> Axis:
    """`axis` for another workload: the same values, with that workload's present one."""
    kind = BY_NAME[axis.name]
    present = kind.read(workload) if kind.known(workload) else None
    at = axis.amounts.index(present) if kind.known(workload) and present in axis.amounts else None
    return msgspec.structs.replace(axis, present=at)


def usual_axes(axes: tuple[Axis, ...]) -> tuple[str, str]:
    """The columns and rows before the user chooses: sizes first, but not the number of sequences of a server. vLLM
    fills its share of the card, and llama.cpp keeps one cache for all.
    """
    names = [axis.name for axis in axes]
    across = next(name for name in ("share", "batch", "quantized", *names) if name in names)
    wanted = ("seq", "context", "image", "precision", *names)
    return across, next(name for name in wanted if name in names and name != across)


def begin_where_it_fits(
    axes: tuple[Axis, Axis], workload: workloads.Workload, cards: int, fits: Callable[[workloads.Workload], bool]
) -> tuple[Axis, Axis]:
    """Two axes whose first cell fits, if any does: their sizes begin lower where necessary, and end soon after the last
    size that fits with the other's first. On an axis without sizes, any value may fit.
    """

    def any_fits(amounts: Mapping[str, tuple[Amount, ...]]) -> bool:
        tried = (dict(zip(amounts, values, strict=True)) for values in product(*amounts.values()))
        return any(_fits(workload, one, cards, fits) for one in tried)

    def smallest(axis: Axis) -> tuple[Amount, ...]:
        return axis.amounts[:1] if axis.name in SIZES else axis.amounts

    def first_fits(tried: tuple[Axis, Axis]) -> bool:
        return any_fits({axis.name: smallest(axis) for axis in tried})

    def lower(axis: Axis) -> Axis:
        """The axis around its first size; unchanged if there are no smaller sizes."""
        if axis.name not in SIZES:
            return axis
        amounts = BY_NAME[axis.name].amounts(workload, axis.amounts[0])
        return axis if amounts[0] == axis.amounts[0] else _axis(BY_NAME[axis.name], workload, amounts, cards)

    def end_after(axis: Axis, other: Axis) -> Axis:
        """The axis without the sizes far beyond the last that fits; the present one stays."""
        if axis.name not in SIZES:
            return axis
        fitting = bisect_left(
            axis.amounts, 1, key=lambda amount: not any_fits({axis.name: (amount,), other.name: smallest(other)})
        )
        end = max(fitting + BEYOND, LEAST_AMOUNTS, 0 if axis.present is None else axis.present + 1)
        return msgspec.structs.replace(axis, amounts=axis.amounts[:end], labels=axis.labels[:end])

    if not SIZES & {axis.name for axis in axes}:
        return axes
    at = axes
    while not first_fits(at):
        both = lower(at[0]), lower(at[1])
        if both == at:
            return axes
        single = [(both[0], at[1]), (at[0], both[1])]
        at = next((tried for tried in single if tried != at and first_fits(tried)), both)
    return end_after(*at), end_after(at[1], at[0])


def rows_that_fit(
    axes: tuple[Axis, ...], workload: workloads.Workload, cards: int, fits: Callable[[workloads.Workload], bool]
) -> str:
    """The axis for the rows of a job that fits in none of its sizes but in a value of that axis; empty if sizes fit or
    nothing does. The arguments are those of `begin_where_it_fits`.
    """
    named = {axis.name: axis for axis in axes}
    across, down = usual_axes(axes)

    def some_fit(name: str) -> bool:
        x, y = begin_where_it_fits((named[across], named[name]), workload, cards, fits)
        rows = y.amounts[:1] if name in SIZES else y.amounts
        return any(_fits(workload, {across: x.amounts[0], name: amount}, cards, fits) for amount in rows)

    if some_fit(down):
        return ""
    return next((name for name in SHRINKING if name in named and name != across and some_fit(name)), "")


def _fits(
    workload: workloads.Workload, amounts: Mapping[str, Amount], cards: int, fits: Callable[[workloads.Workload], bool]
) -> bool:
    try:
        return fits(variant(workload, amounts, cards))
    except UserError:
        return False


def variant(workload: workloads.Workload, amounts: Mapping[str, Amount], cards: int) -> workloads.Workload:
    """`workload` with these amounts, by the names of their axes; UserError if they are not possible together."""
    changes: dict[str, Any] = {}
    for name, amount in amounts.items():
        kind = BY_NAME[name]
        if not kind.known(workload):
            raise UserError(f"this preset has no {name} to vary")
        if amount != kind.read(workload):
            changes |= kind.changes(workload, amount)
    try:
        changed = planners.with_values(workload, changes) if changes else workload
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    if "GPUs" not in amounts and "sharding" not in amounts:
        return changed
    gpus, scheme = amounts.get("GPUs"), str(amounts.get("sharding", AS_IS))
    over = gpus if isinstance(gpus, int) else None
    return msgspec.structs.replace(changed, parallel=shared(changed, scheme, over, cards_of(workload, cards)))


Steps = Callable[[Estimator], Iterator[None]]
Cells = tuple[tuple[planners.FitResult | None, ...], ...]
# The keys of the axes whose largest size is searched.
SIZE_KEYS = {
    "batch": "run.batch_size",
    "seq": "run.sequence_length",
    "sequences": "run.max_num_seqs",
    "context": "run.max_model_len",
}


class GridQuestion(msgspec.Struct, frozen=True):
    """The subject of a map: `workload` on `device` over two axes. A job on one GPU is sharded over `cards`."""

    workload: workloads.Workload
    device: Device
    x: Axis
    y: Axis
    cards: int


class GridCells:
    """The answers so far, from the cell `start` on. One thread fills it while another reads `cells`.

    Once all cells are answered, `exact` simulates those that may fit. The others are scaled as it changed these, so
    that the map has no cliff between the two methods.
    """

    __slots__ = (
        "_exact", "_move", "_moves", "_rows", "_tried", "done", "exact_cells", "is_exact", "question", "start", "total",
    )  # fmt: skip

    def __init__(self, question: GridQuestion, start: tuple[int, int], exact: Estimator | None = None) -> None:
        self.question, self.start = question, start
        self.done, self.total = 0, len(question.x.amounts) * len(question.y.amounts)
        self.is_exact = exact is None
        self._exact = exact
        self._tried: set[tuple[int, int]] = set()
        self.exact_cells: set[tuple[int, int]] = set()
        # By row, the column of the rightmost exact answer and its correction; the first correction of all.
        self._moves: dict[int, tuple[int, planners.Correction]] = {}
        self._move: planners.Correction | None = None
        self._rows: list[list[planners.FitResult | None]] = [
            [None] * len(question.x.amounts) for _ in question.y.amounts
        ]

    @property
    def is_whole(self) -> bool:
        """Return whether every cell has its final answer."""
        return self.done >= self.total and self.is_exact

    def cells(self) -> Cells:
        """A row for each value of y; None for an unknown answer."""
        room, usual = self.question.device.total_memory, self._move

        def moved(answer: planners.FitResult | None, x: int, y: int) -> planners.FitResult | None:
            """The answer with the correction of its row, or of the start."""
            if answer is None or answer.process is None or (x, y) in self.exact_cells or usual is None:
                return answer
            process = self._moves.get(y, (0, usual))[1].moved(answer.process)
            refused = bool(answer.reason) and not answer.fits
            return answer._replace(process=process, fits=not refused and fits_in(process, room))

        if usual is None:
            return tuple(tuple(row) for row in self._rows)
        return tuple(tuple(moved(answer, x, y) for x, answer in enumerate(row)) for y, row in enumerate(self._rows))

    def workload_at(self, x: int, y: int) -> workloads.Workload:
        """The variant of a cell; UserError if it is not possible."""
        asked = self.question
        amounts = {asked.x.name: asked.x.amounts[x], asked.y.name: asked.y.amounts[y]}
        return variant(asked.workload, amounts, asked.cards)

    def fill(self, estimator: Estimator) -> Iterator[None]:
        """Answer one cell per step. Then simulate both sides of the limit in each row, then all else that may fit."""
        exact, columns, rows = self._exact, len(self.question.x.amounts), len(self.question.y.amounts)
        for x, y in spread(columns, rows, self.start):
            if self._rows[y][x] is None:
                self._rows[y][x] = self._answer(x, y, estimator)
                self.done += 1
                yield
            if (x, y) == self.start and exact is not None:
                yield from self._refine(x, y, exact)
        if exact is None or self.is_exact:
            return

        def next_at_limit(y: int) -> int | None:
            """The first cell of a row not tried yet that fits where its neighbour does not, or the reverse."""
            known = [None if one is None or one.process is None else one.fits for one in self.cells()[y]]
            return next(
                (
                    x
                    for x in range(columns)
                    if (x, y) not in self._tried
                    and {True, False} <= {known[x], *(known[at] for at in (x - 1, x + 1) if 0 <= at < columns)}
                    and known[x] is not None
                ),
                None,
            )

        for y in range(rows):
            while (column := next_at_limit(y)) is not None:
                yield from self._refine(column, y, exact)
        for x, y in spread(columns, rows, self.start):
            yield from self._refine(x, y, exact)
        self.is_exact = True

    def _refine(self, x: int, y: int, exact: Estimator) -> Iterator[None]:
        """Make one answer exact if it may fit."""
        if (x, y) in self._tried:
            return
        self._tried.add((x, y))
        former = self._rows[y][x]
        if (
            former is None
            or former.process is None
            or former.process > self.question.device.total_memory * planners.NEAR
        ):
            return
        answer = self._answer(x, y, exact)
        if answer.process is not None:
            self._rows[y][x] = answer
            self.exact_cells.add((x, y))
            move = planners.Correction(answer.process, former.process)
            self._move = self._move or move
            if x >= self._moves.get(y, (0, move))[0]:
                self._moves[y] = x, move
        yield

    def _answer(self, x: int, y: int, estimator: Estimator) -> planners.FitResult:
        try:
            return planners.answer_for(estimator, self.workload_at(x, y), self.question.device)
        except UserError as error:
            return planners.FitResult(None, fits=False, reason=str(error))


class CardAnswers:
    """One job on every card, as far as it is known. One thread fills `fits` while another reads it."""

    __slots__ = ("_cards", "_exact", "fits", "workload")

    def __init__(self, workload: workloads.Workload, cards: Sequence[Device], exact: Estimator | None = None) -> None:
        self.workload = workload
        self.fits: dict[Device, CardFit] = {}
        self._cards, self._exact = cards, exact

    @property
    def is_whole(self) -> bool:
        return len(self.fits) == len(set(self._cards))

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Answer one card per step."""
        missing = [card for card in self._cards if card not in self.fits]
        for answer in card_fits(estimator, self.workload, missing, self._exact):
            self.fits[answer.card] = answer
            yield


class Advice:
    """Advice about one variant on one of `gpus` cards; None is unknown: the largest of each size that fits (`edges`),
    names and costs of the cheapest changes that make it fit, its bytes `with_them`, the cards that hold it, smallest
    first, and the effect of each single change.
    """

    __slots__ = (
        "_exact", "_gpus", "cards", "device", "edges", "effects", "fits", "is_whole", "mitigations", "with_them",
        "workload",
    )  # fmt: skip

    def __init__(self, workload: workloads.Workload, device: Device, gpus: int, exact: Estimator | None = None) -> None:
        self.workload, self.device = workload, device
        self._gpus, self._exact = gpus, exact
        self.edges: tuple[planners.Edge, ...] = ()
        self.fits: bool | None = None
        self.mitigations: tuple[tuple[str, str], ...] | None = None
        self.with_them: int | None = None
        self.cards: tuple[Device, ...] = ()
        self.effects: tuple[planners.Effect, ...] = ()
        self.is_whole = False

    def find(self, estimator: Estimator) -> Iterator[None]:
        """Find one thing per step; if the last search was left early, start again."""
        self.edges, self.cards, self.effects = (), (), ()
        planner = planners.Planner(estimator, self.workload, self.device, self._gpus, self._exact)
        nearest = self._exact or estimator
        now = planners.answer_for(nearest, self.workload, self.device)
        self.fits = now.fits
        yield
        first = planners.usual_key(self.workload)
        for key in (first, *(other for other in planners.other_keys(self.workload) if other != first)):
            self.edges = (*self.edges, planner.edge(key))
            yield
        # A server takes its share of the card: a change frees room for more tokens.
        for effect in planner.effects(
            now.process or 0, first if isinstance(self.workload.run, workloads.ServeRun) else None
        ):
            self.effects = (*self.effects, effect)
            yield
        by_size = sorted(COMPARED, key=lambda card: (card.total_memory, card.name))
        for card in by_size:
            if planners.answer_for(nearest, self.workload, card).fits:
                self.cards = (*self.cards, card)
            yield
        if not self.fits:
            mitigations = planner.cheapest() or ()
            if mitigations:
                changes = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
                self.with_them = planners.answer_for(
                    nearest, planners.with_values(self.workload, changes), self.device
                ).process
            self.mitigations = tuple((mitigation.name, mitigation.cost) for mitigation in mitigations)
            yield
        self.is_whole = True


def agreeing(heatmap: GridCells, cursor: tuple[int, int], process: int | None, edges: Sequence[planners.Edge]) -> Cells:
    """The cells of a map; those in the cursor's row and column agree with the sentences about its cell.

    A quick answer is moved to the side of the limit that the largest size (of `edges`) puts it on, as little as
    possible. The cursor's own cell shows `process`, the bytes next to the map.
    """
    rows = [list(row) for row in heatmap.cells()]
    asked = heatmap.question
    room, largest = asked.device.total_memory, {edge.key: edge.largest or 0 for edge in edges}
    at_x, at_y = cursor
    across = [(x, at_y, asked.x.name, amount) for x, amount in enumerate(asked.x.amounts)]
    down = [(at_x, y, asked.y.name, amount) for y, amount in enumerate(asked.y.amounts)]
    for x, y, name, amount in (*across, *down):
        answer, most = rows[y][x], largest.get(SIZE_KEYS.get(name, ""))
        if answer is None or answer.process is None or answer.reason or (x, y) in heatmap.exact_cells:
            continue
        if most is not None and isinstance(amount, int):
            fits = amount <= most
            near = min(answer.process, room) if fits else max(answer.process, room + 1)
            rows[y][x] = answer._replace(process=near, fits=fits)
    here = rows[at_y][at_x]
    if process is not None and here is not None and not here.reason:
        rows[at_y][at_x] = here._replace(process=process, fits=fits_in(process, room))
    return tuple(tuple(row) for row in rows)


AS_IN_FILE = "/file"
USUAL_CARDS = 8
MAX_MAPS, ADVICE, CARD_TABLES = 8, 64, 4
NO_PRESET = (
    "No preset selected. Press p to choose one: a map of what fits a card appears here, over any two of its sizes,"
    " precision, optimizer, adapters and sharding."
)
OWN_CODE = "This preset is your own code and has no values to vary here. Press p for another preset."


class MapView(msgspec.Struct, frozen=True, eq=False):
    """One map: `done` of `total` cells are answered. Until `is_exact`, only `exact_cells` are."""

    title: str
    x: Axis
    y: Axis
    cells: Cells
    done: int
    total: int
    is_exact: bool
    exact_cells: frozenset[tuple[int, int]] = frozenset()


class AdviceView(msgspec.Struct, frozen=True, eq=False):
    """The advice so far; see `grid.Advice`. `changes` are the effects worth showing, best first."""

    edges: tuple[planners.Edge, ...] = ()
    mitigations: tuple[tuple[str, str], ...] | None = None
    with_them: int | None = None
    cards: tuple[Device, ...] = ()
    changes: tuple[planners.Effect, ...] = ()
    is_whole: bool = False


class PlanSide(msgspec.Struct, frozen=True, eq=False):
    """A variant with its estimate, or why there is none: `what` is a heading, `how` names the varied values."""

    what: str
    how: str
    workload: workloads.Workload | None
    estimate: Estimate | None
    answer: planners.FitResult | None

    @property
    def process(self) -> int | None:
        """Bytes of the process, even if it does not start; None if unknown."""
        if self.estimate is not None:
            return self.estimate.process
        return self.answer.process if self.answer is not None else None


class PlanView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Plan screen: a `problem` instead of a map, or one map, or two of the same axes. `side` is the
    selected cell, compared with `other`; `change` is the index of the selected change of the advice; `assumed` are the
    settings that are only assumed, if they change much; `changed`: values differ from the preset's file.
    """

    problem: str = ""
    preset: str = ""
    device: Device | None = None
    where: str = ""
    maps: tuple[MapView, ...] = ()
    cursor: tuple[int, int] = (0, 0)
    side: PlanSide | None = None
    other: PlanSide | None = None
    advice: AdviceView = AdviceView()
    change: int = 0
    assumed: str = ""
    changed: bool = False
    view_only: bool = False


class PlanModel:
    """Makes the Plan screen's part of the View, without widgets and threads. `second` is the key of the preset to
    compare with, or AS_IN_FILE; `card` is None for that of Watch; `jobs` are what the latest view still lacks.
    """

    __slots__ = (
        "_about", "_axes", "_cards", "_change", "_cursor", "_rows", "_usual_rows",
        "_wanted", "advice", "axes", "card", "card_tables", "changes", "heatmap", "jobs", "maps", "second", "where",
    )  # fmt: skip

    def __init__(self) -> None:
        self.second = ""
        self.card: Device | None = None
        self.where = ""
        self._wanted = ("", "")
        # The axis of the rows if no value of the usual one fits.
        self._rows = ""
        self._cursor: tuple[int, int] | None = None
        self._about: object = None
        self.maps: Latest[object, GridCells] = Latest(MAX_MAPS)
        self._axes: Latest[object, tuple[Axis, Axis]] = Latest(MAX_MAPS)
        self._usual_rows: Latest[object, str] = Latest(MAX_MAPS)
        self.advice: Latest[object, Advice] = Latest(ADVICE)
        self._cards: Latest[object, CardAnswers] = Latest(CARD_TABLES)
        self.card_tables: list[CardAnswers] = []
        self.jobs: dict[object, Steps] = {}
        self.axes: tuple[Axis, ...] = ()
        self.heatmap: GridCells | None = None
        self.changes: tuple[planners.Effect, ...] = ()
        self._change = ""

    def forget_answers(self) -> None:
        """Drop all results but not the user's choices; they are computed again when the screen is shown."""
        for answers in (self.maps, self._axes, self._usual_rows, self.advice, self._cards):
            answers.clear()
        self.card_tables, self.jobs = [], {}
        self.heatmap, self.changes = None, ()

    def choose_axis(self, name: str, *, across: bool) -> None:
        """Vary `name` along the columns or the rows; if the other axis has it, they swap."""
        x, y = self.names
        if across:
            self._wanted = (name, x if name == y else y)
        else:
            self._wanted = (y if name == x else x, name)
        self._cursor = None

    def swap(self) -> None:
        x, y = self.names
        self._wanted = (y, x)
        self._cursor = None if self._cursor is None else (self._cursor[1], self._cursor[0])

    @property
    def names(self) -> tuple[str, str]:
        """The axes of the map: the chosen ones if the preset has them, else the usual ones."""
        names = [axis.name for axis in self.axes]
        across, down = usual_axes(self.axes)
        usual = across, self._rows if self._rows in names else down
        x, y = (wanted if wanted in names else other for wanted, other in zip(self._wanted, usual, strict=True))
        return (x, y) if x != y else (x, next(name for name in (*usual, *names) if name != x))

    @property
    def cursor(self) -> tuple[int, int]:
        return self._cursor or (0, 0) if self._cursor is not None or self.heatmap is None else self.heatmap.start

    def go(self, x: int, y: int) -> None:
        """Select a cell, or the nearest one at the edge."""
        if self.heatmap is not None:
            asked = self.heatmap.question
            self._cursor = max(0, min(x, len(asked.x.amounts) - 1)), max(0, min(y, len(asked.y.amounts) - 1))

    def go_home(self) -> None:
        self._cursor = None

    def go_to_edge(self) -> bool:
        """Select the last cell of the row that fits; False if none does."""
        if self.heatmap is None:
            return False
        row = self.heatmap.cells()[self.cursor[1]]
        fitting = [x for x, answer in enumerate(row) if answer is not None and answer.fits]
        if fitting:
            self.go(fitting[-1], self.cursor[1])
        return bool(fitting)

    @property
    def change(self) -> int:
        """Index of the selected change. Its name is kept, so it stays selected when more changes are found."""
        return next((at for at, effect in enumerate(self.changes) if effect.mitigation == self._change), 0)

    def choose_change(self, at: int | None) -> None:
        """Select a change by its index, which stops at both ends; None selects the first from now on."""
        if at is None:
            self._change = ""
        elif self.changes:
            self._change = self.changes[max(0, min(at, len(self.changes) - 1))].mitigation

    def ask_cards(self, state: DashboardState, cards: Sequence[Device]) -> list[tuple[str, CardAnswers]]:
        """The cell's variant and the one compared with it, each with its answers on `cards`. They are filled until
        `forget_cards`.
        """
        shown = self.view(state)
        sides = [(shown.preset, shown.side), (shown.other.what if shown.other is not None else "", shown.other)]
        exact = state.session.predictor.exact
        asked: list[tuple[str, CardAnswers]] = []
        for name, side in sides:
            if side is not None and side.workload is not None:
                make = partial(CardAnswers, side.workload, cards, exact)
                asked.append((name, self._cards.get_or_make(side.workload, make)))
        self.card_tables = [answers for _, answers in asked]
        return asked

    def forget_cards(self) -> None:
        self.card_tables = []

    def view(self, state: DashboardState) -> PlanView:
        """Return what is known by now; `jobs` is the rest."""
        self.jobs, self.changes = {answers: answers.find for answers in self.card_tables if not answers.is_whole}, ()
        preset_file = state.panel_preset()
        problem = _problem(preset_file)
        if preset_file is None or problem:
            self.axes, self.heatmap = (), None
            return PlanView(problem=problem)
        gpus = state.sample.gpus if state.sample is not None else ()
        # Sharding is tried over all GPUs of this machine, or over those of a usual machine.
        here = sum(gpu.mig_parent is None for gpu in gpus)
        cards = here if here > 1 else USUAL_CARDS
        device = self.card or state.device()
        preset_file = on_card(preset_file, device)
        workload, original = state.workload(preset_file), preset_file.preset.workload
        self.axes = axes_of(workload, original, cards)

        def fits(tried: workloads.Workload) -> bool:
            """Return whether the card holds a variant, by the quick estimate."""
            return (state.session.predictor.total(tried, device) or device.total_memory + 1) <= device.total_memory

        self._rows = self._usual_rows.get_or_make(
            (self.axes, workload, device, cards), lambda: rows_that_fit(self.axes, workload, cards, fits)
        )
        across, down = (next(axis for axis in self.axes if axis.name == name) for name in self.names)
        x, y = self._axes.get_or_make(
            ((across, down), workload, device, cards),
            lambda: begin_where_it_fits((across, down), workload, cards, fits),
        )
        about = (preset_file.key, x.name, y.name)
        if about != self._about:
            self._about, self._cursor = about, None
        heatmap = self.heatmap = self._heatmap(GridQuestion(workload, device, x, y, cards), state)
        side = self._side(state, heatmap)
        second = self._second(state, preset_file, heatmap)
        alike = max(1, sum(device_of(gpu) == device for gpu in gpus))
        advice = self._advise(state, side, device, alike)
        self.changes = advice.changes
        process = side.estimate.process if side.estimate is not None else None
        key = printable(preset_file.key)
        maps = [_map(key, heatmap, agreeing(heatmap, self.cursor, process, advice.edges))]
        if second is not None:
            maps.append(_map(second[1].what, second[0], second[0].cells()))
        where = self.where
        if self.card is None:
            where = printable(device.name)
            index = next((gpu.index for gpu in gpus if device_of(gpu) == device), None)
            if index is not None:
                where = f"GPU {index}, {where}"
        guessed = workload == original and preset_file.assumed
        return PlanView(
            preset=key,
            device=device,
            where=where,
            maps=tuple(maps),
            cursor=self.cursor,
            side=side,
            other=second[1] if second is not None else None,
            advice=advice,
            change=self.change,
            assumed=printable(", ".join(settings_of(preset_file)))
            if guessed and state.session.guesses.range_of(preset_file, device) is not None
            else "",
            changed=workload != original,
        )

    def _heatmap(self, asked: GridQuestion, state: DashboardState) -> GridCells:
        start = (asked.x.present or 0, asked.y.present or 0)
        heatmap = self.maps.get_or_make(asked, lambda: GridCells(asked, start, state.session.predictor.exact))
        if not heatmap.is_whole:
            self.jobs[heatmap] = heatmap.fill
        return heatmap

    def _side(self, state: DashboardState, heatmap: GridCells) -> PlanSide:
        """The variant under the cursor."""
        x, y = self.cursor
        asked, answer = heatmap.question, heatmap.cells()[y][x]
        how = f"{asked.x.words(x)} · {asked.y.words(y)}"
        try:
            workload = heatmap.workload_at(x, y)
        except UserError as error:
            return PlanSide(
                "this cell", how, None, None, answer or planners.FitResult(None, fits=False, reason=str(error))
            )
        estimate, refused = _ask_estimate(state, workload, asked.device)
        return PlanSide("this cell", how, workload, estimate, answer or refused)

    def _second(
        self, state: DashboardState, preset_file: PresetFile, heatmap: GridCells
    ) -> tuple[GridCells, PlanSide] | None:
        """The other preset's map over the same values, and its variant to compare with the cursor's."""
        in_file = self.second in {AS_IN_FILE, preset_file.key}
        other = preset_file if in_file else state.session.presets.get(self.second)
        if not self.second or other is None or _problem(other):
            return None
        asked = heatmap.question
        workload = other.preset.workload if in_file else state.workload(other)
        x, y = (fitted(axis, workload) for axis in (asked.x, asked.y))
        answers = self._heatmap(GridQuestion(workload, asked.device, x, y, asked.cards), state)
        what, how = f"{printable(other.key)}{' as saved' if in_file else ''}", "as saved"
        if not in_file:
            across, down = self.cursor
            how = f"{x.words(across)} · {y.words(down)}"
            try:
                alike = variant(workload, {x.name: x.amounts[across], y.name: y.amounts[down]}, asked.cards)
                estimate, answer = _ask_estimate(state, alike, asked.device)
            except UserError:
                estimate = None
            if estimate is not None:
                return answers, PlanSide(what, how, alike, estimate, answer)
            how = f"unchanged, because {how} is not possible"
        return answers, PlanSide(what, how, workload, *_ask_estimate(state, workload, asked.device))

    def _advise(self, state: DashboardState, side: PlanSide, device: Device, alike: int) -> AdviceView:
        """The advice about the cursor's variant on one of `alike` cards."""
        workload = side.workload
        if workload is None or side.process is None:
            return AdviceView()
        gpus = max(workload.parallel.ranks if workload.parallel is not None else 1, alike)
        advice = self.advice.get_or_make(
            (workload, device), lambda: Advice(workload, device, gpus, state.session.predictor.exact)
        )
        if not advice.is_whole:
            self.jobs[advice] = advice.find
        return AdviceView(
            # The largest sizes are exact: they wait until the cell's figure is.
            edges=() if state.session.predictor.is_quick(workload, device) else advice.edges,
            mitigations=advice.mitigations,
            with_them=advice.with_them,
            cards=advice.cards,
            changes=planners.worthwhile(advice.effects, side.process, advice.edges),
            is_whole=advice.is_whole,
        )


def _problem(preset_file: PresetFile | None) -> str:
    if preset_file is None:
        return NO_PRESET
    return OWN_CODE if isinstance(preset_file.preset.workload.model, TorchModel) else ""


def _ask_estimate(
    state: DashboardState, workload: workloads.Workload, device: Device
) -> tuple[Estimate | None, planners.FitResult | None]:
    answer = state.session.predictor.ask(workload, device)
    refused = planners.FitResult(None, fits=False, reason=answer.problem) if answer.estimate is None else None
    return answer.estimate, refused


def _map(title: str, heatmap: GridCells, cells: Cells) -> MapView:
    asked, exact_cells = heatmap.question, frozenset(heatmap.exact_cells)
    return MapView(title, asked.x, asked.y, cells, heatmap.done, heatmap.total, heatmap.is_exact, exact_cells)
