"""libnvidia-ml by ctypes: the calls that are made here, each under the name and with the types of nvml.h.

nvidia-ml-py has them all: loading it takes 8 to 20 ms before the first row, and 3.3 MB for as long as the dashboard
runs. The tests hold every call, struct and code of this file to it.
"""

import ctypes
import enum
import threading
from collections.abc import Callable
from typing import Any, Final

from vramtui.agent.nvml import MEMORY_V2, MemoryV2

NAME: Final = "libnvidia-ml.so.1"
TEXT_SIZE: Final = 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, the largest of the texts that are asked for
TEMPERATURE_GPU: Final = 0
CLOCK_SM: Final = 1
CLOCK_MEM: Final = 2
UNCORRECTED, VOLATILE = 1, 0  # nvmlMemoryErrorType_t, nvmlEccCounterType_t
PCIE_SENT, PCIE_RECEIVED = 0, 1  # nvmlPcieUtilCounter_t
MIG_DISABLED, MIG_ENABLED = 0, 1
FIRST_MEMORY: Final = "nvmlDeviceGetMemoryInfo (version 1)"  # that of drivers before 510, which has no number


class Code(enum.IntEnum):
    """Those of `nvmlReturn_t` that mean something here."""

    SUCCESS = 0
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17
    LIB_RM_VERSION_MISMATCH = 18
    MEMORY = 20
    NO_DATA = 21
    ARGUMENT_VERSION_MISMATCH = 25
    NOT_READY = 27
    UNKNOWN = 999


class NvmlError(Exception):
    """A call that ended with `code`, which may be one that is not known here."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML's error {code}")
        self.code = code


class MemoryV1(ctypes.Structure):
    """`nvmlMemory_t`, in bytes."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


class Utilization(ctypes.Structure):
    """`nvmlUtilization_t`, in percent."""

    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class PciInfo(ctypes.Structure):
    """`nvmlPciInfo_t`; its first field is the bus in an older, shorter form."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        *((name, ctypes.c_uint) for name in ("domain", "bus", "device", "pciDeviceId", "pciSubSystemId")),
        ("busId", ctypes.c_char * 32),
    ]


class DeviceAttributes(ctypes.Structure):
    """`nvmlDeviceAttributes_t`, of a MIG instance."""

    _fields_ = [
        ("multiprocessorCount", ctypes.c_uint),
        *((f"shared{engine}Count", ctypes.c_uint) for engine in ("Copy", "Decoder", "Encoder", "Jpeg", "Ofa")),
        ("gpuInstanceSliceCount", ctypes.c_uint),
        ("computeInstanceSliceCount", ctypes.c_uint),
        ("memorySizeMB", ctypes.c_ulonglong),
    ]


class AccountingStats(ctypes.Structure):
    """`nvmlAccountingStats_t`; memory in bytes, times in milliseconds and microseconds."""

    _fields_ = [
        ("gpuUtilization", ctypes.c_uint),
        ("memoryUtilization", ctypes.c_uint),
        ("maxMemoryUsage", ctypes.c_ulonglong),
        ("time", ctypes.c_ulonglong),
        ("startTime", ctypes.c_ulonglong),
        ("isRunning", ctypes.c_uint),
        ("reserved", ctypes.c_uint * 5),
    ]


loaded: ctypes.CDLL | None = None
_loading: Final = threading.Lock()
_Function = Callable[..., int]


def initialise() -> None:
    """Load the library where it is not, and begin to talk to the driver.

    Raises:
        NvmlError: LIBRARY_NOT_FOUND, or what the driver says.
    """
    global loaded  # noqa: PLW0603 - a process has one driver
    with _loading:
        if loaded is None:
            try:
                loaded = ctypes.CDLL(NAME)
            except OSError as error:
                raise NvmlError(Code.LIBRARY_NOT_FOUND) from error
    check(function("nvmlInitWithFlags")(0))


def function(name: str) -> _Function:
    """The library's function of that name, which gives a code.

    Raises:
        NvmlError: nothing is loaded, or the library does not have it.
    """
    if loaded is None:
        raise NvmlError(Code.UNINITIALIZED)
    call: _Function | None = getattr(loaded, name, None)
    if call is None:
        raise NvmlError(Code.FUNCTION_NOT_FOUND)
    return call


def code_of(name: str, *arguments: object) -> int:
    """Call the library's function of that name, and give its code; FUNCTION_NOT_FOUND where there is none."""
    try:
        return int(function(name)(*arguments))
    except NvmlError as error:
        return error.code


