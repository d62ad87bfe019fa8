"""Streaming multiprocessors: how many a card has, and how many threads each holds at once.

Counts stand in `core/estimate/cards.csv`, after NVIDIA's architecture whitepapers and product briefs
(`multiProcessorCount` of cudaGetDeviceProperties); threads are "maximum number of resident threads per SM" of the CUDA
programming guide's table of compute capabilities.
"""

import msgspec

from vramtui.core.estimate.devices import MULTIPROCESSORS, Device


class CardLimits(msgspec.Struct, frozen=True):
    """What kernels ask of a card.

    Attributes:
        capability: CUDA compute capability (major, minor).
        multiprocessors: how many.
        threads: that one of them holds at most.
    """

    capability: tuple[int, int]
    multiprocessors: int
    threads: int


# For a card that is not known by name: the count of the one most seen (8.6 is an RTX 3090, 12.0 an RTX 5090).
_BY_CAPABILITY = {
    limits.capability: limits
    for limits in (
        CardLimits((6, 0), 56, 2048),
        CardLimits((6, 1), 28, 2048),
        CardLimits((7, 0), 80, 2048),
        CardLimits((7, 5), 40, 1024),
        CardLimits((8, 0), 108, 2048),
        CardLimits((8, 6), 82, 1536),
        CardLimits((8, 7), 16, 1536),
        CardLimits((8, 9), 128, 1536),
        CardLimits((9, 0), 132, 2048),
        CardLimits((10, 0), 148, 2048),
        CardLimits((11, 0), 20, 1536),
        CardLimits((12, 0), 170, 1536),
        CardLimits((12, 1), 48, 1536),
    )
}


def card_limits(device: Device) -> CardLimits:
    """Those of a card: counted for its name, else those of the card most seen with its compute capability.

    A capability that is not known is taken for the one before it.
    """
    known = [entry for entry in _BY_CAPABILITY if entry <= device.capability]
    usual = _BY_CAPABILITY[known[-1] if known else (6, 0)]
    count = MULTIPROCESSORS.get(device.name, usual.multiprocessors)
    return CardLimits(device.capability, count, usual.threads)
