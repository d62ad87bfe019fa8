"""A training job over several ranks: what each holds, and which rank holds most.

Under FSDP2's own mixed precision weights stay fp32 in their shards, and are gathered in half precision.
"""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import Model, TransformerModel
from vramtui.core.schema.workload import Parallel, TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, assemble, cached_share
from vramtui.estimators.analytic.models.decoder import sequence_of
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.optimizers import States, optimizer_states
from vramtui.estimators.analytic.parallel.pipeline import RECEIVED, in_flight, own_stages, run_of, split_sequence
from vramtui.estimators.analytic.parallel.sharing import (
    Buffer,
    Sharing,
    buffers_for,
    link_buffers,
    sharded,
    share_gradients,
    sharing_of,
)
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes, nccl_part
from vramtui.estimators.analytic.sizes.partition import (
    Share,
    check_parallel,
    divided,
    part_of,
    place_of,
    share_tensors,
    telling_shares,
)
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import drop_gradients, summed
from vramtui.estimators.analytic.training import BesideTraining, Trainer
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.models.spec import Parameter
from vramtui.models.specs.adapters import adapter_tensors
from vramtui.models.specs.decoder import decoder_spec


class ShardedTrainer:
    """One rank; `program` has its tensors whole along the data ranks, and its tapes' gradients divided already."""

    def __init__(
        self,
        program: Program,
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
                drop_gradients(program.stages)
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
        trainer.extra = BesideTraining(
            always={buffer.name: buffer.always for buffer in buffers if buffer.always},
            forward=summed(waiting, {buffer.name: buffer.forward for buffer in buffers}),
            between=summed(waiting, {buffer.name: buffer.between for buffer in buffers}),
            backward=summed(waiting, {buffer.name: buffer.backward for buffer in buffers}),
            loss=summed(waiting, {b.name: b.backward if b.loss is None else b.loss for b in buffers}),
            last=summed(waiting, {b.name: b.backward if b.last is None else b.last for b in buffers}),
            first=summed(waiting, {b.name: b.backward if b.first is None else b.first for b in buffers}),
        )

    def estimate(self) -> Estimate:
        trainer = self.trainer
        facts = trainer.facts()
        facts |= {one.name: Fact(one.line, one.formula, one.source, one.lifetime) for one in self.buffers}
        narayanan = "Narayanan et al. 2021 (arXiv 2104.04473)"
        facts[RECEIVED] = Fact("activations", "what the rank before hands on", narayanan, "from forward to backward")
        ranks, capability = self.parallel.ranks, trainer.device.capability
        other, share = trainer.states.paged + nccl_bytes(ranks, capability), cached_share(trainer.run)
        aside = sum(buffer.aside for buffer in self.buffers)
        estimate = assemble(trainer.follow(), facts, trainer.device, trainer.notes, other, cache=Cached(share, aside))
        outside = (*trainer.outside, *((nccl_part(ranks, capability),) if ranks > 1 else ()))
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *outside))


HALVES = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
POLICY_NOTE = (
    "mixed precision is FSDP2's own (MixedPrecisionPolicy): fp32 weights and gradients in shards, weights gathered in "
    "half precision, gradients reduced in fp32"
)
# The stage that shares weights as well: FSDP2.
WEIGHTS_TOO = 3


def has_policy(run: TrainRun, sharing: Sharing) -> bool:
    """Return whether FSDP2 casts instead of autocast; beside frozen weights autocast is taken as it is."""
    return sharing.kind == "fsdp" and run.lora is None and run.precision in HALVES


def written_run(run: TrainRun, sharing: Sharing) -> TrainRun:
    """The run as the gathered weights see it."""
    return msgspec.structs.replace(run, precision=HALVES[run.precision]) if has_policy(run, sharing) else run


def with_policy(program: Program, run: TrainRun, sharing: Sharing) -> Program:
    """The program with fp32 shards of weights, gradients and states, where FSDP2 casts."""
    if not has_policy(run, sharing):
        return program
    tapes = {id(stage.tape): stage.tape for stage in program.stages}
    for node in (node for tape in tapes.values() for node in tape.nodes):
        node.set_gradient(node.grad_bytes * 4 // program.recipe.weights)
    recipe = msgspec.structs.replace(program.recipe, weights=4, frozen=4, states=4)
    return msgspec.structs.replace(program, recipe=recipe, notes=(*program.notes, POLICY_NOTE))


def estimate_sharded(model: Model, run: TrainRun, device: Device, parallel: Parallel) -> Estimate:
    check_parallel(model, parallel)
    sharing = sharing_of(parallel)
    if not isinstance(model, TransformerModel):
        program = with_policy(program_of(model, written_run(run, sharing), device), run, sharing)
        buffers = buffers_for(program, sharing, parallel, program.layers, policy=has_policy(run, sharing))
        share_gradients(program.stages, sharing)
        one = ShardedTrainer(program, run, device, parallel=parallel, buffers=buffers).estimate()
        return _with_notes(one, parallel, (f"one of {parallel.ranks} ranks, all alike",))
    if parallel.context > 1 and run.attention == "eager":
        raise UserError("parallel.context above 1 is ring attention, which run.attention = 'eager' cannot do")
    ranks = telling_shares(model, parallel, (run.frozen_layers,))
    estimates = [(share, _of_rank(share, model, run, device, parallel)) for share in ranks]
    worst, estimate = max(estimates, key=lambda pair: pair[1].process)
    return _with_notes(estimate, parallel, _notes(worst, estimates, parallel, run.gradient_accumulation_steps))


def _of_rank(share: Share, model: TransformerModel, run: TrainRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate of a rank from its tensors and passes, whole along the data ranks."""
    sharing, part = sharing_of(parallel), part_of(share)
    mine = run_of(written_run(run, sharing), share, -(-sequence_of(model, run) // parallel.context))
    program = program_of(part, mine, device)
    tokens = mine.batch_size * (mine.sequence_length or 1)
    stages = own_stages(program.stages, share, tokens * model.hidden_size, program.recipe.stream)
    if parallel.sequence_parallel:
        split_sequence(stages, parallel.tensor, tokens * model.hidden_size)
    spec, first = decoder_spec(part), mine.frozen_layers
    frozen: tuple[Parameter, ...] = ()
    trained = share_tensors(share)
    if mine.lora is not None:
        frozen, trained = trained, adapter_tensors(spec, mine.lora)
    elif first:
        below, above = (
            [divided(tensor, share.experts) for tensor in spec.block_tensors(start, stop)]
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
    worst: Share, ranks: list[tuple[Share, Estimate]], parallel: Parallel, micro_batches: int
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
        notes.append(f"worst rank: {place_of(worst)}; beside it {sizes}")
    return tuple(notes)


def _with_notes(estimate: Estimate, parallel: Parallel, notes: tuple[str, ...]) -> Estimate:
    """The estimate with `notes` first; how far it is off was measured under DDP and FSDP2 over data ranks only."""
    if parallel.ranks == 1:
        return estimate
    ran = parallel.strategy == "ddp" or (parallel.strategy == "fsdp" and parallel.zero_stage == WEIGHTS_TOO)
    error = estimate.error if ran and parallel.data == parallel.ranks else None
    return msgspec.structs.replace(estimate, assumptions=(*notes, *estimate.assumptions), error=error)
