"""GPUs through the nvidia-smi program: for where NVML cannot be loaded, and for other hosts."""

import time
from collections.abc import Callable
from typing import Any

import msgspec

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Problem, Process, Sample
from vramtui.sources.host.host import HostReader
from vramtui.sources.host.processes import ProcessReader
from vramtui.sources.nvidia_smi.parse import (
    COLUMNS,
    ComputeApp,
    QueryField,
    Row,
    balanced,
    lost_devices,
    parse_apps,
    parse_gpus,
    rejected_field,
)
from vramtui.sources.nvidia_smi.runner import LocalRunner, Output, Runner

PROGRAM = "nvidia-smi"
LIMIT = 5.0  # seconds for one run of the program
FORMAT = "--format=csv,noheader,nounits"
APPS = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
_METRICS = tuple(
    c.field for c in COLUMNS if c.field in Gpu.__struct_fields__ and c.kind != "text" and c.field != "index"
)
# The columns for these came with many releases, and one that nvidia-smi does not know fails the whole table.
_NOT_ASKED = dict.fromkeys(COUNTED, Absence.NOT_ASKED)
_MEMORY = ("total", "used", "reserved", "free")
_CODES = {  # nvidia-smi's exit status: NVML's error codes
    4: ("this user has no permission", "See who may read and write /dev/nvidiactl and /dev/nvidia0."),
    9: ("the NVIDIA driver is not loaded", "Load it with `sudo modprobe nvidia`, or reboot."),
    12: ("NVIDIA's library libnvidia-ml.so was not found", "Install the NVIDIA driver."),
    15: (
        "a GPU is lost: it fell off the bus or was reset",
        "Reboot; `dmesg | grep -i xid` names the GPU and the reason.",
    ),
    18: (
        "NVIDIA's library and the loaded driver are of different versions; the driver was upgraded",
        "Reboot, or reload the nvidia kernel module.",
    ),
}
NO_DEVICES = 6
KILLED = 128  # and the number of the signal
SIGNALS = 64
LONGEST_SAID = 1000  # characters of what it printed in place of a table
UNKNOWN_ERROR = 255


