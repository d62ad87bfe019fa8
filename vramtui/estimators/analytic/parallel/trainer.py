"""One rank's training, phase by phase: a Trainer whose states are divided and who holds what sharing needs."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.schema.parallel import Parallel
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.assemble import Fact, MomentLog, assemble, cached_share
from vramtui.estimators.analytic.optimizers.registry import States, optimizer_states
from vramtui.estimators.analytic.parallel.buffers import Buffer
from vramtui.estimators.analytic.parallel.pipeline import RECEIVED
from vramtui.estimators.analytic.parallel.zero_fsdp import Sharing, sharded, sharing_of
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes, nccl_part
from vramtui.estimators.analytic.sizes.tensor_bytes import BlockBytes, held
from vramtui.estimators.analytic.tape.meter import BytesByGroup
from vramtui.estimators.analytic.tape.passes import Pass
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.training.parts import training_facts
from vramtui.estimators.analytic.training.trainer import Trainer
from vramtui.estimators.torch_facts.cards import card_limits


class Flight(NamedTuple):
    """Micro-batches whose activations are held at once: `ahead` stretches, `chunks` of which make a rank's layers."""

    ahead: int = 1
    chunks: int = 1

    def beside(self, kept: BytesByGroup) -> BytesByGroup:
        """What those before the last hold, where one keeps `kept` from forward to backward."""
        more = max(self.ahead - self.chunks, 0)
        return {group: size * more // self.chunks for group, size in kept.items()} if more else {}


ALONE = Flight()


class ShardedTrainer(Trainer):
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
        super().__init__(mine, run, device)
        self.parallel, self.buffers, self.flight = parallel, buffers, flight
        own = sharded(program.trained, sharing) if sharing.stage else program.trained
        if sharing.stage in {1, 2}:
            self.states = optimizer_states(own, mine.recipe.states, run.optimizer, run.stepping, card_limits(device))
            self.master = held(own, 4) if mine.recipe.master else BlockBytes()
        if sharing.stage == 2:
            self.gradients = held(own, mine.recipe.weights)
        if parallel.cpu_offload:
            self.states, self.master = States(formula="in host memory"), BlockBytes()

    def estimate(self) -> Estimate:
        """Follow steps 0 and 1, with NCCL's memory outside the allocator."""
        moments = MomentLog()
        moments.note("build", 0, self._resting(0))
        for step in (0, 1):
            self._step(moments, step)
        facts = training_facts(self) | {buffer.name: _fact(buffer) for buffer in self.buffers}
        facts[RECEIVED] = _received()
        ranks = self.parallel.ranks
        other, share = self.states.paged + nccl_bytes(ranks), cached_share(self.run)
        estimate = assemble(moments, facts, self.device, self.notes, other, share=share)
        beside = (*self.outside, *((nccl_part(ranks),) if ranks > 1 else ()))
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *beside))

    def _resting(self, step: int) -> BytesByGroup:
        always = {buffer.name: buffer.always for buffer in self.buffers if buffer.always}
        return super()._resting(step) | always

    def _pass(
        self, moments: MomentLog, phase: Phase, step: int, done: Pass, *, early: BytesByGroup, late: BytesByGroup
    ) -> None:
        """A pass with the buffers of this moment, and the activations of micro-batches that wait for theirs."""
        forward = phase == "forward"
        beside = self.flight.beside(self.first.forward.end)
        within = _sum(beside, {b.name: b.forward if forward else b.backward for b in self.buffers})
        after = _sum(beside, {b.name: b.between for b in self.buffers}) if forward else {}
        moments.note(phase, step, _sum(early, within, done.early), end=False)
        moments.note(phase, step, _sum(late, within, done.late), end=False)
        moments.note(phase, step, _sum(late, after, done.end))


def _divided(program: Program, sharing: Sharing) -> Program:
    return msgspec.structs.replace(
        program, frozen=sharded(program.frozen, sharing), trained=sharded(program.trained, sharing)
    )


def _sum(*parts: BytesByGroup) -> BytesByGroup:
    total: BytesByGroup = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total


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
