"""The calls, structs and codes of NVML, held to those of nvidia-ml-py on the stand-in library."""

import ctypes
from collections.abc import Callable

import pynvml
import pytest

from tests.sources.conftest import Stage
from tests.stub.world import MIB, StubMig
from vramtui.agent.nvml import MemoryV2
from vramtui.sources.nvml import library
from vramtui.sources.nvml.library import CALLS, Code, NvmlError, ask

STRUCTS = {
    library.MemoryV1: pynvml.c_nvmlMemory_t,
    MemoryV2: pynvml.c_nvmlMemory_v2_t,
    library.Utilization: pynvml.c_nvmlUtilization_t,
    library.PciInfo: pynvml.nvmlPciInfo_t,
    library.DeviceAttributes: pynvml.c_nvmlDeviceAttributes,
    library.AccountingStats: pynvml.c_nvmlAccountingStats_t,
}
CONSTANTS = {
    library.TEMPERATURE_GPU: pynvml.NVML_TEMPERATURE_GPU,
    library.CLOCK_SM: pynvml.NVML_CLOCK_SM,
    library.CLOCK_MEM: pynvml.NVML_CLOCK_MEM,
    library.UNCORRECTED: pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    library.VOLATILE: pynvml.NVML_VOLATILE_ECC,
    library.PCIE_SENT: pynvml.NVML_PCIE_UTIL_TX_BYTES,
    library.PCIE_RECEIVED: pynvml.NVML_PCIE_UTIL_RX_BYTES,
    library.MIG_DISABLED: pynvml.NVML_DEVICE_MIG_DISABLE,
    library.MIG_ENABLED: pynvml.NVML_DEVICE_MIG_ENABLE,
}
# What a call takes behind the device; those that are not here take the device alone.
ARGUMENTS: dict[str, tuple[int, ...]] = {
    "nvmlDeviceGetClockInfo": (library.CLOCK_SM,),
    "nvmlDeviceGetMigDeviceHandleByIndex": (0,),
    "nvmlDeviceGetPcieThroughput": (library.PCIE_RECEIVED,),
    "nvmlDeviceGetTemperature": (library.TEMPERATURE_GPU,),
    "nvmlDeviceGetTotalEccErrors": (library.UNCORRECTED, library.VOLATILE),
}
OF_AN_INSTANCE = {"nvmlDeviceGetAttributes_v2", "nvmlDeviceGetGpuInstanceId"}


@pytest.mark.parametrize("ours", STRUCTS, ids=lambda kind: kind.__name__)
def test_a_struct_has_its_fields_where_the_driver_writes_them(ours: type[ctypes.Structure]) -> None:
    theirs = STRUCTS[ours]

    def layout(kind: type[ctypes.Structure]) -> list[tuple[int, int]]:
        fields = (getattr(kind, field[0]) for field in kind._fields_)
        return [(field.offset, field.size) for field in fields]

    assert (ctypes.sizeof(ours), layout(ours)) == (ctypes.sizeof(theirs), layout(theirs))


def test_codes_and_constants_are_those_of_the_header() -> None:
    names = {Code.SUCCESS: "NVML_SUCCESS"}
    assert {code: getattr(pynvml, names.get(code, f"NVML_ERROR_{code.name}")) for code in Code} == {
        code: int(code) for code in Code
    }
    assert list(CONSTANTS) == list(CONSTANTS.values())


@pytest.mark.parametrize("name", sorted(CALLS))
def test_a_call_answers_what_nvidias_own_module_is_told(
    name: str, make_stage: Callable[..., Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = make_stage()
    stage.world.gpus[1].mig_mode = 1
    stage.world.gpus[1].migs = [StubMig("1g.18gb", "MIG-1", 3, 0, 18 * 1024 * MIB, used=5 * MIB)]
    told = stage.world.gpus[2]
    told.accounting, told.accounted, told.fan, told.pcie_throughput = 1, {4711: 123 * MIB}, 40, 1500
    stage.tick()
    monkeypatch.setattr(pynvml, "nvmlLib", stage.library)
    cut = pynvml.nvmlDeviceGetHandleByIndex(1)
    card = pynvml.nvmlDeviceGetHandleByIndex(2)
    device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(cut, 0) if name in OF_AN_INSTANCE else card
    arguments: tuple[object, ...] = (cut if "Mig" in name else device, *ARGUMENTS.get(name, ()))
    theirs = getattr(pynvml, name.partition(" ")[0])
    if name == "nvmlDeviceGetAccountingStats":
        arguments = (card, 4711)
    elif name == "nvmlDeviceGetHandleByIndex":
        arguments = (2,)
    elif name == "nvmlDeviceGetHandleByUUID":
        arguments = (pynvml.nvmlDeviceGetUUID(card),)
    elif name.startswith("nvmlSystem") or name == "nvmlDeviceGetCount":
        arguments = ()
    more = (pynvml.nvmlMemory_v2,) if name == "nvmlDeviceGetMemoryInfo" else ()
    assert _plain(ask(name, *arguments)) == _plain(theirs(*arguments, *more))


def _plain(answer: object) -> object:
    """An answer of either module in a form that can be compared."""
    if isinstance(answer, ctypes.Structure):
        return bytes(answer)
    if isinstance(answer, ctypes.c_void_p | pynvml.c_nvmlDevice_t):
        return ctypes.cast(answer, ctypes.c_void_p).value
    return tuple(answer) if isinstance(answer, list) else answer


def test_what_is_not_there_is_a_code(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.tick()
    with pytest.raises(NvmlError) as missing:
        library.function("nvmlDeviceMakeTea")
    assert missing.value.code == Code.FUNCTION_NOT_FOUND
    monkeypatch.setattr(library, "loaded", None)
    with pytest.raises(NvmlError) as early:
        ask("nvmlDeviceGetCount")
    assert early.value.code == Code.UNINITIALIZED
    monkeypatch.setattr(library, "NAME", "libnvidia-ml-that-is-not-there.so.1")
    with pytest.raises(NvmlError) as absent:
        library.initialise()
    assert absent.value.code == Code.LIBRARY_NOT_FOUND