class NvidiaSmiSource:
    """Every card with its compute processes, asked for by running nvidia-smi twice per read.

    Args:
        runner: how the program is run; on this machine by default.
        host: reads the machine's own figures, from the versions of driver and CUDA.
        processes: what the system knows of pids; None when they are another machine's.
        clock: seconds since the epoch.
        limit: seconds that one run may take.
        because: a sentence that says why this source is in use, if it is a second choice.
    """

    name = "nvidia-smi"

    def __init__(
        self,
        runner: Runner | None = None,
        *,
        host: Callable[[str | None, str | None], Host] | None = None,
        processes: ProcessReader | None = None,
        clock: Callable[[], float] = time.time,
        limit: float = LIMIT,
        because: Problem | None = None,
    ) -> None:
        self._run = runner or LocalRunner()
        self._host = host or HostReader().read
        self._processes = processes if processes is not None or runner is not None else ProcessReader()
        self._clock = clock
        self._limit = limit
        self._because = because
        self._columns: tuple[QueryField, ...] = COLUMNS
        self._known: dict[int, Row] = {}
        self._cuda: str | None = None
        self._asked_cuda = False

    def read(self) -> Sample:
        """What there is to see now.

        Raises:
            SourceFailed: the program is missing, hangs, or cannot reach the driver.
        """
        problems = [] if self._because is None else [self._because]
        cards = self._query_gpus(problems)
        apps = self._query_apps(problems)
        if self._processes is not None:
            self._processes.update({app.pid for app in apps or ()})
        driver = next((row["driver_version"] for row in self._known.values() if row.get("driver_version")), None)
        if not cards:
            problems.append(Problem(where=PROGRAM, message="No devices were found."))
        host = self._host(driver, self._cuda_version())
        return Sample(
            taken_at=self._clock(),
            source=self.name,
            host=host,
            gpus=tuple(self._finish(gpu, apps, host.memory_available) for gpu in cards),
            problems=tuple(problems),
        )

    def close(self) -> None:
        """Close; there is nothing to release."""

    def _ask(self, *arguments: str) -> Output:
        return self._run((PROGRAM, *arguments), self._limit)

    def _query_gpus(self, problems: list[Problem]) -> list[Gpu]:
        while True:
            output = self._ask("--query-gpu=" + ",".join(c.queries[0] for c in self._columns), FORMAT)
            rejected = rejected_field(output.text)
            if rejected is None or not self._drop(rejected):
                break
        rows = parse_gpus(output.text, self._columns)
        lost = lost_devices(output.text)
        if not rows and not lost and output.code != NO_DEVICES and "no devices" not in output.text.lower():
            raise _failure(output)
        gpus = [self._gpu(row, absent, problems) for row, absent in rows]
        gpus += self._missing({gpu.index for gpu in gpus}, lost)
        return sorted(gpus, key=lambda gpu: gpu.index)

    def _drop(self, query: str) -> bool:
        """Do without a field that this version does not know, or use its older name; False when it was not asked."""
        columns: list[QueryField] = []
        for column in self._columns:
            if column.queries[0] != query:
                columns.append(column)
            elif len(column.queries) > 1:
                columns.append(QueryField(column.field, column.queries[1:], column.kind))
        changed = tuple(columns) != self._columns
        self._columns = tuple(columns)
        return changed

    def _gpu(self, row: Row, absent: dict[str, Absence], problems: list[Problem]) -> Gpu:
        index = row["index"]
        identity = {**self._known.get(index, {}), **{k: v for k, v in row.items() if v is not None}}
        self._known[index] = identity
        asked = {column.field for column in self._columns}
        absent |= {c.field: Absence.DRIVER_TOO_OLD for c in COLUMNS if c.field not in asked}
        if sum(absence is Absence.LOST for absence in absent.values()) > 2:
            return self._gone(index, "nvidia-smi: GPU is lost")
        if row.get("mig_mode") == "Enabled":
            message = "The card is cut into MIG instances, which nvidia-smi's tables do not tell apart."
            problems.append(Problem(where=f"GPU {index}", message=message))
        memory, reasons = _memory(row, absent)
        metrics: Row = {name: row.get(name) for name in _METRICS}
        return Gpu(
            index=index,
            uuid=identity.get("uuid") or f"unknown-{index}",
            name=identity.get("name") or f"GPU {index}",
            pci_bus_id=identity.get("pci_bus_id"),
            memory=memory,
            absent=_NOT_ASKED | reasons | {name: why for name, why in absent.items() if name in _METRICS},
            **metrics,
        )

    def _gone(self, index: int, reason: str, *, lost: bool = True) -> Gpu:
        identity = self._known.get(index, {})
        names = ("memory", "processes", *_NOT_ASKED, *(name for name in _METRICS if name != "compute_capability"))
        return Gpu(
            index=index,
            uuid=identity.get("uuid") or f"unknown-{index}",
            name=identity.get("name") or f"GPU {index}",
            pci_bus_id=identity.get("pci_bus_id"),
            compute_capability=identity.get("compute_capability"),
            state="lost" if lost else "failed",
            reason=reason,
            absent=dict.fromkeys(names, Absence.LOST if lost else Absence.NO_ANSWER),
        )

    def _missing(self, present: set[int], lost: dict[str, str]) -> list[Gpu]:
        """Rows for the cards that were there before, and for those that the program says it cannot reach."""
        gone = {index: "" for index in self._known if index not in present}
        for bus, reason in lost.items():
            same = (i for i in gone if _same_bus(self._known[i].get("pci_bus_id"), bus))
            index = next(same, None)
            if index is None:
                index = next(i for i in range(1 << 16) if i not in present and i not in gone)
                self._known.setdefault(index, {"pci_bus_id": bus})
            gone[index] = f"nvidia-smi: {reason}"
        return [
            self._gone(index, reason or "nvidia-smi does not list it any more", lost=bool(reason))
            for index, reason in gone.items()
        ]

    def _query_apps(self, problems: list[Problem]) -> list[ComputeApp] | None:
        output = self._ask(APPS, FORMAT)
        apps = parse_apps(output.text)
        if output.code != 0 and not apps and "no running processes" not in output.text.lower():
            if output.code != NO_DEVICES:
                reason = _first_line(output.text).rstrip(".")
                problems.append(Problem(where=PROGRAM, message=f"It does not tell the processes: {reason}."))
            return None
        return apps

    def _finish(self, gpu: Gpu, apps: list[ComputeApp] | None, available: int | None) -> Gpu:
        """The card with its processes; `available` bytes are what the host has to give."""
        if gpu.state != "ok":
            return gpu
        if gpu.memory.unified and available is not None:
            memory = msgspec.structs.replace(gpu.memory, free=available)
            absent = {name: why for name, why in gpu.absent.items() if name != "memory.free"}
            gpu = msgspec.structs.replace(gpu, memory=memory, absent=absent)
        if apps is None:
            untold = dict.fromkeys(
                ("memory.used", "processes") if gpu.memory.unified else ("processes",), Absence.FAILED
            )
            return msgspec.structs.replace(gpu, absent={**gpu.absent, **untold})
        best: dict[int, ComputeApp] = {}
        for app in apps:
            if app.gpu_uuid == gpu.uuid and (app.pid not in best or (app.used or 0) > (best[app.pid].used or 0)):
                best[app.pid] = app
        rows = tuple(self._process(app) for app in best.values())
        memory = gpu.memory
        if memory.unified:
            memory = msgspec.structs.replace(memory, used=min(LARGEST_SIZE, sum(row.used_memory or 0 for row in rows)))
        return msgspec.structs.replace(gpu, memory=memory, processes=rows)

    def _process(self, app: ComputeApp) -> Process:
        absent = None if app.used is not None else app.absent
        if self._processes is not None:
            row = self._processes.row(app.pid, app.gpu_uuid, "C", app.used, absent)
            return row if row.name or not app.name else msgspec.structs.replace(row, name=app.name)
        reasons: dict[str, Absence] = {} if absent is None else {"used_memory": absent}
        return Process(pid=app.pid, type="C", used_memory=app.used, name=app.name, absent=reasons)

    def _cuda_version(self) -> str | None:
        """Asked once; versions before 535 do not answer."""
        if not self._asked_cuda:
            self._asked_cuda = True
            for line in self._ask("--version").text.splitlines():
                label, _, value = line.partition(":")
                if label.strip().lower() == "cuda version" and value.strip()[:1].isdigit():
                    self._cuda = printable(value.strip())
        return self._cuda


