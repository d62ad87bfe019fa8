"""GPUs through the nvidia-smi program, for machines on which NVML cannot be loaded and for other hosts."""

import contextlib
import csv
import os
import re
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from vramtui.agent.counters import METRICS as COUNTED
from vramtui.agent.stream import THROTTLING
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable, shortened
from vramtui.core.base.units import LARGEST_SIZE, MIB
from vramtui.core.observation.bounded_samples import is_possible
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Problem, Process, Sample
from vramtui.sources.host.host import HostReader
from vramtui.sources.host.processes import ProcessReader

PROGRAM = "nvidia-smi"
LIMIT = 5.0  # seconds for one run of the program
FORMAT = "--format=csv,noheader,nounits"
APPS = "--query-compute-apps=pid,gpu_uuid,used_memory,process_name"
MOST_OUTPUT = 8 * MIB  # bytes; the tables of 16 cards and 4,096 processes take less than one
LONGEST_SAID = 1000  # characters of what it printed instead of a table
NO_DEVICES = 6  # exit statuses
KILLED = 128  # and the number of the signal
SIGNALS = 64
UNKNOWN_ERROR = 255
_CODES = {  # NVML's error codes
    4: ("this user has no permission", "See who may read and write /dev/nvidiactl and /dev/nvidia0."),
    9: ("the NVIDIA driver is not loaded", "Load it with `sudo modprobe nvidia`, or reboot."),
    12: ("NVIDIA's library libnvidia-ml.so was not found", "Install the NVIDIA driver."),
    15: ("a GPU is lost: it fell off the bus or was reset",
         "Reboot; `dmesg | grep -i xid` names the GPU and the reason."),
    18: ("NVIDIA's library and the loaded driver are of different versions; the driver was upgraded",
         "Reboot, or reload the nvidia kernel module."),
}  # fmt: skip
_HUNG_HINT = "The driver hangs; `dmesg` may name the GPU."
_ODD_HINT = "Run `nvidia-smi` by hand to see what it prints; `type -a nvidia-smi` says which program that is."


class Output(msgspec.Struct, frozen=True):
    """Text that a program printed, errors after the rest, and its exit status."""

    text: str
    code: int


Runner = Callable[[Sequence[str], float], Output]


class LocalRunner:
    """Runs programs on this machine. One that hangs in the driver is not started again while it still hangs."""

    def __init__(self) -> None:
        self._stuck: subprocess.Popen[bytes] | None = None

    def __call__(self, command: Sequence[str], limit: float) -> Output:
        """Run a command (a program and its arguments, no shell) for at most `limit` seconds. Raises SourceFailed if the
        program is missing, does not end in time, or prints more than any answer has.
        """
        if self._stuck is not None and self._stuck.poll() is None:
            raise SourceFailed(f"{command[0]} still hangs in the driver (pid {self._stuck.pid}).", _HUNG_HINT)
        self._stuck = None
        try:
            process = subprocess.Popen(  # noqa: S603 - the callers' own commands
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as error:
            reason = (error.strerror or "it cannot be started").lower()
            raise SourceFailed(f"{command[0]}: {reason}.", "Install the NVIDIA driver's tools.") from error
        out, err, until = bytearray(), bytearray(), time.monotonic() + limit
        failure: tuple[str, str] | None = None
        with selectors.PollSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ, out)  # type: ignore[arg-type]  # pipes, both
            selector.register(process.stderr, selectors.EVENT_READ, err)  # type: ignore[arg-type]  # as above
            while failure is None and selector.get_map() and (left := until - time.monotonic()) > 0:
                for key, _ in selector.select(left):
                    chunk = os.read(key.fd, 1 << 16)
                    key.data.extend(chunk)
                    if not chunk:
                        selector.unregister(key.fileobj)
                if len(out) + len(err) > MOST_OUTPUT:
                    failure = "prints without an end", _ODD_HINT
            is_late = bool(selector.get_map())
        if failure is None and not is_late:
            try:
                process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                is_late = True
        if failure is None and is_late:
            failure = f"gave no answer within {limit:g} s", _HUNG_HINT
            failure = (f"still prints after {limit:g} s", _ODD_HINT) if out else failure
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        if failure is not None:
            # It is killed with its children. A process that waits in the driver does not die, so the wait is short.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                self._stuck = process
            raise SourceFailed(f"{command[0]} {failure[0]}.", failure[1])
        return Output((out + err).decode(errors="surrogateescape"), process.returncode)


