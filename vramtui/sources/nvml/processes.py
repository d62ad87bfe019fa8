"""The driver's process lists, read by the size that its records really have.

Drivers 510 to 550 disagree about that size under one and the same name: a record is 16 bytes (pid, memory), 24 (with
the MIG instances) or 32 (with protected memory), so a reader who trusts the header can show scrambled pids. Here the
buffer is filled with a pattern first, and how far the driver wrote over it tells how large its records are.
"""

import ctypes
from collections.abc import Mapping
from typing import Final

import msgspec
import pynvml

from vramtui.agent.nvml import LARGEST_RECORD, NO_INSTANCE, NOT_AVAILABLE, PATTERN, PID_LIMIT
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import MOST_PROCESSES
from vramtui.core.observation.readings import Absence, ProcessType
from vramtui.sources.nvml.calls import Caller, Device

FIRST_CAPACITY: Final = 64
MOST_USES: Final = 1 << 14
STRIDES: Final = {"_v3": 24, "_v2": 24, "": 16}  # bytes per record as documented, newest call first
LISTS: Final[dict[ProcessType, str]] = {
    "C": "nvmlDeviceGetComputeRunningProcesses",
    "G": "nvmlDeviceGetGraphicsRunningProcesses",
}


class ProcessUse(msgspec.Struct, frozen=True, gc=False):
    """What one process holds on one device: bytes (None when the driver does not say), list, MIG instance."""

    used: int | None
    type: ProcessType
    instance: int | None = None


class ProcessList(msgspec.Struct, kw_only=True):
    """The processes on one device by pid; `absent` says why there is no list, `note` what is odd about it, and
    `graphics_absent` why there are no graphics clients in it.

    `busy` is SM % by pid, None where the device does not say it. `peaks` and, for those that have just gone,
    `final_peaks` are the driver's own, where it keeps them.
    """

    uses: dict[int, ProcessUse] = {}
    busy: Mapping[int, int] | None = None
    peaks: dict[int, int] = {}
    final_peaks: dict[int, int] = {}
    trusted: bool = True
    absent: Absence | None = None
    graphics_absent: Absence | None = None
    note: str = ""

    @property
    def withheld(self) -> dict[str, Absence]:
        """What a Gpu's `absent` says of its processes."""
        if self.absent is not None:
            return {"processes": self.absent}
        return {} if self.graphics_absent is None else {"processes.graphics": self.graphics_absent}


class _Uses(dict[int | None, ProcessUse]):
    """What a process of one list holds, by its size: a driver gives memory in pages, so many hold the same, and one
    value does for all of them. With thousands of processes this is most of what reading a list costs.
    """

    def __init__(self, kind: ProcessType) -> None:
        super().__init__()
        self._kind = kind

    def __missing__(self, used: int | None) -> ProcessUse:
        if len(self) >= MOST_USES:
            self.clear()
        use = self[used] = ProcessUse(used, self._kind)
        return use


_USES: Final[dict[ProcessType, _Uses]] = {kind: _Uses(kind) for kind in LISTS}


class _UnreadableError(Exception):
    """The records cannot be what they should be."""


class ProcessLists:
    """Reads the compute and the graphics list of one device, with a buffer that is kept."""

    def __init__(self) -> None:
        self._capacity = 0
        self._buffer = ctypes.create_string_buffer(0)
        self._suffix: dict[ProcessType, str] = {}
        self._seen: dict[ProcessType, tuple[bytes, dict[int, ProcessUse]]] = {}
        self._note = ""
        self._has_graphics = True

    def read(self, caller: Caller, device: Device, total: int | None, *, graphics_too: bool = True) -> ProcessList:
        """Both lists as one: a process in both is one row with the larger value.

        Args:
            caller: the device's.
            device: its handle.
            total: bytes of memory that no process can exceed, if known.
            graphics_too: False leaves the graphics list out while it was empty when it was read last.

        Raises:
            DeviceGoneError, DriverGoneError: as `Caller.ask`.
        """
        self._note = ""
        try:
            compute, absence = self._list(caller, device, "C", total)
            graphics: dict[int, ProcessUse] = {}
            silent: Absence | None = None
            if graphics_too or self._has_graphics:
                graphics, silent = self._list(caller, device, "G", total)
                self._has_graphics = bool(graphics)
        except _UnreadableError:
            return ProcessList(trusted=False, absent=Absence.FAILED)
        if silent is Absence.NOT_SUPPORTED:
            silent = None  # a device that knows no graphics has no graphics clients
        return ProcessList(uses=merge(compute, graphics), absent=absence, graphics_absent=silent, note=self._note)

    def _list(
        self, caller: Caller, device: Device, kind: ProcessType, total: int | None
    ) -> tuple[dict[int, ProcessUse], Absence | None]:
        absence: Absence | None = Absence.DRIVER_TOO_OLD
        for suffix in [self._suffix[kind]] if kind in self._suffix else list(STRIDES):
            name = LISTS[kind] + suffix
            caller.call = name
            try:
                count = self._fill(name, device)
            except pynvml.NVMLError as error:
                absence = caller.absence(name, error)
                if absence is Absence.DRIVER_TOO_OLD:
                    continue
                return {}, absence
            self._suffix[kind] = suffix
            return self._records(kind, count, STRIDES[suffix], total), None
        self._suffix.pop(kind, None)
        return {}, absence

    def _fill(self, name: str, device: Device) -> int:
        """Let the driver write its records into the buffer; gives their number."""
        call = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - pynvml's own wrapper assumes a record size
        for _ in range(8):
            ctypes.memset(self._buffer, PATTERN, len(self._buffer))
            count = ctypes.c_uint(self._capacity)
            code = call(device, ctypes.byref(count), self._buffer if self._capacity else None)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            if count.value > MOST_PROCESSES:
                raise _UnreadableError
            self._capacity = max(FIRST_CAPACITY, 2 * count.value)
            self._buffer = ctypes.create_string_buffer(self._capacity * LARGEST_RECORD)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        if count.value > max(self._capacity, 0):
            raise _UnreadableError
        return count.value

    def _records(self, kind: ProcessType, count: int, documented: int, total: int | None) -> dict[int, ProcessUse]:
        if count == 0:
            return {}
        written = self._buffer.raw.rstrip(bytes([PATTERN]))
        real = record_size(len(written), count)
        stride = documented if real is None else real
        if stride != documented:
            self._note = f"the driver's process records are of {stride} bytes, not {documented}; they are read as such"
        data = written[: count * stride].ljust(count * stride, b"\0")
        last = self._seen.get(kind)
        if last is not None and last[0] == data:
            return last[1]
        uses, odd = parse(data, stride, kind, total)
        if odd and real is None:
            raise _UnreadableError
        if odd:
            records = "1 record" if odd == 1 else f"{odd} records"
            self._note = f"{records} of {LISTS[kind]} with an impossible pid or size; the others are shown"
        else:
            self._seen[kind] = (data, uses)  # what is odd is told again each time
        return uses


