"""A job's requests in the order of its tapes, played to the caching allocator."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

import msgspec

from vramtui.estimators.analytic.tape.heaps import DefaultHeap, JobHeap
from vramtui.estimators.analytic.tape.meter import SCRATCH
from vramtui.estimators.analytic.tape.replay import GRADIENTS, TapeStage
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_SEGMENT, MIN_BLOCK, segment_bytes
from vramtui.estimators.torch_facts.cublas import Workspace

Held = tuple[int, object]
"""A block that is handed out, and whose it is."""


class Allocate(msgspec.Struct, frozen=True, gc=False):
    """A request of so many units for `owner`; its block joins `blocks`, those of its group and size."""

    blocks: list[Held]
    units: int
    owner: object


class Release(msgspec.Struct, frozen=True, gc=False):
    """The owner's newest block of these goes."""

    blocks: list[Held]
    owner: object


class Transient(msgspec.Struct, frozen=True, gc=False):
    """A request that is released before anything else happens."""

    units: int


class Move(msgspec.Struct, frozen=True, gc=False):
    """The newest block of `old` belongs to `new`, and counts among other blocks, from here on."""

    blocks: list[Held]
    old: Storage
    others: list[Held]
    new: Storage


class MatrixProduct(msgspec.Struct, frozen=True, gc=False):
    """A matrix product, the first of which takes its thread's workspace."""


Step = Allocate | Release | Transient | Move | MatrixProduct


class Peaks(msgspec.Struct, frozen=True):
    """Peaks in bytes as the allocator's own counters have them, and the largest segment of any pass.

    Whether one block of that size finds a hole or takes a new segment hangs on the order of far smaller ones.
    """

    allocated: int
    reserved: int
    segment: int


