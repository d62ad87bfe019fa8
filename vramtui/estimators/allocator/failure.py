"""What PyTorch says when a request cannot be served."""

from vramtui.core.base.units import format_bytes


class AllocatorOutOfMemoryError(Exception):
    """A request was refused after every cached block that could go had gone. Bytes throughout.

    Args:
        requested: what was asked for.
        segment_size: what the allocator tried to get from the device for it.
        free: what the device had left.
        allocated: what the program held.
        reserved: what the allocator held.
        total: the device's memory.
        allowed: the limit that a memory fraction sets, if one was set.

    Attributes:
        missing: how much of `segment_size` was not to be had.
    """

    def __init__(
        self,
        *,
        requested: int,
        segment_size: int,
        free: int,
        allocated: int,
        reserved: int,
        total: int,
        allowed: int | None = None,
    ) -> None:
        self.requested = requested
        self.missing = segment_size - (free if allowed is None else min(free, max(allowed - reserved, 0)))
        self.segment_size = segment_size
        self.free = free
        self.allocated = allocated
        self.reserved = reserved
        self.total = total
        self.allowed = allowed
        limit = "" if allowed is None else f", {format_bytes(allowed, 2)} allowed"
        super().__init__(
            f"out of memory: tried to allocate {format_bytes(segment_size, 2)}; of {format_bytes(total, 2)}{limit}, "
            f"{format_bytes(free, 2)} free, {format_bytes(allocated, 2)} allocated, "
            f"{format_bytes(reserved - allocated, 2)} reserved but unallocated"
        )
