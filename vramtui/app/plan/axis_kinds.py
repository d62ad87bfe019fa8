"""The kinds of axes: whose each is, what stands there now, what could stand there (a ladder around what the preset
says), and the keys that it sets.
"""

from collections.abc import Callable
from typing import Any, get_args

import msgspec

from vramtui.app.plan.sharding import AS_IS, schemes_for
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import (
    Checkpointing,
    Lora,
    Optimizer,
    Parallel,
    Precision,
    ServeRun,
    TrainRun,
    Workload,
    own_length,
)
from vramtui.estimators.planner.card_table import FSDP, can_share
from vramtui.models.specs.adapters import adapted_modules

DOUBLINGS = 40
MOST, FINE, COARSE = 24, 4, 2
USUAL_TOKENS, USUAL_SEQUENCES, USUAL_CARDS, MOST_CARDS = 4096, 256, 8, 64
RANKS = (None, 4, 8, 16, 32, 64, 128, 256)
SHARES = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
SMALL_QUANTIZATIONS = {"train": ("int8", "nf4", "nf4-double"), "infer": ("int8", "fp8", "int4", "nf4", "nf4-double")}
# The axes of numbers of which smaller ones take less memory.
SIZES = frozenset({"batch", "sequences", "seq", "context", "image"})
Amount = int | float | str | None
Known = Callable[[Workload], bool]
Amounts = Callable[[Workload, Amount], tuple[Amount, ...]]


