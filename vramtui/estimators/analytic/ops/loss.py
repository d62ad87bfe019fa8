"""The loss as PyTorch computes it.

Shapes: x (b·s, h), logits (b·s, v), loss (1); b batch, s tokens, h hidden, v vocabulary.
"""

from vramtui.estimators.analytic.ops.decoder_builder import Writer
from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.tape.checkpointing import nested
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded

CHUNKS = 8


def output_and_loss(writer: Writer, x: Tensor) -> None:
    """The output layer and cross entropy over the vocabulary, in the way the job asks for."""
    if writer.setting.cross_entropy == "chunked":
        _chunked(writer, x)
    elif writer.setting.cross_entropy == "fused":
        _fused(writer, x)
    else:
        cross_entropy(writer.ops, _logits(writer, writer.ops, x), upcast=not writer.plain)


def _logits(writer: Writer, ops: Operators, x: Tensor) -> Tensor:
    model = writer.model
    logits = ops.linear(
        x,
        model.hidden_size,
        model.vocab_size,
        "output layer",
        bias=model.lm_head_bias,
        trained=writer.setting.trained,
    )
    if model.final_logit_softcapping is None:
        return logits
    logits = ops.pointwise(logits, "logits, divided", saves="nothing")
    logits = ops.pointwise(logits, "logits, squeezed", saves="output")
    return ops.pointwise(logits, "logits, squeezed and scaled", saves="nothing")


def _chunked(writer: Writer, x: Tensor) -> None:
    """In chunks of tokens, each of which is made again in the backward pass (as torchtune's, 8 of them)."""
    tape, model = writer.tape, writer.model
    rows = -(-x.numel // model.hidden_size // CHUNKS)
    inner = Tape(tape.group)
    piece = inner.enter(rows * model.hidden_size, x.itemsize, tracked=x.tracked)
    ops = writer.ops.on(inner)
    cross_entropy(ops, _logits(writer, ops, piece), upcast=not writer.plain)
    inner.close(None)
    made, back = nested(inner, given_back=piece.storage.size)
    weight = rounded(model.vocab_size * model.hidden_size * writer.setting.parameter) if writer.setting.trained else 0
    loss = tape.new(1, 4, "loss", tracked=True)
    tape.op(
        [x],
        [loss],
        saves=[x],
        flows=[(x, True)],
        grad_bytes=weight,
        workspace=made,
        backward_workspace=max(back, 0) + weight,
        gemm=True,
    )


def _fused(writer: Writer, x: Tensor) -> None:
    """Liger's fused linear cross entropy (arXiv 2410.10989): the gradients of input and weight are made in the forward
    pass, chunk by chunk, over the logits themselves; as many chunks as the vocabulary is wider than the model.
    """
    tape, model, setting = writer.tape, writer.model, writer.setting
    x = writer.ops.lowered(x, "output layer input, cast")
    tokens = x.numel // model.hidden_size
    rows = 1 << (-(-tokens // -(-model.vocab_size // model.hidden_size)) - 1).bit_length()
    gradient = tape.new(x.numel, x.itemsize, "gradient of the output layer's input", tracked=False)
    loss = tape.new(1, 4, "loss", tracked=True)
    beside, grad_bytes = [gradient], 0
    if setting.trained:
        numel = model.vocab_size * model.hidden_size
        weight = tape.new(numel, setting.parameter, "gradient of the output layer", tracked=False)
        beside.append(weight)
        grad_bytes = weight.storage.size
    chunk = rounded(min(rows, tokens) * model.vocab_size * x.itemsize)
    tape.op(
        [x],
        [loss],
        beside=beside,
        flows=[(x, True)],
        grad_bytes=grad_bytes,
        workspace=2 * chunk,
        gemm=True,
        hands_over=True,
    )


def cross_entropy(ops: Operators, logits: Tensor, *, upcast: bool) -> None:
    """Write torch's cross_entropy: log_softmax saves its output, nll_loss the log-probabilities it reads.

    transformers computes it on `logits.float()` and holds the logits until the step has its loss. Otherwise
    log_softmax stays in the logits' type, and autocast raises only nll_loss to fp32.
    """
    tape = ops.tape
    x = ops.cast(logits, 4, "logits in fp32") if upcast else logits
    probabilities = ops.pointwise(x, "log-probabilities", saves="output")
    if ops.autocast is not None:
        probabilities = ops.cast(probabilities, 4, "log-probabilities in fp32")
    loss = tape.new(1, probabilities.itemsize, "loss", tracked=True)
    tape.op([probabilities], [loss], saves=[probabilities], flows=[(probabilities, True)])
    tape.touch(logits, x, loss)


def class_loss(ops: Operators, x: Tensor, loss: str) -> int:
    """Torch's losses over a model's output: cross entropy over classes, mean squares, or a plain sum.

    A sum's gradient is one number seen from everywhere; autocast raises the others to fp32.

    Returns:
        Bytes that the loss holds until the next step's takes its place, beside one block: `mse_loss` makes it whole
        and shrinks it to a number, whose storage stays (TORCH_META_FUNC(mse_loss), ATen/native/Loss.cpp, 2.13); the
        kernel writes into a second one.
    """
    tape = ops.tape
    if loss == "cross_entropy":
        cross_entropy(ops, x, upcast=False)
        return 0
    if loss == "mse" and ops.autocast is not None:
        x = ops.cast(x, 4, "output in fp32")
    value = tape.new(1, x.itemsize, "loss", tracked=True)
    kept = 0
    if loss == "mse":
        unreduced = tape.new(x.numel, x.itemsize, "loss before it is a mean", tracked=False)
        tape.op([x], [unreduced], workspace=unreduced.storage.size)
        kept = unreduced.storage.size
    tape.op([x], [value], saves=[x] if kept else [], flows=[(x, bool(kept))])
    tape.touch(x, value)
    return kept
