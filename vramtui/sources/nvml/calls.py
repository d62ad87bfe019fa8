"""Calls to NVML: each answer is a value or the reason why there is no value.

A call raises DeviceGoneError if the device is lost and DriverGoneError if NVML must be initialised again; functions
that take a `Caller` pass both on.
"""

from typing import Any, Final

import pynvml

from vramtui.agent.nvml import ABSENCES, LOST
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Absence, Problem

_ABSENCES: Final = {code: Absence(why) for code, why in ABSENCES.items()}
_SENTENCES: Final[dict[int, str]] = LOST | {
    pynvml.NVML_ERROR_UNINITIALIZED: "the driver was unloaded or reloaded",
    pynvml.NVML_ERROR_INVALID_ARGUMENT: "the driver refused the question",
    pynvml.NVML_ERROR_NOT_SUPPORTED: "not supported by this device",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user has no permission",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
    pynvml.NVML_ERROR_TIMEOUT: "the driver gave up waiting for the device",
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "NVIDIA's library libnvidia-ml.so.1 was not found",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "this driver does not have the call",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "the operating system does not let NVIDIA's library use the driver",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "NVIDIA's library and the loaded driver are of different versions; the driver was upgraded"
    ),
    pynvml.NVML_ERROR_MEMORY: "the system is out of memory",
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: "this driver does not know this form of the call",
    pynvml.NVML_ERROR_UNKNOWN: "the driver reports an unknown error",
}
_INIT_HINTS: Final = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "Install the NVIDIA driver; in a container, start it with --gpus all.",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "Load it with `sudo modprobe nvidia`, or reboot.",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "Reboot, or reload the nvidia kernel module.",
    pynvml.NVML_ERROR_NO_PERMISSION: "See who may read and write /dev/nvidiactl and /dev/nvidia0.",
    pynvml.NVML_ERROR_OPERATING_SYSTEM: "In a container, see that the devices /dev/nvidia* are passed in.",
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: "The driver is too old: it has to be of version 450 or later.",
}
_DRIVER_GONE: Final = (
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
)

Device = Any  # pynvml's handle, which has no type
Answer = tuple[Any, Absence | None]
Fields = dict[str, Any]
Absences = dict[str, Absence]


class DeviceGoneError(Exception):
    """The device does not work any more: it is `lost`, or needs a reset."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call}: {sentence(code)}")
        self.lost = code == pynvml.NVML_ERROR_GPU_IS_LOST


class DriverGoneError(Exception):
    """NVML must be initialised again."""


class Caller:
    """Asks about one device, which problems call `where`; remembers its current call and unusual errors."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.call = ""
        self.problems: list[Problem] = []

    def ask(self, name: str, *arguments: object) -> Answer:
        """Return what pynvml's function `name` answers, and why there is no value (None if there is one)."""
        self.call = name
        try:
            return getattr(pynvml, name)(*arguments), None
        except pynvml.NVMLError as error:
            return None, self.absence(name, error)
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

    def absence(self, name: str, error: Exception) -> Absence:
        """Return why an error of NVML leaves the value unknown; an unusual error becomes a problem."""
        code = getattr(error, "value", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
        self.raise_if_gone(name, code)
        absence = _ABSENCES.get(code, Absence.FAILED)
        if absence is Absence.FAILED:
            self.problems.append(Problem(where=self.where, message=f"{name}: {sentence(code)}."))
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


def initialise(*, again: bool = False) -> None:
    """Load the library and begin to talk to the driver; `again` if that worked before in this process. Raises
    SourceFailed if it failed; names the call, the reason and what to do.
    """
    if not hasattr(pynvml, "nvmlMemory_v2"):
        raise SourceFailed(
            "The module `pynvml` is not that of nvidia-ml-py.",
            "Remove the package `pynvml` from this environment and install nvidia-ml-py again.",
        )
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        hint = _INIT_HINTS.get(error.value, "")
        if again and error.value == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH:
            hint = "Start this program again; if that does not help, reboot."
        raise SourceFailed(f"nvmlInit: {sentence(error.value)}.", hint) from error
