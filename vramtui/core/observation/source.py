"""The seam between the program and the world: anything that can be asked for a Sample."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from vramtui.core.observation.readings import Absence, Gpu, Sample

SILENT_INTERVALS = 3  # without a sample, after which whoever sends them is taken for dead
LEAST_SILENCE = 3.0  # seconds without one that are never too long: a busy network, a crowded host


def silence_limit(interval: float) -> float:
    """Seconds without a sample after which a sender that has one each `interval` seconds is taken for dead."""
    return max(LEAST_SILENCE, SILENT_INTERVALS * interval)


class Source(Protocol):
    """NVML, nvidia-smi, a recording, the demo: the program cannot tell them apart."""

    name: str

    def read(self) -> Sample:
        """The current sample. May block for as long as the driver does; called from one thread only.

        A device or metric that fails is part of the Sample (a state, an absence, a problem).

        Raises:
            SourceFailed: nothing at all can be said.
        """
        ...

    def close(self) -> None:
        """Let go of what the source holds. Never blocks."""
        ...


DRIVER = "the driver"


def answerer(source: Source) -> str:
    """Who does not answer where a read takes long: another host by its name, or the driver."""
    return str(getattr(source, "host", "")) or DRIVER


@runtime_checkable
class ScreenSource(Source, Protocol):
    """A source that can tell less the first time, for a screen that waits for it."""

    def shorten_first_read(self) -> None:
        """Let the first `read` name few of many processes, those that hold most; the next ones name the rest."""
        ...


@runtime_checkable
class FastSource(Source, Protocol):
    """A source that can also look at the processes of only one device, often and at little cost."""

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Bytes by pid on that device; empty if there is nothing to say. Never raises.

        May block for as long as the driver does; called from one thread only, which need not be that of `read`.
        """
        ...


class PcieTraffic(NamedTuple):
    """Bytes a second that a GPU sends and receives over PCIe."""

    sent: int
    received: int


def with_traffic(gpu: Gpu, traffic: PcieTraffic | Absence) -> Gpu:
    """`gpu` with what was measured, or with the reason why nothing was, unless its next sample will have it."""
    if isinstance(traffic, Absence):
        asked = [name for name in ("pcie_sent", "pcie_received") if gpu.absent.get(name) is not Absence.FIRST_LOOK]
        return msgspec.structs.replace(gpu, absent={**gpu.absent, **dict.fromkeys(asked, traffic)})
    absent = {name: reason for name, reason in gpu.absent.items() if name not in {"pcie_sent", "pcie_received"}}
    return msgspec.structs.replace(gpu, pcie_sent=traffic.sent, pcie_received=traffic.received, absent=absent)


@runtime_checkable
class TrafficSource(Source, Protocol):
    """A source that can measure what goes over PCIe, for a GPU whose samples do not tell it."""

    def measure_traffic(self, gpu_uuid: str) -> PcieTraffic | Absence:
        """The traffic over PCIe now, or why it is unknown. Never raises.

        Takes some hundredths of a second, in which the driver measures, or as long as the driver hangs: nothing to be
        called by the screen's thread, or for every GPU.
        """
        ...