def check(code: int) -> None:
    """See that a call went well.

    Raises:
        NvmlError: it did not.
    """
    if code != Code.SUCCESS:
        raise NvmlError(code)


def ask(name: str, *arguments: object) -> Any:  # noqa: ANN401 - by the table below
    """What a function of `CALLS` answers: a number, a text, a pair of numbers, a handle or a struct.

    Raises:
        NvmlError: it does not.
        UnicodeDecodeError: a text that is none.
    """
    symbol, read = CALLS[name]
    given = [argument.encode() if isinstance(argument, str) else argument for argument in arguments]
    return read(function(symbol), *given)


def _number(call: _Function, *arguments: object) -> int:
    value = ctypes.c_uint()
    check(call(*arguments, ctypes.byref(value)))
    return value.value


def _wide_number(call: _Function, *arguments: object) -> int:
    value = ctypes.c_ulonglong()
    check(call(*arguments, ctypes.byref(value)))
    return value.value


def _pair(call: _Function, *arguments: object) -> tuple[int, int]:
    first, second = ctypes.c_uint(), ctypes.c_uint()
    check(call(*arguments, ctypes.byref(first), ctypes.byref(second)))
    return first.value, second.value


def _text(call: _Function, *arguments: object) -> str:
    buffer = ctypes.create_string_buffer(TEXT_SIZE)
    check(call(*arguments, buffer, TEXT_SIZE))
    return buffer.value.decode()


def _handle(call: _Function, *arguments: object) -> ctypes.c_void_p:
    handle = ctypes.c_void_p()
    check(call(*arguments, ctypes.byref(handle)))
    return handle


def _struct(kind: type[ctypes.Structure], **fields: int) -> Callable[..., ctypes.Structure]:
    def read(call: _Function, *arguments: object) -> ctypes.Structure:
        answer = kind(**fields)
        check(call(*arguments, ctypes.byref(answer)))
        return answer

    return read


def _calls(read: Callable[..., Any], *names: str) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Rows of the table: behind a colon is the version of a function that is asked for, which its symbol ends with."""
    symbols = (name.partition(":") for name in names)
    return {name: (name + version, read) for name, _, version in symbols}


CALLS: Final = {
    **_calls(
        _number,
        "nvmlDeviceGetAccountingMode",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetCount:_v2",
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
    ),
    **_calls(
        _wide_number,
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetTotalEccErrors",
    ),
    **_calls(_pair, "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode"),
    **_calls(_text, "nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlSystemGetDriverVersion"),
    **_calls(
        _handle,
        "nvmlDeviceGetHandleByIndex:_v2",
        "nvmlDeviceGetHandleByUUID",
        "nvmlDeviceGetMigDeviceHandleByIndex",
    ),
    **_calls(_struct(AccountingStats), "nvmlDeviceGetAccountingStats"),
    **_calls(_struct(DeviceAttributes), "nvmlDeviceGetAttributes_v2"),
    **_calls(_struct(MemoryV2, version=MEMORY_V2), "nvmlDeviceGetMemoryInfo:_v2"),
    FIRST_MEMORY: ("nvmlDeviceGetMemoryInfo", _struct(MemoryV1)),
    **_calls(_struct(PciInfo), "nvmlDeviceGetPciInfo:_v3"),
    **_calls(_struct(Utilization), "nvmlDeviceGetUtilizationRates"),
}
