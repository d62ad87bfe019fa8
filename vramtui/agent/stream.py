"""A recording of this host on standard output, until standard input ends."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import threading
import time
import traceback
from typing import Any

from . import counters
from .ancestors import read_file
from .nvml import NO_INSTANCE, LostError, Nvml, plain
from .processes import Processes

FORMAT = 1  # of recordings
BROKEN, NO_NVML = 1, 3  # exit codes
PROFILE = re.compile(r"\bMIG (\S+)\s*$")  # the end of a MIG instance's name
PATIENCE = 3.0  # seconds for all cards, after which the driver is said not to answer
CLOCK_SM, CLOCK_MEM = 1, 2
MOST_DEVICES = 1024
# Bits of nvmlClocksEventReason… (nvml.h), and of `clocks_event_reasons.active` in nvidia-smi.
THROTTLING = (
    (0x4, "power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "power brake"),
    (0x100, "display clocks"),
)
THROTTLING_CALLS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
# Of a field: the call, its arguments before the result, and what the result is divided by.
NUMBERS = {
    "power_watts": ("nvmlDeviceGetPowerUsage", (), 1000),
    "power_limit_watts": ("nvmlDeviceGetEnforcedPowerLimit", (), 1000),
    "temperature_celsius": ("nvmlDeviceGetTemperature", (0,), 1),
    "sm_clock_mhz": ("nvmlDeviceGetClockInfo", (CLOCK_SM,), 1),
    "memory_clock_mhz": ("nvmlDeviceGetClockInfo", (CLOCK_MEM,), 1),
    "fan_percent": ("nvmlDeviceGetFanSpeed", (), 1),
    "pcie_generation": ("nvmlDeviceGetCurrPcieLinkGeneration", (), 1),
    "pcie_width": ("nvmlDeviceGetCurrPcieLinkWidth", (), 1),
    "ecc_errors": ("nvmlDeviceGetTotalEccErrors", (1, 0), 1),  # uncorrected, since the driver was loaded
}
MEMORY = (
    ("memory_total", b"MemTotal"),
    ("memory_available", b"MemAvailable"),
    ("swap_total", b"SwapTotal"),
    ("swap_free", b"SwapFree"),
)
METRICS = (*("utilization", "memory_utilization", "throttle_reasons"), *NUMBERS, *counters.METRICS)


class Card:
    def __init__(self, nvml: Nvml, processes: Processes, index: int) -> None:
        self._nvml = nvml
        self._processes = processes
        self._index = index
        self._handle: ctypes.c_void_p | None = None
        self._identity: dict[str, Any] = {"name": f"GPU {index}", "uuid": f"unknown-{index}"}
        self._counters = counters.CardCounters(nvml.call)

    def read(self) -> list[dict[str, Any]]:
        """The card's row and those of its instances."""
        try:
            if self._handle is None:
                self._open()
            instances = self._instances()
            below = {row["pid"] for instance in instances for row in instance["processes"]}
            card = self._row(self._handle, self._identity, below)
            metrics, absent = self._metrics()
            card.update(metrics, index=self._index, absent=dict(absent, **card["absent"]))
            if instances:
                shared = {instance.pop("part"): instance["memory"].get("used") or 0 for instance in instances}
                card["mig_used"] = sum(shared.values())
        except LostError as error:
            self._handle = None
            self._counters.begin_anew()
            return [self.gone(str(error), "lost" if error.lost else "failed")]
        return [card, *instances]

    def gone(self, reason: str, why: str) -> dict[str, Any]:
        """Return the row of a GPU that cannot be read."""
        absent = dict.fromkeys(("memory", "processes", *METRICS), why)
        state = "lost" if why == "lost" else "failed"
        return dict(self._identity, index=self._index, state=state, reason=reason, absent=absent)

    def _open(self) -> None:
        handle = ctypes.c_void_p()
        code = self._nvml.call("nvmlDeviceGetHandleByIndex_v2", self._index, ctypes.byref(handle))
        if code:
            raise LostError("nvmlDeviceGetHandleByIndex", code)
        self._handle = handle
        known = self._identity
        known["name"] = self._nvml.text("nvmlDeviceGetName", handle) or known["name"]
        known["uuid"] = self._nvml.text("nvmlDeviceGetUUID", handle) or known["uuid"]
        bus = ctypes.create_string_buffer(68)
        if not self._nvml.call("nvmlDeviceGetPciInfo_v3", handle, bus):
            known["pci_bus_id"] = plain(bus.raw[36:68].split(b"\0")[0])
        major, minor = ctypes.c_int(), ctypes.c_int()
        if not self._nvml.call("nvmlDeviceGetCudaComputeCapability", handle, ctypes.byref(major), ctypes.byref(minor)):
            known["compute_capability"] = [major.value, minor.value]

    def _row(self, device: ctypes.c_void_p | None, identity: dict[str, Any], below: set[object]) -> dict[str, Any]:
        assert device is not None
        memory, absent = self._nvml.memory(device)
        listed, why, trusted = self._nvml.processes(device)
        rows = []
        for pid, (used, kind, instance) in listed.items():
            if below and (pid in below or instance != NO_INSTANCE):
                continue
            row = dict(self._processes.row(pid), pid=pid, type=kind)
            if used is None:
                row["absent"] = dict(row.get("absent", {}), used_memory="not_supported")
            else:
                row["used_memory"] = used
            rows.append(row)
        if memory.get("unified"):
            memory["used"] = sum(row.get("used_memory", 0) for row in rows)
            memory["free"] = host_memory()["memory_available"]
            absent.pop("memory.free", None)
        return dict(
            identity, memory=memory, processes=rows, processes_trusted=trusted, absent=dict(absent, **why), state="ok"
        )

    def _instances(self) -> list[dict[str, Any]]:
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        code = self._nvml.call("nvmlDeviceGetMigMode", self._handle, ctypes.byref(mode), ctypes.byref(pending))
        if code or mode.value != 1:
            return []
        count, _ = self._nvml.number("nvmlDeviceGetMaxMigDeviceCount", self._handle)
        instances = []
        for at in range(min(count or 0, MOST_DEVICES)):
            handle = ctypes.c_void_p()
            if self._nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", self._handle, at, ctypes.byref(handle)):
                continue
            name = self._nvml.text("nvmlDeviceGetName", handle) or str(self._identity["name"])
            identity = dict(self._identity, name=name, uuid=self._nvml.text("nvmlDeviceGetUUID", handle))
            identity["uuid"] = identity["uuid"] or f"{self._identity['uuid']}/{at}"
            identity.update(index=self._index, mig_parent=self._identity["uuid"])
            profile = PROFILE.search(name)
            if profile:
                identity["mig_profile"] = profile.group(1)
            row = self._row(handle, identity, set())
            row["absent"] = dict(dict.fromkeys(METRICS, "not_asked"), **row["absent"])
            row["part"] = self._nvml.number("nvmlDeviceGetGpuInstanceId", handle)[0] or row["uuid"]
            instances.append(row)
        return instances

    def _metrics(self) -> tuple[dict[str, Any], dict[str, str]]:
        values: dict[str, Any] = {}
        absent: dict[str, str] = {}

        def note(field: str, value: object, why: str) -> None:
            if value is None:
                absent[field] = why
            else:
                values[field] = value

        for field, (name, arguments, divisor) in NUMBERS.items():
            value, why = self._nvml.number(name, self._handle, *arguments)
            note(field, value if value is None or divisor == 1 else value / divisor, why)
        both, why = self._nvml.number("nvmlDeviceGetUtilizationRates", self._handle)  # of 32 bits each
        note("utilization", None if both is None else both & 0xFFFFFFFF, why)
        note("memory_utilization", None if both is None else both >> 32, why)
        for name in THROTTLING_CALLS:
            bits, why = self._nvml.number(name, self._handle)
            if why not in ("not_supported", "driver_too_old"):
                break
        note("throttle_reasons", None if bits is None else [word for bit, word in THROTTLING if bits & bit], why)
        counted, why_not = self._counters.read(self._handle)
        return dict(values, **counted), dict(absent, **why_not)


