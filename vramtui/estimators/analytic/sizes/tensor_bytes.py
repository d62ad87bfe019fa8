"""Weights and gradients, tensor by tensor."""

from collections.abc import Iterable

import msgspec

from vramtui.estimators.torch_facts.allocator_sizes import rounded, tail
from vramtui.models.spec import Parameter


class BlockBytes(msgspec.Struct, frozen=True):
    """Bytes in 512-byte blocks, the tails that large blocks keep beyond them, and how many blocks there are."""

    bytes: int = 0
    tails: int = 0
    count: int = 0

    def __add__(self, other: "BlockBytes") -> "BlockBytes":
        return BlockBytes(self.bytes + other.bytes, self.tails + other.tails, self.count + other.count)


def block_bytes(tensors: Iterable[Parameter], element: int) -> BlockBytes:
    """What `tensors` take at `element` bytes a number."""
    whole = tails = count = 0
    for tensor in tensors:
        size = tensor.numel * element if tensor.bits is None else -(-tensor.numel * tensor.bits // 8)
        whole += rounded(size) * tensor.count
        tails += tail(size) * tensor.count
        count += tensor.count
    return BlockBytes(whole, tails, count)


def numel_of(tensors: Iterable[Parameter]) -> int:
    """Numbers in all of `tensors`."""
    return sum(tensor.numel * tensor.count for tensor in tensors)
