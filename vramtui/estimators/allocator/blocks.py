"""Blocks, the pools that keep the free ones in order of best fit, and both as plain values, for pictures and tests."""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

Key = tuple[int, int, int, "Block"]
"""(size, rank, address, block): no two share an address, so blocks are never compared."""


class Block:
    """A stretch of addresses, linked to its neighbours in the same segment.

    Attributes:
        number: the id it was handed out under.
        rank: what breaks ties between equal sizes, as `Heap.rank_beside` says.
        area: the start of the reservation it grows in, or None outside expandable segments.
        mapped: whether memory stands behind the addresses; always true outside expandable segments.
        pending: events of other streams it waits for.
        base: the pool's count of searches when it became free.
    """

    __slots__ = (
        "address", "allocated", "area", "base", "mapped", "next", "number", "pending", "pool", "prev", "rank",
        "requested", "size", "stream", "users",
    )  # fmt: skip

    def __init__(
        self, pool: "BlockPool", stream: int, address: int, size: int, rank: int, area: "Area | None" = None
    ) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.rank = rank
        self.area = area
        self.requested = 0
        self.number = 0
        self.allocated = False
        self.mapped = True
        self.pending = 0
        self.users: set[int] | None = None
        self.base = 0
        self.prev: Block | None = None
        self.next: Block | None = None

    def put_before(self, other: "Block") -> None:
        self.prev, self.next = other.prev, other
        if self.prev is not None:
            self.prev.next = self
        other.prev = self

    def put_after(self, other: "Block") -> None:
        self.prev, self.next = other, other.next
        if self.next is not None:
            self.next.prev = self
        other.next = self


class Area:
    """Addresses reserved for one expandable segment; memory is mapped behind them one granule at a time."""

    __slots__ = ("address", "granule", "number", "size")

    def __init__(self, address: int, size: int, granule: int, number: int) -> None:
        self.address = address
        self.size = size
        self.granule = granule
        self.number = number


class BlockPool:
    """Free blocks of one pool. Each stream has its own; a block never serves another stream than its own.

    Attributes:
        free: for each stream the free blocks with memory behind them, in order of best fit.
        unmapped: for each stream the addresses without memory, in order.
        searches: how often a free block was looked for, the clock that idle blocks age by.
    """

    __slots__ = ("free", "searches", "small", "unmapped")

    def __init__(self, *, small: bool) -> None:
        self.small = small
        self.free: dict[int, list[Key]] = {}
        self.unmapped: dict[int, list[tuple[int, Block]]] = {}
        self.searches = 0

    def insert(self, block: Block) -> None:
        """Make a block available, as new in age."""
        block.base = self.searches
        keys = self.free.get(block.stream)
        if keys is None:
            keys = self.free[block.stream] = []
        insort(keys, (block.size, block.rank, block.address, block))

    def remove(self, block: Block) -> None:
        keys = self.free[block.stream]
        # A key without its block sorts just before the whole key.
        del keys[bisect_left(keys, (block.size, block.rank, block.address))]

    def insert_unmapped(self, block: Block) -> None:
        """Keep addresses that have no memory behind them."""
        insort(self.unmapped.setdefault(block.stream, []), (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        """Take addresses without memory out."""
        rows = self.unmapped[block.stream]
        del rows[bisect_left(rows, (block.address,))]

    def blocks(self) -> list[Block]:
        """All free blocks with memory behind them, by stream and then in order of best fit."""
        return [key[3] for stream in sorted(self.free) for key in self.free[stream]]

    def merge(self, block: Block, other: Block | None) -> None:
        """Let `block` swallow a free neighbour, if it can."""
        if other is None or other.allocated or other.pending or other.mapped != block.mapped:
            return
        if block.prev is other:
            block.address = other.address
            block.prev = other.prev
            if block.prev is not None:
                block.prev.next = block
        else:
            block.next = other.next
            if block.next is not None:
                block.next.prev = block
        if other.mapped:
            self.remove(other)
        else:
            self.remove_unmapped(other)
        block.size += other.size


ALLOCATED, AWAITING, INACTIVE = "active_allocated", "active_awaiting_free", "inactive"


class BlockView(NamedTuple):
    """One block. `number` is the id `malloc` gave, 0 for a free block; `state` is PyTorch's word for it."""

    address: int
    size: int
    requested: int
    state: str
    number: int


class SegmentView(NamedTuple):
    """Consecutive memory from the device; of an expandable segment, one mapped stretch."""

    address: int
    size: int
    stream: int
    pool: str
    expandable: bool
    blocks: tuple[BlockView, ...]


def lay_out(blocks: Iterable[Block]) -> list[SegmentView]:
    """The segments, by address, that `blocks` (all that have memory) make up."""
    heads = [block for block in blocks if block.prev is None or not block.prev.mapped]
    return [_segment(head) for head in sorted(heads, key=lambda block: block.address)]


def _segment(head: Block) -> SegmentView:
    views = []
    block: Block | None = head
    while block is not None and block.mapped:
        state = ALLOCATED if block.allocated else AWAITING if block.pending else INACTIVE
        number = block.number if state != INACTIVE else 0
        views.append(BlockView(block.address, block.size, block.requested, state, number))
        block = block.next
    return SegmentView(
        address=head.address,
        size=sum(view.size for view in views),
        stream=head.stream,
        pool="small" if head.pool.small else "large",
        expandable=head.area is not None,
        blocks=tuple(views),
    )
