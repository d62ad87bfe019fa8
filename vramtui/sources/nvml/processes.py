"""The driver's process lists, read by the size that its records really have (see `agent/nvml.py`)."""

import ctypes
from collections.abc import Mapping
from typing import Final

import msgspec
import pynvml

from vramtui.agent.nvml import (
    LARGEST_RECORD,
    LISTS,
    NO_INSTANCE,
    PATTERN,
    STRIDES,
    UnreadableError,
    read_records,
    written_records,
)
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import MOST_PROCESSES
from vramtui.core.observation.readings import Absence, ProcessType
from vramtui.sources.nvml.calls import Caller, Device

FIRST_CAPACITY: Final = 64
MOST_USES: Final = 1 << 14


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


_USES: Final[dict[ProcessType, _Uses]] = {"C": _Uses("C"), "G": _Uses("G")}


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
        except UnreadableError:
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
                raise UnreadableError
            self._capacity = max(FIRST_CAPACITY, 2 * count.value)
            self._buffer = ctypes.create_string_buffer(self._capacity * LARGEST_RECORD)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        if count.value > max(self._capacity, 0):
            raise UnreadableError
        return count.value

    def _records(self, kind: ProcessType, count: int, documented: int, total: int | None) -> dict[int, ProcessUse]:
        if count == 0:
            return {}
        data, stride, is_told = written_records(self._buffer.raw, count, documented)
        if stride != documented:
            self._note = f"the driver's process records are of {stride} bytes, not {documented}; they are read as such"
        last = self._seen.get(kind)
        if last is not None and last[0] == data:
            return last[1]
        rows, odd = read_records(data, stride, LARGEST_SIZE if total is None else total)
        if odd and not is_told:
            raise UnreadableError
        uses = _by_pid(rows, kind)
        if odd:
            records = "1 record" if odd == 1 else f"{odd} records"
            self._note = f"{records} of {LISTS[kind]} with an impossible pid or size; the others are shown"
        else:
            self._seen[kind] = (data, uses)  # what is odd is told again each time
        return uses


def _by_pid(rows: list[tuple[int, int | None, int]], kind: ProcessType) -> dict[int, ProcessUse]:
    if len({pid for pid, _, _ in rows}) == len(rows) and all(instance == NO_INSTANCE for _, _, instance in rows):
        uses = _USES[kind]
        return {pid: uses[used] for pid, used, _ in rows}
    by_pid: dict[int, ProcessUse] = {}
    for pid, used, instance in rows:
        row = ProcessUse(used, kind, None if instance == NO_INSTANCE else instance)
        by_pid[pid] = row if pid not in by_pid else _larger(by_pid[pid], row)
    return by_pid


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
