"""A training job followed through its phases: what is held at each moment, and which moment is the fullest."""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part, Phase
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.assemble import Cached, Fact, MomentLog, assemble, cached_share
from vramtui.estimators.analytic.optimizers import States, optimizer_states
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes, precision_notes
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.program import FEATURES, PIXELS, TOWER, Pass, Passes, Program, replayed
from vramtui.estimators.analytic.tape.replay import GRADIENTS, BytesByGroup, summed
from vramtui.estimators.analytic.training.parts import paged_part, training_facts
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.cublas import Workspace
from vramtui.models.spec import Parameter

compile_program = late("vramtui.estimators.analytic.tape.fusion:compile_program")  # which eager jobs do not need
# They need managed memory of a real driver.
NEVER_RUN = frozenset({"paged_adamw_8bit", "paged_adamw_32bit"})


class BesideTraining(msgspec.Struct, frozen=True):
    """What a rank holds beside a job's own tensors, in bytes by group.

    Attributes:
        always: from build to the end.
        forward: within the forward pass.
        between: from the end of forward to backward.
        backward: within the backward pass.
        loss, last, first: within the backward pass of the last stage, before its first product (the loss) and from
            then on (the output layer), and of the first stage (the embeddings), where that is not the same as within
            the others.
    """

    always: BytesByGroup = {}
    forward: BytesByGroup = {}
    between: BytesByGroup = {}
    backward: BytesByGroup = {}
    loss: BytesByGroup | None = None
    last: BytesByGroup | None = None
    first: BytesByGroup | None = None


