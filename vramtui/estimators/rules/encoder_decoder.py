"""An encoder-decoder transformer in fp32 with Adam, term by term."""

from vramtui.core.schema.rule_inputs import EncoderDecoderRule
from vramtui.estimators.rules.base import Rule, RuleSheet

SOURCE = (
    "Shapes of Vaswani et al. 2017, trained in fp32 with Adam (Kingma & Ba 2015); masks and inputs as torch.nn has them"
)
FLOAT, INTEGER, BOOL = 4, 8, 1


def compute(inputs: EncoderDecoderRule) -> RuleSheet:
    """Parameters, as many bytes of gradients, twice as many of moments; masks; ids; what backward needs."""
    sheet = RuleSheet(
        SOURCE,
        "backward",
        "Norms follow each sublayer; there is no norm at the end of a stack, and no dropout.",
        "Eager attention: the probabilities are kept for the backward pass.",
    )
    trained = 0
    for name, count, formula in _parameters(inputs):
        trained += count
        sheet.add(name, "weights", FLOAT * count, f"{formula} = {count:,} parameters x {FLOAT} B")
    if inputs.position == "sinusoidal":
        rows = _positions(inputs)
        sheet.add(
            "position table",
            "weights",
            FLOAT * rows * inputs.d_model,
            f"{rows} x d {inputs.d_model} x {FLOAT} B, constant",
        )
    sheet.beside("parameters", "weights", FLOAT * trained, f"{trained:,} x {FLOAT} B")
    since = "from the backward pass until zero_grad"
    sheet.add("gradients", "gradients", FLOAT * trained, f"{trained:,} parameters x {FLOAT} B", lifetime=since)
    for moment in ("first moment", "second moment"):
        sheet.add(f"Adam, {moment}", "optimizer", FLOAT * trained, f"{trained:,} parameters x {FLOAT} B")
    _add_inputs(sheet, inputs)
    for name, count, formula in _activations(inputs):
        sheet.add(
            name, "activations", FLOAT * count, f"{formula} = {count:,} x {FLOAT} B", lifetime="forward to backward"
        )
    return sheet


def _positions(inputs: EncoderDecoderRule) -> int:
    return inputs.max_length or max(inputs.source_length, inputs.target_length)


def _parameters(inputs: EncoderDecoderRule) -> list[tuple[str, int, str]]:
    d, ff, bias = inputs.d_model, inputs.d_ff, int(inputs.bias)
    attention = 4 * d * d + bias * 4 * d
    mlp = 2 * d * ff + bias * (ff + d)
    norm = d + bias * d
    biases = " with biases" if bias else ""
    e, n = inputs.encoder_layers, inputs.decoder_layers
    found = [
        ("source embedding", inputs.source_vocab_size * d, f"{inputs.source_vocab_size} x d {d}"),
        ("target embedding", inputs.target_vocab_size * d, f"{inputs.target_vocab_size} x d {d}"),
        ("encoder attention", e * attention, f"{e} layers x 4 d²{biases}, d = {d}"),
        ("encoder feed-forward", e * mlp, f"{e} layers x 2 d ff{biases}, ff = {ff}"),
        ("encoder norms", e * 2 * norm, f"{e} layers x 2 norms of {norm}"),
        ("decoder self-attention", n * attention, f"{n} layers x 4 d²{biases}, d = {d}"),
        ("decoder cross-attention", n * attention, f"{n} layers x 4 d²{biases}, d = {d}"),
        ("decoder feed-forward", n * mlp, f"{n} layers x 2 d ff{biases}, ff = {ff}"),
        ("decoder norms", n * 3 * norm, f"{n} layers x 3 norms of {norm}"),
    ]
    if inputs.position == "learned":
        rows = _positions(inputs)
        found.append(("source positions", rows * d, f"{rows} x d {d}"))
        found.append(("target positions", rows * d, f"{rows} x d {d}"))
    vocabulary = inputs.target_vocab_size
    output = bias * vocabulary + (0 if inputs.tie_word_embeddings else vocabulary * d)
    tied = "bias alone, tied" if inputs.tie_word_embeddings else f"{vocabulary} x d {d}{biases}"
    found.append(("output projection", output, tied))
    return found


def _add_inputs(sheet: RuleSheet, inputs: EncoderDecoderRule) -> None:
    batch, source, target = inputs.batch_size, inputs.source_length, inputs.target_length
    for name, count, formula in (
        ("source padding mask", batch * source, f"{batch} x {source}"),
        ("target padding mask", batch * target, f"{batch} x {target}"),
        ("target causal mask", target * target, f"{target} x {target}"),
    ):
        sheet.add(name, "inputs", BOOL * count, f"{formula} x {BOOL} B", lifetime="one step")
    for name, count, formula in (
        ("source ids", batch * source, f"{batch} x {source}"),
        ("target ids", batch * target, f"{batch} x {target}"),
    ):
        sheet.add(name, "inputs", INTEGER * count, f"{formula} x {INTEGER} B", lifetime="one step")


def _activations(inputs: EncoderDecoderRule) -> list[tuple[str, int, str]]:
    d, ff, heads, batch = inputs.d_model, inputs.d_ff, inputs.num_heads, inputs.batch_size
    source, target = batch * inputs.source_length, batch * inputs.target_length
    e, n = inputs.encoder_layers, inputs.decoder_layers
    here, there = f"{source} source tokens", f"{target} target tokens"
    own = "(input, q, k, v, context, sum before the norm)"
    return [
        ("encoder attention, kept", e * source * 6 * d, f"{e} layers x {here} x 6 d {own}"),
        (
            "encoder attention probabilities",
            e * source * heads * inputs.source_length,
            f"{e} layers x {here} x {heads} heads x {inputs.source_length}",
        ),
        ("encoder feed-forward, kept", e * source * (2 * d + ff), f"{e} layers x {here} x (2 d + ff)"),
        ("encoder output", source * d, f"{here} x d"),
        ("decoder self-attention, kept", n * target * 6 * d, f"{n} layers x {there} x 6 d {own}"),
        (
            "decoder self-attention probabilities",
            n * target * heads * inputs.target_length,
            f"{n} layers x {there} x {heads} heads x {inputs.target_length}",
        ),
        (
            "decoder cross-attention, kept",
            n * (target * 4 * d + source * 2 * d),
            f"{n} layers x ({there} x 4 d (input, q, context, sum) + {here} x 2 d (k, v))",
        ),
        (
            "decoder cross-attention probabilities",
            n * target * heads * inputs.source_length,
            f"{n} layers x {there} x {heads} heads x {inputs.source_length}",
        ),
        ("decoder feed-forward, kept", n * target * (2 * d + ff), f"{n} layers x {there} x (2 d + ff)"),
        ("decoder output", target * d, f"{there} x d"),
        (
            "logits and their log-probabilities",
            2 * target * inputs.target_vocab_size,
            f"2 x {there} x {inputs.target_vocab_size}",
        ),
    ]


RULE = Rule(
    id="encoder-decoder",
    title="encoder-decoder transformer, term by term",
    source=SOURCE,
    takes=EncoderDecoderRule,
    compute=compute,
)
