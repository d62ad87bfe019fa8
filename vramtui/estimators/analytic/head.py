"""The loss as PyTorch computes it."""

from vramtui.estimators.analytic.operators import Operators
from vramtui.estimators.analytic.tape import Tensor


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
    loss = tape.new(1, probabilities.width, "loss", tracked=True)
    tape.op([probabilities], [loss], saves=[probabilities], flows=[(probabilities, True)])
    tape.touch(logits, x, loss)


def class_loss(ops: Operators, x: Tensor, loss: str) -> None:
    """Torch's losses over a model's output: cross entropy over classes, mean squares, or a plain sum.

    A sum's gradient is one number seen from everywhere; autocast raises the others to fp32.
    """
    tape = ops.tape
    if loss == "cross_entropy":
        cross_entropy(ops, x, upcast=False)
        return
    if loss == "mse" and ops.autocast is not None:
        x = ops.cast(x, 4, "output in fp32")
    value = tape.new(1, x.width, "loss", tracked=True)
    tape.op([x], [value], saves=[x] if loss == "mse" else [], flows=[(x, loss == "mse")])
    tape.touch(x, value)
