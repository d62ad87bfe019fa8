"""A training job followed through its phases: what is held at each moment, and which moment is the fullest."""

from collections.abc import Sequence
from functools import cached_property

import msgspec

from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic import assemble as assembly
from vramtui.estimators.analytic.optimizers import States, optimizer_states
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes, precision_notes
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.estimators.torch_facts.cublas import Workspace

compile_program = late("vramtui.estimators.analytic.tape.fusion:compile_program")  # which eager jobs do not need
AUTOGRAD_SOURCE = "PyTorch, tools/autograd/derivatives.yaml, and the model's code"
NEVER_RUN = frozenset({"paged_adamw_8bit", "paged_adamw_32bit"})  # they need managed memory of a real driver


class BesideTraining(msgspec.Struct, frozen=True):
    """Bytes that a rank holds besides a job's own tensors, in bytes by group.

    Attributes:
        always: from build to the end.
        forward: within the forward pass.
        between: from the end of forward to backward.
        backward: within the backward pass.
        loss, last, first: within the backward pass of the last stage, before its first product (the loss) and from
            then on (the output layer), and of the first stage (the embeddings), where that is not the same as within
            the others.
    """

    always: tapes.BytesByGroup = {}
    forward: tapes.BytesByGroup = {}
    between: tapes.BytesByGroup = {}
    backward: tapes.BytesByGroup = {}
    loss: tapes.BytesByGroup | None = None
    last: tapes.BytesByGroup | None = None
    first: tapes.BytesByGroup | None = None