def host_memory() -> dict[str, int | None]:
    """Bytes that the host has, those that it could still give, and those of its swap."""
    lines = (line.split(b":", 1) for line in read_file("/proc/meminfo").splitlines() if b":" in line)
    fields = {name: int(rest.split()[0]) * 1024 for name, rest in lines if rest.split()}
    return {field: fields.get(name) for field, name in MEMORY}


def load() -> list[float] | None:
    """How many tasks wanted a processor, on average in the last 1, 5 and 15 minutes."""
    try:
        return list(os.getloadavg())
    except OSError:
        return None


class Reader(threading.Thread):
    """Asks the driver on a thread of its own."""

    def __init__(self, nvml: Nvml) -> None:
        super().__init__(daemon=True)
        self._nvml = nvml
        self._processes = Processes()
        self._cards: list[Card] = []
        self.wanted, self.done = threading.Semaphore(0), threading.Semaphore(0)
        self.gpus: list[dict[str, Any]] = []
        cuda, _ = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
        self.host: dict[str, Any] = {
            "name": plain(os.fsencode(os.uname().nodename)),
            "driver_version": nvml.text("nvmlSystemGetDriverVersion"),
            "cuda_version": None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            "private_pids": self._processes.private,
        }

    def run(self) -> None:
        """Read when a reading is wanted. If that fails the program ends, as nothing would read any more."""
        try:
            while True:
                self.wanted.acquire()
                count, _ = self._nvml.number("nvmlDeviceGetCount_v2")
                if count is not None and count != len(self._cards):
                    indices = range(min(count, MOST_DEVICES))
                    self._cards = [Card(self._nvml, self._processes, index) for index in indices]
                rows = [row for card in self._cards for row in card.read()]
                self._processes.keep({process["pid"] for row in rows for process in row.get("processes", ())})
                self.gpus = rows
                self.done.release()
        except BaseException:  # noqa: BLE001 - whatever it is, without this thread there is nothing to say any more
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(BROKEN)

    def stuck(self, seconds: float) -> list[dict[str, Any]]:
        """Return the lines for a reading that takes too long: without current values."""
        return [card.gone(f"no answer for {seconds:.0f} s", "no_answer") for card in self._cards]


