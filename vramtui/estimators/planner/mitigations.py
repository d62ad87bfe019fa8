"""Changes that make a job smaller, ways to share it over several GPUs, and what each change
costs.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from vramtui.core.schema.models import Model, PipelineModel, TransformerModel
from vramtui.core.schema.workload import USUAL_RANK, InferRun, Parallel, ServeRun, TrainRun, Workload
from vramtui.estimators.analytic.generation import can_be_quantized
from vramtui.estimators.analytic.optimizers import FUSED
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
    if isinstance(workload.run, TrainRun):
        yield from _offloaded(shared, gpus)
    if shared.ranks > 1 and gpus > shared.ranks:
        yield from _more_of_the_same(workload, shared, gpus)
    if gpus == 1 or shared.ranks > 1:
        return
    if isinstance(workload.run, TrainRun):
        yield from _states(gpus)
    if isinstance(workload.model, TransformerModel):
        yield from _model(workload.model, workload.run, gpus)


def _data(gpus: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any key
    return {"parallel.data": gpus} | {f"parallel.{key}": value for key, value in more.items()}


def _states(gpus: int) -> Iterator[Mitigation]:
    """Shares of the states over data ranks."""
    for stage, weight, cost in (
        (1, FREE + 1, "updated weights travel once a step"),
        (2, FREE + 2, "as stage 1, and gradients are reduced while the backward pass runs"),
        (3, SLOWER + 2, "every layer's weights travel three times a step"),
    ):
        changes = _data(gpus, strategy="zero", zero_stage=stage)
        yield _mitigation(f"ZeRO-{stage} over {gpus} cards", weight, cost, changes)
    cost = "every block's weights travel three times a step, mostly behind the work"
    yield _mitigation(f"FSDP over {gpus} cards", SLOWER + 1, cost, _data(gpus, strategy="fsdp", zero_stage=3))


def _offloaded(shared: Parallel, gpus: int) -> Iterator[Mitigation]:
    if shared.cpu_offload:
        return
    cost = "gradients and weights cross the bus each step, and the host updates them: much slower"
    if shared.ranks > 1 or gpus == 1:
        yield _mitigation("optimizer in host memory", SLOWER + 8, cost, {"parallel.cpu_offload": True})
        return
    changes = _data(gpus, strategy="fsdp", zero_stage=3, cpu_offload=True)
    yield _mitigation(f"FSDP over {gpus} cards, optimizer in host memory", SLOWER + 9, cost, changes)


def _more_of_the_same(workload: Workload, shared: Parallel, gpus: int) -> Iterator[Mitigation]:
    """More ranks along a dimension that is there already."""
    model = workload.model
    most = {name: gpus * getattr(shared, name) // shared.ranks for name in ("data", "tensor", "pipeline")}
    if shared.data > 1 and (shared.zero_stage or shared.strategy == "fsdp") and most["data"] > shared.data:
        cost = "more cards to wait for at every exchange"
        yield _mitigation(f"{most['data']} data ranks", FREE + 1, cost, {"parallel.data": most["data"]})
    if not isinstance(model, TransformerModel):
        return
    tensor = max((n for n in range(1, most["tensor"] + 1) if not indivisible(model, n)), default=1)
    if shared.tensor > 1 and tensor > shared.tensor:
        cost = "activations travel twice a layer among more cards"
        yield _mitigation(f"tensor parallel over {tensor} cards", SLOWER, cost, {"parallel.tensor": tensor})
    stages = min(most["pipeline"], model.num_hidden_layers)
    if shared.pipeline > 1 and stages > shared.pipeline:
        cost = "more cards that wait for one another"
        yield _mitigation(f"pipeline over {stages} cards", SLOWER + 1, cost, {"parallel.pipeline": stages})


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
        micro_batch: samples at once by which a training step may be gone through, beside one at a time.
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
    adapters = {"rank": USUAL_RANK, "target_modules": list(modules)}
    cost = "trains adapters beside frozen weights, not the model itself"
    yield _mitigation(f"LoRA of rank {USUAL_RANK}", OTHER_RESULT, cost, lora=adapters, precision=half)
    if not decoder:
        return
    cost += ", which are rounded to 4 bits"
    yield _mitigation(
        f"QLoRA of rank {USUAL_RANK}",
        OTHER_RESULT + LOWER_PRECISION,
        cost,
        lora=adapters,
        precision=half,
        quantization="nf4-double",
    )


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
    yield from _llama_cpp(run, layers) if run.is_llama_cpp else _pooled(run)
    if run.max_model_len is not None and run.max_model_len > 1:
        cost = f"requests of {run.max_model_len // 2:,} tokens at most"
        yield _mitigation("half the context", OTHER_RESULT - 10, cost, max_model_len=run.max_model_len // 2)
    elif run.engine == "ollama":
        cost = "shorter chats (OLLAMA_CONTEXT_LENGTH=4096)"
        yield _mitigation("a context of 4,096", OTHER_RESULT - 10, cost, max_model_len=4096)


def _pooled(run: ServeRun) -> Iterator[Mitigation]:
    """Changes for a server with a pool of keys and values."""
    if run.engine == "vllm":
        if run.gpu_memory_utilization < LARGE_SHARE:
            cost = "nothing else has room on the card"
            yield _mitigation("95 % of the card", FREE, cost, gpu_memory_utilization=LARGE_SHARE)
        if run.gpu_memory_utilization > 0.5:
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


def _llama_cpp(run: ServeRun, layers: int) -> Iterator[Mitigation]:
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
