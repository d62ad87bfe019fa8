"""What autograd keeps of one transformer block from its forward to its backward pass, tensor by tensor.

Each entry is one operator's saved tensor on CUDA, as torch/csrc/autograd's derivatives.yaml lists them; a tensor
that two operators save is counted where it is made.
"""

from collections.abc import Iterator

import msgspec

from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.job import Job
from vramtui.estimators.analytic.tensors import linear_shapes


class Saved(msgspec.Struct, frozen=True):
    """`count` tensors of `bytes` each. `group` is the part of the estimate they are shown under."""

    group: str
    what: str
    bytes: int
    count: int = 1

    @property
    def total(self) -> int:
        """Bytes in blocks of the allocator."""
        return rounded(self.bytes) * self.count


ATTENTION, MLP, NORMS, STREAM, ADAPTERS, CASTS = (
    "activations: attention",
    "activations: MLP",
    "activations: norms",
    "activations: residual stream",
    "activations: adapters",
    "autocast weight copies",
)


def saved_by_layer(job: Job) -> list[Saved]:
    """All that one block keeps."""
    return [*_norms(job), *_attention(job), *_mlp(job), *_dropouts(job), *_adapters(job), *weight_casts(job)]


def weight_casts(job: Job) -> Iterator[Saved]:
    """Autocast's copies of one block's fp32 weights in the compute type; the backward pass needs them."""
    if not job.recipe.autocast or job.lora:
        return
    for module, (rows, columns) in linear_shapes(job.model).items():
        yield Saved(CASTS, f"{module} in the compute type", rows * columns * job.recipe.compute)


def saved_by_norm(job: Job) -> Iterator[Saved]:
    """One norm over the residual stream."""
    wide = job.tokens * job.model.hidden_size
    statistics = 4 * job.tokens
    if job.model.norm == "layernorm" or job.plain:
        yield Saved(STREAM, "the norm's input", wide * job.recipe.stream)
        yield Saved(NORMS, "mean and 1/σ in fp32", statistics, 2 if job.model.norm == "layernorm" else 1)
        return
    yield Saved(STREAM, "the norm's input in fp32", wide * 4)
    yield Saved(NORMS, "1/rms in fp32", statistics)
    if job.lora is None:
        yield Saved(NORMS, "the normalised input, which the weight multiplies", wide * job.recipe.stream)


def _norms(job: Job) -> Iterator[Saved]:
    for _ in range(job.model.norms_per_layer):
        yield from saved_by_norm(job)


def _linear_inputs(job: Job, group: str, width: int, modules: tuple[str, ...]) -> Iterator[Saved]:
    """What linear layers that share an input keep of it: one tensor, or under autocast a cast copy for each."""
    trained = modules if job.lora is None else ()
    if trained:
        copies = len(trained) if job.recipe.autocast and job.recipe.stream != job.recipe.compute else 1
        yield Saved(group, f"input of {', '.join(trained)}", job.tokens * width * job.recipe.compute, copies)


def _attention(job: Job) -> Iterator[Saved]:
    model, size, tokens = job.model, job.recipe.compute, job.tokens
    projections = ("qkv_proj",) if model.fused_qkv or job.plain else ("q_proj", "k_proj", "v_proj")
    yield from _linear_inputs(job, ATTENTION, model.hidden_size, projections)
    keys = job.queries if job.eager else job.keys  # eager code repeats keys and values for every query head
    yield Saved(ATTENTION, "queries", tokens * job.queries * size)
    yield Saved(ATTENTION, "keys and values", tokens * keys * size, 2)
    if model.qk_norm:
        yield Saved(ATTENTION, "queries before their norm, in fp32 and normalised", tokens * job.queries * (4 + size))
        yield Saved(ATTENTION, "keys before their norm, in fp32 and normalised", tokens * job.keys * (4 + size))
    if job.eager:
        yield from _scores(job)
    else:
        yield Saved(ATTENTION, "log-sum-exp in fp32", 4 * tokens * model.num_attention_heads)
        yield Saved(ATTENTION, "seed and offset of the dropout", 8, 2)
    yield Saved(ATTENTION, "the heads' output", tokens * job.queries * size)


def _scores(job: Job) -> Iterator[Saved]:
    """The attention matrix, which eager code keeps whole: after the softmax, cast, and after the dropout."""
    size = job.recipe.compute
    in_fp32 = size != 4 and (job.recipe.autocast or not job.plain)
    yield Saved(ATTENTION, "softmax over s x s", job.scores * (4 if in_fp32 else size))
    if in_fp32:
        yield Saved(ATTENTION, "softmax in the compute type", job.scores * size)
    if job.model.attention_dropout:
        yield Saved(ATTENTION, "dropout's mask over s x s", job.scores)
        yield Saved(ATTENTION, "softmax after dropout", job.scores * size)


def _mlp(job: Job) -> Iterator[Saved]:
    model, size = job.model, job.recipe.compute
    inner = job.tokens * model.ffn_size
    inputs = ("gate_proj", "up_proj") if model.gated_mlp else ("up_proj",)
    yield from _linear_inputs(job, MLP, model.hidden_size, inputs)
    if model.gated_mlp:
        yield Saved(MLP, "gate, its activation, and up", inner * size, 3)
    elif model.hidden_act == "gelu_new" and not job.plain:
        wide = 4 if job.recipe.autocast else size
        yield Saved(MLP, "x, tanh and 1 + tanh of gelu_new", inner * wide, 3)
        yield Saved(MLP, "x / 2 of gelu_new", inner * size)
    elif model.hidden_act != "relu":
        yield Saved(MLP, "the activation's input", inner * size)
    if job.lora is None or model.hidden_act == "relu":
        yield Saved(MLP, "input of down_proj", inner * size)


def _dropouts(job: Job) -> Iterator[Saved]:
    if job.model.hidden_dropout:
        yield Saved(STREAM, "dropout's masks, a byte each", job.tokens * job.model.hidden_size, 2)


def _adapters(job: Job) -> Iterator[Saved]:
    """Beside each targeted layer: A keeps its input in the adapter's compute type, B keeps A's output."""
    if job.lora is None:
        return
    size = 2 if job.recipe.autocast else job.recipe.weights
    for module in job.lora.target_modules:
        _, columns = linear_shapes(job.model)[module]
        yield Saved(ADAPTERS, f"input of {module}'s A", job.tokens * columns * size)
        yield Saved(ADAPTERS, f"output of {module}'s A", job.tokens * job.lora.rank * size)
        if job.lora.dropout:
            yield Saved(ADAPTERS, f"dropout's mask before {module}'s A", job.tokens * columns)
