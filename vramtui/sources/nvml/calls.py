"""Calls to NVML: each answer is a value or the reason why there is no value.

A call raises DeviceGoneError if the device is lost and DriverGoneError if NVML must be initialised again; functions
that take a `Caller` pass both on.
"""

import ctypes
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from vramtui.agent.nvml import ABSENCES, LOST, MEMORY_V2
from vramtui.agent.stream import THROTTLING_CALLS
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Absence, Problem

# Codes of nvmlReturn_t.
SUCCESS, UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION = range(5)
NOT_FOUND, INSUFFICIENT_SIZE, DRIVER_NOT_LOADED, TIMEOUT = 6, 7, 9, 10
LIBRARY_NOT_FOUND, FUNCTION_NOT_FOUND, GPU_IS_LOST = 12, 13, 15
OPERATING_SYSTEM, VERSION_MISMATCH, OUT_OF_MEMORY, NO_DATA, FORM_UNKNOWN, UNKNOWN = 17, 18, 20, 21, 25, 999
_ABSENCES: Final = {code: Absence(why) for code, why in ABSENCES.items()}
_SENTENCES: Final[dict[int, str]] = LOST | {
    UNINITIALIZED: "the driver was unloaded or reloaded",
    INVALID_ARGUMENT: "the driver refused the question",
    NOT_SUPPORTED: "not supported by this device",
    NO_PERMISSION: "this user has no permission",
    DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    TIMEOUT: "the driver gave up waiting for the device",
    LIBRARY_NOT_FOUND: "NVIDIA's library libnvidia-ml.so.1 was not found",
    FUNCTION_NOT_FOUND: "this driver does not have the call",
    OPERATING_SYSTEM: "the operating system does not let NVIDIA's library use the driver",
    VERSION_MISMATCH: "NVIDIA's library and the loaded driver are of different versions; the driver was upgraded",
    OUT_OF_MEMORY: "the system is out of memory",
    FORM_UNKNOWN: "this driver does not know this form of the call",
    UNKNOWN: "the driver reports an unknown error",
}
_INIT_HINTS: Final = {
    LIBRARY_NOT_FOUND: "Install the NVIDIA driver; in a container, start it with --gpus all.",
    DRIVER_NOT_LOADED: "Load it with `sudo modprobe nvidia`, or reboot.",
    VERSION_MISMATCH: "Reboot, or reload the nvidia kernel module.",
    NO_PERMISSION: "See who may read and write /dev/nvidiactl and /dev/nvidia0.",
    OPERATING_SYSTEM: "In a container, see that the devices /dev/nvidia* are passed in.",
    FUNCTION_NOT_FOUND: "The driver is too old: it has to be of version 450 or later.",
}
_DRIVER_GONE: Final = (UNINITIALIZED, DRIVER_NOT_LOADED, VERSION_MISMATCH)
_TEXT: Final = ctypes.c_char * 96  # NVML_DEVICE_NAME_V2_BUFFER_SIZE, the longest
# What the functions fill in, by nvml.h; those that are not here a single unsigned number.
_FILLED: Final[Mapping[str, tuple[Callable[[], Any], ...]]] = {
    **dict.fromkeys(("nvmlSystemGetDriverVersion", "nvmlDeviceGetName", "nvmlDeviceGetUUID"), (_TEXT,)),
    **dict.fromkeys(("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByUUID"), (ctypes.c_void_p,)),
    "nvmlDeviceGetMigDeviceHandleByIndex": (ctypes.c_void_p,),
    **dict.fromkeys(("nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetMigMode"), (ctypes.c_uint, ctypes.c_uint)),
    **dict.fromkeys((*THROTTLING_CALLS, "nvmlDeviceGetTotalEccErrors"), (ctypes.c_ulonglong,)),
    # Structures, as the numbers or bytes in them.
    "nvmlDeviceGetUtilizationRates": (ctypes.c_uint * 2,),
    "nvmlDeviceGetMemoryInfo": (ctypes.c_ulonglong * 3,),
    "nvmlDeviceGetMemoryInfo_v2": (lambda: (ctypes.c_ulonglong * 5)(MEMORY_V2),),
    "nvmlDeviceGetAttributes_v2": (ctypes.c_uint * 10,),
    "nvmlDeviceGetAccountingStats": (ctypes.c_ulonglong * 7,),
    "nvmlDeviceGetPciInfo": (ctypes.c_ubyte * 68,),
}
_LATEST: Final = {"nvmlDeviceGetCount": "_v2", "nvmlDeviceGetHandleByIndex": "_v2", "nvmlDeviceGetPciInfo": "_v3"}

