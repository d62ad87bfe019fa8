"""Temporary storage of CUB's device-wide algorithms: pieces rounded up to 256 bytes, and 255 to align the first."""

_DIGITS = 256
_PIECE = 256
_STATE_PADDING = 32
_SCAN_TILE = 2048
_MERGE_TILE = 2048  # of eight bytes each


def pieces(*sizes: int) -> int:
    """Bytes asked for to hold pieces of `sizes` bytes."""
    return sum(-(-size // _PIECE) * _PIECE for size in sizes) + _PIECE - 1


def sort_pairs(count: int, key: int, value: int, bits: int, capability: tuple[int, int]) -> int:
    """Radix sort of pairs in one sweep per 8 bits of the key.

    Args:
        count: pairs.
        key: bytes of a key.
        value: bytes of a value.
        bits: how many bits of the key are compared.
        capability: newer cards take larger tiles.
    """
    passes = -(-bits // 8)
    nominal = 29 if capability >= (9, 0) and key == 8 else 21
    tile = 384 * max(1, nominal * 4 // max(4, key, value))
    blocks = -(-count // tile)
    double = (count * key, count * value) if passes > 1 else ()
    return pieces(passes * _DIGITS * 8, blocks * _DIGITS * 4, *double, passes * 4)


def merge_sort_pairs(count: int, key: int, value: int) -> int:
    """Merge sort of pairs, which thrust takes where it is given a comparison: `key`, `value` are bytes of one."""
    tiles = -(-count // _MERGE_TILE)
    return pieces(count * key, count * value, (tiles + 1) * 8)


def scan(count: int) -> int:
    """A prefix sum, or a selection that runs on one, over 8-byte values."""
    tiles = -(-count // _SCAN_TILE)
    return pieces((tiles + _STATE_PADDING) * 16, 1)
