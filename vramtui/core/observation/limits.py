"""What a figure can be at most. Drivers answer with garbage now and then, and no client may break of it: a source
leaves out what lies beyond these, and says that the answer failed.
"""

from typing import Final

from vramtui.core.base.units import LARGEST_SIZE

MOST_DEVICES: Final = 1024  # cards, or instances of one card
MOST_PROCESSES: Final = 1 << 16  # in one list of one device
# Least and most, some ten times what any device has.
_LIMITS: Final[dict[str, tuple[float, float]]] = {
    "utilization": (0, 100),
    "memory_utilization": (0, 100),
    "temperature_celsius": (-100, 200),
    "power_watts": (0, 20_000),
    "power_limit_watts": (0, 20_000),
    "sm_clock_mhz": (0, 100_000),
    "memory_clock_mhz": (0, 100_000),
    "fan_percent": (0, 1000),
    "pcie_generation": (0, 100),
    "pcie_width": (0, 1000),
    "ecc_errors": (0, LARGEST_SIZE),
    "encoder_utilization": (0, 100),
    "decoder_utilization": (0, 100),
    **dict.fromkeys(("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received"), (0, 1e14)),  # bytes a second
    "memory_repairs": (0, 1 << 32),
}
MOST_XIDS: Final = 64
LARGEST_XID: Final = 100_000


def is_possible(field: str, value: object) -> bool:
    """Whether a metric of `core.observation.readings.Gpu` can have this value; what has no limit can have any."""
    if field == "compute_capability":
        if not isinstance(value, tuple) or len(value) != 2:
            return False
        return all(0 <= part < 1000 for part in value) and value[0] > 0
    if field in ("name", "uuid", "pci_bus_id"):
        return isinstance(value, str) and bool(value.strip())
    if field == "xid_errors":
        return isinstance(value, tuple) and len(value) <= MOST_XIDS and all(0 <= x.code <= LARGEST_XID for x in value)
    limits = _LIMITS.get(field)
    # Not a number is neither below nor above anything.
    return limits is None or (isinstance(value, int | float) and limits[0] <= value <= limits[1])


def is_size(value: int) -> bool:
    """Whether this can be a size in bytes."""
    return 0 <= value <= LARGEST_SIZE
