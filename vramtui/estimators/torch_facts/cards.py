"""Streaming multiprocessors: how many a card has, and how many threads each holds at once.

Counts are those of NVIDIA's architecture whitepapers and product briefs (`multiProcessorCount` of
cudaGetDeviceProperties); threads are "maximum number of resident threads per SM" of the CUDA programming guide's table
of compute capabilities.
"""

import msgspec

from vramtui.core.estimate.devices import Device


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


_MULTIPROCESSORS = {
    "GTX1080Ti": 28, "P100": 56, "T4": 40, "V100-16GB": 80, "V100-32GB": 80,
    "RTX2060": 30, "RTX2070": 36, "RTX2080": 46, "RTX2080Ti": 68, "TitanRTX": 72, "RTX8000": 72,
    "RTX3050": 20, "RTX3060": 28, "RTX3060Ti": 38, "RTX3070": 46, "RTX3070Ti": 48, "RTX3080": 68,
    "RTX3080-12GB": 70, "RTX3080Ti": 80, "RTX3090": 82, "RTX3090Ti": 84,
    "A2": 10, "A10": 72, "A16": 10, "A30": 56, "A40": 84, "A2000": 26, "A4000": 48, "A4500": 56, "A5000": 64,
    "A5500": 80, "A6000": 84, "A100-40GB": 108, "A100-80GB": 108, "A800-80GB": 108,
    "RTX4060": 24, "RTX4060Ti": 34, "RTX4060Ti-16GB": 34, "RTX4070": 46, "RTX4070Super": 56, "RTX4070Ti": 60,
    "RTX4070TiSuper": 66, "RTX4080": 76, "RTX4080Super": 80, "RTX4090": 128,
    "RTX4000Ada": 48, "RTX4500Ada": 60, "RTX5000Ada": 100, "RTX6000Ada": 142,
    "L4": 58, "L20": 92, "L40": 142, "L40S": 142,
    "H100": 132, "H100NVL": 132, "H200": 132, "H800": 132, "GH200": 132, "H20": 78, "B200": 148, "GB200": 152,
    "RTX5060": 30, "RTX5060Ti": 36, "RTX5060Ti-16GB": 36, "RTX5070": 48, "RTX5070Ti": 70, "RTX5080": 84,
    "RTX5090": 170, "RTXPRO4500": 82, "RTXPRO5000": 110, "RTXPRO6000": 188, "GB10": 48,
    "JetsonOrinNano": 8, "JetsonOrinNX": 8, "JetsonAGXOrin-32GB": 14, "JetsonAGXOrin-64GB": 16, "JetsonThor": 20,
}  # fmt: skip
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
    count = _MULTIPROCESSORS.get(device.name, usual.multiprocessors)
    return CardLimits(device.capability, count, usual.threads)
