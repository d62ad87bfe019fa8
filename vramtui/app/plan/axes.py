"""Axes of a Plan map: the kinds of axes, their values, and the workload at a pair of values."""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any, get_args

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.workload import (
    Checkpointing,
    Optimizer,
    Parallel,
    Precision,
    ServeRun,
    TrainRun,
    Workload,
    own_length,
)
from vramtui.estimators.planner.card_table import FSDP, can_share
from vramtui.estimators.planner.mitigations import ONE_MACHINE
from vramtui.estimators.planner.planner import with_values
from vramtui.models.specs.adapters import adapted_modules

Amount = int | float | str | None
Known = Callable[[Workload], bool]
Amounts = Callable[[Workload, Amount], tuple[Amount, ...]]

DOUBLINGS = 40
MOST, FINE, COARSE = 24, 4, 2
USUAL_TOKENS, USUAL_SEQUENCES, MOST_CARDS = 4096, 256, 64
RANKS = (4, 8, 16, 32, 64, 128, 256)
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
# Axes on which a smaller number takes less memory.
SIZES = frozenset({"batch", "sequences", "seq", "context", "image"})
# An axis ends this many sizes after the last that fits, and has at least LEAST_AMOUNTS.
BEYOND, LEAST_AMOUNTS = 3, 8
# If no size fits, the rows vary what shares or shrinks the weights.
SHRINKING = ("FSDP", "GPUs", "sharding", "quantized", "LoRA", "precision")
AS_IS = "as is"
STATES = {"DDP": ("ddp", 0), "ZeRO-1": ("zero", 1), "ZeRO-2": ("zero", 2), "ZeRO-3": ("zero", 3), "FSDP": ("fsdp", 3)}


def schemes_for(workload: Workload) -> tuple[str, ...]:
    """The ways to shard this kind of model and run; the present one first."""
    splits = isinstance(workload.model, TransformerModel)
    if not isinstance(workload.run, TrainRun):
        return (AS_IS, "tensor", "pipeline") if splits else (AS_IS,)
    return (AS_IS, *STATES, *(("tensor", "tensor+seq", "tensor+ZeRO-1", "pipeline", "context") if splits else ()))


