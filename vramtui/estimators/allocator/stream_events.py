"""Freed blocks that other streams still use, and the events they wait for."""

from collections.abc import Iterator

from vramtui.estimators.allocator.blocks import Block


class Waiting:
    """Blocks between `free` and the end of the other streams' work on them."""

    __slots__ = ("_blocks", "_events", "finished")

    def __init__(self) -> None:
        self._blocks: dict[int, Block] = {}
        self._events: dict[int, list[Block]] = {}
        self.finished: list[Block] = []
        """One entry for every event that is over and has not been looked at."""

    def add(self, block: Block, streams: set[int]) -> None:
        """Let a freed block wait for what is queued on each of `streams`."""
        block.pending = len(streams)
        self._blocks[block.number] = block
        for stream in sorted(streams):
            self._events.setdefault(stream, []).append(block)

    def synchronize(self, stream: int | None) -> None:
        """What is queued on `stream`, or on all, is done."""
        for each in [stream] if stream is not None else sorted(self._events):
            self.finished.extend(self._events.pop(each, ()))

    def collect(self) -> Iterator[Block]:
        """The blocks that wait for nothing more, now that the finished events are looked at.

        One at a time: until it is its turn a block still counts as waiting, so that no neighbour swallows it.
        """
        finished, self.finished = self.finished, []
        for block in finished:
            block.pending -= 1
            if block.pending == 0:
                del self._blocks[block.number]
                yield block

    def drop(self, number: int) -> Block | None:
        """Take one block out, whatever it waits for; None if it does not wait."""
        block = self._blocks.pop(number, None)
        if block is None:
            return None
        block.pending = 0
        for each, blocks in list(self._events.items()):
            self._events[each] = [other for other in blocks if other is not block]
        self.finished = [other for other in self.finished if other is not block]
        return block

    def blocks(self) -> list[Block]:
        """All that wait."""
        return list(self._blocks.values())
