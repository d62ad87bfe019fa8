"""A training job over several ranks: what each holds, and which rank holds most.

Under FSDP2's own mixed precision weights stay fp32 in their shards, and are gathered in half precision.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import Model, TransformerModel
from vramtui.core.schema.workload import Parallel, TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, assemble, cached_share
from vramtui.estimators.analytic.models.decoder import sequence_of
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.optimizers import States, optimizer_states
from vramtui.estimators.analytic.parallel.buffers import Buffer, buffers_for, link_buffers
from vramtui.estimators.analytic.parallel.pipeline import RECEIVED, in_flight, own_stages, run_of, split_sequence
from vramtui.estimators.analytic.parallel.zero_fsdp import Sharing, sharded, share_gradients, sharing_of
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
from vramtui.estimators.analytic.tape.replay import BytesByGroup, summed
from vramtui.estimators.analytic.training.parts import training_facts
from vramtui.estimators.analytic.training.trainer import BesideTraining, Trainer
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.models.spec import Parameter
from vramtui.models.specs.adapters import adapter_tensors
from vramtui.models.specs.decoder import decoder_spec


class Flight(NamedTuple):
    """Micro-batches whose activations are held at once: `ahead` stretches, `chunks` of which make a rank's layers."""

    ahead: int = 1
    chunks: int = 1

    def waiting_bytes(self, saved: BytesByGroup) -> BytesByGroup:
        """What those before the last hold, where one keeps `saved` from forward to backward."""
        more = max(self.ahead - self.chunks, 0)
        return {group: size * more // self.chunks for group, size in saved.items()} if more else {}


ALONE = Flight()


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
        flight: Flight = ALONE,
    ) -> None:
        sharing = sharing_of(parallel)
        mine = _divided(program, sharing) if sharing.stage >= 3 else program
        self.parallel, self.buffers = parallel, buffers
        self.trainer = trainer = Trainer(mine, run, device)
        own = sharded(program.trained, sharing) if sharing.stage else program.trained
        if sharing.stage in {1, 2}:
            trainer.states = optimizer_states(own, mine.recipe.states, run.optimizer, run.stepping, card_limits(device))
            trainer.master = block_bytes(own, 4) if mine.recipe.master else BlockBytes()
        if sharing.stage == 2:
            trainer.gradients = block_bytes(own, mine.recipe.weights)
        if parallel.cpu_offload:
            trainer.states, trainer.master = States(formula="in host memory"), BlockBytes()
        trainer.extra = _buffers_and_waiting(buffers, flight.waiting_bytes(trainer.first.forward.end))

    def estimate(self) -> Estimate:
        """Follow steps 0 and 1, with NCCL's memory outside the allocator."""
        trainer = self.trainer
        facts = training_facts(trainer) | {buffer.name: _fact(buffer) for buffer in self.buffers}
        facts[RECEIVED] = _received()
        ranks = self.parallel.ranks
        other, share = trainer.states.paged + nccl_bytes(ranks), cached_share(trainer.run)
        aside = sum(buffer.aside for buffer in self.buffers)
        estimate = assemble(trainer.follow(), facts, trainer.device, trainer.notes, other, cache=Cached(share, aside))
        outside = (*trainer.outside, *((nccl_part(ranks),) if ranks > 1 else ()))
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *outside))


def _buffers_and_waiting(buffers: Sequence[Buffer], waiting: BytesByGroup) -> BesideTraining:
    """The buffers of each moment, and the activations of micro-batches that wait for their backward pass."""
    return BesideTraining(
        always={buffer.name: buffer.always for buffer in buffers if buffer.always},
        forward=summed(waiting, {buffer.name: buffer.forward for buffer in buffers}),
        between=summed(waiting, {buffer.name: buffer.between for buffer in buffers}),
        backward=summed(waiting, {buffer.name: buffer.backward for buffer in buffers}),
        loss=summed(waiting, {b.name: b.backward if b.loss is None else b.loss for b in buffers}),
        last=summed(waiting, {b.name: b.backward if b.last is None else b.last for b in buffers}),
        first=summed(waiting, {b.name: b.backward if b.first is None else b.first for b in buffers}),
    )