def open_here(because: Problem | None = None) -> NvidiaSmiSource:
    """Open this machine's cards; see `Opening`.

    Raises:
        SourceFailed: the program is missing, hangs, or cannot reach the driver.
    """
    source = NvidiaSmiSource(because=because)
    source.read()
    return source


def _memory(row: Row, absent: dict[str, Absence]) -> tuple[Memory, dict[str, Absence]]:
    sizes: dict[str, Any] = {name: row.get(name) for name in _MEMORY}
    reasons = {f"memory.{name}": absent[name] for name in _MEMORY if name in absent}
    if sizes["total"] == 0 or (sizes["total"] is None and absent.get("total") is Absence.NOT_SUPPORTED):
        return Memory(unified=True), dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
    if sizes["total"] is None and sizes["used"] is None:
        return Memory(), {"memory": absent.get("total", Absence.FAILED)}
    return Memory(**{**sizes, "free": balanced(**sizes)}), reasons


def _same_bus(one: str | None, other: str) -> bool:
    """Whether two PCI bus ids are the same; the domain is written with four or eight digits."""
    return one is not None and one.lower().lstrip("0") == other.lower().lstrip("0")


def _first_line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return shortened(printable(first), LONGEST_SAID)


def _failure(output: Output) -> SourceFailed:
    known = _CODES.get(output.code)
    if known is not None:
        return SourceFailed(f"{PROGRAM}: {known[0]}.", known[1])
    reason = _first_line(output.text).rstrip(".")
    if output.code == 0:
        return SourceFailed(
            f"{PROGRAM} did not print a table: {reason}.", f"Run `{PROGRAM}` by hand to see what it says."
        )
    if output.code == UNKNOWN_ERROR:
        hint = "In a container: start it again, as the host has taken the devices from its control group."
        return SourceFailed(f"{PROGRAM} cannot reach the driver: {reason}.", hint)
    if output.code < 0 or KILLED < output.code <= KILLED + SIGNALS:
        number = -output.code if output.code < 0 else output.code - KILLED
        return SourceFailed(f"{PROGRAM} was killed by signal {number}: {reason}.", "Somebody, or a limit, ended it.")
    return SourceFailed(f"{PROGRAM} failed with status {output.code}: {reason}.")
