"""The world that the stand-in library shows: described in Python, written to the file that the library reads."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MIB = 1 << 20
NOT_AVAILABLE = -1
UNINITIALIZED, INVALID_ARGUMENT, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND = 1, 2, 3, 4, 6
DRIVER_NOT_LOADED, FUNCTION_NOT_FOUND, GPU_IS_LOST, RESET_REQUIRED, MISMATCH, UNKNOWN = 9, 13, 15, 16, 18, 999
FOR_EVER = -1.0
# Ways in which a call succeeds and what it writes is wrong; nvml_stub.c says what each does.
SPOILS = ("absurd", "zero", "short", "garbage", "many")
EVERY_CALL = "*"
MEMORY_CALLS = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2")
PROCESS_CALLS = tuple(
    f"nvmlDeviceGet{kind}RunningProcesses{suffix}" for kind in ("Compute", "Graphics") for suffix in ("", "_v2", "_v3")
)


@dataclass
class StubProcess:
    """One line of a process list; `used` in bytes, or NOT_AVAILABLE. `gpu_instance` is set under MIG only; `sm` in
    percent, where the driver has a sample of it.
    """

    pid: int
    used: int
    type: str = "C"
    gpu_instance: int = 0xFFFFFFFF
    compute_instance: int = 0xFFFFFFFF
    sm: int = NOT_AVAILABLE


@dataclass
class StubMig:
    profile: str
    uuid: str
    gpu_instance: int
    compute_instance: int
    total: int
    used: int = 0
    reserved: int = 0
    gpu_slices: int = 1
    compute_slices: int = 1


@dataclass
class StubGpu:
    """One device; memory in bytes, power in milliwatts. A metric that is None is one the device does not support.

    With `accounting` 1, `accounted` has the most that each pid ever held, of those gone too. `nvlink_…` count KiB and
    `pcie_…` bytes since the driver was loaded; a count of NOT_AVAILABLE is one that the card does not have.
    """

    name: str = "NVIDIA H200"
    uuid: str = ""
    bus: str = ""
    total: int = 143771 * MIB
    used: int = 4 * MIB
    reserved: int = 615 * MIB
    capability: tuple[int, int] = (9, 0)
    utilization: int | None = 0
    memory_utilization: int = 0
    power: int | None = 76_000
    power_limit: int | None = 700_000
    temperature: int | None = 30
    sm_clock: int | None = 1980
    memory_clock: int | None = 3201
    fan: int | None = None
    pcie_generation: int | None = 5
    pcie_width: int | None = 16
    ecc: int | None = 0
    throttle: int | None = 0
    encoder: int | None = 0
    decoder: int | None = 0
    nvlink_sent: int = 0
    nvlink_received: int = 0
    pcie_sent: int = 0
    pcie_received: int = 0
    pcie_narrow: int = 0  # 1: counted in 32 bits
    pcie_throughput: int = NOT_AVAILABLE  # KB a second that it sends; twice as much comes in
    remapped: int = 0
    remap_pending: int = 0
    retired: int = NOT_AVAILABLE
    xids: list[int] = field(default_factory=list)
    accounting: int | None = 0
    accounted: dict[int, int] = field(default_factory=dict)
    mig_mode: int = 0
    records: int = 24
    processes: list[StubProcess] = field(default_factory=list)
    migs: list[StubMig] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)
    hangs: dict[str, float] = field(default_factory=dict)
    spoils: dict[str, str] = field(default_factory=dict)

    def fail(self, code: int, *functions: str) -> None:
        """Let these calls answer with an error code; EVERY_CALL is all of them."""
        self.faults.update(dict.fromkeys(functions, code))

    def lose(self) -> None:
        """Fall off the bus: no call about this device works any more."""
        self.fail(GPU_IS_LOST, EVERY_CALL)

    def lines(self, index: int) -> Iterator[str]:
        yield f"gpu {self.name}"
        yield f"uuid {self.uuid or f'GPU-57ab{index:04d}-0000-4000-8000-{index:012d}'}"
        yield f"bus {self.bus or f'00000000:{0x10 + index:02X}:00.0'}"
        yield f"memory {self.total} {self.used} {self.reserved} {self.total - self.used - self.reserved}"
        yield f"capability {self.capability[0]} {self.capability[1]}"
        yield f"mig_mode {self.mig_mode}"
        yield f"memory_utilization {self.memory_utilization}"
        for name, functions in _METRICS.items():
            value = getattr(self, name)
            if value is not None:
                yield f"{name} {value}"
            else:
                yield from (f"fault {function} {NOT_SUPPORTED}" for function in functions)
        yield from (f"{name} {getattr(self, name)}" for name in _COUNTS)
        yield from (f"xid {code}" for code in self.xids)
        yield f"records {self.records}"
        yield from (f"accounted {pid} {peak}" for pid, peak in self.accounted.items())
        for mig in self.migs:
            free = mig.total - mig.used - mig.reserved
            yield (
                f"mig {mig.profile} {mig.uuid} {mig.gpu_instance} {mig.compute_instance}"
                f" {mig.total} {mig.used} {mig.reserved} {free} {mig.gpu_slices} {mig.compute_slices}"
            )
        for row in self.processes:
            yield f"process {row.pid} {row.used} {row.type} {row.gpu_instance} {row.compute_instance} {row.sm}"
        yield from _fault_lines(self.faults, self.hangs, self.spoils)


_COUNTS = (
    *("nvlink_sent", "nvlink_received", "pcie_sent", "pcie_received", "pcie_narrow", "pcie_throughput"),
    *("remapped", "remap_pending", "retired"),
)
_METRICS = {
    "utilization": ("nvmlDeviceGetUtilizationRates",), "power": ("nvmlDeviceGetPowerUsage",),
    "power_limit": ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
    "temperature": ("nvmlDeviceGetTemperature",), "sm_clock": ("nvmlDeviceGetClockInfo",),
    "memory_clock": ("nvmlDeviceGetClockInfo",), "fan": ("nvmlDeviceGetFanSpeed",),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration",), "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth",),
    "ecc": ("nvmlDeviceGetTotalEccErrors",), "encoder": ("nvmlDeviceGetEncoderUtilization",),
    "decoder": ("nvmlDeviceGetDecoderUtilization",), "accounting": ("nvmlDeviceGetAccountingMode",),
    "throttle": ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
}  # fmt: skip


@dataclass
class World:
    """Everything the library can be asked about. `cuda` is 13000 for CUDA 13.0; `init` the code of nvmlInit."""

    gpus: list[StubGpu] = field(default_factory=list)
    driver: str = "580.95.05"
    cuda: int = 13000
    init: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    hangs: dict[str, float] = field(default_factory=dict)
    spoils: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        lines = [f"driver {self.driver}", f"cuda {self.cuda}", f"init {self.init}"]
        lines += _fault_lines(self.faults, self.hangs, self.spoils)
        for index, gpu in enumerate(self.gpus):
            lines += gpu.lines(index)
        return "\n".join(lines) + "\n"

    def write(self, path: Path) -> None:
        """Put this world in place of the one at `path`, in one step; a program that looks at it sees it at once."""
        scratch = path.with_name(f"{path.name}.{os.getpid()}.new")
        scratch.write_text(self.text())
        scratch.replace(path)


def fail(code: int, *functions: str) -> Callable[[StubGpu], None]:
    """What makes these functions of a card answer with an error, for lists of faults."""
    return lambda gpu: gpu.fail(code, *functions)


def crowd(gpus: int, processes: int, first_pid: int = 1 << 21) -> World:
    """A busy host: that many GPUs, each with that many processes of 64 MiB, under pids that do not exist."""
    world = World()
    for index in range(gpus):
        start = first_pid + index * processes
        rows = [StubProcess(pid, 64 * MIB) for pid in range(start, start + processes)]
        world.gpus.append(StubGpu(used=(4 + 64 * processes) * MIB, utilization=50, processes=rows))
    return world


def _fault_lines(faults: dict[str, int], hangs: dict[str, float], spoils: dict[str, str]) -> list[str]:
    return [
        *(f"fault {function} {code}" for function, code in faults.items()),
        *(f"hang {function} {seconds}" for function, seconds in hangs.items()),
        *(f"spoil {function} {how}" for function, how in spoils.items()),
    ]
