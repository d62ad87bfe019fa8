"""What a person could change about a job to make it smaller, and what each change costs them."""

from collections.abc import Iterator
from typing import Any

import msgspec

from vramtui.core.workload import InferRun, ServeRun, TrainRun, Workload

# What a lever weighs in the choice of the cheapest set. The steps are wide, so that a few levers of one sort do not
# outweigh one of the next.
FREE = 1
SLOWER = 4
ROUGHER = 12
OTHER_RESULT = 40

ATTENTION_MODULES = ["q_proj", "k_proj", "v_proj", "o_proj"]
# Those that keep two fp32 moments of each parameter.
HEAVY_OPTIMIZERS = {"adam", "adamw", "amsgrad", "paged_adamw_32bit"}


class Lever(msgspec.Struct, frozen=True, kw_only=True):
    """One change.

    Attributes:
        name: what it is called in a table.
        changes: the values it sets, by dotted key as in a preset.
        weight: how dear it is beside other levers; only the order and the sums matter.
        cost: what one pays for it, in words.
    """

    name: str
    changes: dict[str, Any]
    weight: int
    cost: str


def levers_for(workload: Workload, gpus: int = 1) -> tuple[Lever, ...]:
    """The changes that `workload` leaves room for on `gpus` cards, cheapest first."""
    run = workload.run
    offered: list[Lever] = []
    if isinstance(run, TrainRun):
        offered += [*_kernels(run), *_recomputing(run), *_rounder(run), *_fewer_trained(run), *_shorter(run)]
    elif isinstance(run, InferRun):
        offered += [*_inference(run), *_shorter(run)]
    else:
        offered += _serving(run)
    offered += _sharding(workload, gpus)
    return tuple(sorted(offered, key=lambda lever: lever.weight))


def _lever(name: str, weight: int, cost: str, **changes: Any) -> Lever:  # noqa: ANN401 - values of any key
    """Keys are written with two underscores for the dot."""
    return Lever(
        name=name, changes={key.replace("__", "."): value for key, value in changes.items()}, weight=weight, cost=cost
    )


def _kernels(run: TrainRun) -> Iterator[Lever]:
    """Other kernels for the same sums."""
    if run.attention == "eager":
        yield _lever("flash attention", FREE, "nothing: the same result, mostly faster", run__attention="flash")
    if run.optimizer_implementation == "foreach":
        cost = "nothing: one kernel for each step, and no temporaries"
        yield _lever("fused optimizer", FREE, cost, run__optimizer_implementation="fused")
    if run.cross_entropy == "full":
        cost = "a kernel from outside PyTorch; the logits never stand there whole"
        yield _lever("fused cross-entropy", FREE + 1, cost, run__cross_entropy="fused")


def _recomputing(run: TrainRun) -> Iterator[Lever]:
    """Time for memory."""
    if run.checkpointing == "none":
        cost = "a few percent more time: only attention's scores are made twice"
        yield _lever("selective checkpointing", SLOWER - 1, cost, run__checkpointing="selective")
    if run.checkpointing != "full":
        cost = "about a third more time: every layer runs forward twice"
        yield _lever("full checkpointing", SLOWER, cost, run__checkpointing="full")
    if run.batch_size > 1:
        yield _lever(
            "one sequence at a time",
            SLOWER + 2,
            "slower: the same step from pieces too small to fill the card",
            run__batch_size=1,
            run__gradient_accumulation_steps=run.batch_size * run.gradient_accumulation_steps,
        )


def _rounder(run: TrainRun) -> Iterator[Lever]:
    """The same training in fewer bits."""
    if run.optimizer in HEAVY_OPTIMIZERS:
        cost = "moments in 8 bits; training mostly goes the same way"
        yield _lever("8-bit optimizer", ROUGHER - 4, cost, run__optimizer="adamw_8bit")
    if run.precision in {"fp32", "tf32"}:
        cost = "matrix products in 16 bits; mostly faster"
        yield _lever("bf16 autocast", ROUGHER - 2, cost, run__precision="bf16-mixed")
    if run.precision != "bf16" and run.lora is None:
        cost = "weights and moments keep 8 bits of mantissa: small updates are lost"
        yield _lever("pure bf16", ROUGHER, cost, run__precision="bf16")
    if run.lora is not None and run.quantization is None:
        cost = "slower, and the frozen weights are rounded to 4 bits"
        yield _lever("QLoRA in nf4", ROUGHER + 1, cost, run__quantization="nf4-double")


