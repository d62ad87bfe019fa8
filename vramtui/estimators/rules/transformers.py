"""Formulas for a whole transformer: accelerate's table, EleutherAI's script with its quirks, activations by what is
recomputed, and Megatron-LM's report for a dense model.
"""

from fractions import Fraction
from math import ceil
from typing import Any, Literal

from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs.formulas import ActivationsRule, EleutherRule, MegatronRule
from vramtui.core.schema.rule_inputs.steps import AccelerateRule
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.rules.base import (
    Rule,
    RuleSheet,
    ceil_share,
    full_training,
    gib,
    inference,
    largest_tensor,
    parameter_count,
    training,
    transformer,
)

ACCELERATE_SOURCE = "Hugging Face accelerate, docs/source/usage_guides/model_size_estimator.md and commands/estimate.py"
FLOAT = 4
PARTS = {
    "fp32": Fraction(1),
    "fp16": Fraction(1, 2),
    "bf16": Fraction(1, 2),
    "int8": Fraction(1, 4),
    "int4": Fraction(1, 8),
}


def accelerate(inputs: AccelerateRule) -> RuleSheet:
    """Weights and buffers in fp32, scaled by the type; training is 4 x that (model, gradients, two moments)."""
    train = inputs.phase == "train"
    sheet = RuleSheet(
        ACCELERATE_SOURCE,
        "step" if train else "build",
        "No activations; accelerate's MB and GB are 2^20 and 2^30 bytes.",
    )
    full = FLOAT * inputs.parameters + inputs.buffer_bytes
    size = round(full * PARTS[inputs.dtype])
    buffers = f" + {inputs.buffer_bytes:,} B of buffers" if inputs.buffer_bytes else ""
    what = f"({inputs.parameters:,} parameters x {FLOAT} B{buffers}) x {PARTS[inputs.dtype]} = {_mb(size)}"
    sheet.add("model", "weights", size, what)
    training = f"4 x {_mb(size)} = {_mb(4 * size)}"
    if train:
        sheet.add("gradients", "gradients", size, f"as the model, {_mb(size)}")
        sheet.add("Adam's moments", "optimizer", 2 * size, f"2 x {_mb(size)}")
    sheet.mention("training using Adam", "process", 4 * size, training)
    if inputs.largest_layer_parameters is not None:
        layer = round(inputs.largest_layer_parameters * FLOAT * PARTS[inputs.dtype])
        sheet.mention(
            "largest layer",
            "weights",
            layer,
            f"{inputs.largest_layer_parameters:,} x {FLOAT} B x {PARTS[inputs.dtype]} = {_mb(layer)}",
        )
    for dtype, part in PARTS.items():
        if dtype not in {inputs.dtype, "bf16"}:
            other = round(full * part)
            sheet.mention(f"model in {dtype}", "weights", other, f"{full:,} B x {part} = {_mb(other)}")
    mixed = 2 * full
    sheet.mention("training in mixed precision", "process", mixed, f"2 x {_mb(full)} of fp32 = {_mb(mixed)}")
    return sheet


def _mb(size: int) -> str:
    return f"{size / 2**20:,.2f} MB"


