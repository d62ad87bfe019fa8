"""Memory, metrics and processes' SM use of a device from NVML; each call may fail without affecting the others."""

import ctypes
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.agent.nvml import HOST_TOTAL, possible_sizes
from vramtui.agent.stream import NUMBERS, THROTTLING, THROTTLING_CALLS
from vramtui.core.base.text import printable
from vramtui.core.observation.bounded_samples import MOST_PROCESSES, is_possible
from vramtui.core.observation.readings import Absence, Memory
from vramtui.sources.nvml import calls
from vramtui.sources.nvml.calls import Absences, Caller, Device, Fields

CALL = "nvmlDeviceGetProcessUtilization"
# Nothing has run since the last samples; drivers report a count of 0 as a success without an answer.
_NONE = (calls.SUCCESS, calls.NOT_FOUND, calls.NO_DATA)
_RECORD = struct.Struct("=I4xQI12x")  # nvmlProcessUtilizationSample_t: pid, time, and percent of the first engine
_NEVER = (calls.NOT_SUPPORTED, calls.FUNCTION_NOT_FOUND, calls.NO_PERMISSION)


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
        except calls.NvmlError as error:
            if error.code in _NONE:
                return {} if self._since else None
            self._can = error.code not in _NEVER
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
        """Return the samples as the driver writes them: an object for each of a thousand takes ten times as long.

        Raises:
            NvmlError: there are none, or the device does not report them.
        """
        call = calls.function(CALL)
        count = ctypes.c_uint(0)
        code = call(device, None, ctypes.byref(count), ctypes.c_ulonglong(self._since))
        if code == calls.INSUFFICIENT_SIZE and count.value <= MOST_PROCESSES:
            buffer = ctypes.create_string_buffer(count.value * _RECORD.size)
            code = call(device, buffer, ctypes.byref(count), ctypes.c_ulonglong(self._since))
            if code == calls.SUCCESS:
                return memoryview(buffer)[: count.value * _RECORD.size]
        raise calls.NvmlError(code)


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
    Metric(("utilization", "memory_utilization"), ("nvmlDeviceGetUtilizationRates",), convert=tuple),
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
    Metric(("ecc_errors",), ("nvmlDeviceGetTotalEccErrors",), (1, 0)),  # uncorrected, since the driver was loaded
    *map(_number, ("fan_percent", "pcie_generation", "pcie_width")),
)
NEVER_CHANGING: Final = (
    _text("name", "nvmlDeviceGetName"),
    _text("uuid", "nvmlDeviceGetUUID"),
    Metric(
        ("pci_bus_id",),
        ("nvmlDeviceGetPciInfo",),
        # nvmlPciInfo_t: the bus id that was shorter, five numbers, the bus id
        convert=lambda data: (printable(bytes(data[36:]).partition(b"\0")[0].decode(errors="replace")),),
    ),
    Metric(("compute_capability",), ("nvmlDeviceGetCudaComputeCapability",), convert=lambda pair: (pair,)),
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
        for field, value in zip(metric.fields, metric.convert(answer), strict=True):
            if is_possible(field, value):
                values[field] = value
            else:
                absent[field] = Absence.FAILED
    return values, absent


def read_memory(caller: Caller, device: Device) -> tuple[Memory, Absences]:
    """Read memory by version 2 of the call, or by version 1 if the driver has no other.

    A device without memory of its own says so, or says 0 or the host's: it shares that, and only `unified` is known.
    """
    answer, absence = caller.ask("nvmlDeviceGetMemoryInfo_v2", device)
    names: tuple[str, ...] = ("version", "total", "reserved", "free", "used")
    absent: Absences = {}
    if absence in (Absence.DRIVER_TOO_OLD, Absence.NOT_SUPPORTED):
        answer, absence = caller.ask("nvmlDeviceGetMemoryInfo", device)
        names, absent = ("total", "free", "used"), {"memory.reserved": Absence.DRIVER_TOO_OLD}
    info = dict(zip(names, answer or (), strict=False))
    if absence is Absence.NOT_SUPPORTED or (absence is None and info["total"] in (0, HOST_TOTAL)):
        return Memory(unified=True), dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
    if absence is not None:
        return Memory(), {"memory": absence}
    known, impossible = possible_sizes({name: info.get(name) for name in ("total", "used", "reserved", "free")})
    return msgspec.convert(known, Memory), absent | {name: Absence(why) for name, why in impossible.items()}
