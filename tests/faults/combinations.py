"""Every way in which a call of NVML can go wrong, made by rule and not from a list: call, what, when."""

from collections.abc import Iterator
from dataclasses import dataclass

import pynvml

from tests.stub.world import (
    FOR_EVER,
    FUNCTION_NOT_FOUND,
    MIB,
    NOT_SUPPORTED,
    SPOILS,
    StubGpu,
    StubMig,
    StubProcess,
    World,
)

GIB = 1 << 30
PIDS = (1 << 22) - 3, (1 << 22) - 2, (1 << 22) - 4  # that nobody has
AT_START, RUNNING, BACK = "at start", "while running", "comes back"
WHEN = (AT_START, RUNNING, BACK)
NEW_CODE = 77  # that no header has
SLOW = 0.02  # seconds a call; a card is waited for ten times as long and more
CODES = (*sorted({code for name, code in vars(pynvml).items() if name.startswith("NVML_ERROR_")}), NEW_CODE)
HANGS, IS_SLOW = "hangs", "slow"

LISTS = ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses")
OF_THE_DRIVER = (
    *("nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion"),
    *("nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount_v2"),
)
_MIG = "MigMode MaxMigDeviceCount MigDeviceHandleByIndex GpuInstanceId Attributes_v2"
_CARD = """
    HandleByIndex_v2 HandleByUUID Name UUID PciInfo_v3 CudaComputeCapability MemoryInfo_v2 MemoryInfo PowerUsage
    EnforcedPowerLimit PowerManagementLimit FanSpeed CurrPcieLinkGeneration CurrPcieLinkWidth UtilizationRates
    Temperature ClockInfo TotalEccErrors CurrentClocksEventReasons CurrentClocksThrottleReasons EncoderUtilization
    FieldValues AccountingMode AccountingStats
"""
OF_MIG = tuple(f"nvmlDeviceGet{name}" for name in _MIG.split())
OF_A_CARD = (
    *(f"nvmlDeviceGet{name}" for name in _CARD.split()),
    *("nvmlDeviceRegisterEvents", "nvmlEventSetWait_v2"),
    *(f"{name}{suffix}" for name in LISTS for suffix in ("_v3", "_v2", "")),
)
CALLS = (*OF_THE_DRIVER, *OF_A_CARD, *OF_MIG)
# These are asked only where the driver lacks, or the device does not support, what is asked before them.
INSTEAD_OF: dict[str, tuple[tuple[str, int], ...]] = {
    "nvmlDeviceGetMemoryInfo": (("nvmlDeviceGetMemoryInfo_v2", FUNCTION_NOT_FOUND),),
    "nvmlDeviceGetPowerManagementLimit": (("nvmlDeviceGetEnforcedPowerLimit", NOT_SUPPORTED),),
    "nvmlDeviceGetCurrentClocksThrottleReasons": (("nvmlDeviceGetCurrentClocksEventReasons", FUNCTION_NOT_FOUND),),
    "nvmlSystemGetCudaDriverVersion": (("nvmlSystemGetCudaDriverVersion_v2", FUNCTION_NOT_FOUND),),
    "nvmlDeviceGetAttributes_v2": (("nvmlDeviceGetName", NOT_SUPPORTED),),
    **{f"{name}_v2": ((f"{name}_v3", FUNCTION_NOT_FOUND),) for name in LISTS},
    **{name: ((f"{name}_v3", FUNCTION_NOT_FOUND), (f"{name}_v2", FUNCTION_NOT_FOUND)) for name in LISTS},
}
HANDLES = (
    "nvmlInitWithFlags",  # which writes nothing
    # A handle is a pointer of the library's own, which nobody but the library can check.
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetMigDeviceHandleByIndex",
)


@dataclass(frozen=True)
class Combination:
    """One call of the library that goes wrong at one time (`WHEN`): by an error's number, `hangs`, `slow`, or by what
    it writes (`SPOILS` of the stand-in).
    """

    call: str
    what: int | str
    when: str

    @property
    def name(self) -> str:
        what = f"error {self.what}" if isinstance(self.what, int) else self.what
        return f"{self.call} · {what} · {self.when}"

    @property
    def is_spoilt(self) -> bool:
        return self.what in SPOILS

    @property
    def is_of_the_driver(self) -> bool:
        return self.call in OF_THE_DRIVER

    def world(self, *, broken: bool, tick: int) -> World:
        """The host: the first of two cards is the one that goes wrong; the other's memory changes at each tick."""
        world = host(with_instances=self.call in OF_MIG, tick=tick)
        owner = world if self.is_of_the_driver else world.gpus[0]
        owner.faults.update(INSTEAD_OF.get(self.call, ()))
        if not broken:
            return world
        if isinstance(self.what, int):
            owner.faults[self.call] = self.what
        elif self.is_spoilt:
            owner.spoils[self.call] = self.what
        else:
            owner.hangs[self.call] = FOR_EVER if self.what == HANGS else SLOW
        return world


def combinations() -> Iterator[Combination]:
    for call in CALLS:
        spoils = [how for how in SPOILS if call not in HANDLES and (how != "many" or "RunningProcesses" in call)]
        for what in (*CODES, HANGS, IS_SLOW, *spoils):
            yield from (Combination(call, what, when) for when in WHEN)


def host(*, with_instances: bool, tick: int) -> World:
    first = StubGpu(name="NVIDIA A", total=80 * GIB, used=4 * GIB, reserved=GIB, accounting=1, fan=30)
    first.processes = [StubProcess(PIDS[0], 2 * GIB), StubProcess(PIDS[1], GIB), StubProcess(PIDS[2], MIB, "G")]
    first.accounted = {PIDS[0]: 3 * GIB, PIDS[1]: 2 * GIB}
    if with_instances:
        first.mig_mode = 1
        first.migs = [StubMig("3g.40gb", "MIG-a", 1, 0, total=40 * GIB, used=2 * GIB, gpu_slices=3, compute_slices=3)]
        first.processes[0].gpu_instance, first.processes[0].compute_instance = 1, 0
    second = StubGpu(name="NVIDIA B", total=80 * GIB, used=used_at(tick), reserved=GIB)
    return World([first, second])


def used_at(tick: int) -> int:
    return (tick + 1) * GIB
