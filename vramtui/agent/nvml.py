"""NVML through ctypes only, and the process lists by the size that their records really have."""

from __future__ import annotations

import ctypes
import os
from typing import Any

LARGEST_SIZE = (1 << 60) - 1
NOT_AVAILABLE = (1 << 64) - 1
NO_INSTANCE = 0xFFFFFFFF
HOST_TOTAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")  # MemTotal, which a GPU without its own may give
PATTERN = 0xAA  # fills the buffer of a process list: how far the driver writes tells how large its records are
LARGEST_RECORD = 40
PID_LIMIT = 1 << 22  # the kernel's PID_MAX_LIMIT
MEMORY_V2 = 0x02000028  # nvmlMemory_v2: the struct's size and its version
ABSENCES = {3: "not_supported", 4: "no_permission", 13: "driver_too_old", 25: "driver_too_old", 15: "lost"}
ABSENCES.update(dict.fromkeys((6, 10, 21, 27), "no_answer"))  # not found, timeout, no data, not ready
LOST = {15: "the GPU is lost: it fell off the bus or was reset", 16: "the GPU needs a reset"}
# Types as nvidia-smi names them; M+C are clients of MPS.
KINDS = (("C", "Compute"), ("G", "Graphics"), ("M+C", "MPSCompute"))
LISTS = {kind: f"nvmlDeviceGet{name}RunningProcesses" for kind, name in KINDS}
STRIDES = {"_v3": 24, "_v2": 24, "": 16}  # bytes per record as documented, newest call first


class UnreadableError(Exception):
    """The records of a process list cannot be what they should be."""


