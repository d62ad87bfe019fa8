"""What a model that only answers asks of the caching allocator: one pass, or a prompt and the tokens after it."""

from collections.abc import Sequence

from vramtui.estimators.analytic.generation.decoder import Generation
from vramtui.estimators.analytic.tape.heaps import Allocate, Held, JobHeap, Release, Step
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import STAYS, TapeStage, forward
from vramtui.estimators.analytic.tape.simulated_job import AllocationTrace, Peaks, SimulatedJob
from vramtui.estimators.analytic.training.allocator_requests import frozen_blocks
from vramtui.estimators.torch_facts.allocator_sizes import MIN_BLOCK, rounded
from vramtui.estimators.torch_facts.cublas import Workspace

# New tokens whose growing keys and values are followed one by one; by then segments have found their sizes.
FOLLOWED = 32


def peaks_of_pass(program: Program, workspace: Workspace, heap: JobHeap | None = None) -> Peaks:
    """The peaks of one forward pass."""
    job = _built(program, workspace, heap)
    job.play(_pass(job, program.stages))
    return job.peaks


def peaks_of_generation(generation: Generation, heap: JobHeap | None = None) -> Peaks:
    """The peaks of the prompt and of the tokens after it."""
    job = _built(generation.program, generation.workspace, heap)
    job.take("held", [generation.held_bytes(generation.sequence, 0)])
    job.play(_pass(job, generation.prompt))
    job.drop("held")
    new = generation.run.new_tokens - 1
    if new > 0 and generation.cache.grows:
        for token in range(1, min(new, FOLLOWED)):
            _grow(job, generation.sequence + token - 1, generation.sequence + token)
    if new > 0:
        job.take("held", [generation.held_bytes(1, generation.length - 1)])
        job.play(_pass(job, generation.stages(1, generation.length - 1)))
    return job.peaks


def _built(program: Program, workspace: Workspace, heap: JobHeap | None) -> SimulatedJob:
    job = SimulatedJob(program.stages, workspace, heap)
    job.take("frozen", frozen_blocks(program))
    job.take("buffers", [program.buffers])
    job.take("inputs", [program.inputs])
    return job


def _pass(job: SimulatedJob, stages: Sequence[TapeStage]) -> list[Step]:
    trace = AllocationTrace(job, "main")
    forward(stages, trace, training=False)
    return trace.steps


def _grow(job: SimulatedJob, before: int, after: int) -> None:
    """Every layer's keys and values with one token more: torch.cat makes the longer tensor before the old one goes."""
    grown: dict[tuple[str, int], list[Held]] = {}
    for (group, size), blocks in list(job.live.items()):
        if group != STAYS or not size:
            continue
        longer = rounded(size * after // before)
        others = grown.setdefault((group, longer), [])
        for block in blocks:
            job.play([Allocate(others, longer // MIN_BLOCK, block[2]), Release([block], block[2])])
        del job.live[group, size]
    job.live.update(grown)
