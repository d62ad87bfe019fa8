"""The loss as PyTorch computes it.

Shapes: x (b·s, h), logits (b·s, v), loss (1); b batch, s tokens, h hidden, v vocabulary.
"""

from typing import TYPE_CHECKING

from vramtui.estimators.analytic.ops.operators import Operators
from vramtui.estimators.analytic.tape.replay import recompute_workspace
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded

if TYPE_CHECKING:
    from vramtui.estimators.analytic.ops.decoder_builder import Writer

CHUNKS = 8
AMPERE = (8, 0)


def output_and_loss(writer: "Writer", x: Tensor) -> None:
    """The output layer and cross entropy over the vocabulary, in the way the job asks for."""
    if writer.setting.liger or writer.setting.cross_entropy == "fused":
        _fused(writer, x)
    elif writer.setting.cross_entropy == "chunked":
        # In chunks of tokens, each made again in the backward pass (as torchtune's, 8 of them).
        tape, model = writer.tape, writer.model
        rows = -(-x.numel // model.hidden_size // CHUNKS)
        inner = Tape(tape.group)
        piece = inner.enter(rows * model.hidden_size, x.itemsize, tracked=x.tracked)
        ops = writer.ops.for_tape(inner)
        cross_entropy(ops, _logits(writer, ops, piece), upcast=not writer.plain)
        inner.close(None)
        forward_workspace, back = recompute_workspace(inner, input_grad_bytes=piece.storage.size)
        weight = (
            rounded(model.vocab_size * model.hidden_size * writer.setting.parameter) if writer.setting.trained else 0
        )
        loss = tape.new(1, 4, "loss", tracked=True)
        tape.record(
            [x],
            [loss],
            saves=[x],
            flows=[(x, True)],
            grad_bytes=weight,
            workspace=forward_workspace,
            backward_workspace=max(back, 0) + weight,
            gemm=True,
        )
    else:
        cross_entropy(writer.ops, _logits(writer, writer.ops, x), upcast=not writer.plain)


def _logits(writer: "Writer", ops: Operators, x: Tensor) -> Tensor:
    model = writer.model
    shape = model.vocab_size, model.hidden_size
    logits = ops.linear(x, shape, "output layer", bias=model.lm_head_bias, trained=writer.setting.trained)
    if model.final_logit_softcapping is None:
        return logits
    logits = ops.unsaved(logits, "logits, divided")
    logits = ops.pointwise(logits, "logits, squeezed", saves="output")
    return ops.unsaved(logits, "logits, squeezed and scaled")


def _fused(writer: "Writer", x: Tensor) -> None:
    """Liger's fused linear cross entropy (arXiv 2410.10989): the gradients of input and weight are made in the forward
    pass, chunk by chunk, over the logits themselves; as many chunks as the vocabulary is wider than the model
    (liger-kernel 0.8.5, ops/fused_linear_cross_entropy.py).

    Input and weight of one type are multiplied into the same buffer for every chunk. Otherwise autocast casts a
    chunk's input and the weight, which it does again for each, since `weight.t()` is a view; the untransposed weight's
    cast is kept in its cache if the weight is trained (autocast_mode.cpp, `cached_cast`, PyTorch 2.13). The weight's
    gradient is added up in place except in fp32, and before Ampere, where a whole one is made for each chunk.
    """
    tape, model, setting, trained = writer.tape, writer.model, writer.setting, writer.setting.trained
    tokens, numel = x.numel // model.hidden_size, model.vocab_size * model.hidden_size
    rows = min(1 << (-(-tokens // -(-model.vocab_size // model.hidden_size)) - 1).bit_length(), tokens)
    grads, grad_bytes = [tape.new(x.numel, x.itemsize, "gradient of the output layer's input", tracked=False)], 0
    if trained:
        grads.append(tape.new(numel, setting.parameter, "gradient of the output layer", tracked=False))
        grad_bytes = grads[-1].storage.size
    itemsize = x.itemsize if writer.ops.autocast is None else writer.ops.autocast
    pieces: tuple[int, ...] = (rounded(rows * model.vocab_size * itemsize),)
    if x.itemsize != setting.parameter or itemsize != x.itemsize:
        cast = rounded(numel * itemsize) if setting.parameter != itemsize else 0
        rows_cast = rounded(rows * model.hidden_size * itemsize) if x.itemsize != itemsize else 0
        pieces = (*[cast] * (2 if trained else 1), rows_cast, *pieces)
    elif trained and itemsize == 4:
        pieces += (rounded(numel * 4),)
    elif trained and setting.card.capability < AMPERE:
        pieces += (rounded(numel * itemsize), rounded(numel * 4))
    tape.record(
        [x],
        [tape.new(1, 4, "loss", tracked=True)],
        saved_outputs=grads,
        flows=[(x, True)],
        grad_bytes=grad_bytes,
        scratch_blocks=pieces,
        gemm=True,
        grads_in_forward=True,
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
    tape.record([probabilities], [loss], saves=[probabilities], flows=[(probabilities, True)])
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
    saved_bytes = 0
    if loss == "mse":
        unreduced = tape.new(x.numel, x.itemsize, "loss before it is a mean", tracked=False)
        tape.record([x], [unreduced], workspace=unreduced.storage.size)
        saved_bytes = unreduced.storage.size
    tape.record([x], [value], saves=[x] if saved_bytes else [], flows=[(x, bool(saved_bytes))])
    tape.touch(x, value)
    return saved_bytes
