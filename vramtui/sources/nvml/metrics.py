"""Memory, metrics and processes' SM use of a device from NVML; each call may fail without affecting the others."""

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
import pynvml

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.agent.nvml import HOST_TOTAL, possible_sizes
from vramtui.agent.stream import NUMBERS, THROTTLING, THROTTLING_CALLS
from vramtui.core.base.text import printable
from vramtui.core.observation.bounded_samples import MOST_PROCESSES, is_possible
from vramtui.core.observation.readings import Absence, Memory
from vramtui.sources.nvml.calls import Absences, Caller, Device, Fields

CALL = "nvmlDeviceGetProcessUtilization"
# Nothing has run since the last samples; drivers report a count of 0 as a success without an answer.
_NONE = (pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_NO_DATA)
_RECORD = struct.Struct("=I4xQI12x")  # nvmlProcessUtilizationSample_t: pid, time, and percent of the first engine
_NEVER = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NO_PERMISSION)


class BusyProcesses:
    """Reads the samples of one card since the last read: the driver keeps one for each process that ran anything
    within its last period (nvml.h).
    """

    def __init__(self) -> None:
        self._since = 0
        self._can = True

    def read(self, caller: Caller, device: Device) -> Mapping[int, int] | None:
        """Return SM % by pid of the processes that it is not 0 of; None if this device does not report it."""
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
        for pid, at, share in _RECORD.iter_unpack(records):
            # Some drivers fill in old records.
            if at > since and share <= 100 and pid and (pid not in latest or latest[pid] < (at, share)):
                latest[pid] = (at, share)
        self._since = max([since, *(at for at, _ in latest.values())])
        return {pid: share for pid, (_, share) in latest.items() if share}

    def _records(self, device: Device) -> memoryview:
        """Return the samples as the driver writes them: pynvml's objects for a thousand processes take ten times as
        long to read.

        Raises:
            pynvml.NVMLError: there are none, or the device does not report them.
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


def _number(field: str, *older_calls: str) -> Metric:
    """A field of one call, with the agent's call and unit."""
    call, arguments, divisor = NUMBERS[field]
    return Metric((field,), (call, *older_calls), arguments, lambda value: (value / divisor if divisor > 1 else value,))


def _text(field: str, call: str) -> Metric:
    return Metric((field,), (call,), convert=lambda text: (printable(text),))


CHANGING: Final = (
    Metric(
        ("utilization", "memory_utilization"),
        ("nvmlDeviceGetUtilizationRates",),
        convert=lambda rates: (rates.gpu, rates.memory),
    ),
    *map(_number, ("power_watts", "temperature_celsius", "sm_clock_mhz", "memory_clock_mhz")),
    Metric(
        ("throttle_reasons",),
        THROTTLING_CALLS,
        convert=lambda bits: (tuple(word for bit, word in THROTTLING if bits & bit),),
    ),
)
# The last three change, but only details show them: three of seventeen calls of a look at a card.
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
    _text("name", "nvmlDeviceGetName"),
    _text("uuid", "nvmlDeviceGetUUID"),
    Metric(
        ("pci_bus_id",),
        ("nvmlDeviceGetPciInfo",),
        convert=lambda pci: (
            printable(pci.busId.decode(errors="replace") if isinstance(pci.busId, bytes) else pci.busId),
        ),
    ),
    Metric(("compute_capability",), ("nvmlDeviceGetCudaComputeCapability",), convert=lambda pair: (tuple(pair),)),
)
NOT_OF_AN_INSTANCE: Final = (*(field for metric in (*CHANGING, *RARELY_CHANGING) for field in metric.fields), *COUNTED)


def read_metrics(caller: Caller, device: Device, metrics: tuple[Metric, ...]) -> tuple[Fields, Absences]:
    """Return the values that could be read, and the reasons for the others."""
    values: Fields = {}
    absent: Absences = {}
    for metric in metrics:
        answer, absence = caller.ask_first(metric.calls, device, *metric.arguments)
        if absence is not None:
            absent.update(dict.fromkeys(metric.fields, absence))
            continue
        try:
            converted = metric.convert(answer)
        except UnicodeDecodeError:  # pynvml decodes a structure's text only when it is looked at
            converted = (None,) * len(metric.fields)
        for field, value in zip(metric.fields, converted, strict=True):
            if is_possible(field, value):
                values[field] = value
            else:
                absent[field] = Absence.FAILED
    return values, absent


def read_memory(caller: Caller, device: Device) -> tuple[Memory, Absences]:
    """Read memory by version 2 of the call, or by version 1 if the driver has no other.

    A device without memory of its own says so, or says 0 or the host's: it shares that, and only `unified` is known.
    """
    info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device, pynvml.nvmlMemory_v2)
    absent: Absences = {}
    if absence in (Absence.DRIVER_TOO_OLD, Absence.NOT_SUPPORTED):
        info, absence = caller.ask("nvmlDeviceGetMemoryInfo", device)
        absent = {"memory.reserved": Absence.DRIVER_TOO_OLD}
    if absence is Absence.NOT_SUPPORTED or (absence is None and info.total in (0, HOST_TOTAL)):
        return Memory(unified=True), dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
    if absence is not None:
        return Memory(), {"memory": absence}
    known, impossible = possible_sizes(
        {name: getattr(info, name, None) for name in ("total", "used", "reserved", "free")}
    )
    return msgspec.convert(known, Memory), absent | {name: Absence(why) for name, why in impossible.items()}