class SimulatedJob:
    """Plays one job to a heap, on one stream.

    Attributes:
        live: blocks by group and by what a tape says that they take; let go newest first.
        largest: bytes of the largest request of a pass.
        workspace: what cuBLAS takes in a thread.
    """

    def __init__(self, stages: Sequence[TapeStage], workspace: Workspace, heap: JobHeap | None = None) -> None:
        self.live: defaultdict[tuple[str, int], list[Held]] = defaultdict(list)
        self.workspace = workspace
        self.largest = 0
        # A tape counts the tail of a segment of its own, which is not asked for.
        storages = (storage for stage in stages for node in stage.tape.nodes for storage in node.makes)
        self._asked = {storage.size: storage.numel * storage.itemsize for storage in storages}
        self._heap = DefaultHeap() if heap is None else heap
        self.malloc, self.free = self._heap.malloc, self._heap.free

    def units_of(self, size: int) -> int:
        """Units of the request for what takes `size` bytes on a tape."""
        self.largest = max(self.largest, size)
        return -(-self._asked.get(size, size) // MIN_BLOCK)

    def play(self, steps: Sequence[Step], thread: str) -> None:
        """A pass of one thread, whose first matrix product takes its workspace."""
        malloc, free, borrow = self.malloc, self.free, self._heap.borrow
        workspaces = self.live[thread, 0]
        for step in steps:
            # Of many thousand steps `match` takes half of the time, and `isinstance` a sixth.
            if type(step) is Allocate:
                step.blocks.append((malloc(step.units), step.owner))
            elif type(step) is Release:
                blocks, owner = step.blocks, step.owner
                if blocks:
                    at = len(blocks) - 1
                    while at and blocks[at][1] is not owner:
                        at -= 1
                    free(blocks.pop(at if blocks[at][1] is owner else -1)[0])
            elif type(step) is Transient:
                borrow(step.units)
            elif type(step) is MatrixProduct:
                if not workspaces:
                    self.take(thread, [self.workspace.kept])
            elif type(step) is Move:
                step.others.append((_pop_block(step.blocks, step.old), step.new))

    def take(self, name: str, sizes: Sequence[int]) -> None:
        """Requests of these sizes under one name."""
        self.live[name, 0] += [(self.malloc(-(-size // MIN_BLOCK)), None) for size in sizes if size]

    def pop(self, name: str) -> list[Held]:
        """What was taken under a name, which has nothing then."""
        blocks = self.live[name, 0]
        held = blocks.copy()
        blocks.clear()
        return held

    def drop(self, name: str) -> None:
        """Let go of everything under a name."""
        for (group, _), blocks in self.live.items():
            if group == name:
                for block, _ in blocks:
                    self.free(block)
                blocks.clear()

    @property
    def peaks(self) -> Peaks:
        """What the allocator's counters say so far."""
        segment = max(LARGE_SEGMENT, segment_bytes(self.largest))
        return Peaks(self._heap.peak_allocated, self._heap.peak_reserved, segment)


def _pop_block(blocks: list[Held], owner: object) -> int:
    """The owner's newest block, or the newest of all where it has none, as a gradient that another block handed on."""
    at = next((at for at in range(len(blocks) - 1, -1, -1) if blocks[at][1] is owner), -1)
    return blocks.pop(at)[0]


class AllocationTrace:
    """Writes down what a replay asks of a job's allocator, of a block that repeats as often as it does."""

    __slots__ = ("_job", "_ran", "steps")

    def __init__(self, job: SimulatedJob) -> None:
        self.steps: list[Step] = []
        self._job = job
        self._ran: dict[Hashable, list[Step]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:
        """Note a request, and one more for a bias's share of it."""
        if size:
            self._job.largest = max(self._job.largest, size)
            self.steps.append(self._allocate(group, size - bias, owner))
            if bias:
                self.steps.append(self._allocate(group, bias, owner))

    def free(self, group: str, size: int, pieces: int = 1, owner: object = None) -> None:
        """Note a release, of several blocks of one size where it is `pieces`."""
        if not size:
            return
        last, blocks = self.steps[-1] if self.steps else None, self._job.live[group, size // pieces]
        if (
            pieces == 1
            and group != GRADIENTS
            and isinstance(last, Allocate)
            and last.blocks is blocks
            and last.owner is owner
        ):
            self.steps[-1] = Transient(last.units)
        else:
            self.steps += [Release(blocks, owner)] * pieces

    def move(self, old: Storage, new: Storage) -> None:
        """Note another owner for a block."""
        live = self._job.live
        self.steps.append(Move(live[old.group, old.size], old, live[new.group, old.size], new))

    def gemm(self, *, fused_bias: bool = False) -> None:
        """Note that the thread needs its workspace, or a product one of its own."""
        workspace = self._job.workspace
        size = workspace.fused if fused_bias else workspace.passing
        self.steps.append(Transient(-(-size // MIN_BLOCK)) if workspace.passing else MatrixProduct())

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """An operator's own bytes come and go."""
        sizes = [size for size in (workspace, *blocks) if size]
        if len(sizes) == 1:
            self.steps.append(Transient(self._job.units_of(sizes[0])))
            return
        self.steps += [self._allocate(SCRATCH, size, None) for size in sizes]
        self.steps += [Release(self._job.live[SCRATCH, size], None) for size in sizes]

    def sum_anew(self, size: int) -> None:
        """A parameter's gradient is another block from here on; the older of the two is let go."""
        scratch, gradients = self._allocate(SCRATCH, size, self), self._allocate(GRADIENTS, size, self)
        self.steps += [scratch, gradients, Release(gradients.blocks, None), Release(scratch.blocks, self)]

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        """`once` as often as it happens, from one call."""
        before, self.steps = self.steps, self._ran.get(shared, [])
        if not self.steps:
            once()
        if shared is not None:
            self._ran[shared] = self.steps
        self.steps = before + self.steps * count

    def _allocate(self, group: str, size: int, owner: object) -> Allocate:
        return Allocate(self._job.live[group, size], self._job.units_of(size), owner)
