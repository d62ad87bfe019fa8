"""A job's requests in the order of its tapes, played to the simulated caching allocator; those of training."""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import msgspec

from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.allocator import CachingAllocator
from vramtui.estimators.analytic.tape.program import Program
from vramtui.estimators.analytic.tape.replay import GRADIENTS, SCRATCH, TapeStage, backward, forward
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.analytic.training.trainer import Trainer
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_SEGMENT, rounded, segment_bytes
from vramtui.models.spec import Parameter

BLOCKS_SHARE = 0.05
LAST = frozenset({"norm", "lm_head"})
# More than any card has: what the job would reserve where nothing is ever given back.
ROOM = 1 << 100


class Allocate(msgspec.Struct, frozen=True, gc=False):
    """A request of `size` bytes for `owner`."""

    group: str
    size: int
    owner: object


class Release(msgspec.Struct, frozen=True, gc=False):
    """The owner's newest block of that group and size goes."""

    group: str
    size: int
    owner: object


class Transient(msgspec.Struct, frozen=True, gc=False):
    """A request that is released before anything else happens."""

    size: int


class Move(msgspec.Struct, frozen=True, gc=False):
    """The block of `old` belongs to `new`, and counts in its group, from here on."""

    old: Storage
    new: Storage


class MatrixProduct(msgspec.Struct, frozen=True, gc=False):
    """A matrix product, the first of which takes its thread's workspace."""


Step = Allocate | Release | Transient | Move | MatrixProduct
Held = tuple[int, object]


class AllocationTrace:
    """Writes down every take and release of a replay, of a block that repeats as often as it does.

    Attributes:
        steps: what happened, in its order.
        largest: bytes of the largest request.
    """

    __slots__ = ("largest", "ran", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.largest = 0
        self.ran: dict[Hashable, list[Step]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:
        """Note a request, and one more for a bias's share of it."""
        if size:
            self.largest = max(self.largest, size)
            self.steps.append(Allocate(group, size - bias, owner))
            if bias:
                self.steps.append(Allocate(group, bias, owner))

    def free(self, group: str, size: int, pieces: int = 1, owner: object = None) -> None:
        """Note a release, of several blocks of one size where it is `pieces`."""
        if not size:
            return
        last = self.steps[-1] if self.steps else None
        if (
            pieces == 1
            and group != GRADIENTS
            and isinstance(last, Allocate)
            and (last.group, last.size) == (group, size)
            and last.owner is owner
        ):
            self.steps[-1] = Transient(size)
        else:
            self.steps += [Release(group, size // pieces, owner)] * pieces

    def move(self, old: Storage, new: Storage) -> None:
        """Note another owner for a block."""
        self.steps.append(Move(old, new))

    def gemm(self) -> None:
        """Note that the thread needs its workspace."""
        self.steps.append(MatrixProduct())

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """An operator's own bytes come and go."""
        sizes = [size for size in (workspace, *blocks) if size]
        if not sizes:
            return
        self.largest = max(self.largest, *sizes)
        if len(sizes) == 1:
            self.steps.append(Transient(sizes[0]))
            return
        self.steps += [Allocate(SCRATCH, size, None) for size in sizes]
        self.steps += [Release(SCRATCH, size, None) for size in sizes]

    def sum_anew(self, size: int) -> None:
        """A parameter's gradient is another block from here on; the older of the two is let go."""
        self.largest = max(self.largest, size)
        self.steps += [Allocate(SCRATCH, size, self), Allocate(GRADIENTS, size, self)]
        self.steps += [Release(GRADIENTS, size, None), Release(SCRATCH, size, self)]

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

    def play(self, trace: AllocationTrace, thread: str) -> None:
        """A pass of one thread, whose first matrix product takes its workspace."""
        live, allocator, asked = self.live, self.allocator, self.asked
        malloc, free = allocator.malloc, allocator.free
        self.largest = max(self.largest, trace.largest)
        for step in trace.steps:
            match step:
                case Transient():
                    allocator.malloc_and_free(asked.get(step.size, step.size))
                case Allocate():
                    live[step.group, step.size].append((malloc(asked.get(step.size, step.size)), step.owner))
                case Release():
                    blocks = live[step.group, step.size]
                    if blocks:
                        free(pop_block(blocks, step.owner))
                case Move():
                    block = pop_block(live[step.old.group, step.old.size], step.old)
                    live[step.new.group, step.old.size].append((block, step.new))
                case MatrixProduct():
                    if not live[thread, 0]:
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


def pop_block(blocks: list[Held], owner: object) -> int:
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


def _micro_batch(stages: Sequence[TapeStage], *, accumulate: bool) -> tuple[AllocationTrace, AllocationTrace]:
    ahead, back = AllocationTrace(), AllocationTrace()
    forward(stages, ahead, training=True)
    backward(stages, back, accumulate=accumulate)
    return ahead, back


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
