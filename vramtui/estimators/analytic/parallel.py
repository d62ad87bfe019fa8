"""A training job over several ranks: what each holds, how they share weights, gradients and optimizer states.

Under FSDP2's own mixed precision weights stay fp32 in their shards, and are gathered in half precision.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Category, Estimate
from vramtui.core.schema.models import Model, TransformerModel
from vramtui.core.schema.workload import Parallel, TrainRun
from vramtui.estimators.analytic.assemble import ALWAYS, Cached, Fact, assemble, cached_share
from vramtui.estimators.analytic.models.decoder import sequence_of
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.ops.decoder_builder import EXPERTS
from vramtui.estimators.analytic.optimizers import States, optimizer_states
from vramtui.estimators.analytic.sizes import partition
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes, blocks_of, quantized
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.analytic.training import BesideTraining, Trainer
from vramtui.estimators.torch_facts.allocator_sizes import bytes_alone, rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import adapter_tensors, decoder_spec

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


def share_gradients(stages: Sequence[tapes.TapeStage], sharing: Sharing) -> None:
    """Leave of the gradients on the tapes what stays with this rank: its experts', and from stage 2 on its own rows."""
    different = {id(stage.tape): stage.tape for stage in stages}  # a tape may stand in several stages
    for node in (node for tape in different.values() for node in tape.nodes):
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
    can use. The build leaves `left` bytes in the cache.
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
    left: int = 0


def buffers_for(
    program: tapes.Program, sharing: Sharing, parallel: Parallel, layers: int, *, policy: bool = False
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
        buffers, packed = _fully_sharded(program, parallel, layers, policy=policy), program.quantization
        if packed in {"nf4", "nf4-double"}:
            # Its scales are not parameters: FSDP does not shard or offload them.
            split = blocks_of(program.frozen, program.recipe.frozen, packed, layers)
            whole = sum(rounded(size) * count for _, (_, *scales) in split for size, count in scales)
            more = whole - (0 if parallel.param_offload else whole // parallel.ranks)
            words, source = f"{whole:,} B on every rank", "bitsandbytes 0.50.2, nn/modules.py: Params4bit.quant_state"
            buffers.append(Buffer("scales of 4-bit weights", words, source, ALWAYS, line="weights", always=more))
        return buffers
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


def _fully_sharded(program: tapes.Program, parallel: Parallel, layers: int, *, policy: bool) -> list[Buffer]:
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
        inner, outer = _of_block(tensors, layers), _outside(tensors, parallel)
        if packed is not None:
            block += quantized(inner, itemsize, packed, 1).bytes
            root += quantized(outer, itemsize, packed, 1).bytes
        else:
            block += block_bytes(inner, itemsize).bytes
            root += block_bytes(outer, itemsize).bytes
    # Bytes of the gradients of a block and of those outside, as backward makes them and as they are added up.
    inner, outer = _of_block(program.trained, layers), _outside(program.trained, parallel)
    fresh, reduced = (
        (block_bytes(inner, itemsize).bytes, block_bytes(outer, itemsize).bytes)
        for itemsize in (whole.recipe.weights, recipe.weights)
    )
    outside = 0 if parallel.outer_apart else root
    two = outside + min(2, layers) * block
    every = outside + layers * block
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
    between = outside if reshards else every
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
            first=max(root, between),
            # FullyShardedDataParallel copies a unit's tensors into one before it cuts its shard from that: both are
            # whole then (torch 2.13, distributed/fsdp/_flat_param.py). It gathers on a stream of its own, and offloaded
            # shards come back on another.
            aside=two + parallel.param_offload * two // parallel.ranks if parallel.fsdp_version == 1 else root,
            left=2 * (block + root) if parallel.fsdp_version == 1 else 0,
        ),
        Buffer(
            "unsharded gradients",
            f"{fresh[0]:,} B of a block's gradients whole and {reduced[0]:,} B on their way to reduce-scatter, "
            f"and {head:,} B of the output layer's; {fresh[1]:,} and {reduced[1]:,} B of those outside the blocks",
            FSDP_SOURCE,
            "within the backward pass",
            backward=head + fresh[0] + reduced[0],
            loss=0,
            last=head,
            first=fresh[1] + reduced[1],
            aside=reduced[1],
        ),
    ]


def _outside(tensors: Iterable[Parameter], parallel: Parallel) -> list[Parameter]:
    """The tensors outside the blocks that are whole at one time."""
    outer = [tensor for tensor in tensors if not tensor.layer]
    return sorted(outer, key=lambda tensor: -tensor.numel)[:1] if parallel.outer_apart else outer