Device = Any  # a handle of the library's
Answer = tuple[Any, Absence | None]
Fields = dict[str, Any]
Absences = dict[str, Absence]


class NvmlError(Exception):
    """A call ended with a `code` other than 0."""

    def __init__(self, code: int) -> None:
        super().__init__(sentence(code))
        self.code = code


class DeviceGoneError(Exception):
    """The device does not work any more: it is `lost`, or needs a reset."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {sentence(code)}")
        self.lost = code == GPU_IS_LOST


class DriverGoneError(Exception):
    """NVML must be initialised again."""


class Caller:
    """Asks about one device, which problems call `where`; remembers its current call and unusual errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.call = ""
        self.problems: list[Problem] = []

    def ask(self, name: str, *arguments: object) -> Answer:
        """Return what `answer_of` does, and why there is no value (None if there is one)."""
        self.call = name.removesuffix("_v2")
        try:
            return answer_of(name, *arguments), None
        except NvmlError as error:
            return None, self.absence(self.call, error)
        except UnicodeDecodeError:
            return None, Absence.FAILED

    def ask_first(self, names: tuple[str, ...], *arguments: object) -> Answer:
        """Return the answer of the first of these functions that the driver has and the device supports."""
        first: Absence | None = None
        for name in names:
            value, absence = self.ask(name, *arguments)
            if absence is None:
                return value, None
            if absence not in (Absence.DRIVER_TOO_OLD, Absence.NOT_SUPPORTED):
                return None, absence
            first = absence if first in (None, Absence.DRIVER_TOO_OLD) else first
        return None, first

    def absence(self, name: str, error: NvmlError) -> Absence:
        """Return why an error of NVML leaves the value unknown; an unusual error becomes a problem."""
        self.raise_if_gone(name, error.code)
        absence = _ABSENCES.get(error.code, Absence.FAILED)
        if absence is Absence.FAILED:
            self.problems.append(Problem(where=self.where, message=f"{name}: {error}."))
        return absence

    @staticmethod
    def raise_if_gone(name: str, code: int) -> None:
        """Raise if the call `name` ended with a `code` that means that the device or the driver is gone."""
        if code in LOST:
            raise DeviceGoneError(name, code)
        if code in _DRIVER_GONE:
            raise DriverGoneError(f"{name}: {sentence(code)}")


def sentence(code: int) -> str:
    """Describe an error code of NVML, in words that follow the name of a call."""
    return _SENTENCES.get(code, f"the driver reports error {code}")


@cache
def library() -> Any:  # noqa: ANN401 - its functions have no types
    """NVIDIA's library; raises NvmlError if it cannot be loaded."""
    try:
        return ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        raise NvmlError(LIBRARY_NOT_FOUND) from None


def function(name: str) -> Callable[..., int]:
    """A function of the library; raises NvmlError if this driver's does not have it."""
    symbol: Callable[..., int] | None = getattr(library(), name, None)
    if symbol is None:
        raise NvmlError(FUNCTION_NOT_FOUND)
    return symbol


def check(code: int) -> None:
    """Raise NvmlError of a `code` that is not 0."""
    if code != SUCCESS:
        raise NvmlError(code)


def answer_of(name: str, *arguments: object) -> Any:  # noqa: ANN401 - by the function
    """Return what a function of NVML fills in: a number, a text, a handle, or several of them.

    Raises:
        NvmlError: it ended with another code than 0.
    """
    filled = [kind() for kind in _FILLED.get(name, (ctypes.c_uint,))]
    sizes = [len(one) for one in filled if isinstance(one, _TEXT)]
    check(function(name + _LATEST.get(name, ""))(*arguments, *map(ctypes.byref, filled), *sizes))
    values = tuple(map(_value, filled))
    return values if len(values) > 1 else values[0]


def _value(filled: Any) -> Any:  # noqa: ANN401 - as `answer_of`
    if isinstance(filled, ctypes.c_void_p):
        return filled
    if isinstance(filled, _TEXT):
        return filled.value.decode()
    return tuple(filled) if isinstance(filled, ctypes.Array) else filled.value


def initialise(*, again: bool = False) -> None:
    """Load the library and begin to talk to the driver; `again` if that worked before in this process. Raises
    SourceFailed if it failed; names the call, the reason and what to do.
    """
    try:
        check(function("nvmlInitWithFlags")(0))
    except NvmlError as error:
        hint = _INIT_HINTS.get(error.code, "")
        if again and error.code == VERSION_MISMATCH:
            hint = "Start this program again; if that does not help, reboot."
        raise SourceFailed(f"nvmlInit: {error}.", hint) from error