def shared(workload: Workload, scheme: str, gpus: int | None, cards: int) -> Parallel | None:
    """The `[parallel]` table of `workload` under one of `schemes_for`, over `gpus`. If no axis varies their number,
    they are as many as now or, for another scheme, `cards`.

    Raises:
        UserError: the scheme cannot use this number of GPUs.
    """
    former = workload.parallel or Parallel()
    if scheme == AS_IS:
        if gpus is None or gpus == former.ranks:
            return workload.parallel
        # More GPUs: more replicas in training, thinner slices otherwise.
        name = "data"
        if not isinstance(workload.run, TrainRun):
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
        tensor = min(ONE_MACHINE, count)
        if count % tensor:
            raise UserError(f"{count} GPUs cannot be divided into groups of {tensor}")
        split |= {"tensor": tensor, "data": count // tensor, "strategy": "zero", "zero_stage": 1}
    elif scheme in {"pipeline", "context"}:
        split[scheme] = count
    else:
        split |= {"tensor": count, "sequence_parallel": scheme == "tensor+seq"}
    return msgspec.structs.replace(former, **split)


def cards_of(workload: Workload, cards: int) -> int:
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
    read: Callable[[Workload], Amount]
    amounts: Amounts
    changes: Callable[[Workload, Amount], dict[str, Any]]


def _run_kind(name: str, title: str, key: str, amounts: Amounts, known: Known | None = None) -> Kind:
    """An axis over a key of the run; `known` if having the key is not enough."""

    def read(workload: Workload) -> Amount:
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


def _lengths(workload: Workload, value: Amount) -> tuple[Amount, ...]:
    """A ladder that ends with the first length beyond the model's own."""
    rungs = ladder(value if isinstance(value, int) else USUAL_TOKENS, MOST, COARSE)
    most = own_length(workload)
    if most is None:
        return rungs
    beyond = [length for length in rungs if length > most]
    return tuple(length for length in rungs if length <= most or length in beyond[:1] or length == value)


def _image_key(workload: Workload) -> str | None:
    return next((key for key in ("image_size", "sample_size") if getattr(workload.model, key, None)), None)


def _quantizations(workload: Workload, value: Amount) -> tuple[Amount, ...]:
    run = workload.run
    choices: tuple[Amount, ...] = ("int8", "fp8", "int4", "nf4", "nf4-double")
    if isinstance(run, TrainRun):
        choices = ("int8", "nf4", "nf4-double")
    elif isinstance(run, ServeRun):
        llama_cpp = ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
        choices = llama_cpp if run.is_llama_cpp else ("fp8", "int8", "int4")
    return (None, *choices) if value is None or value in choices else (None, *choices, value)


def _lora_keys(workload: Workload, amount: Amount) -> dict[str, Any]:
    if amount is None:
        return {"run.lora": None}
    if getattr(workload.run, "lora", None) is not None:
        return {"run.lora.rank": amount}
    return {"run.lora": {"rank": amount, "target_modules": list(adapted_modules(workload.model))}}


def _data_ranks(parallel: Parallel) -> int | None:
    return parallel.data if parallel.strategy == "fsdp" or parallel.ranks == 1 else None


def _shards(workload: Workload) -> bool:
    """Return whether there is a way to shard it; llama.cpp has its own."""
    return len(schemes_for(workload)) > 1 and not getattr(workload.run, "is_llama_cpp", False)


def _trains(workload: Workload) -> bool:
    return isinstance(workload.run, TrainRun)


KINDS = (
    _run_kind("batch", "batch size of one GPU", "batch_size", _around(1, FINE)),
    _run_kind(
        "sequences", "sequences served at once", "max_num_seqs", _around(USUAL_SEQUENCES, FINE),
        # llama.cpp's context holds all sequences together, however many there are.
        lambda workload: isinstance(workload.run, ServeRun) and not workload.run.is_llama_cpp,
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
        lambda workload, _: get_args(Precision) if _trains(workload) else ("fp32", "bf16", "fp16")
        if isinstance(workload.run, ServeRun) else ("fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16"),
        lambda _: True,
    ),
    _run_kind(
        "checkpoint", "activation checkpointing (recomputed in backward)", "checkpointing",
        lambda _, __: get_args(Checkpointing), _trains,
    ),
    _run_kind("optimizer", "optimizer", "optimizer", lambda _, __: get_args(Optimizer), _trains),
    Kind(
        "LoRA", "rank of the adapters",
        lambda workload: isinstance(workload.run, TrainRun)
        and (workload.run.lora is not None or bool(adapted_modules(workload.model))),
        lambda workload: getattr(getattr(workload.run, "lora", None), "rank", None),
        lambda _, value: (None, *sorted({*RANKS, *([value] if isinstance(value, int) else [])})),
        _lora_keys,
    ),
    _run_kind(
        "quantized", "precision of frozen or served weights", "quantization", _quantizations,
        lambda workload: not (isinstance(workload.run, TrainRun) and workload.run.lora is None)
        and (isinstance(workload.model, TransformerModel) or workload.run.quantization is not None),
    ),
    _run_kind(
        "share", "fraction of the card that vLLM uses", "gpu_memory_utilization", lambda _, __: SHARES,
        lambda workload: isinstance(workload.run, ServeRun) and workload.run.engine == "vllm",
    ),
    Kind(
        "GPUs", "number of GPUs, sharded as now", _shards,
        lambda workload: (workload.parallel or Parallel()).ranks,
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
        lambda workload: _data_ranks(workload.parallel or Parallel()),
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
        """The axis and one of its values."""
        amount = self.amounts[at]
        text = f"{amount:,}" if isinstance(amount, int) and self.name != "image" else self.labels[at]
        return f"{self.name} {text}"


def axes_of(workload: Workload, original: Workload, cards: int) -> tuple[Axis, ...]:
    """The axes of `workload`; none for the user's own code. Ladders are made around the values of `original`, the
    preset's file, so that they stay while values change. A job on one GPU is sharded over `cards`.
    """
    if isinstance(workload.model, TorchModel):
        return ()
    kinds = (kind for kind in KINDS if kind.known(workload))
    return tuple(_axis(kind, workload, kind.amounts(original, kind.read(original)), cards) for kind in kinds)


def _axis(kind: Kind, workload: Workload, amounts: tuple[Amount, ...], cards: int) -> Axis:
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
    own = own_length(workload) if kind.name in {"seq", "context"} else None
    if own is not None and all(number <= own for number in numbers):
        own = None
    title = kind.title.format(cards=cards_of(workload, cards))
    return Axis(kind.name, title, amounts, labels, amounts.index(present) if present in amounts else None, own)


def fitted(axis: Axis, workload: Workload) -> Axis:
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
    axes: tuple[Axis, Axis], workload: Workload, cards: int, fits: Callable[[Workload], bool]
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


def rows_that_fit(axes: tuple[Axis, ...], workload: Workload, cards: int, fits: Callable[[Workload], bool]) -> str:
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


def _fits(workload: Workload, amounts: Mapping[str, Amount], cards: int, fits: Callable[[Workload], bool]) -> bool:
    try:
        return fits(variant(workload, amounts, cards))
    except UserError:
        return False


def variant(workload: Workload, amounts: Mapping[str, Amount], cards: int) -> Workload:
    """`workload` with these amounts, by the names of their axes.

    Raises:
        UserError: the workload has no such axis, or the values are not possible together.
    """
    changes: dict[str, Any] = {}
    for name, amount in amounts.items():
        kind = BY_NAME[name]
        if not kind.known(workload):
            raise UserError(f"this preset has no {name} to vary")
        if amount != kind.read(workload):
            changes |= kind.changes(workload, amount)
    try:
        changed = with_values(workload, changes) if changes else workload
    except msgspec.ValidationError as error:
        raise UserError(str(error)) from None
    if "GPUs" not in amounts and "sharding" not in amounts:
        return changed
    gpus, scheme = amounts.get("GPUs"), str(amounts.get("sharding", AS_IS))
    over = gpus if isinstance(gpus, int) else None
    return msgspec.structs.replace(changed, parallel=shared(changed, scheme, over, cards_of(workload, cards)))