def _of_block(tensors: Iterable[Parameter], layers: int) -> list[Parameter]:
    """The tensors of one block: of those that only some blocks have, one."""
    return [msgspec.structs.replace(tensor, count=-(-tensor.count // layers)) for tensor in tensors if tensor.layer]


def _zero(program: tapes.Program, sharing: Sharing) -> list[Buffer]:
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


def link_buffers(share: partition.Share, parallel: Parallel, tokens: int, itemsize: int) -> list[Buffer]:
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


# What Megatron splits along the sequence: the residual stream, norms and dropouts (arXiv 2205.05198, section 4.2.2).
ALONG_SEQUENCE = frozenset({tapes.STREAM, tapes.NORMS, tapes.EMBEDDINGS})
RECEIVED = "activations: received from the rank before"


def run_of(run: TrainRun, share: partition.Share, sequence: int) -> TrainRun:
    """The run as this rank sees it: its part of the sequence, and of the frozen layers those that are here."""
    frozen = min(max(run.frozen_layers - share.first, 0), share.layers)
    return msgspec.structs.replace(run, sequence_length=sequence, frozen_layers=frozen)


def own_stages(
    stages: Sequence[tapes.TapeStage], share: partition.Share, numel: int, itemsize: int
) -> list[tapes.TapeStage]:
    """The stages of a decoder (embeddings, blocks, loss) that run on this rank.

    `numel` numbers of `itemsize` bytes arrive from the rank before.
    """
    first, *blocks, last = stages
    if share.stages == 1:
        return list(stages)
    if not share.begins and len(blocks) > 1 and blocks[0].count == 1:
        # Only in the very first block does no gradient flow back to the block's input.
        blocks = [tapes.TapeStage(blocks[1].tape, 1, checkpointed=blocks[0].checkpointed), *blocks[1:]]
    start = first if share.begins else tapes.TapeStage(received(numel, itemsize))
    return [start, *blocks, *((last,) if share.ends else ())]


def received(numel: int, itemsize: int) -> tapes.Tape:
    """The activations that arrive from the rank before."""
    tape = tapes.Tape(RECEIVED)
    x = tape.new(numel, itemsize, "block input", tracked=True)
    tape.record([], [x])
    tape.close(x)
    return tape


def split_sequence(stages: Sequence[tapes.TapeStage], ranks: int, wide: int) -> None:
    """Leave one of `ranks` parts of everything that stands along the sequence between the matrix products.

    `wide` numbers make up the residual stream; a dropout over as many belongs to it.
    """
    different = {id(stage.tape): stage.tape for stage in stages}.values()
    storages_seen: list[tapes.Storage] = []
    tensors: dict[int, tapes.Tensor] = {}
    for tape in different:
        ends = [tensor for tensor in (tape.input, tape.output) if tensor is not None]
        storages_seen += [*tape.live_until_end, *(tensor.storage for tensor in ends)]
        for node in tape.nodes:
            storages_seen += [*node.makes, *node.saves, *node.uses, *node.last_use_of]
            for tensor in (*node.outs, *(tensor for tensor, _ in node.flows)):
                tensors[id(tensor)] = tensor
            if node.outs and all(_along(tensor.storage, wide) for tensor in node.outs):
                node.workspace //= ranks
                node.backward_workspace //= ranks
        tensors |= {id(tensor): tensor for tensor in ends}
    tensors = {key: tensor for key, tensor in tensors.items() if _along(tensor.storage, wide)}
    storages = {id(storage): storage for storage in storages_seen if _along(storage, wide)}
    for storage in storages.values():
        storage.numel = -(-storage.numel // ranks)
        storage.size = bytes_alone(storage.numel * storage.itemsize)
    for tensor in tensors.values():
        tensor.numel = -(-tensor.numel // ranks)


def _along(storage: tapes.Storage, wide: int) -> bool:
    return storage.group in ALONG_SEQUENCE or (storage.numel == wide and "dropout" in storage.label)


def in_flight(share: partition.Share, micro_batches: int, chunks: int = 1) -> tuple[int, int]:
    """Micro-batches whose activations this rank holds at once under 1F1B, as a fraction (over `chunks`).

    Each rank runs ahead by as many as there are ranks after it; interleaved over `chunks` stretches of layers it runs
    ahead by twice as many and by all stretches but one of a whole pipeline (Narayanan et al. 2021, arXiv 2104.04473).
    """
    after = share.stages - share.rank
    if chunks == 1:
        return min(micro_batches, after), 1
    ahead = 2 * (after - 1) + (chunks - 1) * share.stages + 1
    return min(micro_batches * chunks, ahead), chunks


class ShardedTrainer:
    """One rank; `program` has its tensors whole along the data ranks, and its tapes' gradients divided already."""

    def __init__(
        self,
        program: tapes.Program,
        run: TrainRun,
        device: Device,
        *,
        parallel: Parallel,
        buffers: Sequence[Buffer],
        flight: tuple[int, int] = (1, 1),
    ) -> None:
        sharing = sharing_of(parallel)
        mine = program
        if sharing.stage >= 3:
            frozen, trained = sharded(program.frozen, sharing), sharded(program.trained, sharing)
            mine = msgspec.structs.replace(program, frozen=frozen, trained=trained)
            if parallel.param_offload:
                mine = msgspec.structs.replace(program, frozen=(), trained=())
                tapes.drop_gradients(program.stages)
        self.parallel, self.buffers = parallel, buffers
        self.trainer = trainer = Trainer(mine, run, device)
        own = sharded(program.trained, sharing) if sharing.stage else program.trained
        if sharing.stage in {1, 2}:
            trainer.states = optimizer_states(own, mine.recipe.states, run.optimizer, run.stepping, card_limits(device))
            trainer.master = block_bytes(own, 4) if mine.recipe.master else BlockBytes()
        if sharing.stage == 2:
            trainer.gradients = block_bytes(own, mine.recipe.weights)
        if parallel.cpu_offload or parallel.param_offload:
            trainer.states, trainer.master = States(formula="in host memory"), BlockBytes()
        # Activations of micro-batches that wait for their backward pass: `ahead` stretches of layers are held at once,
        # `chunks` of them make a rank's layers.
        ahead, chunks = flight
        more, saved = max(ahead - chunks, 0), trainer.first.forward.end
        waiting = {group: size * more // chunks for group, size in saved.items()} if more else {}
        whole = {buffer.name: buffer.always for buffer in buffers if buffer.always}

        def sizes_at(moment: str) -> tapes.BytesByGroup:
            sizes = ((one, getattr(one, moment)) for one in buffers)
            return tapes.summed(waiting, {one.name: one.backward if size is None else size for one, size in sizes})

        moments = ("forward", "between", "backward", "loss", "last", "first")
        trainer.extra = BesideTraining(whole, *map(sizes_at, moments))

    def estimate(self) -> Estimate:
        trainer = self.trainer
        facts = trainer.facts()
        facts |= {one.name: Fact(one.line, one.formula, one.source, one.lifetime) for one in self.buffers}
        narayanan = "Narayanan et al. 2021 (arXiv 2104.04473)"
        facts[RECEIVED] = Fact("activations", "what the rank before hands on", narayanan, "from forward to backward")
        ranks, capability = self.parallel.ranks, trainer.device.capability
        other, share = trainer.states.paged + partition.nccl_bytes(ranks, capability), cached_share(trainer.run)
        aside, left = (sum(getattr(one, name) for one in self.buffers) for name in ("aside", "left"))
        cache = Cached(share, aside)
        if left:
            room = trainer.device.total_memory - cuda_context_bytes(capability) - other
            cache = Cached(share, aside, left, "gathered weights", room)
        estimate = assemble(trainer.follow(), facts, trainer.device, trainer.notes, other, cache=cache)
        outside = (*trainer.outside, *((partition.nccl_part(ranks, capability),) if ranks > 1 else ()))
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *outside))


HALVES = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
POLICY_NOTE = (
    "mixed precision is FSDP2's own (MixedPrecisionPolicy): fp32 weights and gradients in shards, weights gathered in "
    "half precision, gradients reduced in fp32"
)


def has_policy(run: TrainRun, sharing: Sharing) -> bool:
    """Return whether FSDP2 casts instead of autocast; with frozen weights autocast is taken as it is."""
    return sharing.kind == "fsdp" and run.lora is None and run.precision in HALVES


def written_run(run: TrainRun, sharing: Sharing) -> TrainRun:
    return msgspec.structs.replace(run, precision=HALVES[run.precision]) if has_policy(run, sharing) else run


def with_policy(program: tapes.Program, run: TrainRun, sharing: Sharing) -> tapes.Program:
    """The program with fp32 shards of weights, gradients and states, where FSDP2 casts."""
    if not has_policy(run, sharing):
        return program
    different = {id(stage.tape): stage.tape for stage in program.stages}
    for node in (node for tape in different.values() for node in tape.nodes):
        node.set_gradient(node.grad_bytes * 4 // program.recipe.weights)
    recipe = msgspec.structs.replace(program.recipe, weights=4, frozen=4, states=4)
    return msgspec.structs.replace(program, recipe=recipe, notes=(*program.notes, POLICY_NOTE))


def estimate_sharded(model: Model, run: TrainRun, device: Device, parallel: Parallel) -> Estimate:
    partition.check_parallel(model, parallel)
    sharing = sharing_of(parallel)
    if not isinstance(model, TransformerModel):
        return estimate_alike(program_of(model, written_run(run, sharing), device), run, device, parallel)
    if parallel.context > 1 and run.attention == "eager":
        raise UserError("parallel.context above 1 is ring attention, which run.attention = 'eager' cannot do")
    ranks = partition.telling_shares(model, parallel, (run.frozen_layers,))
    estimates = [(share, _of_rank(share, model, run, device, parallel)) for share in ranks]
    worst, estimate = max(estimates, key=lambda pair: pair[1].process)
    return _with_notes(estimate, parallel, _notes(worst, estimates, parallel, run.gradient_accumulation_steps))


def estimate_alike(
    program: tapes.Program, run: TrainRun, device: Device, parallel: Parallel, before: dict[str, Fact] | None = None
) -> Estimate:
    """The estimate of any rank of a job whose ranks all have the whole model, or the same share of each tensor.

    `before` is what frozen models hold while they prepare a batch.
    """
    sharing = sharing_of(parallel)
    program = with_policy(program, run, sharing)
    buffers = buffers_for(program, sharing, parallel, program.layers, policy=has_policy(run, sharing))
    share_gradients(program.stages, sharing)
    rank = ShardedTrainer(program, run, device, parallel=parallel, buffers=buffers)
    rank.trainer.before = before or {}
    return _with_notes(rank.estimate(), parallel, (f"one of {parallel.ranks} ranks, all alike",))


def _of_rank(
    share: partition.Share, model: TransformerModel, run: TrainRun, device: Device, parallel: Parallel
) -> Estimate:
    """The estimate of a rank from its tensors and passes, whole along the data ranks."""
    sharing, part = sharing_of(parallel), partition.part_of(share)
    mine = run_of(written_run(run, sharing), share, -(-sequence_of(model, run) // parallel.context))
    program = program_of(part, mine, device)
    tokens = mine.batch_size * (mine.sequence_length or 1)
    stages = own_stages(program.stages, share, tokens * model.hidden_size, program.recipe.stream)
    if parallel.sequence_parallel:
        split_sequence(stages, parallel.tensor, tokens * model.hidden_size)
    spec, first = decoder_spec(part), mine.frozen_layers
    frozen: tuple[Parameter, ...] = ()
    trained = partition.share_tensors(share)
    if mine.lora is not None:
        frozen, trained = trained, adapter_tensors(spec, mine.lora)
    elif first:
        below, above = (
            [partition.divided(tensor, share.experts) for tensor in spec.block_tensors(start, stop)]
            for start, stop in ((0, first), (first, share.layers))
        )
        frozen = (*(spec.tensors_before() if share.begins else ()), *below)
        trained = (*above, *(spec.tensors_after() if share.ends else ()))
    local = msgspec.structs.replace(
        program,
        frozen=frozen,
        trained=trained,
        stages=stages,
        inputs=program.inputs if share.begins or share.ends else 0,
        loss=program.loss if share.ends else 0,
    )
    local = with_policy(local, run, sharing)
    buffers = buffers_for(local, sharing, parallel, share.layers, policy=has_policy(run, sharing))
    buffers += link_buffers(share, parallel, tokens, local.recipe.compute)
    share_gradients(local.stages, sharing)
    flight = in_flight(share, run.gradient_accumulation_steps, parallel.virtual_pipeline)
    return ShardedTrainer(local, mine, device, parallel=parallel, buffers=buffers, flight=flight).estimate()


def _notes(
    worst: partition.Share, ranks: list[tuple[partition.Share, Estimate]], parallel: Parallel, micro_batches: int
) -> tuple[str, ...]:
    ways = {name: getattr(parallel, name) for name in ("data", "tensor", "pipeline", "context", "expert")}
    spread = ", ".join(f"{name} {count}" for name, count in ways.items() if count > 1)
    notes = [f"bytes of one card of {parallel.ranks:,} ({spread})"]
    if parallel.pipeline > 1:
        chunks = f", interleaved over {parallel.virtual_pipeline} stretches" if parallel.virtual_pipeline > 1 else ""
        notes.append(f"1F1B over run.gradient_accumulation_steps = {micro_batches} micro-batches{chunks}")
    if worst.stages == 1:
        notes.append("every rank holds the same")
    else:
        sizes = ", ".join(f"{format_bytes(one.process)} on rank {share.rank}" for share, one in ranks if share != worst)
        notes.append(f"worst rank: {partition.place_of(worst)}; the others {sizes}")
    return tuple(notes)


def _with_notes(estimate: Estimate, parallel: Parallel, notes: tuple[str, ...]) -> Estimate:
    """The estimate with `notes` first; how far it is off was measured under DDP and FSDP2 over data ranks only."""
    if parallel.ranks == 1:
        return estimate
    ran = parallel.strategy == "ddp" or (parallel.strategy == "fsdp" and parallel.zero_stage in {0, 3})
    error = estimate.error if ran and parallel.data == parallel.ranks else None
    return msgspec.structs.replace(estimate, assumptions=(*notes, *estimate.assumptions), error=error)
