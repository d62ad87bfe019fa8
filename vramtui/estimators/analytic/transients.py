"""What lives only within one block's forward or backward pass, at its fullest moment."""

from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.job import Job
from vramtui.estimators.analytic.tensors import linear_shapes


def stream_gradient(job: Job) -> int:
    """The gradient of the residual stream, which lives through the whole backward pass."""
    return rounded(job.tokens * job.model.hidden_size * job.recipe.stream)


def forward_transients(job: Job) -> int:
    """The most that one block's forward pass needs beside what it saves: the tensors on their way."""
    wide = rounded(job.tokens * job.model.hidden_size * job.recipe.stream)
    inner = rounded(job.tokens * job.model.ffn_size * job.recipe.compute)
    scores = 2 * rounded(job.scores * job.recipe.compute) if job.eager else 0
    return wide + max(inner, scores)


def mlp_backward(job: Job) -> int:
    """The fullest moment of the MLP's backward pass: gradients of its inner tensors, and under autocast the
    half-precision gradient of a weight before it is cast.
    """
    inner = rounded(job.tokens * job.model.ffn_size * job.recipe.compute)
    return inner * (3 if job.model.gated_mlp else 2) + _weight_gradient(job, "down_proj")


def attention_backward(job: Job) -> int:
    """The fullest moment of the attention's backward pass.

    Flash kernels take the output's gradient and give those of queries, keys and values, accumulating the queries' in
    fp32. Eager code has three matrices of scores at once around the softmax, in the softmax's type; by then the
    cast matrix is gone.
    """
    size = job.recipe.compute
    output = rounded(job.tokens * job.queries * size)
    if not job.eager:
        heads = output + 2 * rounded(job.tokens * job.keys * size)
        return heads + output + (rounded(job.tokens * job.queries * 4) if size != 4 else 0)
    in_fp32 = size != 4 and (job.recipe.autocast or not job.plain)
    cast = rounded(job.scores * size) if in_fp32 else 0
    return 2 * output + 3 * rounded(job.scores * (4 if in_fp32 else size)) - cast


def _weight_gradient(job: Job, module: str) -> int:
    if job.lora or not job.recipe.autocast:
        return 0
    rows, columns = linear_shapes(job.model)[module]
    return rounded(rows * columns * job.recipe.compute)