class QueryField(msgspec.Struct, frozen=True):
    """A field of Gpu and its names in nvidia-smi, the newest first; `kind` is how its text is read."""

    field: str
    queries: tuple[str, ...]
    kind: str = "int"


# the name comes last: it is the only text that could hold a comma
COLUMNS: Final = (
    QueryField("index", ("index",)),
    QueryField("uuid", ("uuid",), "text"),
    QueryField("pci_bus_id", ("pci.bus_id",), "text"),
    QueryField("driver_version", ("driver_version",), "text"),
    QueryField("total", ("memory.total",), "mib"),
    QueryField("used", ("memory.used",), "mib"),
    QueryField("free", ("memory.free",), "mib"),
    QueryField("reserved", ("memory.reserved",), "mib"),
    QueryField("utilization", ("utilization.gpu",)),
    QueryField("memory_utilization", ("utilization.memory",)),
    QueryField("power_watts", ("power.draw",), "float"),
    QueryField("power_limit_watts", ("enforced.power.limit", "power.limit"), "float"),
    QueryField("temperature_celsius", ("temperature.gpu",)),
    QueryField("sm_clock_mhz", ("clocks.sm",)),
    QueryField("memory_clock_mhz", ("clocks.mem",)),
    QueryField("fan_percent", ("fan.speed",)),
    QueryField("pcie_generation", ("pcie.link.gen.current",)),
    QueryField("pcie_width", ("pcie.link.width.current",)),
    QueryField("ecc_errors", ("ecc.errors.uncorrected.volatile.total",)),
    QueryField("throttle_reasons", ("clocks_event_reasons.active", "clocks_throttle_reasons.active"), "bits"),
    QueryField("compute_capability", ("compute_cap",), "version"),
    QueryField("mig_mode", ("mig.mode.current",), "text"),
    QueryField("name", ("name",), "text"),
)
_METRICS = tuple(
    c.field for c in COLUMNS if c.field in Gpu.__struct_fields__ and c.kind != "text" and c.field != "index"
)
# The columns for these came with many releases, and one that nvidia-smi does not know fails the whole table.
_NOT_ASKED = dict.fromkeys(COUNTED, Absence.NOT_ASKED)
_MEMORY = ("total", "used", "reserved", "free")
_REJECTED: Final = re.compile(r'Field "([^"]+)" is not a valid field to query')
_LOST: Final = re.compile(r"device handle for GPU\s*([0-9a-fA-F:.]+)\s*:\s*(.*?)\.?\s*$", re.MULTILINE)
_APP: Final = re.compile(r"\d+\s*,")
_MARKS: Final = (
    ("lost", Absence.LOST),
    ("fallen off", Absence.LOST),
    ("permission", Absence.NO_PERMISSION),
    ("not supported", Absence.NOT_SUPPORTED),
    ("n/a", Absence.NOT_SUPPORTED),
    ("timeout", Absence.NO_ANSWER),
)

Row = dict[str, Any]


class ComputeApp(msgspec.Struct, frozen=True, kw_only=True):
    """A line of --query-compute-apps; memory in bytes."""

    pid: int
    gpu_uuid: str
    used: int | None
    absent: Absence | None = None
    name: str | None = None


def parse_value(text: str, kind: str) -> tuple[Any, Absence | None]:
    """Return the value of one cell, or why there is none (`[N/A]`, `[Not Supported]`, `[Unknown Error]`, `ERR!`)."""
    text = text.strip()
    try:
        return _convert(text, kind), None
    except (ValueError, OverflowError):
        lower = text.lower()
        return None, next((absence for mark, absence in _MARKS if mark in lower), Absence.FAILED)