def main(interval: float) -> int:
    """Write until the reader is gone or standard input ends."""
    try:
        nvml = Nvml()
    except (OSError, LostError):
        return NO_NVML
    threading.Thread(target=end_with_input, daemon=True).start()
    reader = Reader(nvml)
    reader.start()
    begun = asked_at = time.monotonic()
    reader.wanted.release()
    pending = not reader.done.acquire(timeout=PATIENCE)  # a look that breaks ends it here, before anything is written
    versions = {"vramtui agent": str(FORMAT), "python": ".".join(map(str, sys.version_info[:3]))}
    write({"vramtui_recording": FORMAT, "started_at": time.time(), "interval": interval, "versions": versions})
    while True:
        gpus = reader.stuck(time.monotonic() - asked_at) if pending else reader.gpus
        host = dict(reader.host, load=load(), **host_memory())
        write({"schema": FORMAT, "taken_at": time.time(), "source": "nvml", "host": host, "gpus": gpus})
        time.sleep(max(0.0, begun + interval - time.monotonic()))
        begun = time.monotonic()
        if not pending:
            asked_at = begun
            reader.wanted.release()
        pending = not reader.done.acquire(timeout=PATIENCE)


def write(document: dict[str, Any]) -> None:
    """Send one line at once; end if the reader is gone."""
    import json  # noqa: PLC0415 - only for this, and the dashboard's first rows wait for this module

    try:
        sys.stdout.write(json.dumps(document, separators=(",", ":")) + "\n")
        sys.stdout.flush()
    except OSError:
        os._exit(0)


def end_with_input() -> None:
    """The connection is standard input: without it the reader is gone, however full the pipe is."""
    while sys.stdin.buffer.read(1):
        pass
    os._exit(0)