def record_size(written: int, count: int) -> int | None:
    """Bytes per record when `count` records reach over `written` bytes; None when that is no size known."""
    for stride in (16, 24, 32):
        if count * stride - 8 < written <= count * stride:
            return stride
    return None


def parse(data: bytes, stride: int, kind: ProcessType, total: int | None) -> tuple[dict[int, ProcessUse], int]:
    """The records by pid, and how many of them were impossible.

    A record whose pid no process can have is left out; of one whose size no process can have the size is not known.

    Raises:
        _UnreadableError: half of them or more are impossible, as where all are read by a wrong size of the records. Of
            one or two, a single one is taken for a slip of the driver's; where a pid is left, there is a list.
    """
    words, step = memoryview(data).cast("Q"), stride // 8
    pids, sizes = memoryview(data).cast("I")[0 :: 2 * step].tolist(), words[1::step].tolist()
    instances = words[2::step].tolist() if step > 2 else [NO_INSTANCE] * len(pids)
    known = sizes if NOT_AVAILABLE not in sizes else [None if size == NOT_AVAILABLE else size for size in sizes]
    largest = max((size for size in known if size is not None), default=0)
    most, odd = LARGEST_SIZE if total is None else total, 0
    if not (min(pids) > 0 and max(pids) < PID_LIMIT and largest <= most):
        rows = list(zip(pids, known, instances, strict=True))
        possible = [row for row in rows if 0 < row[0] < PID_LIMIT]
        odd = sum(not 0 < pid < PID_LIMIT or (size is not None and size > most) for pid, size, _ in rows)
        # Some drivers list pid 0 where a process is of another namespace; its size is right.
        foreign = sum(pid == 0 and (size is None or size <= most) for pid, size, _ in rows)
        slip = len(rows) <= 2 and odd - foreign == 1 and len(possible) > 0
        if 2 * (odd - foreign - slip) >= len(rows):
            raise _UnreadableError
        pids = [pid for pid, _, _ in possible]
        known = [None if size is None or size > most else size for _, size, _ in possible]
        instances = [instance for _, _, instance in possible]
    uses: dict[int, ProcessUse] = {}
    if len(set(pids)) == len(pids) and not any(instance & 0xFFFFFFFF != NO_INSTANCE for instance in instances):
        return dict(zip(pids, map(_USES[kind].__getitem__, known), strict=True)), odd
    for pid, used, instance_word in zip(pids, known, instances, strict=True):
        instance = instance_word & 0xFFFFFFFF
        row = ProcessUse(used, kind, None if instance == NO_INSTANCE else instance)
        uses[pid] = row if pid not in uses else _larger(uses[pid], row)
    return uses, odd


def merge(compute: dict[int, ProcessUse], graphics: dict[int, ProcessUse]) -> dict[int, ProcessUse]:
    """Both lists as one. The same memory stands in both, so it is never added up."""
    if not graphics:
        return compute
    both = dict(compute)
    for pid, row in graphics.items():
        both[pid] = _larger(both[pid], row) if pid in both else row
    return both


def _larger(one: ProcessUse, other: ProcessUse) -> ProcessUse:
    sizes = [row.used for row in (one, other) if row.used is not None]
    kind: ProcessType = one.type if one.type == other.type else "C+G"
    return ProcessUse(max(sizes, default=None), kind, one.instance if one.instance is not None else other.instance)
