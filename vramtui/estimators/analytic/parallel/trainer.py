"""One rank's training, phase by phase: a Trainer of divided states, beside which is what sharing needs."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Parallel, TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, assemble, cached_share
from vramtui.estimators.analytic.optimizers.registry import States, optimizer_states
from vramtui.estimators.analytic.parallel.buffers import Buffer
from vramtui.estimators.analytic.parallel.pipeline import RECEIVED
from vramtui.estimators.analytic.parallel.zero_fsdp import Sharing, sharded, sharing_of
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes, nccl_part
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes
from vramtui.estimators.analytic.tape.meter import BytesByGroup, summed
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.training.parts import training_facts
from vramtui.estimators.analytic.training.trainer import BesideTraining, Trainer
from vramtui.estimators.torch_facts.cards import card_limits


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
    return Fact(
        line=buffer.line,
        bytes=0,
        formula=buffer.formula,
        source=buffer.source,
        lifetime=buffer.lifetime,
    )


def _received() -> Fact:
    return Fact(
        line="activations",
        bytes=0,
        formula="what the rank before hands on",
        source="Narayanan et al. 2021 (arXiv 2104.04473)",
        lifetime="from forward to backward",
    )
