"""Temporary storage of CUB's device-wide algorithms: pieces rounded up to 256 bytes, and 255 to align the first."""

# What one block of a radix sort takes, by the bytes of a key and of a value, from a capability on; asked of PyTorch
# 2.13 without a device, over a million pairs. Before 9.0 keys of one and two bytes are sorted in another way, which is
# not followed.
_SORT_TILES = {
    (9, 0): {(1, 8): 3456, (2, 8): 5632, (4, 4): 6528, (4, 8): 5376, (8, 0): 5760, (8, 8): 4608},
    (8, 0): {(4, 4): 6528, (4, 8): 3072, (8, 8): 3840},
    (0, 0): {(4, 4): 11776, (4, 8): 2816, (8, 8): 2816},
}
_ONE_TILE = {4: 4864, 8: 2304}  # pairs that one block sorts without any storage, by the larger of key and value
_DIGITS = 256
_PIECE = 256
_STATE_PADDING = 32
_SCAN_TILE = 2048


def pieces(*sizes: int) -> int:
    """Bytes asked for to hold pieces of `sizes` bytes."""
    return sum(-(-size // _PIECE) * _PIECE for size in sizes) + _PIECE - 1


def sort_pairs(count: int, key: int, value: int, bits: int, capability: tuple[int, int]) -> int:
    """Radix sort of pairs in one sweep per 8 bits of the key.

    Args:
        count: pairs.
        key: bytes of a key.
        value: bytes of a value; 0 sorts keys alone.
        bits: how many bits of the key are compared.
        capability: newer cards take larger tiles.
    """
    if count <= _ONE_TILE[max(4, key, value)]:
        return 1
    passes = -(-bits // 8)
    tiles = next(known for since, known in _SORT_TILES.items() if capability >= since)
    blocks = -(-count // (tiles.get((key, value)) or tiles[max(4, key), value or key]))
    double = (count * key, count * value) if passes > 1 else ()
    return pieces(passes * _DIGITS * 8, blocks * _DIGITS * 4, *double, passes * 4)


def scan(count: int) -> int:
    """A prefix sum, or a selection that runs on one, over 8-byte values."""
    tiles = -(-count // _SCAN_TILE)
    return pieces((tiles + _STATE_PADDING) * 16, 1)
