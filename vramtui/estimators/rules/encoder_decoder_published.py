"""An encoder-decoder transformer as a published function counts it, and what each of its terms misses, in bytes."""

from fractions import Fraction

from vramtui.core.base.units import ITEM_BYTES
from vramtui.core.schema.rule_inputs import EncoderDecoderPublishedRule
from vramtui.estimators.rules.base import Rule, RuleSheet

SOURCE = "A published Python function for the memory of training a Transformer (fp32 weights, Adam, int64 ids)"
IDS = 8  # bytes of an int64


def compute(inputs: EncoderDecoderPublishedRule) -> RuleSheet:
    """Weights x (1 + dropout), as many bytes of gradients, twice as many of moments, masks, ids, activations."""
    sheet = RuleSheet(SOURCE, "backward", "No norm at the end of a stack, no CUDA context, no workspaces.")
    item = ITEM_BYTES[inputs.dtype]
    count = parameters(inputs)
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
    _add_activations(sheet, inputs)
    sheet.assumptions += [f"Erratum: {text}" for text in _errata(inputs, count, weights, masks, positions)]
    return sheet


def parameters(inputs: EncoderDecoderPublishedRule) -> int:
    """Embeddings, attention of 4 d², feed-forward of 2 d ff, norms of d (2 d with biases), and the output layer."""
    d, ff = inputs.d_model, inputs.d_ff
    attention, feed_forward, norm = 4 * d * d, 2 * d * ff, d + d * int(inputs.bias)
    embeddings = (inputs.source_vocab_size + inputs.target_vocab_size) * inputs.embedding_size
    encoder = inputs.encoder_layers * (attention + feed_forward + 2 * norm)
    decoder = inputs.decoder_layers * (2 * attention + feed_forward + 3 * norm)
    return embeddings + encoder + decoder + d * inputs.target_vocab_size


def _add_activations(sheet: RuleSheet, inputs: EncoderDecoderPublishedRule) -> None:
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
    kept = "forward to backward"
    sheet.add("encoder, kept", "activations", encoder, f"{e} x (8 N + scores + 2 F), {what}", lifetime=kept)
    sheet.add("decoder, kept", "activations", decoder, f"{d} x (14 N + 2 scores + 2 F), {what}", lifetime=kept)
    sheet.add("output layer, kept", "activations", output, "N + batch x sequence x vocabulary", lifetime=kept)


def _errata(
    inputs: EncoderDecoderPublishedRule, count: int, weights: Fraction, masks: int, positions: int
) -> list[str]:
    """What each term misses, in bytes of this very job."""
    item, tokens = ITEM_BYTES[inputs.dtype], inputs.batch_size * inputs.sequence_length
    n, f = tokens * inputs.d_model * item, tokens * inputs.d_ff * item
    logits = tokens * inputs.target_vocab_size * item
    blocks = inputs.encoder_layers + inputs.decoder_layers
    told = []
    if inputs.dropout:
        extra = round(4 * (weights - count * item))
        told.append(
            f"dropout has no parameters: weights, gradients and moments are {extra:,} B too large for (1 + dropout)."
        )
    if positions:
        missing = 4 * (2 * inputs.sequence_length * inputs.d_model * item - positions)
        told.append(f"the positions are added as elements to bytes: {missing:,} B too little in all four copies.")
    real_masks = 2 * tokens + inputs.sequence_length**2
    told += [
        f"masks are bool, made once: {real_masks:,} B instead of {masks:,} B.",
        f"ReLU's result is counted twice: {blocks * f:,} B too large.",
        f"of logits and log-probabilities, which are both kept, one is left out: {logits:,} B too little.",
        f"the encoder's output, which every decoder block reads, is left out: {n:,} B too little.",
        "the biases of the linear layers are left out.",
    ]
    return told


RULE = Rule(
    id="encoder-decoder-published",
    title="encoder-decoder transformer, as a published function",
    source=SOURCE,
    takes=EncoderDecoderPublishedRule,
    compute=compute,
)