class Trainer:
    """One training job's sizes, which a rank of several changes to its own; `follow` goes through two steps.

    `before` is what frozen models hold while they prepare a batch.
    """

    def __init__(
        self, program: tapes.Program, run: TrainRun, device: Device, before: dict[str, assembly.Fact] | None = None
    ) -> None:
        if run.compile:
            program = compile_program(program)
        self.program, self.run, self.device, self.before = program, run, device, before or {}
        recipe = program.recipe
        self.weights = program.weights
        self.gradients: BlockBytes = program.gradients
        self.states: States = optimizer_states(
            program.trained, recipe.states, run.optimizer, run.stepping, card_limits(device)
        )
        self.master = block_bytes(program.trained, 4) if recipe.master else BlockBytes()
        self.clipping = 0
        if run.max_grad_norm is not None:
            # clip_grad_norm_: a norm for each gradient, twice (stacked), and their norm with its reciprocal.
            count = sum(tensor.count for tensor in program.trained)
            self.clipping = count * rounded(4) + rounded(4 * count) + 3 * rounded(4)
        multiplies = any(node.gemm for stage in program.stages for node in stage.tape.nodes)
        self.workspace = workspace_for(run, device) if multiplies else Workspace()
        self.extra = BesideTraining()
        if run.optimizer_in_backward:
            tapes.drop_gradients(program.stages)
            largest = max((rounded(one.numel * recipe.weights) for one in program.trained), default=0)
            self.gradients, self.extra = BlockBytes(), BesideTraining(backward={tapes.GRADIENTS: largest})
            self.states = msgspec.structs.replace(self.states, step=0, step_formula="within the backward pass")

    @cached_property
    def first(self) -> tapes.Passes:
        return tapes.replayed(self.program.stages, workspace=self.workspace)

    @cached_property
    def later(self) -> tapes.Passes:
        """Another one, which adds to the gradients that are there."""
        if self.run.gradient_accumulation_steps == 1:
            return self.first
        return tapes.replayed(self.program.stages, accumulate=True, workspace=self.workspace)

    def follow(self) -> assembly.MomentLog:
        """Every moment of steps 0 and 1; from then on every step is like step 1."""
        moments, program = assembly.MomentLog(), self.program
        resting = {
            "weights": self.weights.bytes,
            "weight tails": self.weights.tails,
            "buffers": program.buffers,
            "master weights": self.master.bytes,
        }
        states = {"optimizer": self.states.bytes}
        if self.states.from_build:
            resting |= states
        moments.note("build", 0, resting | self.extra.always)
        for step in (0, 1):
            if step:
                resting |= states
            threads = 2 if step else 0  # of the main one and autograd's, those that have their workspaces already
            inputs = {"inputs": program.inputs + program.loss}
            fed = tapes.summed(resting | self.extra.always, inputs, self._workspaces(threads))
            if step:
                moments.note("input", step, tapes.summed(fed, inputs), end=False)
            if self.before:
                before = {name: fact.bytes for name, fact in self.before.items()}
                moments.note("input", step, tapes.summed(fed, before), end=False)
            moments.note("input", step, fed)
            tower = program.tower
            if tower is not None:
                # A tower's pass over the images comes before the words are read.
                fed = tapes.summed(fed, {tapes.PIXELS: tower.pixels})
                passing = {tapes.WORKSPACES: self.workspace.passing}
                moments.note("forward", step, tapes.summed(fed, {tapes.TOWER: tower.fullest}, passing), end=False)
                fed = tapes.summed(fed, {tapes.TOWER: tower.saved, tapes.FEATURES: tower.features})
            done = self._micro_batch(moments, step, fed, self.first, {}, threads)
            if self.run.gradient_accumulation_steps > 1:
                done = self._micro_batch(moments, step, fed, self.later, {tapes.GRADIENTS: self.gradients.bytes}, 2)
            stepping = done if step or self.states.from_build else tapes.summed(done, states)
            moments.note("step", step, tapes.summed(done, {"gradient clipping": self.clipping}), end=False)
            passing = {"fp32 gradients": self.master.bytes, "step temporaries": self.states.step}
            moments.note("step", step, tapes.summed(stepping, passing), end=False)
            moments.note("step", step, stepping)
            moments.note("zero_grad", step, {name: size for name, size in stepping.items() if name != tapes.GRADIENTS})
        return moments

    def _micro_batch(
        self,
        moments: assembly.MomentLog,
        step: int,
        fed: tapes.BytesByGroup,
        passes: tapes.Passes,
        constant: tapes.BytesByGroup,
        threads: int,
    ) -> tapes.BytesByGroup:
        """Forward and backward, with what else is there at each moment; `threads` have their workspaces already."""
        extra, ahead, back, tower = self.extra, passes.forward, passes.backward, self.program.tower
        start = tapes.summed({name: size for name, size in fed.items() if name != tapes.WORKSPACES}, constant)
        one, two = (tapes.summed(start, self._workspaces(count)) for count in (max(threads, 1), 2))
        none = tapes.summed(start, self._workspaces(threads))
        moments.note("forward", step, tapes.summed(none, extra.forward, ahead.early), end=False)
        moments.note("forward", step, tapes.summed(one, extra.forward, ahead.late), end=False)
        moments.note("forward", step, tapes.summed(one, extra.between, ahead.end))
        last = extra.backward if extra.last is None else extra.last
        first = extra.backward if extra.first is None else extra.first
        moments.note(
            "backward", step, tapes.summed(one, last if extra.loss is None else extra.loss, back.early), end=False
        )
        for within, fullest in zip((last, extra.backward, first), passes.regions, strict=True):
            if fullest:
                moments.note("backward", step, tapes.summed(two, within, fullest), end=False)
        done = tapes.summed(two, back.end)
        moments.note("backward", step, done)
        if tower is None:
            return done
        # The tower's backward pass comes last; its gradients stay.
        left = {name: size for name, size in done.items() if name not in {tapes.TOWER, tapes.FEATURES}}
        passing = {tapes.WORKSPACES: self.workspace.passing}
        moments.note("backward", step, tapes.summed(left, {tapes.TOWER: tower.backward}, passing), end=False)
        return tapes.summed(left, {tapes.GRADIENTS: tower.gradients})

    def _workspaces(self, threads: int) -> tapes.BytesByGroup:
        return {tapes.WORKSPACES: self.workspace.persistent * threads}

    def estimate(self) -> Estimate:
        estimate = assembly.assemble(
            self.follow(),
            self.facts(),
            self.device,
            self.notes,
            self.states.paged,
            cache=assembly.Cached(assembly.cached_share(self.run)),
        )
        run = self.run
        settings = {  # that no recorded run and no trace has held
            f"run.quantization = {run.quantization!r}": run.quantization not in {None, "int8", "nf4", "nf4-double"},
            "run.checkpointing = 'selective'": run.checkpointing == "selective",
            "run.activation_offloading": run.activation_offloading,
            f"run.optimizer = {run.optimizer!r}": run.optimizer in NEVER_RUN,
            f"run.precision = {run.precision!r}": run.precision.startswith("fp8"),
        }
        if unheld := [key for key, given in settings.items() if given]:
            note = f"how far off it is was never measured with {', '.join(unheld)}: it follows only the code"
            estimate = msgspec.structs.replace(estimate, error=None, assumptions=(*estimate.assumptions, note))
        if not self.program.measured:
            estimate = msgspec.structs.replace(estimate, error=None)
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, *self.outside))

    @property
    def notes(self) -> tuple[str, ...]:
        return (*self.program.notes, *precision_notes(self.run, self.program.recipe), *filter(None, [self.states.note]))

    @property
    def outside(self) -> tuple[Part, ...]:
        """Memory of the job on the GPU outside PyTorch's allocator, except the context."""
        if not self.states.paged:
            return ()
        fact = assembly.Fact(
            "other", self.states.formula, self.states.source, "from the first optimizer step to the end"
        )
        return (fact.part("paged optimizer states", self.states.paged),)

    def facts(self) -> dict[str, assembly.Fact]:
        """The facts of every part that a training job can hold, in the order they are shown."""
        program, states, trained = self.program, self.states, self.program.trained_numel
        since = "build" if states.from_build else "the first optimizer step"
        lifetime = "from forward to backward"
        if self.run.checkpointing != "none":
            lifetime = "made again in the backward pass of its block"
        kept_by = tapes.saved_by_group(program.stages)
        saved_facts = {
            group: assembly.Fact(
                "temporaries" if group == tapes.CASTS else "activations",
                _formula_of(tensors),
                AUTOGRAD_SOURCE,
                "from the first block to the last" if group.endswith("stream") else lifetime,
                bytes=sum(saved.size * saved.count * saved.times for saved in tensors),
                count=sum(saved.count * saved.times for saved in tensors),
            )
            for group, tensors in kept_by.items()
        }
        passed_on = {
            group: assembly.Fact(
                "temporaries" if group == tapes.CASTS else "activations",
                "passed on at once; autograd keeps none of it",
                AUTOGRAD_SOURCE,
                "within its operators",
            )
            for group in tapes.passing_groups(program.stages, kept_by)
        }
        loss = f"; and {program.loss:,} B that the last mse_loss keeps" if program.loss else ""
        return {
            **assembly.model_facts(program, self.weights),
            "gradients": assembly.Fact(
                "gradients",
                f"{trained:,} trained parameters x {program.recipe.weights} B, of the weights' type",
                "torch.autograd: a gradient has its parameter's type and shape",
                "from each layer's backward to zero_grad(set_to_none=True)",
                bytes=self.gradients.bytes,
                count=self.gradients.count,
            ),
            "optimizer": assembly.Fact(
                "optimizer",
                f"{self.run.optimizer}: {states.formula}",
                states.source,
                f"from {since} to the end",
                bytes=states.bytes,
                count=states.count,
            ),
            "master weights": assembly.Fact(
                "master_weights",
                f"{trained:,} x 4 B: the optimizer's own copy in fp32",
                "Micikevicius et al. 2018 (arXiv 1710.03740)",
                "from build to the end",
                bytes=self.master.bytes,
                count=self.master.count,
            ),
            "fp32 gradients": assembly.Fact(
                "temporaries",
                f"{trained:,} x 4 B: gradients raised to the master weights' type",
                "Micikevicius et al. 2018 (arXiv 1710.03740)",
                "within the optimizer step",
                bytes=self.master.bytes,
            ),
            "gradient clipping": assembly.Fact(
                "temporaries",
                f"a norm for each of {self.gradients.count:,} gradients, once alone and once stacked",
                "PyTorch, torch/nn/utils/clip_grad.py",
                "before the optimizer step",
                bytes=self.clipping,
            ),
            "step temporaries": assembly.Fact(
                "temporaries",
                f"{self.run.stepping} {self.run.optimizer}: {states.step_formula}",
                states.source,
                "within the optimizer step",
                bytes=states.step,
            ),
            **assembly.tower_pass_facts(program.tower),
            **saved_facts,
            **passed_on,
            "inputs": assembly.Fact(
                "inputs",
                program.inputs_formula + loss,
                "one batch; the next is made while the last is alive",
                "one step",
                bytes=program.inputs + program.loss,
            ),
            tapes.WORKSPACES: assembly.workspace_fact(
                self.workspace, "one for the forward pass's thread, one for autograd's", 2
            ),
            tapes.BACKWARD: assembly.Fact(
                "temporaries",
                "the gradients of activations alive together at the fullest moment of the backward pass",
                AUTOGRAD_SOURCE,
                "within the backward pass of its block",
            ),
            tapes.SCRATCH: assembly.Fact(
                "temporaries",
                "what the operator at the fullest moment needs for itself: partial sums, products on the way",
                "PyTorch, aten/src/ATen/native/cuda",
                "within one operator",
            ),
            **self.before,
        }


def _formula_of(tensors: Sequence[tapes.SavedTensors]) -> str:
    """Return the tensors of a group by how often they occur: `12 x (196,608 x 2 B (queries) + ...)`.

    A block of 1 MiB and more may be up to 1 MiB larger than its tensor (c10/cuda/CUDACachingAllocator.cpp).
    """
    by_count: dict[int, list[str]] = {}
    for saved in tensors:
        each = f"{saved.numel:,} x {saved.itemsize} B ({', '.join(saved.labels)})"
        by_count.setdefault(saved.count, []).append(f"{saved.times} x {each}" if saved.times > 1 else each)
    terms = ((count, " + ".join(sizes)) for count, sizes in by_count.items())
    formula = " + ".join(f"{count} x ({inner})" if count > 1 else inner for count, inner in terms)
    blocks = sum((saved.size - saved.numel * saved.itemsize) * saved.count * saved.times for saved in tensors)
    if blocks <= sum(512 * saved.count * saved.times for saved in tensors):
        return formula
    return f"{formula} + {blocks:,} B by which blocks are larger"
