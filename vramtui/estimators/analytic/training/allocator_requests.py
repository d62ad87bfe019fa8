"""A job's requests in the order of its tapes, played to the simulated caching allocator; those of training."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import pairwise
from operator import itemgetter

import msgspec

from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.allocator import CachingAllocator
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import GRADIENTS, SCRATCH, TapeStage, backward, forward
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.analytic.training.trainer import Trainer
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_SEGMENT, rounded, segment_bytes
from vramtui.models.spec import Parameter

# A take is (group, bytes, "", owner), a release (group, -bytes, "", owner), a matrix product ("", 0, "", None),
# a take that is released before anything else happens (group, bytes, PASSING, owner). With another group at the end the
# bytes of the owner's old storage are counted there from then on, as (new storage, old storage).
Step = tuple[str, int, str, object]
Held = tuple[int, object]
PASSING = "passing"
BLOCKS_SHARE = 0.05
LAST = frozenset({"norm", "lm_head"})
# More than any card has: what the job would reserve where nothing is ever given back.
ROOM = 1 << 100


class Journal:
    """Writes down every take and release of a replay, of a block that repeats as often as it does."""

    __slots__ = ("ran", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.ran: dict[Hashable, list[Step]] = {}

    def take(self, group: str, size: int, owner: object = None) -> None:
        """Note a request."""
        if size:
            self.steps.append((group, size, "", owner))

    def free(self, group: str, size: int, pieces: int = 1, owner: object = None) -> None:
        """Note a release, of several blocks of one size where it is `pieces`."""
        if not size:
            return
        last = self.steps[-1] if self.steps else None
        taken = last is not None and last[:3] == (group, size, "") and last[3] is owner
        if pieces == 1 and group != GRADIENTS and taken:
            self.steps[-1] = (group, size, PASSING, owner)
        else:
            self.steps += [(group, -(size // pieces), "", owner)] * pieces

    def move(self, old: Storage, new: Storage) -> None:
        """Note another owner for a block."""
        self.steps.append((old.group, old.size, new.group, (new, old)))

    def gemm(self) -> None:
        """Note that the thread needs its workspace."""
        self.steps.append(("", 0, "", None))

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """An operator's own bytes come and go."""
        sizes = [size for size in (workspace, *blocks) if size]
        if len(sizes) == 1:
            self.steps.append((SCRATCH, sizes[0], PASSING, None))
            return
        self.steps += [(SCRATCH, size, "", None) for size in sizes] + [(SCRATCH, -size, "", None) for size in sizes]

    def sum_anew(self, size: int) -> None:
        """A parameter's gradient is another block from here on; the older of the two is let go."""
        own = (SCRATCH, size, "", self)
        self.steps += [own, (GRADIENTS, size, "", self), (GRADIENTS, -size, "", None), (SCRATCH, -size, "", self)]

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        """`once` as often as it happens, from one call."""
        before, self.steps = self.steps, self.ran.get(shared, [])
        if not self.steps:
            once()
        if shared is not None:
            self.ran[shared] = self.steps
        self.steps = before + self.steps * count


class SimulatedJob:
    """Plays one job to an allocator. Blocks of one group, size and owner are let go newest first."""

    def __init__(self, program: Program, workspace: int) -> None:
        self.program, self.workspace = program, workspace
        self.allocator = CachingAllocator(ROOM)
        self.largest = 0
        self.live: defaultdict[tuple[str, int], list[Held]] = defaultdict(list)
        self.asked = _asked(program.stages)
        self.pairs = _pairs(program.trained, program.recipe.weights)

    def play(self, steps: Sequence[Step], thread: str) -> None:
        """A pass of one thread, whose first matrix product takes its workspace."""
        live, allocator, asked = self.live, self.allocator, self.asked
        malloc, free, pairs = allocator.malloc, allocator.free, self.pairs
        self.largest = max(self.largest, max(map(itemgetter(1), steps), default=0))
        for group, size, to, owner in steps:
            if to == PASSING:
                allocator.malloc_and_free(asked.get(size, size))
            elif to:
                assert isinstance(owner, tuple)  # as `move` wrote it
                live[to, size].append((_picked(live[group, size], owner[1]), owner[0]))
            elif size > 0 and group == GRADIENTS and size in pairs:
                for piece in pairs[size]:
                    live[group, piece].append((malloc(piece), None))
            elif size > 0:
                live[group, size].append((malloc(asked.get(size, size)), owner))
            elif size < 0:
                blocks = live[group, -size]
                if blocks:
                    free(_picked(blocks, owner))
            elif not live[thread, 0]:
                live[thread, 0] = [(malloc(self.workspace), None)]

    def take(self, name: str, sizes: Iterable[int]) -> None:
        """Requests of these sizes under one name."""
        self.live[name, 0].extend((self.allocator.malloc(size), None) for size in sizes if size)

    @property
    def peaks(self) -> "Peaks":
        """What the allocator's counters say so far."""
        stats = self.allocator.stats
        return Peaks(stats.peak_allocated, stats.peak_reserved, max(LARGE_SEGMENT, segment_bytes(self.largest)))

    def drop(self, name: str) -> None:
        """Let go of everything under a name."""
        for block, _ in self.live.pop((name, 0), []):
            self.allocator.free(block)
        for (group, _), blocks in self.live.items():
            if group == name:
                for block, _ in blocks:
                    self.allocator.free(block)
                blocks.clear()


