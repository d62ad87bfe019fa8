"""NVML through ctypes alone, and the process lists by the size that their records really have."""

from __future__ import annotations

import ctypes
from typing import Any

LARGEST_SIZE = (1 << 60) - 1
NOT_AVAILABLE = (1 << 64) - 1
NO_INSTANCE = 0xFFFFFFFF
PATTERN = 0xAA  # fills the buffer of a process list: how far the driver writes tells how large its records are
LARGEST_RECORD = 40
PID_LIMIT = 1 << 22  # the kernel's PID_MAX_LIMIT
MEMORY_V2 = 0x02000028  # nvmlMemory_v2: the struct's size and its version
CLOCK_SM, CLOCK_MEM = 1, 2
ABSENCES = {3: "not_supported", 4: "no_permission", 13: "driver_too_old", 25: "driver_too_old", 15: "lost"}
ABSENCES.update(dict.fromkeys((6, 10, 21, 27), "no_answer"))  # not found, timeout, no data, not ready
LOST = {15: "the GPU is lost: it fell off the bus or was reset", 16: "the GPU needs a reset"}
LISTS = (("C", "nvmlDeviceGetComputeRunningProcesses"), ("G", "nvmlDeviceGetGraphicsRunningProcesses"))


class LostError(Exception):
    """The card does not work any more."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call.replace('_v2', '')}: {LOST.get(code, f'the driver reports error {code}')}")
        self.lost = code == 15


class MemoryV2(ctypes.Structure):
    """NVML's `nvmlMemory_v2_t`, field for field."""

    _fields_ = [("version", ctypes.c_uint)] + [
        (name, ctypes.c_ulonglong) for name in ("total", "reserved", "free", "used")
    ]


class Nvml:
    """The library, asked call by call: each answers with a code, 0 where all is well."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        if self.call("nvmlInit_v2"):
            raise OSError("nvmlInit")

    def call(self, name: str, *arguments: object) -> int:
        """The code; 13 (function not found) where this library does not have the call."""
        function = getattr(self.library, name, None)
        if function is None:
            return 13
        code = int(function(*arguments))
        if code in LOST:
            raise LostError(name, code)
        return code

    def number(self, name: str, *arguments: object) -> tuple[int | None, str]:
        """What a call with one unsigned result says, or None and why."""
        result = ctypes.c_uint()
        code = self.call(name, *arguments, ctypes.byref(result))
        return (None, ABSENCES.get(code, "failed")) if code else (result.value, "")

    def text(self, name: str, *arguments: object) -> str | None:
        """What a call that fills a buffer says."""
        buffer = ctypes.create_string_buffer(96)
        code = self.call(name, *arguments, buffer, 96)
        return None if code else plain(buffer.value)

    def memory(self, device: ctypes.c_void_p) -> tuple[dict[str, Any], dict[str, str]]:
        """Sizes in bytes, and why some are missing."""
        info, absent = MemoryV2(version=MEMORY_V2), {}
        code = self.call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(info))
        sizes = {name: getattr(info, name) for name in ("total", "used", "reserved", "free")}
        if code in (3, 13, 25):
            old = (ctypes.c_ulonglong * 3)()
            code = self.call("nvmlDeviceGetMemoryInfo", device, old)
            sizes = {"total": old[0], "free": old[1], "used": old[2], "reserved": None}
            absent["memory.reserved"] = "driver_too_old"
        if code == 3 or (not code and not sizes["total"]):
            return {"unified": True}, dict.fromkeys(("memory.total", "memory.free"), "not_supported")
        if code:
            return {}, {"memory": ABSENCES.get(code, "failed")}
        for name, size in list(sizes.items()):
            if size is not None and size > LARGEST_SIZE:
                absent["memory." + name] = "not_supported" if size == NOT_AVAILABLE else "failed"
                sizes[name] = None
        return {name: size for name, size in sizes.items() if size is not None}, absent

    def processes(self, device: ctypes.c_void_p) -> tuple[dict[int, list[Any]], dict[str, str], bool]:
        """Bytes, type and MIG instance by pid; why there are none; and whether the lists can be trusted."""
        listed: dict[int, list[Any]] = {}
        absent: dict[str, str] = {}
        for kind, base in LISTS:
            rows, why = self._list(device, base)
            if rows is None:
                return {}, {"processes": "failed"}, False
            if why and not (kind == "G" and why == "not_supported"):
                absent["processes" if kind == "C" else "processes.graphics"] = why
            for pid, used, instance in rows:
                known = listed.get(pid)
                if known is None:
                    listed[pid] = [used, kind, instance]
                else:
                    known[0] = max([size for size in (known[0], used) if isinstance(size, int)], default=None)
                    known[1] = kind if known[1] == kind else "C+G"
        return listed, absent, True

    def _list(self, device: ctypes.c_void_p, base: str) -> tuple[list[tuple[int, int | None, int]] | None, str]:
        why = "driver_too_old"
        for suffix, documented in (("_v3", 24), ("_v2", 24), ("", 16)):
            capacity = 64
            for _ in range(8):
                size = capacity * LARGEST_RECORD
                buffer = ctypes.create_string_buffer(bytes([PATTERN]) * size, size)
                count = ctypes.c_uint(capacity)
                code = self.call(base + suffix, device, ctypes.byref(count), buffer)
                if code != 7:
                    break
                capacity = min(1 << 16, 2 * max(capacity, count.value))
            if not code:
                return records(buffer.raw, count.value, documented), ""
            why = ABSENCES.get(code, "failed")
            if why != "driver_too_old":
                break
        return [], why


def records(raw: bytes, count: int, documented: int) -> list[tuple[int, int | None, int]] | None:
    """Pid, bytes and MIG instance of each; None where they make no sense.

    Drivers 510 to 550 write records of 16, 24 or 32 bytes under one and the same name.
    """
    written = raw.rstrip(bytes([PATTERN]))
    sizes = [size for size in (16, 24, 32) if count * size - 8 < len(written) <= count * size]
    stride = sizes[0] if sizes else documented
    data = written[: count * stride].ljust(count * stride, b"\0")
    listed, odd = [], 0
    for at in range(0, count * stride, stride):
        pid = int.from_bytes(data[at : at + 4], "little")
        used = int.from_bytes(data[at + 8 : at + 16], "little")
        instance = int.from_bytes(data[at + 16 : at + 20], "little") if stride > 16 else NO_INSTANCE
        if not 0 < pid < PID_LIMIT:
            odd += pid != 0
        elif used == NOT_AVAILABLE or used <= LARGEST_SIZE:
            listed.append((pid, None if used == NOT_AVAILABLE else used, instance))
        else:
            odd += 1
            listed.append((pid, None, instance))
    return None if odd and (2 * odd >= count or not sizes) else listed


def plain(data: bytes) -> str:
    """Text that JSON can hold."""
    return data.decode("utf-8", "replace")
