"""The largest batch or sequence that fits; changes that make a job smaller or share it over GPUs, with what each frees
and costs; and the cheapest set of them that is enough.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, cached_property, reduce
from itertools import combinations
from typing import Any, Literal, NamedTuple

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.units import MIB
from vramtui.core.estimate.devices import BF16, Device, check_card
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.fits import CEILING, PROBES, Fit, fits_in, largest, search_largest, search_lines, unknown_of
from vramtui.core.schema.models import Model, PipelineModel, TransformerModel
from vramtui.core.schema.workload import USUAL_RANK, InferRun, Parallel, ServeRun, TrainRun, Workload, own_length
from vramtui.estimators.analytic.generation import can_be_quantized
from vramtui.estimators.analytic.optimizers import FUSED
from vramtui.estimators.analytic.serving.parts import TooLargeError
from vramtui.estimators.analytic.sizes.partition import indivisible
from vramtui.models.specs.decoder import adapted_modules, decoder_spec

# What a mitigation weighs in the choice of the cheapest set. The steps are wide, so that a few of one sort do not
# outweigh one of the next.
FREE = 1
SLOWER = 4
LOWER_PRECISION = 12
OTHER_RESULT = 40
# Fast links are within one machine, which rarely has more cards.
ONE_MACHINE = 8
LARGE_SHARE, FEW_SEQUENCES = 0.95, 128
FIRST_OFFLOAD = 16.0  # GiB of weights in host memory that is tried first; then twice as much
# Those that keep two fp32 moments of each parameter.
HEAVY_OPTIMIZERS = {"adam", "adamw", "amsgrad", "paged_adamw_32bit"}

Half = Literal["bf16", "fp16"]
MANTISSA: dict[Half, int] = {"bf16": 8, "fp16": 11}  # bits, with the leading one that is not kept


class Mitigation(msgspec.Struct, frozen=True, kw_only=True):
    """A change that makes a job smaller: values by dotted key, and its cost in words and, to compare, as a weight."""

    name: str
    changes: dict[str, Any]
    weight: int
    cost: str


def _mitigation(name: str, weight: int, cost: str, more: Mapping[str, Any] | None = None, **run: Any) -> Mitigation:  # noqa: ANN401 - values of any key
    """`run` are keys of the run, `more` others in full."""
    changes = {f"run.{key}": value for key, value in run.items()} | dict(more or {})
    return Mitigation(name=name, changes=changes, weight=weight, cost=cost)


def sharding_mitigations_for(workload: Workload, gpus: int) -> Iterator[Mitigation]:
    """The ways to share `workload` over at most `gpus` cards; none if it is shared already, or is a pipeline.

    A pipeline's estimate is that of one card (`run.parallel` is refused): its parts are placed by `run.offload`.
    """
    if isinstance(workload.model, PipelineModel):
        return
    shared = workload.parallel or Parallel()
    if isinstance(workload.run, ServeRun) and workload.run.is_llama_cpp:
        return  # it shares a model in its own way, which is described by run.gpu_layers
    if isinstance(workload.run, TrainRun) and not shared.cpu_offload:
        if shared.ranks > 1 or gpus == 1:
            name, weight, changes = "optimizer in host memory", SLOWER + 8, {"parallel.cpu_offload": True}
        else:
            name, weight = f"FSDP over {gpus} cards, optimizer in host memory", SLOWER + 9
            changes = _data(gpus, strategy="fsdp", zero_stage=3, cpu_offload=True)
        cost = "gradients and weights cross the bus each step, and the host updates them: much slower"
        yield _mitigation(name, weight, cost, changes)
    if shared.ranks > 1 and gpus > shared.ranks:
        # More ranks along a dimension that is there already.
        model = workload.model
        most = {name: gpus * getattr(shared, name) // shared.ranks for name in ("data", "tensor", "pipeline")}
        if shared.data > 1 and (shared.zero_stage or shared.strategy == "fsdp") and most["data"] > shared.data:
            cost = "more cards to wait for at every exchange"
            yield _mitigation(f"{most['data']} data ranks", FREE + 1, cost, {"parallel.data": most["data"]})
        if isinstance(model, TransformerModel):
            tensor = max((n for n in range(1, most["tensor"] + 1) if not indivisible(model, n)), default=1)
            if shared.tensor > 1 and tensor > shared.tensor:
                cost = "activations travel twice a layer among more cards"
                yield _mitigation(f"tensor parallel over {tensor} cards", SLOWER, cost, {"parallel.tensor": tensor})
            stages = min(most["pipeline"], model.num_hidden_layers)
            if shared.pipeline > 1 and stages > shared.pipeline:
                cost = "more cards that wait for one another"
                yield _mitigation(f"pipeline over {stages} cards", SLOWER + 1, cost, {"parallel.pipeline": stages})
    if gpus == 1 or shared.ranks > 1:
        return
    if isinstance(workload.run, TrainRun):  # shares of the states over data ranks
        for stage, weight, cost in (
            (1, FREE + 1, "updated weights travel once a step"),
            (2, FREE + 2, "as stage 1, and gradients are reduced while the backward pass runs"),
            (3, SLOWER + 2, "every layer's weights travel three times a step"),
        ):
            changes = _data(gpus, strategy="zero", zero_stage=stage)
            yield _mitigation(f"ZeRO-{stage} over {gpus} cards", weight, cost, changes)
        cost = "every block's weights travel three times a step, mostly behind the work"
        yield _mitigation(f"FSDP over {gpus} cards", SLOWER + 1, cost, _data(gpus, strategy="fsdp", zero_stage=3))
    if isinstance(workload.model, TransformerModel):
        yield from _model(workload.model, workload.run, gpus)


def _data(gpus: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any key
    return {"parallel.data": gpus} | {f"parallel.{key}": value for key, value in more.items()}


def _model(model: TransformerModel, run: object, gpus: int) -> Iterator[Mitigation]:
    """Shares of the model itself, over as many ranks as divide it."""
    tensor = max((n for n in range(1, min(gpus, 4 * ONE_MACHINE) + 1) if not indivisible(model, n)), default=1)
    if tensor > 1:
        cost = "activations travel twice a layer: the cards need fast links"
        yield _mitigation(f"tensor parallel over {tensor} cards", SLOWER + 1, cost, {"parallel.tensor": tensor})
    if tensor > 1 and isinstance(run, TrainRun):
        cost += "; norms and dropouts are split as well"
        changes = {"parallel.tensor": tensor, "parallel.sequence_parallel": True}
        yield _mitigation(f"tensor and sequence parallel over {tensor} cards", SLOWER + 2, cost, changes)
    stages = min(gpus, model.num_hidden_layers)
    if stages > 1:
        cost = "cards wait for one another at the start and the end of each step"
        if not isinstance(run, TrainRun):
            cost = "one sequence is not faster than on one card: the stages work one after another"
        yield _mitigation(f"pipeline over {stages} cards", SLOWER + 3, cost, {"parallel.pipeline": stages})
    if isinstance(run, TrainRun) and run.attention != "eager":
        cost = "keys and values travel round the cards in every layer; weights and states stay whole"
        yield _mitigation(f"context parallel over {gpus} cards", SLOWER + 2, cost, {"parallel.context": gpus})
    if not isinstance(run, TrainRun):
        return
    # Experts dealt out among the data ranks.
    ranks = max((n for n in range(1, gpus + 1) if gpus % n == 0 and (model.num_experts or 1) % n == 0), default=1)
    if model.num_experts is not None and ranks > 1:
        cost = "every token travels to its experts and back in every layer, and the fullest expert is waited for"
        changes = _data(gpus, strategy="zero", zero_stage=1, expert=ranks)
        yield _mitigation(f"experts over {ranks} cards, ZeRO-1", SLOWER + 3, cost, changes)


def mitigations_for(
    workload: Workload, gpus: int = 1, half: Half = "bf16", micro_batch: int = 1
) -> tuple[Mitigation, ...]:
    """The changes that `workload` leaves room for, cheapest first.

    Args:
        workload: the job as it is.
        gpus: how many cards there are.
        half: the 16 bits that the cards compute in; bf16 on one that emulates it has no efficient attention.
        micro_batch: samples at once by which a training step may be gone through, other than one at a time.
    """
    run = workload.run
    offered: list[Mitigation] = []
    if isinstance(run, TrainRun):
        offered += [*_training(run, workload.model, half, micro_batch), *_shorter(run)]
    elif isinstance(run, InferRun):
        offered += [*_inference(run, workload.model), *_shorter(run)]
    else:
        offered += _serving(run, getattr(workload.model, "num_hidden_layers", 1))
    if isinstance(workload.model, PipelineModel) and not isinstance(run, ServeRun):
        offered += _parts_of_pipeline(run)
    offered += sharding_mitigations_for(workload, gpus)
    return tuple(sorted(offered, key=lambda one: one.weight))


def _training(run: TrainRun, model: Model, half: Half, micro_batch: int) -> Iterator[Mitigation]:
    """Other kernels, time for memory, several passes a step, fewer bits a number, and adapters."""
    decoder = isinstance(model, TransformerModel)
    if run.attention == "eager":
        yield _mitigation("flash attention", FREE, "costs nothing: the same result, mostly faster", attention="flash")
    if run.stepping == "foreach" and run.optimizer in FUSED:
        cost = "costs nothing: one kernel for each step, and no temporaries"
        yield _mitigation("fused optimizer", FREE, cost, optimizer_implementation="fused")
    if run.cross_entropy == "full" and decoder and not run.use_liger_kernel:
        cost = "needs Liger or another kernel from outside PyTorch; logits are never materialised"
        # It needs another package: what PyTorch has itself is preferred.
        yield _mitigation("fused cross-entropy", SLOWER + 1, cost, cross_entropy="fused")

    if run.checkpointing == "none" and decoder:
        cost = "a few percent more time: only attention's scores are made twice"
        yield _mitigation("selective checkpointing", SLOWER - 1, cost, checkpointing="selective")
    if run.checkpointing != "full":
        cost = "about a third more time: every layer runs forward twice"
        yield _mitigation("full checkpointing", SLOWER, cost, checkpointing="full")

    # A step in several passes whose gradients add up; batch norm sees the samples of one pass.
    for at_once in {micro_batch, 1} - {run.batch_size}:
        passes = run.batch_size // at_once
        slower = "slower: too little at once to fill the card" if at_once == 1 else "a little slower"
        yield _mitigation(
            f"micro-batches of {at_once:,}",
            SLOWER + 2 if at_once == 1 else SLOWER - 2,
            f"{slower}; the gradients of {passes:,} passes make a step",
            batch_size=at_once,
            gradient_accumulation_steps=passes * run.gradient_accumulation_steps,
        )

    if run.optimizer in HEAVY_OPTIMIZERS:
        cost = "moments in 8 bits; training mostly goes the same way"
        yield _mitigation("8-bit optimizer", LOWER_PRECISION - 4, cost, optimizer="adamw_8bit")
    if run.precision in {"fp32", "tf32"}:
        cost = "matrix products in 16 bits; mostly faster"
        yield _mitigation(f"{half} autocast", LOWER_PRECISION - 2, cost, precision=f"{half}-mixed")
    if run.precision != half and run.lora is None:
        cost = f"weights and moments keep {MANTISSA[half]} bits of mantissa: small updates are lost"
        yield _mitigation(f"pure {half}", LOWER_PRECISION, cost, precision=half)
    if run.lora is not None and run.quantization is None and decoder:
        cost = "slower, and the frozen weights are rounded to 4 bits"
        yield _mitigation("QLoRA in nf4", LOWER_PRECISION + 1, cost, quantization="nf4-double")

    modules = adapted_modules(model)
    if run.lora is not None or not modules:
        return
    adapted: dict[str, Any] = {"lora": {"rank": USUAL_RANK, "target_modules": list(modules)}, "precision": half}
    cost = "trains adapters, not the model itself"
    yield _mitigation(f"LoRA of rank {USUAL_RANK}", OTHER_RESULT, cost, **adapted)
    if not decoder:
        return
    cost, weight = f"{cost}, which are rounded to 4 bits", OTHER_RESULT + LOWER_PRECISION
    yield _mitigation(f"QLoRA of rank {USUAL_RANK}", weight, cost, **adapted, quantization="nf4-double")


def _shorter(run: TrainRun | InferRun) -> Iterator[Mitigation]:
    if run.sequence_length is not None and run.sequence_length > 1:
        half = run.sequence_length // 2
        cost = f"sees {half:,} tokens at once instead of {run.sequence_length:,}"
        yield _mitigation("half the sequence", OTHER_RESULT - 10, cost, sequence_length=half)


def _inference(run: InferRun, model: Model) -> Iterator[Mitigation]:
    if run.attention == "eager":
        yield _mitigation("flash attention", FREE, "costs nothing: the same result, mostly faster", attention="flash")
    if run.batch_size > 1:
        name = "one image at a time" if isinstance(model, PipelineModel) else "one sequence at a time"
        yield _mitigation(name, SLOWER, "fewer answers a second", batch_size=1)
    if run.precision in {"fp32", "tf32"}:
        cost = "8 bits of mantissa, as most models are published"
        yield _mitigation("weights in bf16", SLOWER + 1, cost, precision="bf16")
    if not isinstance(model, TransformerModel):
        return
    if run.quantization is None:
        cost = "hardly seen in the answers"
        yield _mitigation("weights in 8 bits", LOWER_PRECISION, cost, quantization="int8")
        cost = "answers a little worse, more so for small models"
        yield _mitigation("weights in 4 bits", LOWER_PRECISION + 6, cost, quantization="nf4")
    grows = run.cache_implementation == "dynamic" and run.new_tokens
    if run.kv_cache is None and grows and can_be_quantized(decoder_spec(model).caches()):
        cost = "slower: keys and values in 4 bits are unpacked for every token"
        yield _mitigation("cache in 4 bits", LOWER_PRECISION + 2, cost, kv_cache="int4")


def _parts_of_pipeline(run: TrainRun | InferRun) -> Iterator[Mitigation]:
    """Less of a pipeline on the card at once, as diffusers has it."""
    is_whole = run.offload in {None, "none"}
    if isinstance(run, TrainRun):
        if is_whole:
            cost = "text encoders and VAE go back to host memory, and come again for each batch"
            yield _mitigation("only the denoiser on the GPU", SLOWER + 3, cost, offload="model")
        return
    if run.batch_size > 1 and not run.vae_slicing:
        cost = "a little slower: images are decoded one after another (enable_slicing)"
        yield _mitigation("VAE in slices", FREE + 1, cost, vae_slicing=True)
    if not run.vae_tiling:
        cost = "a little slower, and tiles of large images may show (enable_tiling)"
        yield _mitigation("VAE in tiles", FREE + 2, cost, vae_tiling=True)
    if is_whole:
        cost = "slower: each part comes over the bus when it is its turn (enable_model_cpu_offload)"
        yield _mitigation("one part on the card", SLOWER + 1, cost, offload="model")
    if run.offload != "sequential":
        cost = "many times slower: each layer comes over the bus (enable_sequential_cpu_offload)"
        yield _mitigation("one layer on the card", SLOWER + 16, cost, offload="sequential")


def _serving(run: ServeRun, layers: int) -> Iterator[Mitigation]:
    if run.is_llama_cpp:
        if run.kv_cache is None:
            cost = "keys and values in 8 bits; hardly seen in the answers"
            yield _mitigation("cache in q8_0", LOWER_PRECISION - 3, cost, kv_cache="int8")
        there = layers if run.gpu_layers is None else min(run.gpu_layers, layers)
        if there > 1:
            half = there // 2
            cost = "the other layers are worked out by the host: several times slower"
            yield _mitigation(f"{half} layers on the card", SLOWER + 6, cost, gpu_layers=half)
        if run.quantization is None and run.stored is None:
            yield _mitigation("weights in q8_0", LOWER_PRECISION, "hardly seen in the answers", quantization="q8_0")
        if run.quantization in {None, "q8_0", "q6_k"} and run.stored is None:
            cost = "answers a little worse, more so for small models"
            yield _mitigation("weights in q4_k_m", LOWER_PRECISION + 6, cost, quantization="q4_k_m")
    else:  # a server with a pool of keys and values
        if run.engine == "vllm":
            share = run.gpu_memory_utilization or 0
            if share < LARGE_SHARE:
                cost = "nothing else has room on the card"
                yield _mitigation("95 % of the card", FREE, cost, gpu_memory_utilization=LARGE_SHARE)
            if not 0 < share <= 0.5:
                cost = "room for fewer tokens, so fewer requests at once"
                yield _mitigation("half of the card", SLOWER + 1, cost, gpu_memory_utilization=0.5)
            if run.max_num_seqs is None or run.max_num_seqs > FEW_SEQUENCES:
                cost = f"at most {FEW_SEQUENCES} requests run together"
                yield _mitigation(f"{FEW_SEQUENCES} sequences at once", SLOWER - 1, cost, max_num_seqs=FEW_SEQUENCES)
            more = 2 * run.cpu_offload_gb if run.cpu_offload_gb else FIRST_OFFLOAD
            cost = "each pass reads them over the bus: several times slower"
            yield _mitigation(f"{more:g} GiB of weights in host memory", SLOWER + 6, cost, cpu_offload_gb=more)
        if not run.enforce_eager:
            yield _mitigation("no CUDA graphs", SLOWER, "each token takes a little longer", enforce_eager=True)
        if run.kv_cache is None and run.precision != "fp32":
            cost = "keys and values in 8 bits; hardly seen in the answers"
            yield _mitigation("cache in fp8", LOWER_PRECISION - 3, cost, kv_cache="fp8")
        if run.quantization is None:
            yield _mitigation("weights in fp8", LOWER_PRECISION, "hardly seen in the answers", quantization="fp8")
            cost = "answers a little worse, more so for small models; needs a quantised checkpoint (AWQ, GPTQ)"
            yield _mitigation("weights in 4 bits", LOWER_PRECISION + 6, cost, quantization="int4")
    if run.max_model_len is not None and run.max_model_len > 1:
        cost = f"requests of {run.max_model_len // 2:,} tokens at most"
        yield _mitigation("half the context", OTHER_RESULT - 10, cost, max_model_len=run.max_model_len // 2)
    elif run.engine == "ollama":
        cost = "shorter chats (OLLAMA_CONTEXT_LENGTH=4096)"
        yield _mitigation("a context of 4,096", OTHER_RESULT - 10, cost, max_model_len=4096)


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
    """The whole number that stands at `key`, which `option` named; raises UserError if there is none."""
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


def answer_for(
    estimator: Estimator,
    workload: Workload,
    device: Device,
    bound: Callable[[Workload, Estimate], int | None] | None = None,
) -> "FitResult":
    """The process's bytes and whether the card holds them, or why it cannot be; `bound` gives what a nearer estimate
    does not go below.
    """
    try:
        estimate = estimator.estimate(workload, device)
    except TooLargeError as error:
        return FitResult(error.needed, fits=False, reason=str(error))
    except UserError as error:
        return FitResult(None, fits=False, reason=str(error))
    at_least, fits = bound and bound(workload, estimate), fits_in(estimate.process, device.total_memory)
    return FitResult(estimate.process, fits, error=estimate.error, method=estimate.method, at_least=at_least)


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
        self, estimator: Estimator, workload: Workload, device: Device, gpus: int = 1, exact: Estimator | None = None
    ) -> None:
        self._has_exact = exact is not None
        # What the exact estimator's answer does not go below, by the fast one's, where it knows such a bound.
        bound: Callable[[Workload, Estimate], int | None] | None = getattr(exact, "at_least", None)
        self._answer = cache(lambda workload: answer_for(estimator, workload, device, bound))
        self._exact = cache(lambda workload: answer_for(exact, workload, device, bound)) if exact else self._answer
        self._workload = workload
        self._device = device
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
        """Everything at once; the largest batch where no `key` is given, or a server's longest context. Raises
        UserError if the workload cannot be estimated, or `key` is not a whole number of it.
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
        Raises UserError if `key` is not a whole number of the workload.
        """
        is_exact = self._has_exact
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
            if tries and self._has_exact and is_near:
                tries -= 1
                answer = self._exact(workload)
            if answer.fits:
                return mitigations
        return None

    def effects(self, before: int, key: str | None = None) -> Iterator[Effect]:
        """The effect of each change on a process of `before` bytes, and the largest value of `key` then, if given.

        A job that the nearer estimator cannot make nearer than the other is moved by what it made of the workload as it
        is, so that a change is never compared with the answer of another method.
        """
        now = self.now
        own = self._answer(self._workload).process if self._has_exact else None
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
                if alike and self._has_exact:
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


def _size(result: FitResult, room: int) -> int | None:
    """Bytes for a search; None if it does not fit for another reason than these."""
    return result.process if result.fits or (result.process or 0) > room else None


def _ranks(workload: Workload) -> int:
    return workload.parallel.ranks if workload.parallel is not None else 1


def _changed(workload: Workload, *mitigations: Mitigation) -> Workload:
    values = {key: value for mitigation in mitigations for key, value in mitigation.changes.items()}
    return with_values(workload, values)