def _convert(text: str, kind: str) -> Any:  # noqa: ANN401 - a cell has the type of its column
    number = text.split(" ", maxsplit=1)[0]  # some versions print the unit all the same
    if kind == "text":
        if not text or text.startswith("[") or text in ("N/A", "ERR!"):
            raise ValueError(text)
        return printable(text)
    if kind == "mib":
        size = int(number) * MIB
        if not is_possible("used", size):
            raise ValueError(text)
        return size
    if kind == "float":
        value = float(number.replace(",", "."))
        if value != value or value in (float("inf"), float("-inf")):  # noqa: PLR0124 - only nan differs from itself
            raise ValueError(text)
        return value
    if kind == "bits":
        bits = int(number, 16)
        return tuple(word for bit, word in THROTTLING if bits & bit)
    major, _, minor = number.partition(".") if kind == "version" else (number, "", "")
    numbers = (int(major), int(minor or 0))
    if any(abs(value) > LARGEST_SIZE for value in numbers):
        raise ValueError(text)
    return numbers if kind == "version" else numbers[0]


def parse_gpus(text: str, columns: tuple[QueryField, ...]) -> list[tuple[Row, dict[str, Absence]]]:
    """Read the lines of --query-gpu, in the order of `columns`; other lines are left out."""
    rows = []
    for line in text.splitlines():
        # A comma without a space may be a decimal one.
        cells = line.split(", " if ", " in line else ",", len(columns) - 1)
        if len(cells) < len(columns) or parse_value(cells[0], "int")[0] is None:
            continue
        row: Row = {}
        absent: dict[str, Absence] = {}
        for column, cell in zip(columns, cells, strict=True):
            value, absence = parse_value(cell, column.kind)
            if absence is None and not is_possible(column.field, value):
                value, absence = None, Absence.FAILED
            row[column.field] = value
            if absence is not None:
                absent[column.field] = absence
        rows.append((row, absent))
    return rows


def parse_apps(text: str) -> list[ComputeApp]:
    """Read lines of --query-compute-apps=pid,gpu_uuid,used_memory,process_name; a name may hold commas or be quoted."""
    apps = []
    for line in text.split("\n"):
        cells = line.split(",", 3)
        if len(cells) < 4 or not _APP.match(line.strip()):
            continue
        pid, _ = parse_value(cells[0], "int")
        used, absent = parse_value(cells[2], "mib")
        name = cells[3].strip()
        if name.startswith('"'):
            name = next(csv.reader([name], skipinitialspace=True), [name])[0]
        named = name and name.lower() not in ("n/a", "[n/a]", "[not found]", "[insufficient permissions]")
        if pid:
            app = ComputeApp(
                pid=pid, gpu_uuid=cells[1].strip(), used=used, absent=absent, name=printable(name) if named else None
            )
            apps.append(app)
    return apps


def balanced(total: int | None, used: int | None, reserved: int | None, free: int | None) -> int | None:
    """Free memory so that total = used + reserved + free: nvidia-smi rounds each of them to MiB by itself."""
    if total is None or used is None or free is None:
        return free
    rest = total - used - (reserved or 0)
    return rest if abs(rest - free) <= 2 * MIB else free