class Trainer:
    """One training job's sizes, which a rank of several changes to its own; `follow` goes through two steps."""

    def __init__(self, program: Program, run: TrainRun, device: Device) -> None:
        if run.compile:
            program = compile_program(program)
        self.program, self.run, self.device = program, run, device
        recipe = program.recipe
        self.weights = program.weights
        self.gradients: BlockBytes = program.gradients
        self.states: States = optimizer_states(
            program.trained, recipe.states, run.optimizer, run.stepping, card_limits(device)
        )
        self.master = block_bytes(program.trained, 4) if recipe.master else BlockBytes()
        self.clipping = clipping_bytes(program.trained) if run.max_grad_norm is not None else 0
        multiplies = any(node.gemm for stage in program.stages for node in stage.tape.nodes)
        self.workspace = workspace_for(run, device) if multiplies else Workspace()
        self.extra = BesideTraining()
        # What frozen models hold while they prepare a batch, before the forward pass, and the words for it.
        self.before: BytesByGroup = {}
        self.before_facts: dict[str, Fact] = {}

    @cached_property
    def first(self) -> Passes:
        """The first micro-batch of a step."""
        return replayed(self.program.stages, workspace=self.workspace)

    @cached_property
    def later(self) -> Passes:
        """Another one, which adds to the gradients that are there."""
        if self.run.gradient_accumulation_steps == 1:
            return self.first
        return replayed(self.program.stages, accumulate=True, workspace=self.workspace)

    def follow(self) -> MomentLog:
        """Every moment of steps 0 and 1; from then on every step is like step 1."""
        moments = MomentLog()
        moments.note("build", 0, self._resting(0))
        for step in (0, 1):
            self._step(moments, step)
        return moments

    def estimate(self) -> Estimate:
        """The estimate of a job on one card."""
        estimate = assemble(
            self.follow(),
            training_facts(self) | self.before_facts,
            self.device,
            self.notes,
            self.states.paged,
            cache=Cached(cached_share(self.run)),
        )
        unheld = unmeasured(self.run)
        if unheld:
            note = f"how far off it is was never measured with {', '.join(unheld)}: it follows the code alone"
            estimate = msgspec.structs.replace(estimate, error=None, assumptions=(*estimate.assumptions, note))
        if not self.program.measured:
            estimate = msgspec.structs.replace(estimate, error=None)
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *self.outside))

    @property
    def notes(self) -> tuple[str, ...]:
        """What was taken for granted, a sentence each."""
        return (*self.program.notes, *precision_notes(self.run, self.program.recipe), *filter(None, [self.states.note]))

    @property
    def outside(self) -> tuple[Part, ...]:
        """What the job holds on the card outside PyTorch's allocator, beside the context."""
        return (paged_part(self.states),) if self.states.paged else ()

    def _step(self, moments: MomentLog, step: int) -> None:
        resting = self._resting(step)
        fed = summed(resting, {"inputs": self.program.inputs + self.program.loss}, self._workspaces(2 if step else 0))
        if step:
            moments.note("input", step, summed(fed, {"inputs": self.program.inputs}), end=False)
        if self.before:
            moments.note("input", step, summed(fed, self.before), end=False)
        moments.note("input", step, fed)
        fed = self._after_tower(moments, step, fed)
        done = self._micro_batch(moments, step, fed, self.first, {}, threads=2 if step else 0)
        if self.run.gradient_accumulation_steps > 1:
            gradients = {GRADIENTS: self.gradients.bytes}
            done = self._micro_batch(moments, step, fed, self.later, gradients, threads=2)
        states = {} if self.states.from_build else {"optimizer": self.states.bytes}
        stepping = done if step else summed(done, states)
        moments.note("step", step, summed(done, {"gradient clipping": self.clipping}), end=False)
        cast = {"fp32 gradients": self.master.bytes}
        moments.note("step", step, summed(stepping, cast, {"step temporaries": self.states.step}), end=False)
        moments.note("step", step, stepping)
        moments.note("zero_grad", step, {name: size for name, size in stepping.items() if name != GRADIENTS})

    def _micro_batch(
        self, moments: MomentLog, step: int, fed: BytesByGroup, passes: Passes, constant: BytesByGroup, *, threads: int
    ) -> BytesByGroup:
        """Forward and backward; of the main thread and autograd's so many have their workspaces already."""
        resting = {name: size for name, size in fed.items() if name != "workspaces"}
        start = summed(resting, constant)
        before, one = self._workspaces(threads), self._workspaces(max(threads, 1))
        self._pass(moments, "forward", step, passes.forward, early=summed(start, before), late=summed(start, one))
        two = summed(start, self._workspaces(2))
        self._pass_back(moments, step, passes, early=summed(start, one), late=two)
        return self._seen_backward(moments, step, summed(two, passes.backward.end))

    def _after_tower(self, moments: MomentLog, step: int, fed: BytesByGroup) -> BytesByGroup:
        """What stays of a tower's pass over the images, which comes before the words are read."""
        tower = self.program.tower
        if tower is None:
            return fed
        fed = summed(fed, {PIXELS: tower.pixels})
        moments.note("forward", step, summed(fed, {TOWER: tower.fullest}, self._product), end=False)
        return summed(fed, {TOWER: tower.saved, FEATURES: tower.features})

    def _seen_backward(self, moments: MomentLog, step: int, done: BytesByGroup) -> BytesByGroup:
        """The tower's backward pass, which comes last; its gradients stay."""
        tower = self.program.tower
        if tower is None:
            return done
        left = {name: size for name, size in done.items() if name not in {TOWER, FEATURES}}
        moments.note("backward", step, summed(left, {TOWER: tower.backward}, self._product), end=False)
        return summed(left, {GRADIENTS: tower.gradients})

    def _pass(
        self, moments: MomentLog, phase: Phase, step: int, done: Pass, *, early: BytesByGroup, late: BytesByGroup
    ) -> None:
        """A forward pass with what is beside it at this moment."""
        moments.note(phase, step, summed(early, self.extra.forward, done.early), end=False)
        moments.note(phase, step, summed(late, self.extra.forward, done.late), end=False)
        moments.note(phase, step, summed(late, self.extra.between, done.end))

    def _pass_back(
        self, moments: MomentLog, step: int, passes: Passes, *, early: BytesByGroup, late: BytesByGroup
    ) -> None:
        """A backward pass with what is beside each region of it."""
        extra, done = self.extra, passes.backward
        last = extra.backward if extra.last is None else extra.last
        first = extra.backward if extra.first is None else extra.first
        moments.note("backward", step, summed(early, last if extra.loss is None else extra.loss, done.early), end=False)
        for within, fullest in zip((last, extra.backward, first), passes.regions, strict=True):
            if fullest:
                moments.note("backward", step, summed(late, within, fullest), end=False)
        moments.note("backward", step, summed(late, done.end))

    def _resting(self, step: int) -> BytesByGroup:
        """What is there when a step begins."""
        resting = {
            "weights": self.weights.bytes,
            "weight tails": self.weights.tails,
            "buffers": self.program.buffers,
            "master weights": self.master.bytes,
        }
        if step or self.states.from_build:
            resting["optimizer"] = self.states.bytes
        return resting | self.extra.always

    @property
    def _product(self) -> BytesByGroup:
        """What a matrix product of a tower takes beside the rest."""
        return {"workspaces": self.workspace.passing}

    def _workspaces(self, threads: int) -> BytesByGroup:
        return {"workspaces": self.workspace.persistent * threads}


def estimate_training(program: Program, run: TrainRun, device: Device) -> Estimate:
    """The estimate for a training job."""
    return Trainer(program, run, device).estimate()


def unmeasured(run: TrainRun) -> list[str]:
    """The settings that no recorded run and no trace has held."""
    asked = {
        f"run.quantization = {run.quantization!r}": run.quantization not in {None, "int8", "nf4", "nf4-double"},
        "run.checkpointing = 'selective'": run.checkpointing == "selective",
        f"run.optimizer = {run.optimizer!r}": run.optimizer in NEVER_RUN,
        f"run.precision = {run.precision!r}": run.precision.startswith("fp8"),
    }
    return [key for key, given in asked.items() if given]


def clipping_bytes(tensors: Sequence[Parameter]) -> int:
    """What clip_grad_norm_ needs: a norm for each gradient, twice (stacked), and their norm with its reciprocal."""
    count = sum(tensor.count for tensor in tensors)
    return count * rounded(4) + rounded(4 * count) + 3 * rounded(4)
