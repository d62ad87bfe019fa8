"""Bytes held by group while a pass is replayed, and the fullest moment of it."""

from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from vramtui.estimators.analytic.tape.tape import Storage
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE, Workspace

BytesByGroup = dict[str, int]
Moment = tuple[int, BytesByGroup]
SCRATCH = "temporaries of operators"
WORKSPACES = "workspaces"
KV_CACHE, GROWTH = "kv cache", "cache growth"
EMBEDDINGS, STREAM, NORMS, ATTENTION, MLP, ADAPTERS, HEAD = (
    "activations: embeddings",
    "activations: residual stream",
    "activations: norms",
    "activations: attention",
    "activations: MLP",
    "activations: adapters",
    "activations: output layer and loss",
)


class ReplayListener(Protocol):
    """What a replay tells of each operator: a `Meter` counts it, an allocation trace writes it down."""

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:
        """`size` bytes are allocated for `owner`, which frees them again; `bias` of them are a block of their own."""
        ...

    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None:
        """`size` bytes of `owner` are freed, of several tensors of one size where it is `count`."""
        ...

    def move(self, old: Storage, new: Storage) -> None:
        """The bytes of a storage are another's from now on."""
        ...

    def gemm(self, *, fused_bias: bool = False) -> None:
        """A matrix product runs, which adds a bias on its way where that is fused."""
        ...

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """An operator runs, with `workspace` bytes of its own and more in `blocks`."""
        ...

    def sum_anew(self, size: int) -> None:
        """A gradient of `size` bytes is made and added to a parameter's, and their sum takes that one's place."""
        ...

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        """Let `once` happen `count` times, of which it is called only once; never again for what is `shared`."""
        ...


class Meter:
    """Counts what is taken and freed.

    The first matrix product of a thread takes its cuBLAS workspace, so the fullest moment before it and the one after
    are kept apart: `early` and `late`, each with what was held then.

    Args:
        workspace: what cuBLAS takes; of what it keeps the caller knows.
    """

    __slots__ = ("early", "late", "live", "multiplied", "ran", "total", "workspace")

    def __init__(self, workspace: Workspace = NO_WORKSPACE) -> None:
        self.workspace = workspace
        self.live: BytesByGroup = {}
        self.total = 0
        self.early: Moment = (0, {})
        self.late: Moment = (0, {})
        self.multiplied = False
        # What each shared stretch added, and its fullest moment, both less what was there before.
        self.ran: dict[Hashable, tuple[Moment, Moment]] = {}

    def take(self, group: str, size: int, owner: object = None, bias: int = 0) -> None:  # noqa: ARG002 - for a trace
        """Allocate `size` bytes."""
        self.total += size
        self.live[group] = self.live.get(group, 0) + size

    def free(self, group: str, size: int, count: int = 1, owner: object = None) -> None:  # noqa: ARG002 - for a trace
        """Free `size` bytes, of several tensors of one size where it is `count`."""
        self.total -= size
        self.live[group] -= size

    def move(self, old: Storage, new: Storage) -> None:
        """Count the bytes under another group; nothing is allocated."""
        self.live[old.group] -= old.size
        self.live[new.group] = self.live.get(new.group, 0) + old.size

    def gemm(self, *, fused_bias: bool = False) -> None:
        """A matrix product runs: from here on the thread has its workspace, where releases of PyTorch keep one."""
        self.multiplied = True
        if self.workspace.passing:
            self._note(self.workspace.fused if fused_bias else self.workspace.passing, WORKSPACES)

    def scratch(self, workspace: int, blocks: Sequence[int] = ()) -> None:
        """Note the moment if it is the fullest so far, with an operator's own bytes beside."""
        if blocks:
            workspace += sum(blocks)
        self._note(workspace, SCRATCH)

    def sum_anew(self, size: int) -> None:
        """Two gradients more for a moment."""
        self.scratch(0, (size, size))

    def _note(self, workspace: int, group: str) -> None:
        total = self.total + workspace
        if self.multiplied:
            if total > self.late[0]:
                self.late = (total, self._with(workspace, group))
        elif total > self.early[0]:
            self.early = (total, self._with(workspace, group))

    def _with(self, workspace: int, group: str) -> BytesByGroup:
        sizes = self.live.copy()
        if workspace:
            sizes[group] = sizes.get(group, 0) + workspace
        return sizes

    def begin(self) -> None:
        """Start a new pass: forget the fullest moments, keep what is held."""
        self.multiplied = False
        self.early = self.late = (0, {})
        self.ran.clear()

    def repeat(self, once: Callable[[], None], count: int, shared: Hashable | None) -> None:
        """Let `once` happen `count` times, of which it is called only once; never again for what is `shared`."""
        if shared is None:
            self._repeat(once, count)
            return
        if shared not in self.ran:
            early, late, total, held_before = self.early, self.late, self.total, self.live.copy()
            self.early = self.late = (0, {})
            self._repeat(once, count)
            peak, at = max(self.early, self.late, key=_bytes)
            self.ran[shared] = (
                (self.total - total, _less(self.live, held_before)),
                (peak - total, _less(at, held_before)),
            )
            self.early, self.late = max(early, self.early, key=_bytes), max(late, self.late, key=_bytes)
            return
        (grown, more), (peak, at) = self.ran[shared]
        moment = self.total + peak, summed(self.live, at)
        if self.multiplied:
            self.late = max(self.late, moment, key=_bytes)
        else:
            self.early = max(self.early, moment, key=_bytes)
        self.total += grown
        self.live = summed(self.live, more)

    def _repeat(self, once: Callable[[], None], count: int) -> None:
        if count == 1:
            once()
            return
        before = self.late
        start, start_held = self.total, self.live.copy()
        self.late = (0, {})
        once()
        grown = self.total - start
        more = _less(self.live, start_held)
        peak, at = self.late
        last = peak + grown * (count - 1)
        if last > peak:
            peak, at = (
                last,
                {group: at.get(group, 0) + size * (count - 1) for group, size in more.items()}
                | {group: size for group, size in at.items() if group not in more},
            )
        self.late = max(before, (peak, at), key=_bytes)
        self.total += grown * (count - 1)
        for group, size in more.items():
            self.live[group] += size * (count - 1)


def _bytes(moment: Moment) -> int:
    return moment[0]


def _less(sizes: BytesByGroup, start: BytesByGroup) -> BytesByGroup:
    return {group: size - start.get(group, 0) for group, size in sizes.items()}


def summed(*parts: BytesByGroup) -> BytesByGroup:
    """All parts together, name by name."""
    total: BytesByGroup = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total
