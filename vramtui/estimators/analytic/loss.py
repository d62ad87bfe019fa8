"""The output layer and the loss: the copies of the logits, batch x sequence x vocabulary."""

import msgspec

from vramtui.estimators.analytic.blocks import rounded, tail
from vramtui.estimators.analytic.job import Job


class Loss(msgspec.Struct, frozen=True):
    """Bytes of logits-sized tensors.

    Attributes:
        in_forward: alive at once while the loss is computed.
        kept: kept from forward to backward.
        in_backward: alive at once, the kept ones included, when the backward pass begins.
        formula: the copies in words.
    """

    in_forward: int
    kept: int
    in_backward: int
    formula: str


def loss_of(job: Job) -> Loss:
    """Which copies exist when, for torch's cross_entropy (log_softmax, then nll_loss).

    transformers computes it on `logits.float()`; under autocast cross_entropy itself runs in fp32 and keeps the
    half-precision logits too; otherwise everything stays in the compute type.
    """
    count, size = job.tokens * job.model.vocab_size, job.recipe.compute
    own, wide = _copy(count * size), _copy(count * 4)
    if size == 4:
        return Loss(own * 2, own, own * 3, "logits and log-probabilities; backward: two gradients beside them")
    if not job.plain:
        return Loss(
            own + 2 * wide, wide, 3 * wide, "logits, their fp32 copy, fp32 log-probabilities; backward: 3 in fp32"
        )
    if job.recipe.autocast:
        return Loss(
            own + 2 * wide, own + wide, own + 2 * wide, "half-precision logits and fp32 log-probabilities are kept"
        )
    return Loss(own * 2, own, own * 3, "logits and log-probabilities in the compute type; backward: three copies")


def _copy(size: int) -> int:
    return rounded(size) + tail(size)
