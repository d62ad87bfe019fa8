"""EleutherAI's calc_transformer_mem.py, quirks included: what it divides, and what it does not."""

from fractions import Fraction

from vramtui.core.schema.rule_inputs import EleutherRule
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.rules.base import Rule, RuleSheet, gib
from vramtui.estimators.rules.shapes import full_training, inference

SOURCE = "EleutherAI cookbook, calc/calc_transformer_mem.py; Anthony et al. 2023, Transformer Math 101"
BUCKET = 500_000_000
LIVE_PARAMETERS = 1_000_000_000


def compute(inputs: EleutherRule) -> RuleSheet:
    """Model, gradients (4 B), optimizer (12 B), communication, activations; KV cache without its factor 2."""
    low = 2 if inputs.mixed_precision else 4
    count = parameters(inputs)
    model = count * low / (inputs.tensor_parallel * inputs.pipeline_parallel)
    if inputs.zero_stage == 3:
        model /= inputs.gpus
    train = inputs.phase == "train"
    sheet = RuleSheet(
        SOURCE,
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


def parameters(inputs: EleutherRule) -> Fraction:
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


def adapt(workload: Workload) -> EleutherRule | None:
    """Any transformer on one GPU; the script itself takes checkpointing to be selective."""
    found = full_training(workload) or inference(workload)
    if found is None:
        return None
    model, run, length = found
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


RULE = Rule(
    id="eleutherai",
    title="EleutherAI's transformer formula",
    source=SOURCE,
    takes=EleutherRule,
    compute=compute,
    adapt=adapt,
)
