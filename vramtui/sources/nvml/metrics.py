"""A device's memory, metrics and how busy each process keeps it, from NVML, each on its own: one that fails takes no
other with it.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pynvml

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.agent.nvml import possible_sizes
from vramtui.agent.stream import NUMBERS, THROTTLING, THROTTLING_CALLS
from vramtui.core.base.text import printable
from vramtui.core.observation.bounded_samples import MOST_PROCESSES, is_possible
from vramtui.core.observation.readings import Absence, Memory
from vramtui.sources.nvml.calls import Absences, Caller, Device, Fields

CALL = "nvmlDeviceGetProcessUtilization"
# Nothing has run since the samples that were read last; a count of none is told as a success without an answer.
_NONE = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)
_RECORD = struct.Struct("=I4xQIIII")  # nvmlProcessUtilizationSample_t: pid, time, and percent of four engines
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
            DeviceGoneError, DriverGoneError: as `Caller.ask`.
        """
        if not self._can:
            return None
        caller.call = CALL
        try:
            records = self._records(device)
        except pynvml.NVMLError as error:
            code = getattr(error, "value", None)
            if code in _NONE:
                return {} if self._since else None
            self._can = code not in _NEVER
            if self._can:
                caller.absence(CALL, error)
            return None
        latest: dict[int, tuple[int, int]] = {}
        since = self._since
        for pid, at, share, *_ in _RECORD.iter_unpack(records):
            # Some drivers fill in records that nobody asked for.
            if at > since and share <= 100 and pid and (pid not in latest or latest[pid] < (at, share)):
                latest[pid] = (at, share)
        self._since = max([since, *(at for at, _ in latest.values())])
        return {pid: share for pid, (_, share) in latest.items()}

    def _records(self, device: Device) -> memoryview:
        """The samples as the driver writes them: of a thousand processes pynvml makes objects that take ten times as
        long to read.

        Raises:
            pynvml.NVMLError: there is none, or the device does not say.
        """
        call = getattr(pynvml.nvmlLib, CALL, None)
        if call is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        count = ctypes.c_uint(0)
        code = call(device, None, ctypes.byref(count), ctypes.c_ulonglong(self._since))
        if code == pynvml.NVML_ERROR_INSUFFICIENT_SIZE and count.value <= MOST_PROCESSES:
            buffer = ctypes.create_string_buffer(count.value * _RECORD.size)
            code = call(device, buffer, ctypes.byref(count), ctypes.c_ulonglong(self._since))
            if code == pynvml.NVML_SUCCESS:
                return memoryview(buffer)[: count.value * _RECORD.size]
        raise pynvml.NVMLError(code)


class Metric(msgspec.Struct, frozen=True):
    """Fields of `core.readings.Gpu` and the calls that fill them, the newest first."""

    fields: tuple[str, ...]
    calls: tuple[str, ...]
    arguments: tuple[int, ...] = ()
    convert: Callable[[Any], tuple[Any, ...]] = lambda value: (value,)


def _throttling(bits: int) -> tuple[tuple[str, ...]]:
    return (tuple(word for bit, word in THROTTLING if bits & bit),)


def _number(field: str, *older_calls: str) -> Metric:
    """A field that one call tells, as the agent asks for it."""
    call, arguments, divisor = NUMBERS[field]
    return Metric((field,), (call, *older_calls), arguments, lambda value: (value / divisor if divisor > 1 else value,))


CHANGING: Final = (
    Metric(
        ("utilization", "memory_utilization"),
        ("nvmlDeviceGetUtilizationRates",),
        convert=lambda rates: (rates.gpu, rates.memory),
    ),
    *map(_number, ("power_watts", "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz")),
    Metric(("throttle_reasons",), THROTTLING_CALLS, convert=_throttling),
)
# The last three do change, and stand in details alone: three of seventeen calls of a look at a card.
RARELY_CHANGING: Final = (
    _number("power_limit_watts", "nvmlDeviceGetPowerManagementLimit"),
    Metric(
        ("ecc_errors",),
        ("nvmlDeviceGetTotalEccErrors",),
        (pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC),
    ),
    *map(_number, ("fan_percent", "pcie_generation", "pcie_width")),
)
NEVER_CHANGING: Final = (
    Metric(("name",), ("nvmlDeviceGetName",), convert=lambda name: (printable(name),)),
    Metric(("uuid",), ("nvmlDeviceGetUUID",), convert=lambda uuid: (printable(uuid),)),
    Metric(("pci_bus_id",), ("nvmlDeviceGetPciInfo",), convert=lambda pci: (_text(pci.busId),)),
    Metric(("compute_capability",), ("nvmlDeviceGetCudaComputeCapability",), convert=lambda pair: (tuple(pair),)),
)
NOT_OF_AN_INSTANCE: Final = (*(field for metric in (*CHANGING, *RARELY_CHANGING) for field in metric.fields), *COUNTED)


def read_metrics(caller: Caller, device: Device, metrics: tuple[Metric, ...]) -> tuple[Fields, Absences]:
    """The values that could be read, and the reasons for the others.

    Raises:
        DeviceGoneError, DriverGoneError: as `Caller.ask`.
    """
    values: Fields = {}
    absent: Absences = {}
    for metric in metrics:
        answer, absence = caller.ask_first(metric.calls, device, *metric.arguments)
        if absence is not None:
            absent.update(dict.fromkeys(metric.fields, absence))
        else:
            for field, value in zip(metric.fields, _converted(metric, answer), strict=True):
                if is_possible(field, value):
                    values[field] = value
                else:
                    absent[field] = Absence.FAILED
    return values, absent


def _converted(metric: Metric, answer: Any) -> tuple[Any, ...]:  # noqa: ANN401 - whatever pynvml gives
    try:
        return metric.convert(answer)
    except UnicodeDecodeError:  # pynvml decodes a structure's text only when it is looked at
        return (None,) * len(metric.fields)


def read_memory(caller: Caller, device: Device) -> tuple[Memory, Absences]:
    """Memory as version 2 of the call tells it apart, or as version 1 does where that is all the driver has.

    A device without memory of its own says so (or says 0): it shares the host's, and nothing but `unified` is known.

    Raises:
        DeviceGoneError, DriverGoneError: as `Caller.ask`.
    """
    info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device, pynvml.nvmlMemory_v2)
    absent: Absences = {}
    if absence in (Absence.DRIVER_TOO_OLD, Absence.NOT_SUPPORTED):
        info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device)
        absent = {"memory.reserved": Absence.DRIVER_TOO_OLD}
    if absence is Absence.NOT_SUPPORTED or (absence is None and info.total == 0):
        return Memory(unified=True), dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
    if absence is not None:
        return Memory(), {"memory": absence}
    sizes: dict[str, int | None] = {name: getattr(info, name, None) for name in ("total", "used", "reserved", "free")}
    known, impossible = possible_sizes(sizes)
    return msgspec.convert(known, Memory), absent | {name: Absence(why) for name, why in impossible.items()}


def _text(value: bytes | str) -> str:
    return printable(value.decode(errors="replace") if isinstance(value, bytes) else value)
