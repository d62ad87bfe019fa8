"""Megatron-LM's theoretical memory report for a dense model: the most loaded shard, and activations."""

from fractions import Fraction
from math import ceil

from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.rule_inputs import MegatronRule
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, ceil_share, gib
from vramtui.estimators.rules.shapes import full_training

SOURCE = "NVIDIA Megatron-LM, megatron/training/theoretical_memory_usage.py"
STATES: tuple[tuple[str, Category, int], ...] = (
    ("weights, 16 bits", "weights", 2),
    ("main gradients, fp32", "gradients", 4),
)
SHARDED: tuple[tuple[str, Category, int], ...] = (
    ("main weights, fp32", "master_weights", 4),
    ("Adam's moments, fp32", "optimizer", 8),
)


def compute(inputs: MegatronRule) -> RuleSheet:
    """18 B per parameter of the shard (6 + 12 / data parallel with the distributed optimizer), and activations."""
    sheet = RuleSheet(SOURCE, "backward", "No CUDA context, no communication buffers, no fragmentation.")
    count = shard_parameters(inputs)
    what = f"{round(count):,} parameters on the most loaded shard"
    total = 0
    ranks = inputs.data_parallel if inputs.distributed_optimizer else 1
    for name, line, each in STATES:
        total += ceil(count * each)
        sheet.add(name, line, ceil(count * each), f"{what} x {each} B")
    for name, line, each in SHARDED:
        size = ceil(count * each / ranks)
        total += size
        sheet.add(name, line, size, f"{what} x {each} B / {ranks}")
    sheet.beside("weight and optimizer", "process", total, f"{what} x (6 + 12 / {ranks}) B = {gib(total)}")
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
    sheet.beside(
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


def adapt(workload: Workload) -> MegatronRule | None:
    """Training of a dense transformer on one GPU."""
    found = full_training(workload)
    if found is None:
        return None
    model, run, length = found
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


RULE = Rule(
    id="megatron",
    title="Megatron-LM's theoretical report",
    source=SOURCE,
    takes=MegatronRule,
    compute=compute,
    adapt=adapt,
)