class NvidiaSmiSource:
    """Every card with its compute processes, asked for by running nvidia-smi twice per read.

    Args:
        runner: how the program is run; on this machine by default.
        host: reads the machine's own figures, from the versions of driver and CUDA.
        clock: seconds since the epoch.
        limit: seconds that one run may take.
        because: why this source is in use, if it is a second choice.
    """

    name = "nvidia-smi"

    def __init__(
        self,
        runner: Runner | None = None,
        *,
        host: Callable[[str | None, str | None], Host] | None = None,
        clock: Callable[[], float] = time.time,
        limit: float = LIMIT,
        because: Problem | None = None,
    ) -> None:
        self._run = runner or LocalRunner()
        self._host = host or HostReader().read
        self._processes = None if runner is not None else ProcessReader()  # a runner's pids may be another machine's
        self._clock = clock
        self._limit = limit
        self._because = because
        self._columns: tuple[QueryField, ...] = COLUMNS
        self._known: dict[int, Row] = {}
        self._cuda: str | None = None
        self._asked_cuda = False

    def read(self) -> Sample:
        """Return a sample of all cards; raises SourceFailed if the program is missing, hangs, or has no driver."""
        problems = [] if self._because is None else [self._because]
        cards = self._query_gpus(problems)
        output = self._ask(APPS, FORMAT)
        apps: list[ComputeApp] | None = parse_apps(output.text)
        if output.code != 0 and not apps and "no running processes" not in output.text.lower():
            apps = None
            if output.code != NO_DEVICES:
                reason = _first_line(output.text).rstrip(".")
                problems.append(Problem(where=PROGRAM, message=f"It does not tell the processes: {reason}."))
        if self._processes is not None:
            self._processes.update({app.pid for app in apps or ()})
        driver = next((row["driver_version"] for row in self._known.values() if row.get("driver_version")), None)
        if not cards:
            problems.append(Problem(where=PROGRAM, message="No devices were found."))
        if not self._asked_cuda:  # once; versions before 535 do not answer
            self._asked_cuda = True
            for line in self._ask("--version").text.splitlines():
                label, _, value = line.partition(":")
                if label.strip().lower() == "cuda version" and value.strip()[:1].isdigit():
                    self._cuda = printable(value.strip())
        host = self._host(driver, self._cuda)
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
            rejected, columns = _REJECTED.search(output.text), list[QueryField]()
            for column in self._columns:  # without a field that this version does not know, or by its older name
                if rejected is None or column.queries[0] != rejected[1]:
                    columns.append(column)
                elif len(column.queries) > 1:
                    columns.append(QueryField(column.field, column.queries[1:], column.kind))
            if tuple(columns) == self._columns:
                break
            self._columns = tuple(columns)
        rows = parse_gpus(output.text, self._columns)
        # By PCI bus id, with the reason why it cannot be reached.
        lost = {printable(match[1]): printable(match[2]) for match in _LOST.finditer(output.text)}
        code = output.code
        if not rows and not lost and code != NO_DEVICES and "no devices" not in output.text.lower():
            if code in _CODES:
                raise SourceFailed(f"{PROGRAM}: {_CODES[code][0]}.", _CODES[code][1])
            reason, hint = _first_line(output.text).rstrip("."), ""
            if code == 0:
                what, hint = "did not print a table", f"Run `{PROGRAM}` by hand to see what it says."
            elif code == UNKNOWN_ERROR:
                what = "cannot reach the driver"
                hint = "In a container: start it again, as the host has taken the devices from its control group."
            elif code < 0 or KILLED < code <= KILLED + SIGNALS:
                what = f"was killed by signal {-code if code < 0 else code - KILLED}"
                hint = "Somebody, or a limit, ended it."
            else:
                what = f"failed with status {code}"
            raise SourceFailed(f"{PROGRAM} {what}: {reason}.", hint)
        gpus = [self._gpu(row, absent, problems) for row, absent in rows]
        # Rows for the cards that were there before, and for those that the program says it cannot reach.
        present = {gpu.index for gpu in gpus}
        gone = {index: "" for index in self._known if index not in present}
        for bus, reason in lost.items():
            same = bus.lower().lstrip("0")  # the domain has four or eight digits
            index = next(
                (i for i in gone if (self._known[i].get("pci_bus_id") or "").lower().lstrip("0") == same), None
            )
            if index is None:
                index = next(i for i in range(1 << 16) if i not in present and i not in gone)
                self._known.setdefault(index, {"pci_bus_id": bus})
            gone[index] = f"nvidia-smi: {reason}"
        gpus += [
            self._gone(index, reason or "nvidia-smi does not list it any more", lost=bool(reason))
            for index, reason in gone.items()
        ]
        return sorted(gpus, key=lambda gpu: gpu.index)

    def _gpu(self, row: Row, absent: dict[str, Absence], problems: list[Problem]) -> Gpu:
        index = row["index"]
        self._known[index] = {**self._known.get(index, {}), **{k: v for k, v in row.items() if v is not None}}
        asked = {column.field for column in self._columns}
        absent |= {c.field: Absence.DRIVER_TOO_OLD for c in COLUMNS if c.field not in asked}
        if sum(absence is Absence.LOST for absence in absent.values()) > 2:
            return self._gone(index, "nvidia-smi: GPU is lost")
        if row.get("mig_mode") == "Enabled":
            message = "The card is cut into MIG instances, which nvidia-smi's tables do not tell apart."
            problems.append(Problem(where=f"GPU {index}", message=message))
        sizes: dict[str, Any] = {name: row.get(name) for name in _MEMORY}
        reasons = {f"memory.{name}": absent[name] for name in _MEMORY if name in absent}
        if sizes["total"] == 0 or (sizes["total"] is None and absent.get("total") is Absence.NOT_SUPPORTED):
            memory = Memory(unified=True)
            reasons = dict.fromkeys(("memory.total", "memory.free"), Absence.NOT_SUPPORTED)
        elif sizes["total"] is None and sizes["used"] is None:
            memory, reasons = Memory(), {"memory": absent.get("total", Absence.FAILED)}
        else:
            memory = Memory(**{**sizes, "free": balanced(**sizes)})
        metrics: Row = {name: row.get(name) for name in _METRICS}
        return Gpu(
            **self._identity(index),
            memory=memory,
            absent=_NOT_ASKED | reasons | {name: why for name, why in absent.items() if name in _METRICS},
            **metrics,
        )

    def _identity(self, index: int) -> Row:
        known = self._known.get(index, {})
        return {
            "index": index,
            "uuid": known.get("uuid") or f"unknown-{index}",
            "name": known.get("name") or f"GPU {index}",
            "pci_bus_id": known.get("pci_bus_id"),
        }

    def _gone(self, index: int, reason: str, *, lost: bool = True) -> Gpu:
        names = ("memory", "processes", *_NOT_ASKED, *(name for name in _METRICS if name != "compute_capability"))
        return Gpu(
            **self._identity(index),
            compute_capability=self._known.get(index, {}).get("compute_capability"),
            state="lost" if lost else "failed",
            reason=reason,
            absent=dict.fromkeys(names, Absence.LOST if lost else Absence.NO_ANSWER),
        )

    def _finish(self, gpu: Gpu, apps: list[ComputeApp] | None, available: int | None) -> Gpu:
        """Return the card with its processes; the host has `available` bytes of free memory."""
        if gpu.state != "ok":
            return gpu
        memory, absent = gpu.memory, gpu.absent
        if memory.unified and available is not None:
            memory = msgspec.structs.replace(memory, free=available)
            absent = {name: why for name, why in absent.items() if name != "memory.free"}
        if apps is None:
            unknown = ("memory.used", "processes") if memory.unified else ("processes",)
            absent = {**absent, **dict.fromkeys(unknown, Absence.FAILED)}
            return msgspec.structs.replace(gpu, memory=memory, absent=absent)
        best: dict[int, ComputeApp] = {}
        for app in apps:
            if app.gpu_uuid == gpu.uuid and (app.pid not in best or (app.used or 0) > (best[app.pid].used or 0)):
                best[app.pid] = app
        rows: list[Process] = []
        for app in best.values():
            why = None if app.used is not None else app.absent
            if self._processes is None:
                reasons: dict[str, Absence] = {} if why is None else {"used_memory": why}
                row = Process(pid=app.pid, type="C", used_memory=app.used, name=app.name, absent=reasons)
            else:
                row = self._processes.row(app.pid, app.gpu_uuid, "C", app.used, why)
            rows.append(row if row.name or not app.name else msgspec.structs.replace(row, name=app.name))
        if memory.unified:
            memory = msgspec.structs.replace(memory, used=min(LARGEST_SIZE, sum(row.used_memory or 0 for row in rows)))
        return msgspec.structs.replace(gpu, memory=memory, processes=tuple(rows), absent=absent)


def open_here(because: Problem | None = None) -> NvidiaSmiSource:
    """Open this machine's cards; raises SourceFailed if the program is missing, hangs, or cannot reach the driver."""
    source = NvidiaSmiSource(because=because)
    source.read()
    return source


def _first_line(text: str) -> str:
    first = next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")
    return shortened(printable(first), LONGEST_SAID)
