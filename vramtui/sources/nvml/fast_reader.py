"""The processes of one device and nothing else: cheap enough for ten times a second."""

from collections.abc import Mapping

from vramtui.sources.nvml.calls import Caller, Device, DeviceGone, DriverGone
from vramtui.sources.nvml.processes import ProcessLists, ProcessUse

GRAPHICS_EVERY = 10  # looks, while nothing draws on the device


class CloseReader:
    """Reads process lists beside the thread that reads everything: it has handles and buffers of its own.

    Called from one thread only. What cannot be read is no news here: the other thread tells what is wrong.
    """

    def __init__(self) -> None:
        self._caller = Caller("close look")
        self._devices: dict[str, _SampledDevice] = {}

    def look(self, uuid: str, total: int | None) -> Mapping[int, int]:
        """Bytes by pid on one device, as far as they are told; empty where the device does not answer.

        Args:
            uuid: the card's, or the MIG instance's.
            total: bytes that no process can exceed, if known.
        """
        try:
            watched = self._devices.get(uuid) or self._find(uuid)
            return watched.look(self._caller, total) if watched is not None else {}
        except (DeviceGone, DriverGone):
            self._devices.clear()
            return {}
        finally:
            self._caller.problems.clear()

    def _find(self, uuid: str) -> "_SampledDevice | None":
        device, _ = self._caller.ask("nvmlDeviceGetHandleByUUID", uuid)
        if device is None:
            return None
        watched = self._devices[uuid] = _SampledDevice(device)
        return watched


class _SampledDevice:
    """One device, and what its lists held last: they are gone through again only where they say something else."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._lists = ProcessLists()
        self._looks = 0
        self._held: dict[int, ProcessUse] = {}
        self._used: dict[int, int] = {}

    def look(self, caller: Caller, total: int | None) -> Mapping[int, int]:
        """Bytes by pid. What a process has begun to draw stands in the other list as well, and is looked for seldom."""
        listing = self._lists.read(caller, self._device, total, graphics_too=self._looks % GRAPHICS_EVERY == 0)
        self._looks += 1
        if not listing.trusted:
            return {}
        if listing.held is not self._held:
            self._held = listing.held
            self._used = {pid: held.used for pid, held in listing.held.items() if held.used is not None}
        return self._used