def _picked(blocks: list[Held], owner: object) -> int:
    """The owner's newest block, or the newest of all where it has none, as a gradient that another block handed on."""
    for at in range(len(blocks) - 1, -1, -1):
        if blocks[at][1] is owner:
            return blocks.pop(at)[0]
    return blocks.pop()[0]


def _asked(stages: Sequence[TapeStage]) -> dict[int, int]:
    """What is asked for, by what a tape says it takes: without the tail of a segment of its own."""
    return {
        storage.size: rounded(storage.numel * storage.itemsize)
        for stage in stages
        for node in stage.tape.nodes
        for storage in node.makes
    }


def _pairs(trained: Sequence[Parameter], itemsize: int) -> dict[int, tuple[int, int]]:
    """Gradients of a weight and its bias, which tapes make as one; a tied output layer's stand apart in a model."""
    found = {}
    tables = [tensor for tensor in trained if not tensor.layer and len(tensor.shape) > 1]
    tied = [(first, bias) for first in tables for bias in trained if bias.shape == first.shape[:1]]
    for first, second in (*tied, *pairwise(trained)):
        pair = rounded(first.numel * itemsize), rounded(second.numel * itemsize)
        found[sum(pair)] = pair
    return {size: pair for size, pair in found.items() if size not in {rounded(t.numel * itemsize) for t in trained}}


def spread(total: int, tensors: Sequence[Parameter]) -> Iterator[int]:
    """`total` bytes over all of the tensors by their sizes, a layer's beside each other.

    `total` counts blocks, so that a whole number of bytes for each element is a little more in it.
    """
    numel = sum(tensor.numel * tensor.count for tensor in tensors)
    if not numel:
        return
    each = total / numel
    if each - int(each) < BLOCKS_SHARE:
        each = int(each)
    yield from (math.ceil(each * tensor.numel) for tensor in _ordered(tensors))


def frozen_blocks(program: Program) -> Iterator[int]:
    """Bytes of every block of the frozen tensors, layer by layer, with the scales of quantised ones."""
    sizes = program.frozen_sizes()
    for tensor in _ordered(program.frozen):
        yield from sizes[tensor]


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


class Peaks(msgspec.Struct, frozen=True):
    """Peaks in bytes as the allocator's own counters have them, and the largest segment of any pass.

    Whether one block of that size finds a hole or takes a new segment hangs on the order of far smaller ones.
    """

    allocated: int
    reserved: int
    segment: int


def peaks_of(trainer: Trainer, run: TrainRun) -> Peaks:
    """The peaks of two steps; from then on each asks for the same."""
    job = SimulatedJob(trainer.program, trainer.workspace)
    _two_steps(job, trainer, run)
    return job.peaks


def _two_steps(job: SimulatedJob, trainer: Trainer, run: TrainRun) -> None:
    program, recipe = trainer.program, trainer.program.recipe
    job.take("frozen", frozen_blocks(program))
    job.take("weights", (tensor.numel * recipe.weights for tensor in _ordered(program.trained)))
    job.take("buffers", [program.buffers])
    job.take("master", spread(trainer.master.bytes, program.trained))
    if trainer.states.from_build:
        _states(job, trainer)
    first = _micro_batch(program.stages, accumulate=False)
    later = _micro_batch(program.stages, accumulate=True) if run.gradient_accumulation_steps > 1 else first
    targets = program.inputs // 2 if program.targets is None else program.targets
    for step in (0, 1):
        for number in range(min(run.gradient_accumulation_steps, 2)):
            # The old batch is alive while the new one is made.
            old = [block for name in ("inputs", "targets") for block in job.live.pop((name, 0), [])]
            job.take("inputs", [program.inputs - targets])
            job.take("targets", [targets])
            for block, _ in old:
                job.allocator.free(block)
            ahead, back = later if number else first
            job.play(ahead, "main")
            old = job.live.pop(("loss", 0), [])
            job.take("loss", [program.loss])
            for block, _ in old:
                job.allocator.free(block)
            job.play(back, "autograd")
        if not step and not trainer.states.from_build:
            _states(job, trainer)
        job.take("step", spread(trainer.master.bytes, program.trained))
        _temporaries(job, trainer)
        job.drop("step")
        job.drop(GRADIENTS)


def _micro_batch(stages: Sequence[TapeStage], *, accumulate: bool) -> tuple[list[Step], list[Step]]:
    ahead, back = Journal(), Journal()
    forward(stages, ahead, training=True)
    backward(stages, back, accumulate=accumulate)
    return ahead.steps, back.steps


def _temporaries(job: SimulatedJob, trainer: Trainer) -> None:
    """What an optimizer's step takes for itself; `drop("step")` lets go of what is left."""
    states, tensors, itemsize = trainer.states, trainer.program.trained, trainer.program.recipe.states
    if states.loop is None:
        lists = [[tensor.numel * itemsize for tensor in _ordered(tensors)]] * states.lists
        for sizes in lists or [list(spread(states.step, tensors))]:
            job.take("step", sizes)
        return
    for tensor in _ordered(tensors):
        before = job.live.pop(("step of one", 0), [])
        for blocks in states.loop(tensor):
            job.drop("step of one")
            job.take("step of one", blocks)
        held = job.live["step of one", 0]
        for block, _ in (*before, *held[:-1]):
            job.allocator.free(block)
        del held[:-1]
    job.drop("step of one")


def _states(job: SimulatedJob, trainer: Trainer) -> None:
    each = max(trainer.states.count // max(trainer.gradients.count, 1), 1)
    sizes = list(spread(trainer.states.bytes, trainer.program.trained))
    job.take("optimizer", (-(-size // each) for size in sizes for _ in range(each)))