def _fewer_trained(run: TrainRun) -> Iterator[Lever]:
    """Another training: adapters instead of the model."""
    if run.lora is not None:
        return
    adapters = {"rank": 16, "target_modules": ATTENTION_MODULES}
    cost = "trains adapters beside frozen weights, not the model itself"
    yield _lever("LoRA of rank 16", OTHER_RESULT, cost, run__lora=adapters, run__precision="bf16")
    cost += ", which are rounded to 4 bits"
    yield _lever(
        "QLoRA of rank 16",
        OTHER_RESULT + ROUGHER,
        cost,
        run__lora=adapters,
        run__precision="bf16",
        run__quantization="nf4-double",
    )


def _shorter(run: TrainRun | InferRun) -> Iterator[Lever]:
    if run.sequence_length is not None and run.sequence_length > 1:
        half = run.sequence_length // 2
        cost = f"sees {half:,} tokens at once instead of {run.sequence_length:,}"
        yield _lever("half the sequence", OTHER_RESULT - 10, cost, run__sequence_length=half)


def _inference(run: InferRun) -> Iterator[Lever]:
    if run.attention == "eager":
        yield _lever("flash attention", FREE, "nothing: the same result, mostly faster", run__attention="flash")
    if run.batch_size > 1:
        yield _lever("one sequence at a time", SLOWER, "fewer answers a second", run__batch_size=1)
    if run.precision in {"fp32", "tf32"}:
        cost = "8 bits of mantissa, as most models are published"
        yield _lever("weights in bf16", SLOWER + 1, cost, run__precision="bf16")
    yield from _quantized(run)


def _serving(run: ServeRun) -> Iterator[Lever]:
    if not run.enforce_eager and run.engine == "vllm":
        yield _lever("no CUDA graphs", SLOWER, "each token takes a little longer", run__enforce_eager=True)
    if run.gpu_memory_utilization > 0.5 and run.engine == "vllm":
        cost = "room for fewer tokens, so fewer requests at once"
        yield _lever("half of the card", SLOWER + 1, cost, run__gpu_memory_utilization=0.5)
    if run.max_model_len is not None and run.max_model_len > 1:
        cost = f"requests of {run.max_model_len // 2:,} tokens at most"
        yield _lever("half the context", OTHER_RESULT - 10, cost, run__max_model_len=run.max_model_len // 2)
    yield from _quantized(run)


def _quantized(run: InferRun | ServeRun) -> Iterator[Lever]:
    """Weights in fewer bits."""
    if run.quantization is None:
        cost = "hardly seen in the answers"
        yield _lever("weights in 8 bits", ROUGHER, cost, run__quantization="int8")
        cost = "answers a little worse, more so for small models"
        yield _lever("weights in 4 bits", ROUGHER + 6, cost, run__quantization="nf4")


def _sharding(workload: Workload, gpus: int) -> Iterator[Lever]:
    """What several cards can share."""
    shared = workload.parallel
    if gpus == 1 or (shared is not None and shared.ranks > 1):
        return
    if isinstance(workload.run, TrainRun):
        yield _lever(
            f"FSDP over {gpus} cards",
            SLOWER + 1,
            "every layer's weights travel three times a step",
            parallel__data=gpus,
            parallel__strategy="fsdp",
            parallel__zero_stage=3,
        )
        yield _lever(
            f"ZeRO-1 over {gpus} cards",
            FREE + 1,
            "updated weights travel once a step",
            parallel__data=gpus,
            parallel__strategy="zero",
            parallel__zero_stage=1,
        )
    else:
        cost = "activations travel twice a layer: the cards need fast links"
        yield _lever(f"tensor parallel over {gpus} cards", SLOWER + 1, cost, parallel__tensor=gpus)