def accelerate_inputs(workload: Workload) -> AccelerateRule | None:
    """Any transformer, in the type its weights are kept in; LoRA by its weights alone."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun | InferRun):
        return None
    dtype: Literal["fp32", "bf16"] = "bf16" if run.precision in {"bf16", "fp16"} else "fp32"
    return AccelerateRule(
        parameters=parameter_count(model),
        largest_layer_parameters=largest_tensor(model),
        dtype=dtype,
        phase="train" if isinstance(run, TrainRun) and run.lora is None else "infer",
    )


ELEUTHER_SOURCE = "EleutherAI cookbook, calc/calc_transformer_mem.py; Anthony et al. 2023, Transformer Math 101"
BUCKET = 500_000_000
LIVE_PARAMETERS = 1_000_000_000


def eleutherai(inputs: EleutherRule) -> RuleSheet:
    """Model, gradients (4 B), optimizer (12 B), communication, activations; KV cache without its factor 2."""
    low = 2 if inputs.mixed_precision else 4
    count = eleuther_parameters(inputs)
    model = count * low / (inputs.tensor_parallel * inputs.pipeline_parallel)
    if inputs.zero_stage == 3:
        model /= inputs.gpus
    train = inputs.phase == "train"
    sheet = RuleSheet(
        ELEUTHER_SOURCE,
        "backward" if train else "decode",
        "Gradients and optimizer are divided by ZeRO's ranks only, not by tensor or pipeline parallelism.",
    )
    what = f"{round(count):,} parameters"
    sheet.add("model", "weights", round(model), f"{what} x {low} B, on one rank: {gib(round(model))}")
    if train:
        _add_states(sheet, inputs, count, low)
    _add_activations(sheet, inputs)
    if not train:
        tokens = inputs.batch_size * (inputs.sequence_length + inputs.output_tokens)
        cache = 2 * inputs.hidden_size * inputs.num_hidden_layers * tokens
        sheet.add(
            "KV cache",
            "kv_cache",
            cache,
            f"2 B x hidden {inputs.hidden_size} x {inputs.num_hidden_layers} layers x {tokens} tokens = {gib(cache)}, "
            "keys or values as the script has it",
        )
    return sheet


def eleuther_parameters(inputs: EleutherRule) -> Fraction:
    """Two embeddings, positions, eight norm vectors a layer, attention and MLP."""
    hidden, layers = inputs.hidden_size, inputs.num_hidden_layers
    kv, wide = Fraction(repr(inputs.kv_size_ratio)), Fraction(repr(inputs.ffn_expansion_factor))
    return (
        2 * inputs.vocab_size * hidden
        + hidden * inputs.sequence_length
        + 8 * hidden * layers
        + 2 * hidden
        + int(2 * (1 + kv) * layers * hidden * hidden)
        + inputs.mlp_linears * layers * hidden * wide * hidden
    )


def _add_states(sheet: RuleSheet, inputs: EleutherRule, count: Fraction, low: int) -> None:
    ranks = inputs.gpus
    gradients = round(4 * count / (ranks if inputs.zero_stage >= 2 else 1))
    optimizer = round(12 * count / (ranks if inputs.zero_stage >= 1 else 1))
    what = f"{round(count):,} parameters"
    sheet.add("gradients", "gradients", gradients, f"{what} x 4 B, ZeRO stage {inputs.zero_stage} of {ranks} ranks")
    sheet.add("optimizer", "optimizer", optimizer, f"{what} x 12 B, ZeRO stage {inputs.zero_stage} of {ranks} ranks")
    if inputs.zero_stage >= 1 and ranks > 1:
        live = LIVE_PARAMETERS if inputs.zero_stage == 3 else 0
        size = (BUCKET + live) * low
        sheet.add("communication", "temporaries", size, f"({BUCKET:,} bucket + {live:,} live parameters) x {low} B")


def _add_activations(sheet: RuleSheet, inputs: EleutherRule) -> None:
    tokens = inputs.sequence_length * inputs.batch_size
    base, layers = tokens * inputs.hidden_size * 34, inputs.num_hidden_layers
    if inputs.phase == "infer":
        size, what = base, f"{tokens} tokens x hidden {inputs.hidden_size} x (16 x 2 + 2), one layer"
    elif inputs.checkpointing:
        size, what = base * layers, f"{tokens} tokens x hidden {inputs.hidden_size} x (16 x 2 + 2) x {layers} layers"
    else:
        scores = 5 * inputs.num_attention_heads * inputs.sequence_length * tokens
        size = (base + scores) * layers
        what = (
            f"{tokens} tokens x {layers} layers x (hidden {inputs.hidden_size} x (16 x 2 + 2) + (2 x 2 + 1) x "
            f"{inputs.num_attention_heads} heads x {inputs.sequence_length})"
        )
    if inputs.partition_activations:
        size = round(Fraction(size, inputs.tensor_parallel))
        what += f" / {inputs.tensor_parallel}"
    sheet.add("activations", "activations", size, f"{what} = {gib(size)}")


def eleuther_inputs(workload: Workload) -> EleutherRule | None:
    """Any transformer on one GPU; the script itself takes checkpointing to be selective."""
    shapes = full_training(workload) or inference(workload)
    if shapes is None:
        return None
    model, run, length = shapes
    return EleutherRule(
        num_hidden_layers=model.num_hidden_layers,
        hidden_size=model.hidden_size,
        num_attention_heads=model.num_attention_heads,
        sequence_length=length,
        batch_size=run.batch_size,
        vocab_size=model.vocab_size,
        ffn_expansion_factor=model.ffn_size / model.hidden_size,
        mlp_linears=3 if model.gated_mlp else 2,
        kv_size_ratio=model.kv_heads / model.num_attention_heads,
        phase="train" if isinstance(run, TrainRun) else "infer",
        output_tokens=max(1, run.new_tokens) if isinstance(run, InferRun) else 1,
        checkpointing=isinstance(run, TrainRun) and run.checkpointing != "none",
        mixed_precision=run.precision not in {"fp32", "tf32"},
    )


RECOMPUTATION_SOURCE = "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, Table 2"


def activation_recomputation(inputs: ActivationsRule) -> RuleSheet:
    """s·b·h·(10 + 24/t + 5·a·s/(h·t)) per layer; the last term is the attention core that selective recomputes."""
    sheet = RuleSheet(
        RECOMPUTATION_SOURCE, "backward", "16-bit activations, MLP of 4 x hidden, dropout, eager attention."
    )
    tokens = inputs.sequence_length * inputs.batch_size
    unit = tokens * inputs.hidden_size * inputs.num_hidden_layers
    ranks = inputs.tensor_parallel
    what = f"s·b·h·L = {unit:,}"
    outside = Fraction(10 * unit, ranks if inputs.sequence_parallel else 1)
    inside = Fraction(24 * unit, ranks)
    core = Fraction(5 * inputs.num_attention_heads * inputs.sequence_length * tokens * inputs.num_hidden_layers, ranks)
    over = f" / {ranks}" if ranks > 1 else ""
    ratio = 5 * inputs.num_attention_heads * inputs.sequence_length / inputs.hidden_size
    parts = {
        "norms, dropouts and inputs": (outside, f"10 x {what}{over if inputs.sequence_parallel else ''}"),
        "attention and MLP": (inside, f"24 x {what}{over}"),
        "attention core": (core, f"5·a·s/h x {what}{over}, 5·a·s/h = {ratio:g}"),
    }
    kept_terms = {"none": 3, "selective": 2, "full": 0}[inputs.recompute]
    for index, (name, (exact, formula)) in enumerate(parts.items()):
        size = round(exact)
        add = sheet.add if index < kept_terms else sheet.mention
        add(name, "activations", size, f"{formula} = {gib(size)}")
    add = sheet.add if inputs.recompute == "full" else sheet.mention
    add(
        "inputs of each layer",
        "activations",
        2 * unit,
        f"2 x {what} = {gib(2 * unit)}, all that full recomputation keeps",
    )
    return sheet


def recomputation_inputs(workload: Workload) -> ActivationsRule | None:
    """Training of a transformer."""
    shapes = training(workload)
    if shapes is None:
        return None
    model, run, length = shapes
    return ActivationsRule(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        sequence_length=length,
        batch_size=run.batch_size,
        recompute="full" if run.checkpointing == "full" else "none" if run.attention == "eager" else "selective",
    )


MEGATRON_SOURCE = "NVIDIA Megatron-LM, megatron/training/theoretical_memory_usage.py"
MEGATRON_STATES: tuple[tuple[str, Category, int], ...] = (
    ("weights, 16 bits", "weights", 2),
    ("main gradients, fp32", "gradients", 4),
)
MEGATRON_SHARDED: tuple[tuple[str, Category, int], ...] = (
    ("main weights, fp32", "master_weights", 4),
    ("Adam's moments, fp32", "optimizer", 8),
)


def megatron(inputs: MegatronRule) -> RuleSheet:
    """18 B per parameter of the shard (6 + 12 / data parallel with the distributed optimizer), and activations."""
    sheet = RuleSheet(MEGATRON_SOURCE, "backward", "No CUDA context, no communication buffers, no fragmentation.")
    count = shard_parameters(inputs)
    what = f"{round(count):,} parameters on the most loaded shard"
    total = 0
    ranks = inputs.data_parallel if inputs.distributed_optimizer else 1
    for name, line, each in MEGATRON_STATES:
        total += ceil(count * each)
        sheet.add(name, line, ceil(count * each), f"{what} x {each} B")
    for name, line, each in MEGATRON_SHARDED:
        size = ceil(count * each / ranks)
        total += size
        sheet.add(name, line, size, f"{what} x {each} B / {ranks}")
    sheet.mention("weight and optimizer", "process", total, f"{what} x (6 + 12 / {ranks}) B = {gib(total)}")
    if inputs.sequence_parallel and inputs.recompute == "selective":
        _add_selective(sheet, inputs)
    else:
        _add_without_sequence_parallel(sheet, inputs)
    return sheet


def shard_parameters(inputs: MegatronRule) -> Fraction:
    """Parameters of the pipeline's first stage and its embedding, over the tensor-parallel ranks."""
    hidden, layers = inputs.hidden_size, inputs.num_hidden_layers
    query = (inputs.kv_channels or hidden // inputs.num_attention_heads) * inputs.num_attention_heads
    groups = Fraction(inputs.num_query_groups or inputs.num_attention_heads, inputs.num_attention_heads)
    attention = 2 * hidden * query * (1 + groups)
    norm = 1 if inputs.rmsnorm else 2
    wide = inputs.ffn_hidden_size * (Fraction(3, 2) if inputs.swiglu else 1)
    block = layers * (2 * hidden * (wide + norm) + attention) + norm * hidden
    embedding = hidden * inputs.padded_vocab_size
    both = 2 if not inputs.tie_word_embeddings and inputs.pipeline_parallel == 1 else 1
    return (Fraction(block) / inputs.pipeline_parallel + both * embedding) / inputs.tensor_parallel


def _add_selective(sheet: RuleSheet, inputs: MegatronRule) -> None:
    tokens, hidden, ranks = inputs.sequence_length * inputs.batch_size, inputs.hidden_size, inputs.tensor_parallel
    layer = tokens * (18 * hidden + 4 * inputs.ffn_hidden_size)
    stages = inputs.pipeline_parallel
    terms = {
        "layers": (layer * inputs.num_hidden_layers, f"{inputs.num_hidden_layers} layers x s·b·(18 h + 4 ffn)"),
        "input ids": (8 * tokens * stages, f"8 x s·b x {stages} in flight"),
        "embedding dropout": (tokens * hidden * stages, f"s·b·h x {stages} in flight"),
    }
    if stages == 1:
        terms["output layer and loss"] = (4 * tokens * (hidden + inputs.padded_vocab_size), "4 x s·b·(h + vocabulary)")
    for name, (size, formula) in terms.items():
        each = ceil_share(size, ranks)
        sheet.add(name, "activations", each, f"{formula} / {ranks}, s·b = {tokens:,}, h = {hidden}: {gib(each)}")
    one = ceil_share(layer, ranks)
    sheet.mention(
        "activations of one layer", "activations", one, f"s·b·(18 h + 4 ffn) / {ranks} = {one / 2**20:.1f} MiB"
    )


def _add_without_sequence_parallel(sheet: RuleSheet, inputs: MegatronRule) -> None:
    tokens, hidden, ranks = inputs.sequence_length * inputs.batch_size, inputs.hidden_size, inputs.tensor_parallel
    layer = tokens * hidden * (10 + Fraction(24, ranks))
    stages = inputs.pipeline_parallel
    terms = {
        "layers": (layer * inputs.num_hidden_layers, f"{inputs.num_hidden_layers} layers x s·b·h·(10 + 24 / {ranks})"),
        "input ids": (Fraction(8 * tokens * stages), f"8 x s·b x {stages} in flight"),
        "embedding dropout": (Fraction(tokens * hidden * stages), f"s·b·h x {stages} in flight"),
    }
    if stages == 1:
        logits = Fraction(2 * tokens * inputs.padded_vocab_size, ranks) + 2 * tokens * hidden
        terms["output layer and loss"] = (logits, f"2 x s·b·(vocabulary / {ranks} + h)")
    more = Fraction(105, 100)
    for name, (size, formula) in terms.items():
        each = ceil(size * more)
        sheet.add(name, "activations", each, f"1.05 x {formula}, s·b = {tokens:,}, h = {hidden}: {gib(each)}")


def megatron_inputs(workload: Workload) -> MegatronRule | None:
    """Training of a dense transformer on one GPU."""
    shapes = full_training(workload)
    if shapes is None:
        return None
    model, run, length = shapes
    return MegatronRule(
        hidden_size=model.hidden_size,
        num_hidden_layers=model.num_hidden_layers,
        num_attention_heads=model.num_attention_heads,
        ffn_hidden_size=model.ffn_size,
        padded_vocab_size=model.vocab_size,
        sequence_length=length,
        batch_size=run.batch_size,
        num_query_groups=model.kv_heads,
        kv_channels=model.head_size,
        swiglu=model.gated_mlp,
        rmsnorm=model.norm == "rmsnorm",
        tie_word_embeddings=model.tie_word_embeddings,
    )


RULES: tuple[Rule[Any], ...] = (
    Rule("accelerate", "accelerate estimate-memory", ACCELERATE_SOURCE, AccelerateRule, accelerate, accelerate_inputs),
    Rule("eleutherai", "EleutherAI's transformer formula", ELEUTHER_SOURCE, EleutherRule, eleutherai, eleuther_inputs),
    Rule(
        "activation-recomputation",
        "activations with selective recomputation",
        RECOMPUTATION_SOURCE,
        ActivationsRule,
        activation_recomputation,
        recomputation_inputs,
    ),
    Rule("megatron", "Megatron-LM's theoretical report", MEGATRON_SOURCE, MegatronRule, megatron, megatron_inputs),
)
