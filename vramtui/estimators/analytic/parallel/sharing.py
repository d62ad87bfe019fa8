"""How data-parallel ranks divide weights, gradients and optimizer states, and the buffers that sharing needs: buckets
of gradients, gathered weights, and pieces on their way between ranks, stages, parts of the sequence and experts.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.estimate.estimate import Category
from vramtui.core.schema.workload import Parallel
from vramtui.estimators.analytic.ops.mlp import EXPERTS
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.analytic.sizes.precision import block_bytes
from vramtui.estimators.analytic.sizes.quantization import quantized
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import TapeStage
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Parameter

MEGATRON = "Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2"
# DeepSpeed's defaults, in numbers.
ZERO_BUCKET, ZERO_LIVE = 500_000_000, 1_000_000_000
FIRST_BUCKET = MIB
DDP_SOURCE = "PyTorch, torch/nn/parallel/distributed.py and csrc/distributed/c10d/reducer.cpp"
Kind = Literal["alone", "ddp", "zero", "fsdp"]
ZERO_SOURCE = "Rajbhandari et al. 2020, ZeRO (arXiv 1910.02054); DeepSpeed, docs/_pages/config-json.md"
FSDP_SOURCE = "PyTorch, torch/distributed/fsdp/_fully_shard"


class Sharing(msgspec.Struct, frozen=True, kw_only=True):
    """Who shares what.

    Attributes:
        stage: 1 divides optimizer states, 2 gradients as well, 3 weights as well.
        ranks: over how many ranks; `expert_ranks` for experts, which fewer ranks hold copies of.
        experts: ranks among which each layer's experts are dealt out.
    """

    kind: Kind
    stage: int
    ranks: int
    expert_ranks: int
    experts: int = 1

    def of(self, module: str) -> int:
        """Ranks that divide the tensors of a module."""
        return self.expert_ranks if module.startswith("experts_") else self.ranks


def sharing_of(parallel: Parallel) -> Sharing:
    """The sharing of data and context ranks; a zero_stage without a strategy means ZeRO, FSDP means stage 3."""
    stage, strategy = parallel.zero_stage, parallel.strategy
    if strategy == "fsdp" and stage not in {0, 3}:
        raise UserError(f"parallel.zero_stage = {stage}: FSDP2 shares weights as well, which is stage 3")
    if strategy == "fsdp":
        stage = 3
    ranks = parallel.data * parallel.context
    kind: Kind = "alone" if ranks == 1 else "fsdp" if strategy == "fsdp" else "zero" if stage else "ddp"
    return Sharing(
        kind=kind,
        stage=stage if ranks > 1 else 0,
        ranks=ranks,
        expert_ranks=max(1, ranks // parallel.expert),
        experts=parallel.expert,
    )


def sharded(tensors: Iterable[Parameter], sharing: Sharing) -> tuple[Parameter, ...]:
    """One rank's rows of every tensor, rounded up."""
    return tuple(
        msgspec.structs.replace(tensor, shape=(-(-tensor.shape[0] // sharing.of(tensor.module)), *tensor.shape[1:]))
        for tensor in tensors
    )


def share_gradients(stages: Sequence[TapeStage], sharing: Sharing) -> None:
    """Leave of the gradients on the tapes what stays with this rank: its experts', and from stage 2 on its own rows."""
    tapes = {id(stage.tape): stage.tape for stage in stages}  # a tape may stand in several stages
    for node in (node for tape in tapes.values() for node in tape.nodes):
        routed = any(tensor.storage.group == EXPERTS for tensor in node.outs)
        ranks = sharing.experts if routed else 1
        if sharing.stage >= 2:
            ranks *= sharing.expert_ranks if routed else sharing.ranks
        if node.grad_bytes and ranks > 1:
            node.set_gradient(rounded(-(-node.grad_bytes // ranks)))


class Buffer(msgspec.Struct, frozen=True):
    """Bytes that sharing holds: from build on (`always`), within a pass, and `between` forward and backward.

    `loss`, `last` and `first` are those within the backward pass of the loss, the output layer and the embeddings; as
    `backward` when None. `aside` bytes of copies are made on a stream of their own, whose cached memory no other stream
    can use.
    """

    name: str
    formula: str
    source: str
    lifetime: str
    line: Category = "temporaries"
    always: int = 0
    forward: int = 0
    between: int = 0
    backward: int = 0
    loss: int | None = None
    last: int | None = None
    first: int | None = None
    aside: int = 0


def buffers_for(
    program: Program, sharing: Sharing, parallel: Parallel, layers: int, *, policy: bool = False
) -> list[Buffer]:
    """The buffers of what data ranks share; `program` with whole tensors, `layers` blocks in it.

    With a `policy` weights are gathered in the type that products take.
    """
    if sharing.kind == "ddp":
        sizes = buckets(program.trained, program.recipe.weights, int(parallel.bucket_cap_mb * MIB))
        words = (
            f"{sum(times for _, times in sizes):,} buckets of {parallel.bucket_cap_mb:g} MiB, the first of 1 MiB: "
            "every gradient once more, since gradient_as_bucket_view is off"
        )
        always = sum(rounded(size) * times for size, times in sizes)
        whole_run = "from build to the end"
        return [Buffer("gradient buckets", words, DDP_SOURCE, whole_run, line="gradients", always=always)]
    if sharing.kind == "fsdp":
        return _fully_sharded(program, parallel, layers, policy=policy)
    return _zero(program, sharing) if sharing.kind == "zero" else []


def buckets(tensors: Iterable[Parameter], itemsize: int, cap: int) -> list[tuple[int, int]]:
    """DDP's buckets as (bytes, how many): gradients from the last layer on, a bucket is full once it holds its cap."""
    groups: list[tuple[int, int]] = []
    filled, limit = 0, min(FIRST_BUCKET, cap)
    for tensor in reversed(list(tensors)):
        size, left = tensor.numel * itemsize, tensor.count
        while left:
            needed = -(-(limit - filled) // size)
            if left < needed:
                filled, left = filled + left * size, 0
                continue
            times = 1 if filled or limit != cap else left // needed
            groups.append((filled + needed * size, times))
            left -= needed * times
            filled, limit = 0, cap
    return [*groups, (filled, 1)] if filled else groups


def _fully_sharded(program: Program, parallel: Parallel, layers: int, *, policy: bool) -> list[Buffer]:
    """FSDP2's gathered weights and unsharded gradients.

    In a stage of a pipeline nothing is reduced or sharded again before a step's last backward pass
    (torch/distributed/pipelining/stage.py of 2.13, `backward_maybe_with_nosync` and `perform_reduce_grad`).
    """
    recipe = program.recipe
    gathered_recipe = msgspec.structs.replace(recipe, weights=recipe.compute, frozen=recipe.compute)
    whole = msgspec.structs.replace(program, recipe=gathered_recipe) if policy else program
    block = root = 0  # bytes of the largest block's weights, and of those outside the blocks, as they are gathered
    for tensors, itemsize, packed in (
        (whole.frozen, whole.recipe.frozen, program.quantization),
        (whole.trained, whole.recipe.weights, None),
    ):
        inner, outer = _of_block(tensors, layers), [tensor for tensor in tensors if not tensor.layer]
        if packed is not None:
            block += quantized(inner, itemsize, packed, 1).bytes
            root += quantized(outer, itemsize, packed, 1).bytes
        else:
            block += block_bytes(inner, itemsize).bytes
            root += block_bytes(outer, itemsize).bytes
    # Bytes of the gradients of a block and of those outside, as backward makes them and as they are added up.
    inner, outer = _of_block(program.trained, layers), [tensor for tensor in program.trained if not tensor.layer]
    fresh, reduced = (
        (block_bytes(inner, itemsize).bytes, block_bytes(outer, itemsize).bytes)
        for itemsize in (whole.recipe.weights, recipe.weights)
    )
    two = root + min(2, layers) * block
    every = root + layers * block
    reshards = parallel.reshard_after_forward
    if parallel.pipeline > 1:
        at_work = two if reshards else every
        gradients = layers * reduced[0] + reduced[1]
        words = "the one at work and the next in a forward pass, all" if reshards else "all"
        return [
            Buffer(
                "gathered weights",
                f"{words} {layers} blocks of the stage, of {block:,} B each, and {root:,} B outside them, whole: a"
                " backward pass of a pipeline shards nothing again",
                FSDP_SOURCE,
                "from a step's first forward pass to its last backward pass",
                forward=at_work,
                between=at_work,
                backward=every,
                loss=at_work,
                last=at_work,
                first=every,
                aside=root,
            ),
            Buffer(
                "unsharded gradients",
                f"{layers} x {reduced[0]:,} B of the blocks' gradients whole and {reduced[1]:,} B of those outside"
                f" them, which wait for the last micro-batch, and {fresh[0]:,} B of the block at work",
                "PyTorch, torch/distributed/pipelining/stage.py",
                "from a step's first backward pass to its last",
                forward=gradients,
                between=gradients,
                backward=gradients + fresh[0],
                loss=gradients,
                last=gradients,
                first=gradients + fresh[1],
                aside=reduced[1],
            ),
        ]
    # The gradient of the largest tensor outside the blocks waits from the loss on for the rest of its group.
    head = rounded(max((tensor.numel for tensor in outer), default=0) * whole.recipe.weights)
    between = root if reshards else every
    loss = root + (block if reshards else layers * block)
    words = "2 blocks, the one at work and the next" if reshards else f"all {layers} blocks"
    return [
        Buffer(
            "gathered weights",
            f"{words}, of {block:,} B each, and {root:,} B outside the blocks, whole",
            FSDP_SOURCE,
            "forward and backward",
            forward=two if reshards else every,
            between=between,
            backward=two if reshards else every,
            loss=loss,
            last=loss,
            first=between,
            aside=root,
        ),
        Buffer(
            "unsharded gradients",
            f"{fresh[0]:,} B of a block's gradients whole and {reduced[0]:,} B on their way to reduce-scatter, "
            f"beside {head:,} B of the output layer's; {fresh[1]:,} and {reduced[1]:,} B of those outside the blocks",
            FSDP_SOURCE,
            "within the backward pass",
            backward=head + fresh[0] + reduced[0],
            loss=0,
            last=head,
            first=fresh[1] + reduced[1],
            aside=reduced[1],
        ),
    ]


def _of_block(tensors: Iterable[Parameter], layers: int) -> list[Parameter]:
    """The tensors of one block: of those that only some blocks have, one."""
    return [msgspec.structs.replace(tensor, count=-(-tensor.count // layers)) for tensor in tensors if tensor.layer]


def _zero(program: Program, sharing: Sharing) -> list[Buffer]:
    itemsize = program.recipe.weights
    trained = program.trained_numel
    bucket = min(ZERO_BUCKET, trained)
    words, within = f"reduce_bucket_size: {bucket:,} gradients x {itemsize} B", "within the backward pass"
    buffers = [Buffer("reduce bucket", words, ZERO_SOURCE, within, backward=rounded(bucket * itemsize))]
    if sharing.stage == 3:
        whole = block_bytes(program.frozen, program.recipe.frozen).bytes + block_bytes(program.trained, itemsize).bytes
        live = min(whole, ZERO_LIVE * max(itemsize if trained else 0, program.recipe.frozen))
        words, within = f"stage3_max_live_parameters: at most {ZERO_LIVE:,} parameters whole", "forward and backward"
        buffers.append(
            Buffer("gathered weights", words, ZERO_SOURCE, within, forward=live, between=live, backward=live)
        )
    return buffers


def link_buffers(share: Share, parallel: Parallel, tokens: int, itemsize: int) -> list[Buffer]:
    """The buffers of one rank; `tokens` tokens of its own part of the sequence, `itemsize` bytes a number."""
    model, stream = share.model, tokens * share.model.hidden_size * itemsize
    buffers = []
    if parallel.pipeline > 1:
        sent = stream // (parallel.tensor if parallel.sequence_parallel else 1)
        size = 2 * rounded(sent)
        words = f"2 x {sent:,} B: activations and gradients on their way between ranks"
        source = "Narayanan et al. 2021 (arXiv 2104.04473)"
        within = "forward and backward"
        buffers.append(Buffer("pipeline buffers", words, source, within, forward=size, between=size, backward=size))
    if parallel.sequence_parallel:
        words = (
            f"{stream:,} B: what {parallel.tensor} ranks hold of the sequence, together before a product, with its "
            "gradient"
        )
        one, two = rounded(stream), 2 * rounded(stream)
        buffers.append(Buffer("gathered sequence", words, MEGATRON, "within one product", forward=one, backward=two))
    if parallel.context > 1:
        keys = 2 * model.kv_heads * model.head_size
        buffer = rounded(tokens * keys * itemsize)
        words = (
            f"keys and values of {tokens:,} tokens x {keys} x {itemsize} B, at hand and arriving; then gradients too"
        )
        source, within = "Liu et al. 2023, Ring Attention (arXiv 2310.01889)", "within one attention"
        buffers.append(Buffer("ring buffers", words, source, within, forward=2 * buffer, backward=4 * buffer))
    if parallel.expert > 1:
        copies = tokens * (model.num_experts_per_tok or 1)
        both = 2 * rounded(copies * model.hidden_size * itemsize)
        words = f"2 x {copies:,} copies x {model.hidden_size} x {itemsize} B: sent to experts elsewhere and come back"
        source, within = "Lepikhin et al. 2020, GShard (arXiv 2006.16668)", "within one layer"
        buffers.append(Buffer("all-to-all buffers", words, source, within, forward=both, backward=both))
    return buffers
