"""What nvidia-smi prints, as values: CSV without headings and units, in which anything may be missing."""

import csv
import re
from typing import Any, Final

import msgspec

from vramtui.agent.stream import THROTTLING
from vramtui.core.base.text import printable
from vramtui.core.base.units import LARGEST_SIZE, MIB
from vramtui.core.observation.bounded_samples import is_possible, is_size
from vramtui.core.observation.readings import Absence

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


class QueryField(msgspec.Struct, frozen=True):
    """A field of Gpu's and what nvidia-smi calls it, the newest name first; `kind` says how its text is read."""

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

Row = dict[str, Any]


class ComputeApp(msgspec.Struct, frozen=True, kw_only=True):
    """A line of --query-compute-apps; memory in bytes."""

    pid: int
    gpu_uuid: str
    used: int | None
    absent: Absence | None = None
    name: str | None = None


def rejected_field(text: str) -> str | None:
    """The field that this nvidia-smi does not know, if it complains of one."""
    match = _REJECTED.search(text)
    return match[1] if match else None


def lost_devices(text: str) -> dict[str, str]:
    """Devices that nvidia-smi says it cannot reach, by PCI bus id, with its reason."""
    return {printable(match[1]): printable(match[2]) for match in _LOST.finditer(text)}


def parse_value(text: str, kind: str) -> tuple[Any, Absence | None]:
    """One cell: its value, or why there is none (`[N/A]`, `[Not Supported]`, `[Unknown Error]`, `ERR!`)."""
    text = text.strip()
    try:
        return _convert(text, kind), None
    except (ValueError, OverflowError):
        lower = text.lower()
        return None, next((absence for mark, absence in _MARKS if mark in lower), Absence.FAILED)


def _convert(text: str, kind: str) -> Any:  # noqa: ANN401 - a cell is of the type its column says
    number = text.split(" ", maxsplit=1)[0]  # some versions print the unit all the same
    if kind == "text":
        if not text or text.startswith("[") or text in ("N/A", "ERR!"):
            raise ValueError(text)
        return printable(text)
    if kind == "mib":
        size = int(number) * MIB
        if not is_size(size):
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
    if kind == "version":
        major, _, minor = number.partition(".")
        return _bounded(int(major)), _bounded(int(minor or 0))
    return _bounded(int(number))


def _bounded(value: int) -> int:
    if abs(value) > LARGEST_SIZE:
        raise ValueError(value)
    return value


def parse_gpus(text: str, columns: tuple[QueryField, ...]) -> list[tuple[Row, dict[str, Absence]]]:
    """The lines of --query-gpu in the order of `columns`; lines that are something else are left out."""
    rows = []
    for line in text.splitlines():
        # A comma alone may be a decimal one.
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
    """The lines of --query-compute-apps=pid,gpu_uuid,used_memory,process_name. A name may hold commas or be quoted."""
    apps = []
    for line in text.split("\n"):
        cells = line.split(",", 3)
        if len(cells) < 4 or not _APP.match(line.strip()):
            continue
        pid, _ = parse_value(cells[0], "int")
        used, absent = parse_value(cells[2], "mib")
        if pid:
            apps.append(ComputeApp(pid=pid, gpu_uuid=cells[1].strip(), used=used, absent=absent, name=_name(cells[3])))
    return apps


def _name(cell: str) -> str | None:
    text = cell.strip()
    if text.startswith('"'):
        text = next(csv.reader([text], skipinitialspace=True), [text])[0]
    if not text or text in ("N/A", "[N/A]") or text.lower() in ("[not found]", "[insufficient permissions]"):
        return None
    return printable(text)


def balanced(total: int | None, used: int | None, reserved: int | None, free: int | None) -> int | None:
    """Free memory such that total = used + reserved + free: nvidia-smi rounds each of them to MiB by itself."""
    if total is None or used is None or free is None:
        return free
    rest = total - used - (reserved or 0)
    return rest if abs(rest - free) <= 2 * MIB else free
