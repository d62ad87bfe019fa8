"""The device behind the allocator: how much memory it has, and which addresses it hands out."""

from bisect import bisect_left

FIRST_ADDRESS = 0x2000_0000_0000
"""Where the first segment lies. Nothing depends on the value; a fixed one makes addresses comparable."""
LAST_ADDRESS = 1 << 100
"""Far beyond 64 bits, so that no number of reservations can run out."""
ALIGNMENT = 2 << 20
"""Segments begin at multiples of this."""


class DeviceMemory:
    """Bytes and addresses of one device. Segments lie in the lowest gap that holds them.

    Args:
        total: bytes.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.used = 0
        self._gaps: list[tuple[int, int]] = [(FIRST_ADDRESS, LAST_ADDRESS)]

    @property
    def free(self) -> int:
        """Bytes nobody holds."""
        return self.total - self.used

    def take_addresses(self, size: int) -> int:
        """The start of the lowest gap of `size` bytes, which is then taken."""
        size = _aligned(size)
        for index, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                if end - start == size:
                    del self._gaps[index]
                else:
                    self._gaps[index] = (start + size, end)
                return start
        raise AssertionError("the address space is larger than any sum of segments")

    def return_addresses(self, address: int, size: int) -> None:
        """Make addresses available again, joined with the gaps beside them."""
        gaps = self._gaps
        start, end = address, address + _aligned(size)
        index = bisect_left(gaps, (start, end))
        if index < len(gaps) and gaps[index][0] == end:
            end = gaps.pop(index)[1]
        if index and gaps[index - 1][1] == start:
            index -= 1
            start = gaps.pop(index)[0]
        gaps.insert(index, (start, end))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
