"""What the allocator and its ways of getting and returning memory share."""

from vramtui.estimators.allocator.blocks import Block, BlockPool
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.device import DeviceMemory
from vramtui.estimators.allocator.stats import Stats


class Heap:
    """The two pools, the device below them, the counters, and how segments come and go.

    Attributes:
        allowed: the bytes a memory fraction permits, or None where none was set.
    """

    def __init__(self, total_memory: int, config: AllocatorConfig) -> None:
        self.config = config
        self.device = DeviceMemory(total_memory)
        self.stats = Stats()
        self.small = BlockPool(small=True)
        self.large = BlockPool(small=False)
        self.allowed: int | None = None
        self._segments = 0

    def next_segment(self) -> int:
        """The number of a new segment: its age, in the order the device gave them."""
        self._segments += 1
        return self._segments

    def new_segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """A segment of `size` bytes as one block (`cudaMalloc`); None when the device has too little left."""
        if size > self.device.free:
            return None
        self.device.used += size
        self.stats.took(size, 1)
        return Block(pool, stream, self.device.take_addresses(size), size, self.next_segment())

    def release(self, block: Block) -> None:
        """Give a whole free segment back (`cudaFree`)."""
        block.pool.remove(block)
        self.device.return_addresses(block.address, block.size)
        self.device.used -= block.size
        self.stats.gave_back(block.size, 1)
