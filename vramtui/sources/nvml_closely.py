"""The processes of one device and nothing else: cheap enough for ten times a second."""

from collections.abc import Mapping

from vramtui.sources.nvml_calls import Caller, Device, DeviceGone, DriverGone
from vramtui.sources.nvml_processes import ProcessLists


class CloseReader:
    """Reads process lists beside the thread that reads everything: it has handles and buffers of its own.

    Called from one thread only. What cannot be read is no news here: the other thread tells what is wrong.
    """

    def __init__(self) -> None:
        self._caller = Caller("close look")
        self._devices: dict[str, tuple[Device, ProcessLists]] = {}

    def look(self, uuid: str, total: int | None) -> Mapping[int, int]:
        """Bytes by pid on one device, as far as they are told; empty where the device does not answer.

        Args:
            uuid: the card's, or the MIG instance's.
            total: bytes that no process can exceed, if known.
        """
        try:
            device, lists = self._devices.get(uuid) or self._find(uuid)
            listing = lists.read(self._caller, device, total) if device is not None else None
        except (DeviceGone, DriverGone):
            self._devices.clear()
            return {}
        finally:
            self._caller.problems.clear()
        if listing is None or not listing.trusted:
            return {}
        return {pid: held.used for pid, held in listing.held.items() if held.used is not None}

    def _find(self, uuid: str) -> tuple[Device, ProcessLists]:
        device, _ = self._caller.ask("nvmlDeviceGetHandleByUUID", uuid)
        found = (device, ProcessLists())
        if device is not None:
            self._devices[uuid] = found
        return found
