"""A job's requests in the order of its tapes, played to the caching allocator."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

import msgspec

from vramtui.estimators.analytic.tape.heaps import (
    Allocate,
    DefaultHeap,
    Held,
    JobHeap,
    MatrixProduct,
    Move,
    Release,
    Step,
    Transient,
)
from vramtui.estimators.analytic.tape.meter import SCRATCH
from vramtui.estimators.analytic.tape.replay import GRADIENTS, TapeStage
from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_SEGMENT, MIN_BLOCK, segment_bytes
from vramtui.estimators.torch_facts.cublas import Workspace


class Peaks(msgspec.Struct, frozen=True):
    """Peaks in bytes as the allocator's own counters have them, and the largest segment of any pass.

    Whether one block of that size finds a hole or takes a new segment hangs on the order of far smaller ones.
    """

    allocated: int
    reserved: int
    segment: int


class SimulatedJob:
    """Plays one job to a heap, on one stream: `play` serves a pass, whose first matrix product takes its workspace.

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
        self.play = self._heap.play

    def units_of(self, size: int) -> int:
        """Units of the request for what takes `size` bytes on a tape."""
        self.largest = max(self.largest, size)
        return -(-self._asked.get(size, size) // MIN_BLOCK)

    def take(self, name: str, sizes: Sequence[int]) -> None:
        """Requests of these sizes under one name."""
        blocks = self.live[name, 0]
        self.play([Allocate(blocks, -(-size // MIN_BLOCK), None) for size in sizes if size])

    def pop(self, name: str) -> list[Held]:
        """What was taken under a name, which has nothing then."""
        blocks = self.live[name, 0]
        taken = blocks.copy()
        blocks.clear()
        return taken

    def release(self, blocks: Iterable[Held]) -> None:
        """Let go of these."""
        self.play([Release([one], one[2]) for one in blocks])

    def drop(self, name: str) -> None:
        """Let go of everything under a name."""
        for (group, _), blocks in self.live.items():
            if group == name:
                self.release(blocks)
                blocks.clear()

    @property
    def peaks(self) -> Peaks:
        """What the allocator's counters say so far."""
        segment = max(LARGE_SEGMENT, segment_bytes(self.largest))
        return Peaks(self._heap.peak_allocated, self._heap.peak_reserved, segment)


class AllocationTrace:
    """Writes down what a replay asks of a job's allocator, of a block that repeats as often as it does.

    Args:
        job: whose allocator it is.
        thread: in which it runs.
    """

    __slots__ = ("_job", "_ran", "_thread", "steps")

    def __init__(self, job: SimulatedJob, thread: str) -> None:
        self.steps: list[Step] = []
        self._job = job
        self._thread = thread
        self._ran: dict[Hashable, list[Step]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:
        """Note a request, and one more for a bias's share of it."""
        if size:
            self._job.largest = max(self._job.largest, size)
            self.steps.append(self._allocate(group, size - bias, owner))
            if bias:
                self.steps.append(self._allocate(group, bias, owner))

    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None:
        """Note a release, of several blocks of one size where it is `count`."""
        if not size:
            return
        last, blocks = self.steps[-1] if self.steps else None, self._job.live[group, size // count]
        if (
            count == 1
            and group != GRADIENTS
            and isinstance(last, Allocate)
            and last.blocks is blocks
            and last.owner is owner
        ):
            self.steps[-1] = Transient(last.units)
        else:
            self.steps += [Release(blocks, owner)] * count

    def move(self, old: Storage, new: Storage) -> None:
        """Note another owner for a block."""
        live = self._job.live
        self.steps.append(Move(live[old.group, old.size], old, live[new.group, old.size], new))

    def gemm(self, *, fused_bias: bool = False) -> None:
        """Note that the thread needs its workspace, or a product one of its own."""
        workspace = self._job.workspace
        if workspace.passing:
            size = workspace.fused if fused_bias else workspace.passing
            self.steps.append(Transient(-(-size // MIN_BLOCK)))
        elif workspace.persistent:
            self.steps.append(MatrixProduct(self._job.live[self._thread, 0], -(-workspace.persistent // MIN_BLOCK)))

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
