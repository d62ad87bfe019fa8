"""What CUDA kernels ask of a card: how many multiprocessors, and how many threads each holds."""

from dataclasses import dataclass
from typing import Any

from vramtui.core.estimate.devices import Device

# From NVIDIA's product briefs and the CUDA programming guide's table of compute capabilities.
_MULTIPROCESSORS = {
    "T4": 40, "V100-16GB": 80, "V100-32GB": 80, "A10": 72, "A30": 56, "A40": 84, "A100-40GB": 108, "A100-80GB": 108,
    "A6000": 84, "L4": 58, "L40S": 142, "RTX2080Ti": 68, "RTX3060": 28, "RTX3090": 82, "RTX4070": 46, "RTX4080": 76,
    "RTX4090": 128, "RTX5090": 170, "RTX6000Ada": 142, "RTXPRO6000": 188, "H100": 132, "H100NVL": 132, "GH200": 132,
    "H20": 78, "H200": 132, "B200": 148,
}  # fmt: skip
_BY_CAPABILITY = {(7, 0): 80, (7, 5): 40, (8, 0): 108, (8, 6): 84, (8, 9): 128, (9, 0): 132, (10, 0): 148}
_THREADS = {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536, (12, 0): 1536}


@dataclass
class CardLimits:
    """What kernels ask of the card.

    Attributes:
        name: as `torch.cuda.get_device_name` gives it.
        capability: CUDA compute capability.
        total_memory: bytes.
        multiprocessors: how many.
        threads_per_multiprocessor: at most, in one multiprocessor.
        workspaces: those of cuBLAS; set by the session.
    """

    name: str
    capability: tuple[int, int]
    total_memory: int
    multiprocessors: int
    threads_per_multiprocessor: int
    workspaces: Any = None


def card_of(device: Device) -> CardLimits:
    """The card behind a device; one that is not known by name is taken for its capability's usual size."""
    usual = _BY_CAPABILITY.get(device.capability, 132)
    return CardLimits(
        name=device.name,
        capability=device.capability,
        total_memory=device.total_memory,
        multiprocessors=_MULTIPROCESSORS.get(device.name, usual),
        threads_per_multiprocessor=_THREADS.get(device.capability, 2048),
    )
