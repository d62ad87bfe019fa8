"""What a training job asks of the caching allocator: its build, and two steps in the order of its tapes."""

import math
from collections.abc import Callable, Iterator, Sequence

from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.tape.heaps import JobHeap, Step
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import GRADIENTS, TapeStage, backward, forward
from vramtui.estimators.analytic.tape.simulated_job import AllocationTrace, Peaks, SimulatedJob
from vramtui.estimators.analytic.training.trainer import Trainer
from vramtui.models.spec import Parameter

BLOCKS_SHARE = 0.05
LAST = frozenset({"norm", "lm_head"})


def spread(total: int, tensors: Sequence[Parameter]) -> list[int]:
    """`total` bytes over all of the tensors by their sizes, a layer's beside each other.

    `total` counts blocks, so that a whole number of bytes for each element is a little more in it.
    """
    numel = sum(tensor.numel * tensor.count for tensor in tensors)
    if not numel:
        return []
    each = total / numel
    if each - int(each) < BLOCKS_SHARE:
        each = int(each)
    return _sizes(tensors, lambda numel: math.ceil(each * numel))


def frozen_blocks(program: Program) -> list[int]:
    """Bytes of every block of the frozen tensors, layer by layer, with the scales of quantised ones."""
    sizes = program.frozen_sizes()
    return [size for tensor in _ordered(program.frozen) for size in sizes[tensor]]


def _sizes(tensors: Sequence[Parameter], size_of: Callable[[int], int]) -> list[int]:
    """Bytes of every tensor in its order, by how many numbers it has."""
    sizes = {tensor: size_of(tensor.numel) for tensor in tensors}
    return [sizes[tensor] for tensor in _ordered(tensors)]


def _ordered(tensors: Sequence[Parameter]) -> Iterator[Parameter]:
    """Every tensor, layer by layer; a decoder's last norm and output layer come after them, as its modules are made."""
    if tensors and tensors[0].module == "embed_tokens":
        tensors = sorted(tensors, key=lambda tensor: not tensor.layer and tensor.module in LAST)
    at = 0
    while at < len(tensors):
        end = at
        while end < len(tensors) and tensors[end].layer and tensors[end].count == tensors[at].count:
            end += 1
        group = tensors[at : max(end, at + 1)]
        for _ in range(group[0].count):
            yield from group
        at += len(group)


def peaks_of(trainer: Trainer, run: TrainRun, heap: JobHeap | None = None) -> Peaks:
    """The peaks of two steps; from then on each asks for the same."""
    job = SimulatedJob(trainer.program.stages, trainer.workspace, heap)
    _two_steps(job, trainer, run)
    return job.peaks


def _two_steps(job: SimulatedJob, trainer: Trainer, run: TrainRun) -> None:
    program, recipe = trainer.program, trainer.program.recipe
    job.take("frozen", frozen_blocks(program))
    job.take("weights", _sizes(program.trained, lambda numel: numel * recipe.weights))
    job.take("buffers", [program.buffers])
    job.take("master", spread(trainer.master.bytes, program.trained))
    if trainer.states.from_build:
        _states(job, trainer)
    first = _micro_batch(job, program.stages, accumulate=False)
    later = _micro_batch(job, program.stages, accumulate=True) if run.gradient_accumulation_steps > 1 else first
    targets = program.inputs // 2 if program.targets is None else program.targets
    for step in (0, 1):
        for number in range(min(run.gradient_accumulation_steps, 2)):
            # The old batch is alive while the new one is made.
            old = job.pop("inputs") + job.pop("targets")
            job.take("inputs", [program.inputs - targets])
            job.take("targets", [targets])
            job.release(old)
            ahead, back = later if number else first
            job.play(ahead)
            old = job.pop("loss")
            job.take("loss", [program.loss])
            job.release(old)
            job.play(back)
        if not step and not trainer.states.from_build:
            _states(job, trainer)
        job.take("step", spread(trainer.master.bytes, program.trained))
        _temporaries(job, trainer)
        if not step:  # after the second nothing is asked for
            job.drop("step")
            job.drop(GRADIENTS)


def _micro_batch(job: SimulatedJob, stages: Sequence[TapeStage], *, accumulate: bool) -> tuple[list[Step], list[Step]]:
    ahead, back = AllocationTrace(job, "main"), AllocationTrace(job, "autograd")
    forward(stages, ahead, training=True)
    backward(stages, back, accumulate=accumulate)
    return ahead.steps, back.steps


def _temporaries(job: SimulatedJob, trainer: Trainer) -> None:
    """What an optimizer's step takes for itself; `drop("step")` lets go of what is left."""
    states, tensors, itemsize = trainer.states, trainer.program.trained, trainer.program.recipe.states
    if states.loop is None:
        lists = [_sizes(tensors, lambda numel: numel * itemsize)] * states.lists
        for sizes in lists or [spread(states.step, tensors)]:
            job.take("step", sizes)
        return
    for tensor in _ordered(tensors):
        before = job.pop("step of one")
        for blocks in states.loop(tensor):
            job.drop("step of one")
            job.take("step of one", blocks)
        own = job.live["step of one", 0]
        job.release((*before, *own[:-1]))
        del own[:-1]
    job.drop("step of one")


def _states(job: SimulatedJob, trainer: Trainer) -> None:
    each = max(trainer.states.count // max(trainer.gradients.count, 1), 1)
    sizes = spread(trainer.states.bytes, trainer.program.trained)
    job.take("optimizer", [-(-size // each) for size in sizes for _ in range(each)])