class LostError(Exception):
    """The card does not work any more."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(f"{call.replace('_v2', '')}: {LOST.get(code, f'the driver reports error {code}')}")
        self.lost = code == 15


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
        """Return the result of a call with one unsigned value of 32 or 64 bits, or None and why."""
        result = ctypes.c_ulonglong()  # the lower half is first on all machines with NVIDIA's driver
        code = self.call(name, *arguments, ctypes.byref(result))
        return (None, ABSENCES.get(code, "failed")) if code else (result.value, "")

    def text(self, name: str, *arguments: object) -> str | None:
        buffer = ctypes.create_string_buffer(96)
        return None if self.call(name, *arguments, buffer, 96) else plain(buffer.value)

    def memory(self, device: ctypes.c_void_p) -> tuple[dict[str, Any], dict[str, str]]:
        """Sizes in bytes, and why some are missing."""
        info, absent = (ctypes.c_ulonglong * 5)(MEMORY_V2), {}
        code = self.call("nvmlDeviceGetMemoryInfo_v2", device, info)
        sizes: dict[str, int | None] = {"total": info[1], "reserved": info[2], "free": info[3], "used": info[4]}
        if code in (3, 13, 25):
            old = (ctypes.c_ulonglong * 3)()
            code = self.call("nvmlDeviceGetMemoryInfo", device, old)
            sizes = {"total": old[0], "free": old[1], "used": old[2], "reserved": None}
            absent["memory.reserved"] = "driver_too_old"
        if code == 3 or (not code and sizes["total"] in (0, HOST_TOTAL)):
            return {"unified": True}, dict.fromkeys(("memory.total", "memory.free"), "not_supported")
        known, impossible = possible_sizes({} if code else sizes)
        return known, {"memory": ABSENCES.get(code, "failed")} if code else dict(absent, **impossible)

    def processes(self, device: ctypes.c_void_p) -> tuple[dict[int, list[Any]], dict[str, str], bool]:
        """Bytes, type and MIG instance by pid; why there are none; and whether the lists can be trusted."""
        listed: dict[int, list[Any]] = {}
        absent: dict[str, str] = {}
        for kind, base in LISTS.items():
            try:
                rows, why = self._list(device, base)
            except UnreadableError:
                return {}, {"processes": "failed"}, False
            if why and kind != "M+C" and not (kind == "G" and why == "not_supported"):
                absent["processes" if kind == "C" else "processes.graphics"] = why
            for pid, used, instance in rows:
                known = listed.setdefault(pid, [used, kind, instance])
                known[0] = max([size for size in (known[0], used) if isinstance(size, int)], default=None)
                known[1] = kind if kind in ("M+C", known[1]) else "C+G"
        return listed, absent, True

    def _list(self, device: ctypes.c_void_p, base: str) -> tuple[list[tuple[int, int | None, int]], str]:
        why = "driver_too_old"
        for suffix, documented in STRIDES.items():
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
                data, stride, is_told = written_records(buffer.raw, count.value, documented)
                rows, odd = read_records(data, stride, LARGEST_SIZE) if data else ([], 0)
                if odd and not is_told:
                    raise UnreadableError
                return rows, ""
            why = ABSENCES.get(code, "failed")
            if why != "driver_too_old":
                break
        return [], why


def possible_sizes(sizes: dict[str, int | None]) -> tuple[dict[str, int], dict[str, str]]:
    """Those in bytes that can be, and why others are missing: "not available" is the largest number of its type."""
    known = {name: size for name, size in sizes.items() if size is not None}
    absent = {
        "memory." + name: "not_supported" if size == NOT_AVAILABLE else "failed"
        for name, size in known.items()
        if size > LARGEST_SIZE
    }
    return {name: size for name, size in known.items() if size <= LARGEST_SIZE}, absent


def written_records(raw: bytes, count: int, documented: int) -> tuple[bytes, int, bool]:
    """The records that a driver wrote over the pattern, bytes of each, and whether how far it wrote tells that.

    Drivers 510 to 550 disagree about that size under one and the same name: a record is 16 bytes (pid, memory), 24
    (with the MIG instances) or 32 (with protected memory), so a reader who trusts the header, which says `documented`,
    can show scrambled pids.
    """
    written = raw.rstrip(bytes([PATTERN]))
    sizes = [size for size in (16, 24, 32) if count * size - 8 < len(written) <= count * size]
    stride = sizes[0] if sizes else documented
    return written[: count * stride].ljust(count * stride, b"\0"), stride, bool(sizes)


def read_records(data: bytes, stride: int, most: int) -> tuple[list[tuple[int, int | None, int]], int]:
    """Pid, bytes and MIG instance of each record, and how many were impossible: one whose pid no process can have is
    left out; of one whose size no process can have the size is not known.

    Args:
        data: all of them, one at least.
        stride: bytes per record.
        most: bytes that a process can hold.

    Raises:
        UnreadableError: half of them or more are impossible, as where all are read by a wrong size of the records. Of
            one or two, a single one is taken for a slip of the driver's; where a pid is left, there is a list.
    """
    words, step = memoryview(data).cast("Q"), stride // 8
    pids, sizes = memoryview(data).cast("I")[0 :: 2 * step].tolist(), words[1::step].tolist()
    instances = words[2::step].tolist() if step > 2 else [NO_INSTANCE] * len(pids)
    known = [None if size == NOT_AVAILABLE else size for size in sizes] if NOT_AVAILABLE in sizes else sizes
    instances = [instance & NO_INSTANCE for instance in instances]
    rows = list(zip(pids, known, instances))  # noqa: B905 - `strict` is of Python 3.10
    if min(pids) > 0 and max(pids) < PID_LIMIT and max(filter(None, known), default=0) <= most:
        return rows, 0
    possible = [row for row in rows if 0 < row[0] < PID_LIMIT]
    odd = sum(not 0 < pid < PID_LIMIT or (size is not None and size > most) for pid, size, _ in rows)
    # Some drivers list pid 0 where a process is of another namespace; its size is right.
    foreign = sum(pid == 0 and (size is None or size <= most) for pid, size, _ in rows)
    slip = len(rows) <= 2 and odd - foreign == 1 and len(possible) > 0
    if 2 * (odd - foreign - slip) >= len(rows):
        raise UnreadableError
    return [(pid, None if size is None or size > most else size, instance) for pid, size, instance in possible], odd


def plain(data: bytes) -> str:
    """Text that JSON can hold."""
    return data.decode("utf-8", "replace")
