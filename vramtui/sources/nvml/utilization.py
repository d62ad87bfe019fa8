"""How busy each process keeps a card, by the driver's own samples."""

from collections.abc import Mapping

import pynvml

from vramtui.sources.nvml.calls import Caller, Device

CALL = "nvmlDeviceGetProcessUtilization"
# Nothing has run since the samples that were read last; a count of none is told as a success without an answer.
_NONE = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)
_NEVER = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION)


class BusyProcesses:
    """Reads the samples of one card since those that it has read before.

    The driver keeps one for each process that has run anything within its last period (nvml.h).
    """

    def __init__(self) -> None:
        self._since = 0
        self._can = True

    def read(self, caller: Caller, device: Device) -> Mapping[int, int] | None:
        """SM % by pid, of those that have run anything; None where this device does not say it.

        Raises:
            DeviceGone, DriverGone: as `Caller.ask`.
        """
        if not self._can:
            return None
        caller.call = CALL
        try:
            samples = pynvml.nvmlDeviceGetProcessUtilization(device, self._since)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _NONE:
                return {} if self._since else None
            self._can = code not in _NEVER
            if self._can:
                caller.absence(CALL, error)
            return None
        latest: dict[int, tuple[int, int]] = {}
        for sample in samples:
            # Some drivers fill in records that nobody asked for.
            if sample.timeStamp > self._since and sample.smUtil <= 100 and sample.pid:
                latest[sample.pid] = max(latest.get(sample.pid, (0, 0)), (sample.timeStamp, sample.smUtil))
        self._since = max([self._since, *(at for at, _ in latest.values())])
        return {pid: share for pid, (_, share) in latest.items()}
