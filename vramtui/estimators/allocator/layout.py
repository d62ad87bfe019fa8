"""Segments and their blocks as plain values, for pictures and tests."""

from collections.abc import Iterable
from typing import NamedTuple

from vramtui.estimators.allocator.blocks import Block

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
        views.append(_view(block))
        block = block.next
    return SegmentView(
        address=head.address,
        size=sum(view.size for view in views),
        stream=head.stream,
        pool="small" if head.pool.small else "large",
        expandable=head.area is not None,
        blocks=tuple(views),
    )


def _view(block: Block) -> BlockView:
    state = ALLOCATED if block.allocated else AWAITING if block.pending else INACTIVE
    number = block.number if state != INACTIVE else 0
    return BlockView(block.address, block.size, block.requested, state, number)
