"""NVML's accounting mode, in which the driver itself keeps the most memory that each process ever held.

Its figures reach back to the start of a process and stay after its end, so no peak between two looks is missed.
"""

from collections.abc import Collection

import pynvml

from vramtui.core.observation.readings import Absence
from vramtui.sources.nvml.calls import Caller, Device, initialise

ASK_MODE_EVERY = 60.0
ASK_PEAKS_EVERY = 5.0


class Accounts:
    """The peaks on one device. Asked for now and then while a process runs, and once more when it has gone."""

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._on = False
        self._next_mode = self._next_peaks = float("-inf")
        self._listed: frozenset[int] = frozenset()

    def read(self, caller: Caller, device: Device, pids: Collection[int], now: float) -> dict[int, int]:
        """Look again where it is time to; `peaks` then holds those of the running processes.

        Args:
            caller: the device's.
            device: its handle.
            pids: the processes that the device lists now.
            now: seconds, of which only differences matter.

        Returns:
            The last peaks of those that were listed before and are no longer.

        Raises:
            DeviceGoneError, DriverGoneError: as `Caller.ask`.
        """
        if now >= self._next_mode:
            mode, absence = caller.ask("nvmlDeviceGetAccountingMode", device)
            self._on = absence is None and bool(mode)
            self._next_mode = now + ASK_MODE_EVERY
        if not self._on:
            self.peaks, self._listed = {}, frozenset()
            return {}
        listed = frozenset(pids)
        gone, arrived = self._listed - listed, listed - self._listed
        self._listed = listed
        last = self._ask(caller, device, gone)
        if now >= self._next_peaks:
            self.peaks = self._ask(caller, device, listed)
            self._next_peaks = now + ASK_PEAKS_EVERY
        elif gone or arrived:
            still_listed = {pid: peak for pid, peak in self.peaks.items() if pid in listed}
            self.peaks = still_listed | self._ask(caller, device, arrived)
        return last

    def _ask(self, caller: Caller, device: Device, pids: Collection[int]) -> dict[int, int]:
        peaks: dict[int, int] = {}
        for pid in pids:
            stats, absence = caller.ask("nvmlDeviceGetAccountingStats", device, pid)
            if absence is None and stats.maxMemoryUsage < 1 << 60:
                peaks[pid] = stats.maxMemoryUsage
            elif absence is Absence.NOT_SUPPORTED:
                break
        return peaks


def accounting_modes() -> dict[int, bool | None]:
    """Whether accounting is on, by GPU index; None where the driver does not say.

    Raises:
        SourceFailed: NVML cannot be initialised.
    """
    initialise()
    try:
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError:
        return {}
    return {index: _mode(index) for index in range(count)}


def _mode(index: int) -> bool | None:
    try:
        return bool(pynvml.nvmlDeviceGetAccountingMode(pynvml.nvmlDeviceGetHandleByIndex(index)))
    except pynvml.NVMLError:
        return None
