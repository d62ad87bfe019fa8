"""bitsandbytes' AdamW: states of one byte a number, and states in managed memory."""

from collections.abc import Sequence

from vramtui.estimators.analytic.optimizers.registry import States, blocks_of
from vramtui.estimators.analytic.sizes.precision import numel_of
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.spec import Parameter

SMALLEST_8BIT = 4096
BLOCK_8BIT = 256
SMALLEST_PAGED = 100_000
SOURCE = "bitsandbytes, optim/optimizer.py and functional.py"
_MAPS = 2 * rounded(256 * 4)
_NOTE = "bitsandbytes has one kernel for each tensor, whatever run.optimizer_implementation says"
_PAGED_NOTE = (
    "paged states are counted in full outside PyTorch's allocator; the driver moves them to the host when the card is "
    "full, so the process may show less"
)


def adamw_8bit(tensors: Sequence[Parameter]) -> States:
    """One byte a state and an fp32 scale for each block of 256; tensors below 4096 numbers stay in fp32."""
    numbers, scales, count = _eight_bit(tensors)
    return States(
        bytes=numbers + scales + _MAPS,
        count=count + 2,
        formula=f"2 x (1 B a number + 4 B for each {BLOCK_8BIT}); fp32 below {SMALLEST_8BIT} numbers; 2 maps of 1 KiB",
        source=SOURCE,
        note=_NOTE,
    )


def paged_adamw_8bit(tensors: Sequence[Parameter]) -> States:
    """AdamW in 8 bits whose states of large tensors lie in managed memory; their scales stay on the card."""
    small = [tensor for tensor in tensors if tensor.numel < SMALLEST_PAGED]
    large = [tensor for tensor in tensors if tensor.numel >= SMALLEST_PAGED]
    numbers, scales, count = _eight_bit(small)
    paged, large_scales, large_count = _eight_bit(large)
    return States(
        bytes=numbers + scales + large_scales + _MAPS,
        count=count + large_count // 2 + 2,
        paged=paged,
        formula=f"2 x 4 B for each {BLOCK_8BIT} numbers, and the states of tensors below {SMALLEST_PAGED:,} numbers; "
        f"of the others {paged:,} B in managed memory, outside PyTorch's allocator",
        source=SOURCE,
        note=f"{_NOTE}; {_PAGED_NOTE}",
    )


def paged_adamw_32bit(tensors: Sequence[Parameter]) -> States:
    """Both moments in fp32, those of large tensors in managed memory."""
    small = [tensor for tensor in tensors if tensor.numel < SMALLEST_PAGED]
    large = [tensor for tensor in tensors if tensor.numel >= SMALLEST_PAGED]
    whole, count = blocks_of(small, 4)
    paged, _ = blocks_of(large, 4)
    return States(
        bytes=2 * whole,
        count=2 * count,
        paged=2 * paged,
        formula=f"both moments in fp32: 2 x {numel_of(small):,} x 4 B of tensors below {SMALLEST_PAGED:,} numbers; of "
        f"the others {2 * paged:,} B in managed memory, outside PyTorch's allocator",
        source=SOURCE,
        note=f"{_NOTE}; {_PAGED_NOTE}",
    )


def _eight_bit(tensors: Sequence[Parameter]) -> tuple[int, int, int]:
    """Bytes of both states, bytes of their scales, and how many blocks these are."""
    numbers = scales = count = 0
    for tensor in tensors:
        if tensor.numel < SMALLEST_8BIT:
            numbers += 2 * rounded(tensor.numel * 4) * tensor.count
            count += 2 * tensor.count
            continue
        numbers += 2 * rounded(tensor.numel) * tensor.count
        scales += 2 * rounded(-(-tensor.numel // BLOCK_8BIT) * 4) * tensor.count
        count += 4 * tensor.count
    return numbers, scales, count
