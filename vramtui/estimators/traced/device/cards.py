"""The card that a trace runs on."""

from dataclasses import dataclass
from typing import Any

from vramtui.core.estimate.devices import Device
from vramtui.estimators.torch_facts.cards import CardLimits, card_limits


@dataclass
class SimulatedCard:
    """What a job may ask of the card, and what kernels do.

    Attributes:
        name: as `torch.cuda.get_device_name` gives it.
        total_memory: bytes.
        limits: what kernels ask.
        workspaces: those of cuBLAS; set by the session.
    """

    name: str
    total_memory: int
    limits: CardLimits
    workspaces: Any = None

    @property
    def capability(self) -> tuple[int, int]:
        """CUDA compute capability."""
        return self.limits.capability


def simulated_card(device: Device) -> SimulatedCard:
    """The card behind a device."""
    return SimulatedCard(device.name, device.total_memory, card_limits(device))
