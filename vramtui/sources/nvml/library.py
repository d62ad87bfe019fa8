"""NVIDIA's management library, loaded by ctypes, and the calls of it that are made here.

Names, codes, structs and the versions of symbols are those of nvml.h; a struct's fields that nobody reads are there for
its size. The package nvidia-ml-py has all of NVML: it took 2.4 MB and 20 ms of each start for what stands here.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any, Final

from vramtui.agent.nvml import MEMORY_V2, MemoryV2

SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = 0, 1, 2, 3, 4
NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT = 6, 7, 9, 10
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED = 12, 13, 15, 16
OPERATING_SYSTEM, LIB_RM_VERSION_MISMATCH, MEMORY, NO_DATA = 17, 18, 20, 21
ARGUMENT_VERSION_MISMATCH, NOT_READY, UNKNOWN = 25, 27, 999
TEMPERATURE_GPU = 0
CLOCK_SM, CLOCK_MEM = 1, 2
MEMORY_ERROR_TYPE_UNCORRECTED, VOLATILE_ECC = 1, 0
MIG_DISABLE, MIG_ENABLE = 0, 1
PCIE_SENT, PCIE_RECEIVED = 0, 1  # nvmlPcieUtilCounter_t
NAME: Final = "libnvidia-ml.so.1"

loaded: ctypes.CDLL | None = None


class NvmlError(Exception):
    """A call ended with a code other than that of success; `value` is the code."""

    def __init__(self, value: int) -> None:
        super().__init__(f"NVML's code {value}")
        self.value = value


class Utilization(ctypes.Structure):
    """`nvmlUtilization_t`: percent of the time."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class OldMemory(ctypes.Structure):
    """`nvmlMemory_t`."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class PciInfo(ctypes.Structure):
    """`nvmlPciInfo_t`."""

    _fields_ = [
        ("legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("busId", ctypes.c_char * 32),
    ]


class Attributes(ctypes.Structure):
    """`nvmlDeviceAttributes_t`, of a MIG instance."""

    _fields_ = [
        ("counts", ctypes.c_uint * 6),
        ("gpuInstanceSliceCount", ctypes.c_uint),
        ("computeInstanceSliceCount", ctypes.c_uint),
        ("memorySizeMB", ctypes.c_ulonglong),
    ]


class AccountingStats(ctypes.Structure):
    """`nvmlAccountingStats_t`."""

    _fields_ = [
        ("utilization", ctypes.c_uint * 2),
        ("maxMemoryUsage", ctypes.c_ulonglong),
        ("times", ctypes.c_ulonglong * 2),
        ("isRunning", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 5),
    ]


# `nvmlProcessUtilizationSample_t`: pid, time stamp in microseconds, SM, memory, encoder and decoder in percent.
_UTILIZATION_SAMPLE: Final = struct.Struct("@IQIIII")


def load() -> None:
    """Load the library and begin to talk to the driver.

    Raises:
        NvmlError: there is none, or the driver does not want to.
    """
    global loaded  # noqa: PLW0603 - one library a process, as the dynamic linker has it
    if loaded is None:
        try:
            loaded = ctypes.CDLL(NAME)
        except OSError:
            raise NvmlError(LIBRARY_NOT_FOUND) from None
    _check(function("nvmlInitWithFlags")(0))


def function(symbol: str) -> Any:  # noqa: ANN401 - ctypes has no type for one
    """The library's own function.

    Raises:
        NvmlError: this library does not have it, or none is loaded.
    """
    if loaded is None:
        raise NvmlError(UNINITIALIZED)
    found = getattr(loaded, symbol, None)
    if found is None:
        raise NvmlError(FUNCTION_NOT_FOUND)
    return found


def ask(name: str, *arguments: Any) -> Any:  # noqa: ANN401 - a handle, a number or text, and what each call answers
    """What the call answers: a number or several, text, a handle, or one of the structs above.

    Raises:
        NvmlError: the driver's code.
        UnicodeDecodeError: a text is not UTF-8.
    """
    symbol, made, told = CALLS[name]
    results = made()
    passed = [one.encode() if isinstance(one, str) else one for one in arguments]
    _check(function(symbol)(*passed, *(ctypes.byref(one) for one in results), *_length(results)))
    return told(*results)


def utilization_samples(device: Any, since: int) -> list[tuple[int, int, int]]:  # noqa: ANN401 - as above
    """Pid, time stamp and SM % of each of a device's samples since a time stamp (0 for all that the driver keeps).

    Raises:
        NvmlError: the driver's code; that of success where it has no sample.
    """
    call = function("nvmlDeviceGetProcessUtilization")
    count, last = ctypes.c_uint(0), ctypes.c_ulonglong(since)
    code = call(device, None, ctypes.byref(count), last)
    if code != INSUFFICIENT_SIZE:
        raise NvmlError(code)
    size = _UTILIZATION_SAMPLE.size
    buffer = ctypes.create_string_buffer(count.value * size)
    _check(call(device, buffer, ctypes.byref(count), last))
    told = memoryview(buffer)[: count.value * size]
    return [(pid, at, busy) for pid, at, busy, *_ in _UTILIZATION_SAMPLE.iter_unpack(told)]


def _check(code: int) -> None:
    if code != SUCCESS:
        raise NvmlError(code)


def _length(results: tuple[Any, ...]) -> tuple[int, ...]:
    """What stands behind a buffer for text: its length."""
    return (len(results[0]),) if isinstance(results[0], ctypes.Array) else ()


_Call = tuple[str, Callable[[], tuple[Any, ...]], Callable[..., Any]]


def _number(symbol: str, kind: type[Any] = ctypes.c_uint) -> _Call:
    return symbol, lambda: (kind(),), lambda result: result.value


def _pair(symbol: str) -> _Call:
    return symbol, lambda: (ctypes.c_uint(), ctypes.c_uint()), lambda one, other: (one.value, other.value)


def _text(symbol: str) -> _Call:
    return symbol, lambda: ((ctypes.c_char * 96)(),), lambda buffer: buffer.value.decode()


def _whole(symbol: str, made: Callable[[], Any]) -> _Call:
    return symbol, lambda: (made(),), lambda result: result


_NUMBERS = [
    "nvmlDeviceGetAccountingMode",
    "nvmlDeviceGetClockInfo",
    "nvmlDeviceGetCurrPcieLinkGeneration",
    "nvmlDeviceGetCurrPcieLinkWidth",
    "nvmlDeviceGetEnforcedPowerLimit",
    "nvmlDeviceGetFanSpeed",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetPcieThroughput",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetTemperature",
    "nvmlSystemGetCudaDriverVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
]
_LONG_NUMBERS = [
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
    "nvmlDeviceGetTotalEccErrors",
]
CALLS: Final[dict[str, _Call]] = {
    **{name: _number(name) for name in _NUMBERS},
    **{name: _number(name, ctypes.c_ulonglong) for name in _LONG_NUMBERS},
    **{name: _text(name) for name in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion")},
    **{name: _pair(name) for name in ("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode")},
    "nvmlDeviceGetCount": _number("nvmlDeviceGetCount_v2"),
    "nvmlDeviceGetHandleByIndex": _whole("nvmlDeviceGetHandleByIndex_v2", ctypes.c_void_p),
    "nvmlDeviceGetHandleByUUID": _whole("nvmlDeviceGetHandleByUUID", ctypes.c_void_p),
    "nvmlDeviceGetMigDeviceHandleByIndex": _whole("nvmlDeviceGetMigDeviceHandleByIndex", ctypes.c_void_p),
    "nvmlDeviceGetUtilizationRates": _whole("nvmlDeviceGetUtilizationRates", Utilization),
    "nvmlDeviceGetMemoryInfo_v1": _whole("nvmlDeviceGetMemoryInfo", OldMemory),
    "nvmlDeviceGetMemoryInfo": _whole("nvmlDeviceGetMemoryInfo_v2", lambda: MemoryV2(version=MEMORY_V2)),
    "nvmlDeviceGetPciInfo": _whole("nvmlDeviceGetPciInfo_v3", PciInfo),
    "nvmlDeviceGetAttributes_v2": _whole("nvmlDeviceGetAttributes_v2", Attributes),
    "nvmlDeviceGetAccountingStats": _whole("nvmlDeviceGetAccountingStats", AccountingStats),
}
