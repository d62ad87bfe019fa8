"""An encoder-decoder transformer in fp32 with Adam: term by term, and as a published function counts it, with what
each of its terms misses.
"""

from fractions import Fraction
from typing import Any

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.rule_inputs.formulas import EncoderDecoderPublishedRule, EncoderDecoderRule
from vramtui.estimators.rules.base import Rule, RuleSheet

TERMS_SOURCE = (
    "Shapes of Vaswani et al. 2017, trained in fp32 with Adam (Kingma & Ba 2015); masks and inputs as torch.nn has them"
)
FLOAT, INTEGER, BOOL = 4, 8, 1


def term_by_term(inputs: EncoderDecoderRule) -> RuleSheet:
    """Parameters, as many bytes of gradients, twice as many of moments; masks; ids; what backward needs."""
    sheet = RuleSheet(
        TERMS_SOURCE,
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
    sheet.mention("parameters", "weights", FLOAT * trained, f"{trained:,} x {FLOAT} B")
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
    counts = [
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
        counts.append(("source positions", rows * d, f"{rows} x d {d}"))
        counts.append(("target positions", rows * d, f"{rows} x d {d}"))
    vocabulary = inputs.target_vocab_size
    output = bias * vocabulary + (0 if inputs.tie_word_embeddings else vocabulary * d)
    tied = "bias alone, tied" if inputs.tie_word_embeddings else f"{vocabulary} x d {d}{biases}"
    counts.append(("output projection", output, tied))
    return counts


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


PUBLISHED_SOURCE = (
    "A published Python function for the memory of training a Transformer (fp32 weights, Adam, int64 ids)"
)
IDS = 8  # bytes of an int64


def published(inputs: EncoderDecoderPublishedRule) -> RuleSheet:
    """Weights x (1 + dropout), as many bytes of gradients, twice as many of moments, masks, ids, activations."""
    sheet = RuleSheet(PUBLISHED_SOURCE, "backward", "No norm at the end of a stack, no CUDA context, no workspaces.")
    item = ITEM_BYTES[inputs.dtype]
    count = published_parameters(inputs)
    weights = count * (1 + Fraction(repr(inputs.dropout))) * item
    positions = inputs.sequence_length * inputs.d_model * 2 if inputs.position_parameters else 0
    model = round(weights + positions)
    moments = round(4 * (weights + positions)) - 2 * model  # the four copies together are rounded once, as published
    formula = f"{count:,} parameters x (1 + dropout {inputs.dropout:g}) x {item} B"
    if positions:
        formula += f" + sequence {inputs.sequence_length} x d {inputs.d_model} x 2 (elements, not bytes)"
    sheet.add("weights", "weights", model, formula)
    sheet.add("gradients", "gradients", model, "as many bytes as the weights")
    sheet.add("Adam, both moments", "optimizer", moments, "twice the weights")
    layers = inputs.encoder_layers + 2 * inputs.decoder_layers
    masks = inputs.sequence_length**2 * layers * item
    sheet.add("masks", "inputs", masks, f"sequence² {inputs.sequence_length**2:,} x {layers} attentions x {item} B")
    tokens = inputs.batch_size * inputs.sequence_length
    sheet.add("source and target ids", "inputs", 2 * tokens * IDS, f"{tokens:,} tokens x {IDS} B x 2")
    _add_published_activations(sheet, inputs)
    sheet.assumptions += [f"Erratum: {text}" for text in _errata(inputs, count, weights, masks, positions)]
    return sheet


def published_parameters(inputs: EncoderDecoderPublishedRule) -> int:
    """Embeddings, attention of 4 d², feed-forward of 2 d ff, norms of d (2 d with biases), and the output layer."""
    d, ff = inputs.d_model, inputs.d_ff
    attention, feed_forward, norm = 4 * d * d, 2 * d * ff, d + d * int(inputs.bias)
    embeddings = (inputs.source_vocab_size + inputs.target_vocab_size) * inputs.embedding_size
    encoder = inputs.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = inputs.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return embeddings + encoder + decoder + d * inputs.target_vocab_size


def _add_published_activations(sheet: RuleSheet, inputs: EncoderDecoderPublishedRule) -> None:
    """N = batch x sequence x d; an attention keeps 5 N and its scores, a norm N, a feed-forward N + 2 F."""
    item, batch, length = ITEM_BYTES[inputs.dtype], inputs.batch_size, inputs.sequence_length
    n = batch * length * inputs.d_model * item
    scores = batch * inputs.num_heads * length * length * item
    f = batch * length * inputs.d_ff * item
    attention, norm, feed_forward = 5 * n + scores, n, n + 2 * f
    encoder = inputs.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = inputs.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    output = n + batch * length * inputs.target_vocab_size * item
    what = f"N = {n:,} B, scores {scores:,} B, F = {f:,} B"
    e, d = inputs.encoder_layers, inputs.decoder_layers
    lifetime = "forward to backward"
    sheet.add("encoder, kept", "activations", encoder, f"{e} x (8 N + scores + 2 F), {what}", lifetime=lifetime)
    sheet.add("decoder, kept", "activations", decoder, f"{d} x (14 N + 2 scores + 2 F), {what}", lifetime=lifetime)
    sheet.add("output layer, kept", "activations", output, "N + batch x sequence x vocabulary", lifetime=lifetime)


def _errata(
    inputs: EncoderDecoderPublishedRule, count: int, weights: Fraction, masks: int, positions: int
) -> list[str]:
    """What each term misses, in bytes of this very job."""
    item, tokens = ITEM_BYTES[inputs.dtype], inputs.batch_size * inputs.sequence_length
    n, f = tokens * inputs.d_model * item, tokens * inputs.d_ff * item
    logits = tokens * inputs.target_vocab_size * item
    blocks = inputs.encoder_layers + inputs.decoder_layers
    notes = []
    if inputs.dropout:
        extra = round(4 * (weights - count * item))
        notes.append(
            f"dropout has no parameters: weights, gradients and moments are {extra:,} B too large for (1 + dropout)."
        )
    if positions:
        missing = 4 * (2 * inputs.sequence_length * inputs.d_model * item - positions)
        notes.append(f"the positions are added as elements to bytes: {missing:,} B too little in all four copies.")
    real_masks = 2 * tokens + inputs.sequence_length**2
    notes += [
        f"masks are bool, made once: {real_masks:,} B instead of {masks:,} B.",
        f"ReLU's result is counted twice: {blocks * f:,} B too large.",
        f"of logits and log-probabilities, which are both kept, one is left out: {logits:,} B too little.",
        f"the encoder's output, which every decoder block reads, is left out: {n:,} B too little.",
        "the biases of the linear layers are left out.",
    ]
    return notes


RULES: tuple[Rule[Any], ...] = (
    Rule(
        "encoder-decoder", "encoder-decoder transformer, term by term", TERMS_SOURCE, EncoderDecoderRule, term_by_term
    ),
    Rule(
        "encoder-decoder-published",
        "encoder-decoder transformer, as a published function",
        PUBLISHED_SOURCE,
        EncoderDecoderPublishedRule,
        published,
    ),
)