def ladder(value: int, count: int, steps: int) -> tuple[int, ...]:
    """At most `count` rising numbers from 1 up, `value` among them with about a third of them below it.

    Args:
        value: what they stand around.
        count: how many.
        steps: rungs to each doubling: 4 gives 4, 5, 6, 7, 8, 10, 12, 14, 16 …; 2 gives 2, 3, 4, 6, 8, 12 …
    """
    low = set(range(1, steps))
    rungs = sorted(low | {(steps + part) << power for power in range(DOUBLINGS) for part in range(steps)} | {value})
    start = max(0, rungs.index(value) - count // 3)
    return tuple(rungs[start : start + count])


def with_present(rungs: tuple[int, ...], present: int | None) -> tuple[int, ...]:
    """`rungs` with one more where `present` is none of them; the one farthest from it gives way."""
    if present is None or present in rungs:
        return rungs
    more = sorted({*rungs, present})
    more.pop(-1 if present < rungs[-1] else 0)
    return tuple(more)


def short(number: int) -> str:
    """A number of at most five characters in a heading: 4096, 16k, 1M."""
    if number < 10_000:
        return str(number)
    for unit, letter in ((1 << 20, "M"), (1 << 10, "k")):
        if number >= unit and number % (unit // 2) == 0:
            return f"{number / unit:g}{letter}"
    return str(number)


class Kind(msgspec.Struct, frozen=True):
    """How one axis is made and applied: `read` gives the present amount and `changes` the keys that one sets."""

    name: str
    title: str
    known: Known
    read: Callable[[Workload], Amount]
    amounts: Amounts
    changes: Callable[[Workload, Amount], dict[str, Any]]


def _has(name: str) -> Known:
    return lambda workload: hasattr(workload.run, name)


def _read(name: str) -> Callable[[Workload], Amount]:
    def read(workload: Workload) -> Amount:
        value: Amount = getattr(workload.run, name)
        return value

    return read


def _write(name: str) -> Callable[[Workload, Amount], dict[str, Any]]:
    return lambda _, amount: {f"run.{name}": amount}


def _fixed(values: tuple[Amount, ...]) -> Amounts:
    return lambda _, __: values


def _around(usual: int, steps: int) -> Amounts:
    return lambda _, value: ladder(value if isinstance(value, int) else usual, MOST, steps)


def _lengths(workload: Workload, value: Amount) -> tuple[Amount, ...]:
    """A ladder; it ends with the first length that is beyond the model's own."""
    rungs = ladder(value if isinstance(value, int) else USUAL_TOKENS, MOST, COARSE)
    most = own_length(workload)
    if most is None:
        return rungs
    beyond = [length for length in rungs if length > most]
    return tuple(length for length in rungs if length <= most or length in beyond[:1] or length == value)


def _fsdp_ranks(workload: Workload) -> Amount:
    parallel = workload.parallel or Parallel()
    return parallel.data if parallel.strategy == "fsdp" or parallel.ranks == 1 else None


def _fsdp_counts(_: Workload, value: Amount) -> tuple[Amount, ...]:
    return tuple(sorted({*FSDP, *([value] if isinstance(value, int) else [])}))


def _over_fsdp(workload: Workload, amount: Amount) -> dict[str, Any]:
    if not isinstance(amount, int) or (amount == 1 and workload.parallel is None):
        return {}
    return {"parallel.data": amount, "parallel.strategy": "fsdp", "parallel.zero_stage": 3}


def _has_sequence(workload: Workload) -> bool:
    length = getattr(workload.run, "sequence_length", 0)
    return (isinstance(length, int) and length > 0) or (length is None and isinstance(workload.model, TransformerModel))


def _shares_out(workload: Workload) -> bool:
    """llama.cpp's context holds all sequences together, however many there are."""
    return isinstance(workload.run, ServeRun) and workload.run.engine != "llama.cpp"


def _image_key(workload: Workload) -> str | None:
    return next((key for key in ("image_size", "sample_size") if getattr(workload.model, key, None)), None)


def _images(workload: Workload, value: Amount) -> tuple[Amount, ...]:
    """A ladder of which only those stay that the model's patches divide."""
    patch = getattr(workload.model, "patch_size", None)
    rungs = ladder(value if isinstance(value, int) else 1, MOST, FINE)
    return tuple(size for size in rungs if size == value or (size >= 8 and size % (patch or 1) == 0))


def _quantizations(workload: Workload, value: Amount) -> tuple[Amount, ...]:
    run = workload.run
    if isinstance(run, ServeRun):
        choices: tuple[Amount, ...] = (
            ("fp8", "int8", "int4")
            if run.engine != "llama.cpp"
            else ("q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k")
        )
    else:
        choices = SMALL_QUANTIZATIONS["train" if isinstance(run, TrainRun) else "infer"]
    return (None, *choices) if value is None or value in choices else (None, *choices, value)


def _quantizes(workload: Workload) -> bool:
    run = workload.run
    if isinstance(run, TrainRun) and run.lora is None:
        return False
    return isinstance(workload.model, TransformerModel) or run.quantization is not None


def _precisions(workload: Workload, _: Amount) -> tuple[Amount, ...]:
    """Masters are for those that train."""
    if isinstance(workload.run, ServeRun):
        return ("fp32", "bf16", "fp16")
    if isinstance(workload.run, TrainRun):
        return get_args(Precision)
    return ("fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16")


def _adapts(workload: Workload) -> bool:
    run = workload.run
    return isinstance(run, TrainRun) and (run.lora is not None or bool(adapted_modules(workload.model)))


def _rank(workload: Workload) -> Amount:
    lora: Lora | None = getattr(workload.run, "lora", None)
    return None if lora is None else lora.rank


def _ranks(_: Workload, value: Amount) -> tuple[Amount, ...]:
    numbers = sorted({rank for rank in (*RANKS, value) if isinstance(rank, int)})
    return (None, *numbers)


def _adapters(workload: Workload, amount: Amount) -> dict[str, Any]:
    if amount is None:
        return {"run.lora": None}
    if getattr(workload.run, "lora", None) is not None:
        return {"run.lora.rank": amount}
    return {"run.lora": {"rank": amount, "target_modules": list(adapted_modules(workload.model))}}


def _cards(_: Workload, value: Amount) -> tuple[Amount, ...]:
    most = max(MOST_CARDS, 4 * (value if isinstance(value, int) else 1))
    rungs = {1 << power for power in range(21)} | {3 << power for power in range(20)}
    return tuple(sorted(n for n in rungs if n <= most))[-MOST:]


def _spreads(workload: Workload) -> bool:
    """Whether there is any way to share it; llama.cpp has its own."""
    return len(schemes_for(workload)) > 1 and getattr(workload.run, "engine", "") != "llama.cpp"


def _trains(workload: Workload) -> bool:
    return isinstance(workload.run, TrainRun)


def _of_run(name: str, title: str, key: str, amounts: Amounts, known: Known | None = None) -> Kind:
    """An axis over a key of the run, where it has that key or is `known` to be varied by it."""
    return Kind(name, title, known or _has(key), _read(key), amounts, _write(key))


KINDS = (
    _of_run("batch", "batch size of one GPU", "batch_size", _around(1, FINE)),
    _of_run("sequences", "sequences served at once", "max_num_seqs", _around(USUAL_SEQUENCES, FINE), _shares_out),
    _of_run("seq", "sequence length in tokens", "sequence_length", _lengths, _has_sequence),
    _of_run("context", "longest sequence served, in tokens", "max_model_len", _lengths),
    Kind(
        "image",
        "height and width of an image, or of its latents",
        lambda workload: _image_key(workload) is not None,
        lambda workload: getattr(workload.model, _image_key(workload) or ""),
        _images,
        lambda workload, amount: {f"model.{_image_key(workload)}": amount},
    ),
    _of_run("precision", "precision of the numbers", "precision", _precisions, lambda _: True),
    _of_run(
        "checkpoint",
        "activation checkpointing (recomputed in backward)",
        "checkpointing",
        _fixed(get_args(Checkpointing)),
        _trains,
    ),
    _of_run("optimizer", "optimizer", "optimizer", _fixed(get_args(Optimizer)), _trains),
    Kind("LoRA", "rank of the adapters", _adapts, _rank, _ranks, _adapters),
    _of_run("quantized", "precision of frozen or served weights", "quantization", _quantizations, _quantizes),
    _of_run(
        "share",
        "fraction of the card that vLLM uses",
        "gpu_memory_utilization",
        _fixed(SHARES),
        lambda workload: isinstance(workload.run, ServeRun) and workload.run.engine == "vllm",
    ),
    Kind(
        "GPUs",
        "number of GPUs, sharded as now",
        _spreads,
        lambda workload: workload.parallel.ranks if workload.parallel is not None else 1,
        _cards,
        lambda _, __: {},
    ),
    Kind(
        "FSDP",
        "number of GPUs that share parameters, gradients and optimizer states",
        can_share,
        _fsdp_ranks,
        _fsdp_counts,
        _over_fsdp,
    ),
    Kind(
        "sharding",
        "what {cards} GPUs share: ZeRO stage, tensor, pipeline, context",
        _spreads,
        lambda _: AS_IS,
        lambda workload, _: schemes_for(workload),
        lambda _, __: {},
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
