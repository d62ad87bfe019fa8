"""What sharing itself needs: buckets of gradients, gathered weights, and pieces on their way between ranks; and what
travels between those that work on one model, between stages, along the sequence, among experts.
"""

from collections.abc import Iterable

import msgspec

from vramtui.core.base.units import MIB
from vramtui.core.estimate.ledger import Category
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel
from vramtui.estimators.analytic.parallel.zero_fsdp import FSDP_SOURCE, ZERO_SOURCE, Sharing
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.analytic.sizes.precision import block_bytes
from vramtui.estimators.analytic.sizes.quantization import quantized
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Parameter

MEGATRON = "Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2"
# DeepSpeed's defaults, in numbers.
ZERO_BUCKET, ZERO_LIVE = 500_000_000, 1_000_000_000
FIRST_BUCKET = MIB
DDP_SOURCE = "PyTorch, torch/nn/parallel/distributed.py and csrc/distributed/c10d/reducer.cpp"


class Buffer(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes that sharing holds: from build on (`always`), within a pass, and `between` forward and backward.

    `loss`, `last` and `first` are those within the backward pass of the loss, the output layer and the embeddings; as
    `backward` when None. `aside` bytes of copies are made on a stream of their own, whose cached memory no other stream
    can use.
    """

    name: str
    line: Category = "temporaries"
    always: int = 0
    forward: int = 0
    between: int = 0
    backward: int = 0
    loss: int | None = None
    last: int | None = None
    first: int | None = None
    aside: int = 0
    formula: str
    source: str
    lifetime: str


def buffers_for(
    program: Program, sharing: Sharing, parallel: Parallel, layers: int, *, policy: bool = False
) -> list[Buffer]:
    """The buffers of what data ranks share; `program` with whole tensors, `layers` blocks in it.

    With a `policy` weights are gathered in the type that products take.
    """
    if sharing.kind == "ddp":
        return [_buckets(program, parallel)]
    if sharing.kind == "fsdp":
        return _fully_sharded(program, parallel, layers, policy=policy)
    return _zero(program, sharing) if sharing.kind == "zero" else []


def _buckets(program: Program, parallel: Parallel) -> Buffer:
    itemsize, cap = program.recipe.weights, int(parallel.bucket_cap_mb * MIB)
    sizes = buckets(program.trained, itemsize, cap)
    count = sum(times for _, times in sizes)
    return Buffer(
        name="gradient buckets",
        line="gradients",
        always=sum(rounded(size) * times for size, times in sizes),
        formula=f"{count:,} buckets of {parallel.bucket_cap_mb:g} MiB, the first of 1 MiB: every gradient once "
        "more, since gradient_as_bucket_view is off",
        source=DDP_SOURCE,
        lifetime="from build to the end",
    )


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
    recipe = program.recipe
    gathered_recipe = msgspec.structs.replace(recipe, weights=recipe.compute, frozen=recipe.compute)
    whole = msgspec.structs.replace(program, recipe=gathered_recipe) if policy else program
    block, root = _whole(whole, layers)
    fresh, reduced, head = _gradients(whole, layers), _gradients(program, layers), _head_gradient(whole)
    within = "forward and backward"
    if parallel.pipeline > 1:
        return _sharded_stage(parallel, layers, (root, block), fresh, reduced)
    gathered = min(2, layers) if parallel.reshard_after_forward else layers
    between = root if parallel.reshard_after_forward else root + layers * block
    words = "2 blocks, the one at work and the next" if parallel.reshard_after_forward else f"all {layers} blocks"
    return [
        Buffer(
            name="gathered weights",
            forward=root + gathered * block,
            between=between,
            backward=root + gathered * block,
            loss=root + (block if parallel.reshard_after_forward else layers * block),
            last=root + (block if parallel.reshard_after_forward else layers * block),
            first=between,
            aside=root,
            formula=f"{words}, of {block:,} B each, and {root:,} B outside the blocks, whole",
            source=FSDP_SOURCE,
            lifetime=within,
        ),
        Buffer(
            name="unsharded gradients",
            backward=head + fresh[0] + reduced[0],
            loss=0,
            last=head,
            first=fresh[1] + reduced[1],
            aside=reduced[1],
            formula=f"{fresh[0]:,} B of a block's gradients whole and {reduced[0]:,} B on their way to reduce-scatter, "
            f"beside {head:,} B of the output layer's; {fresh[1]:,} and {reduced[1]:,} B of those outside the blocks",
            source=FSDP_SOURCE,
            lifetime="within the backward pass",
        ),
    ]


def _sharded_stage(
    parallel: Parallel, layers: int, weights: tuple[int, int], fresh: tuple[int, int], reduced: tuple[int, int]
) -> list[Buffer]:
    """FSDP in a stage of a pipeline, where nothing is reduced or sharded again before a step's last backward pass
    (torch/distributed/pipelining/stage.py of 2.13, `backward_maybe_with_nosync` and `perform_reduce_grad`).

    Args:
        parallel: how the model is divided.
        layers: blocks of the stage.
        weights: bytes outside the blocks and of a block, as they are gathered.
        fresh: bytes of a block's gradients and of those outside the blocks, as a backward pass makes them.
        reduced: the same in the type that they are added up in.
    """
    root, block = weights
    whole = root + layers * block
    at_work = root + min(2, layers) * block if parallel.reshard_after_forward else whole
    gradients = layers * reduced[0] + reduced[1]
    words = "the one at work and the next in a forward pass, all" if parallel.reshard_after_forward else "all"
    return [
        Buffer(
            name="gathered weights",
            forward=at_work,
            between=at_work,
            backward=whole,
            loss=at_work,
            last=at_work,
            first=whole,
            aside=root,
            formula=f"{words} {layers} blocks of the stage, of {block:,} B each, and {root:,} B outside them, whole: a"
            " backward pass of a pipeline shards nothing again",
            source=FSDP_SOURCE,
            lifetime="from a step's first forward pass to its last backward pass",
        ),
        Buffer(
            name="unsharded gradients",
            forward=gradients,
            between=gradients,
            backward=gradients + fresh[0],
            loss=gradients,
            last=gradients,
            first=gradients + fresh[1],
            aside=reduced[1],
            formula=f"{layers} x {reduced[0]:,} B of the blocks' gradients whole and {reduced[1]:,} B of those outside"
            f" them, which wait for the last micro-batch, and {fresh[0]:,} B of the block at work",
            source="PyTorch, torch/distributed/pipelining/stage.py",
            lifetime="from a step's first backward pass to its last",
        ),
    ]


def _zero(program: Program, sharing: Sharing) -> list[Buffer]:
    itemsize = program.recipe.weights
    trained = sum(tensor.numel * tensor.count for tensor in program.trained)
    bucket = min(ZERO_BUCKET, trained)
    buffers = [
        Buffer(
            name="reduce bucket",
            backward=rounded(bucket * itemsize),
            formula=f"reduce_bucket_size: {bucket:,} gradients x {itemsize} B",
            source=ZERO_SOURCE,
            lifetime="within the backward pass",
        )
    ]
    if sharing.stage == 3:
        whole = block_bytes(program.frozen, program.recipe.frozen).bytes + block_bytes(program.trained, itemsize).bytes
        live = min(whole, ZERO_LIVE * max(itemsize if trained else 0, program.recipe.frozen))
        buffers.append(
            Buffer(
                name="gathered weights",
                forward=live,
                between=live,
                backward=live,
                formula=f"stage3_max_live_parameters: at most {ZERO_LIVE:,} parameters whole",
                source=ZERO_SOURCE,
                lifetime="forward and backward",
            )
        )
    return buffers


def _whole(program: Program, layers: int) -> tuple[int, int]:
    """Bytes of the largest block's weights, and of those outside the blocks, as they are gathered."""
    block = root = 0
    for tensors, itemsize, frozen in (
        (program.frozen, program.recipe.frozen, True),
        (program.trained, program.recipe.weights, False),
    ):
        inner, outer = _of_block(tensors, layers), [tensor for tensor in tensors if not tensor.layer]
        if frozen and program.quantization is not None:
            block += quantized(inner, itemsize, program.quantization, 1).bytes
            root += quantized(outer, itemsize, program.quantization, 1).bytes
        else:
            block += block_bytes(inner, itemsize).bytes
            root += block_bytes(outer, itemsize).bytes
    return block, root


def _gradients(program: Program, layers: int) -> tuple[int, int]:
    """Bytes of the gradients of a block, and of what is outside the blocks, each of which is reduced at once."""
    itemsize = program.recipe.weights
    outer = [tensor for tensor in program.trained if not tensor.layer]
    return block_bytes(_of_block(program.trained, layers), itemsize).bytes, block_bytes(outer, itemsize).bytes


def _head_gradient(program: Program) -> int:
    """The gradient of the largest tensor outside the blocks, which waits from the loss on for the rest of its group."""
    sizes = [tensor.numel for tensor in program.trained if not tensor.layer]
    return rounded(max(sizes) * program.recipe.weights) if sizes else 0


def _of_block(tensors: Iterable[Parameter], layers: int) -> list[Parameter]:
    """The tensors of one block: of those that only some blocks have, one."""
    return [msgspec.structs.replace(tensor, count=-(-tensor.count // layers)) for tensor in tensors if tensor.layer]


def link_buffers(share: Share, parallel: Parallel, tokens: int, itemsize: int) -> list[Buffer]:
    """The buffers of one rank; `tokens` tokens of its own part of the sequence, `itemsize` bytes a number."""
    stream = tokens * share.model.hidden_size * itemsize
    buffers = []
    if parallel.pipeline > 1:
        buffers.append(_between_stages(stream // (parallel.tensor if parallel.sequence_parallel else 1)))
    if parallel.sequence_parallel:
        buffers.append(_gathered(stream, parallel.tensor))
    if parallel.context > 1:
        buffers.append(_ring(share.model, tokens, itemsize))
    if parallel.expert > 1:
        buffers.append(_exchange(share.model, tokens, itemsize))
    return buffers


def _between_stages(stream: int) -> Buffer:
    size = 2 * rounded(stream)
    return Buffer(
        name="pipeline buffers",
        forward=size,
        between=size,
        backward=size,
        formula=f"2 x {stream:,} B: activations and gradients on their way between ranks",
        source="Narayanan et al. 2021 (arXiv 2104.04473)",
        lifetime="forward and backward",
    )


def _gathered(stream: int, ranks: int) -> Buffer:
    return Buffer(
        name="gathered sequence",
        forward=rounded(stream),
        backward=2 * rounded(stream),
        formula=f"{stream:,} B: what {ranks} ranks hold of the sequence, together before a product, with its gradient",
        source=MEGATRON,
        lifetime="within one product",
    )


def _ring(model: TransformerModel, tokens: int, itemsize: int) -> Buffer:
    keys = 2 * model.kv_heads * model.head_size
    buffer = rounded(tokens * keys * itemsize)
    return Buffer(
        name="ring buffers",
        forward=2 * buffer,
        backward=4 * buffer,
        formula=(
            f"keys and values of {tokens:,} tokens x {keys} x {itemsize} B, at hand and arriving; then gradients too"
        ),
        source="Liu et al. 2023, Ring Attention (arXiv 2310.01889)",
        lifetime="within one attention",
    )


def _exchange(model: TransformerModel, tokens: int, itemsize: int) -> Buffer:
    copies = tokens * (model.num_experts_per_tok or 1)
    buffer = rounded(copies * model.hidden_size * itemsize)
    return Buffer(
        name="all-to-all buffers",
        forward=2 * buffer,
        backward=2 * buffer,
        formula=f"2 x {copies:,} copies x {model.hidden_size} x {itemsize} B: sent to experts elsewhere and come back",
        source="Lepikhin et al. 2020, GShard (arXiv 2006.16668)",
        lifetime="within one layer",
    )