def _divided(program: Program, sharing: Sharing) -> Program:
    return msgspec.structs.replace(
        program, frozen=sharded(program.frozen, sharing), trained=sharded(program.trained, sharing)
    )


def _fact(buffer: Buffer) -> Fact:
    return Fact(buffer.line, buffer.formula, buffer.source, buffer.lifetime)


def _received() -> Fact:
    return Fact(
        "activations",
        "what the rank before hands on",
        "Narayanan et al. 2021 (arXiv 2104.04473)",
        "from forward to backward",
    )


HALVES = {"bf16-mixed": "bf16", "fp16-mixed": "fp16"}
POLICY_NOTE = (
    "mixed precision is FSDP2's own (MixedPrecisionPolicy): fp32 weights and gradients in shards, weights gathered in "
    "half precision, gradients reduced in fp32"
)
# The stage that shares weights as well: FSDP2.
WEIGHTS_TOO = 3


def has_policy(run: TrainRun, sharing: Sharing) -> bool:
    """Whether FSDP2 casts instead of autocast; beside frozen weights autocast is taken as it is."""
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
    """The estimate of the rank that holds most."""
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
    sharing = sharing_of(parallel)
    local, mine = _program(share, model, written_run(run, sharing), device, parallel)
    local = with_policy(local, run, sharing)
    tokens = mine.batch_size * (mine.sequence_length or 1)
    policy = has_policy(run, sharing)
    buffers: list[Buffer] = buffers_for(local, sharing, parallel, share.layers, policy=policy)
    buffers += link_buffers(share, parallel, tokens, local.recipe.compute)
    share_gradients(local.stages, sharing)
    ahead, chunks = in_flight(share, run.gradient_accumulation_steps, parallel.virtual_pipeline)
    flight = Flight(ahead, chunks)
    return ShardedTrainer(local, mine, device, parallel=parallel, buffers=buffers, flight=flight).estimate()


def _program(
    share: Share, model: TransformerModel, run: TrainRun, device: Device, parallel: Parallel
) -> tuple[Program, TrainRun]:
    """The rank's tensors and passes, whole along the data ranks."""
    mine = run_of(run, share, -(-sequence_of(model, run) // parallel.context))
    part = part_of(share)
    program = program_of(part, mine, device)
    itemsize = program.recipe.stream
    numel = mine.batch_size * (mine.sequence_length or 1) * model.hidden_size
    stages = own_stages(program.stages, share, numel, itemsize)
    if parallel.sequence_parallel:
        split_sequence(stages, parallel.tensor, numel)
    frozen, trained = _tensors(share, part, mine)
    at_an_end = share.begins or share.ends
    program = msgspec.structs.replace(
        program,
        frozen=frozen,
        trained=trained,
        stages=stages,
        inputs=program.inputs if at_an_end else 0,
        loss=program.loss if share.ends else 0,
    )
    return program, mine


def _tensors(
    share: Share, part: TransformerModel, run: TrainRun
) -> tuple[tuple[Parameter, ...], tuple[Parameter, ...]]:
    """The rank's frozen tensors and its trained ones."""
    spec, first = decoder_spec(part), run.frozen_layers
    if run.lora is not None:
        return share_tensors(share), adapter_tensors(spec, run.lora)
    if not first:
        return (), share_tensors(share)
    below, above = (
        [divided(tensor, share.experts) for tensor in spec.block_tensors(start, stop)]
        for start, stop in ((0, first), (first, share.layers))
    )
    before = spec.tensors_before() if share.begins else ()
    return (*before, *below), (*above, *(spec.tensors_after() if share.ends else ()))


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
    """The estimate with `notes` first; how far it is off was measured under DDP and FSDP2 over data ranks alone."""
    if parallel.ranks == 1:
        return estimate
    ran = parallel.strategy == "ddp" or (parallel.strategy == "fsdp" and parallel.zero_stage == WEIGHTS_TOO)
    error = estimate.error if ran and parallel.data == parallel.ranks else None
    return msgspec.structs.replace(estimate, assumptions=(*notes, *estimate.assumptions), error=error)
