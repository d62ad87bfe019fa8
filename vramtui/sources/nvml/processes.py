"""The driver's process lists, read by the size that their records really have (see `agent/nvml.py`), and the peaks of
NVML's accounting mode.
"""

import contextlib
import ctypes
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import msgspec
import pynvml

from vramtui.agent import nvml
from vramtui.core.base.units import LARGEST_SIZE
from vramtui.core.observation.bounded_samples import MOST_PROCESSES
from vramtui.core.observation.readings import Absence, ProcessType
from vramtui.sources.nvml.calls import Caller, Device, initialise

FIRST_CAPACITY: Final = 64
MOST_USES: Final = 1 << 14
ASK_MODE_EVERY = 60.0
ASK_PEAKS_EVERY = 5.0


class ProcessUse(msgspec.Struct, frozen=True, gc=False):
    """Memory of one process on one device: bytes (None if the driver does not report them), list, MIG instance."""

    used: int | None
    type: ProcessType
    instance: int | None = None


class AlikeUses(Mapping[int, ProcessUse]):
    """Processes of one list without MIG instances, in columns: thousands of rows would come and go at each look. Who
    looks up a single pid should make a dict of it.
    """

    __slots__ = ("kind", "pids", "sizes")

    def __init__(self, pids: Iterable[int], sizes: Iterable[int | None], kind: ProcessType) -> None:
        self.pids, self.kind = array("I", pids), kind
        self.sizes = [_shared_use(used, kind).used for used in sizes]

    def __len__(self) -> int:
        return len(self.pids)

    def __iter__(self) -> Iterator[int]:
        return iter(self.pids)

    def __getitem__(self, pid: int) -> ProcessUse:
        if pid not in self.pids:
            raise KeyError(pid)
        return ProcessUse(self.sizes[self.pids.index(pid)], self.kind)

    def items(self) -> Any:  # noqa: ANN401 - pairs, each once
        return zip(self.pids, (_shared_use(used, self.kind) for used in self.sizes), strict=True)


Uses = Mapping[int, ProcessUse]


class ProcessList(msgspec.Struct, kw_only=True):
    """The processes on one device by pid; `absent` is why there is no list, `graphics_absent` why it has no graphics
    clients, and `note` what is odd about it.

    `busy` is SM % by pid, None if the device does not report it. `peaks` and `final_peaks` (of processes that have
    just gone) are the driver's own, if it keeps them.
    """

    uses: Uses = {}
    busy: Mapping[int, int] | None = None
    peaks: dict[int, int] = {}
    final_peaks: dict[int, int] = {}
    trusted: bool = True
    absent: Absence | None = None
    graphics_absent: Absence | None = None
    note: str = ""

    def under(self, numbers: Mapping[int, int]) -> "ProcessList":
        """Return the list with other pids for some processes."""
        names = ("uses", "busy", "peaks", "final_peaks")
        known = {name: by_pid for name in names if (by_pid := getattr(self, name))}
        renamed = {name: {numbers.get(pid, pid): row for pid, row in by_pid.items()} for name, by_pid in known.items()}
        return msgspec.structs.replace(self, **renamed)

    @property
    def withheld(self) -> dict[str, Absence]:
        """Entries of a Gpu's `absent` about its processes."""
        if self.absent is not None:
            return {"processes": self.absent}
        return {} if self.graphics_absent is None else {"processes.graphics": self.graphics_absent}


# Drivers give memory in pages, so many processes hold the same, and share one value: of thousands of processes this is
# most of the cost of reading a list.
_shared_use = lru_cache(MOST_USES)(ProcessUse)
OTHERS: Final[tuple[ProcessType, ...]] = ("G", "M+C")


class ProcessLists:
    """Reads the compute and the graphics list of one device."""

    def __init__(self) -> None:
        self._capacity = 0
        self._suffix: dict[ProcessType, str] = {}
        self._seen: dict[ProcessType, tuple[int, Uses]] = {}  # hashes of what the driver wrote
        self._note = ""
        self._had: set[ProcessType] = set(OTHERS)

    def read(self, caller: Caller, device: Device, total: int | None, *, graphics_too: bool = True) -> ProcessList:
        """Return all lists as one, with the larger value of a process in two; none can exceed `total` bytes. Without
        `graphics_too` the lists of graphics and of MPS are left out if they were empty at the last read.
        """
        self._note = ""
        try:
            uses, absence = self._list(caller, device, "C", total)
            silent: Absence | None = None
            for kind in OTHERS if graphics_too else tuple(self._had):
                more, why = self._list(caller, device, kind, total)
                self._had = self._had | {kind} if more else self._had - {kind}
                silent = why if kind == "G" else silent
                if more:
                    both = dict(uses.items())
                    both.update((pid, _larger(both[pid], row) if pid in both else row) for pid, row in more.items())
                    uses = both
        except nvml.UnreadableError:
            return ProcessList(trusted=False, absent=Absence.FAILED)
        if silent is Absence.NOT_SUPPORTED:
            silent = None  # a device without graphics has no graphics clients
        return ProcessList(uses=uses, absent=absence, graphics_absent=silent, note=self._note)

    def _list(self, caller: Caller, card: Device, kind: ProcessType, total: int | None) -> tuple[Uses, Absence | None]:
        absence: Absence | None = Absence.DRIVER_TOO_OLD
        for suffix in [self._suffix[kind]] if kind in self._suffix else list(nvml.STRIDES):
            name = nvml.LISTS[kind] + suffix
            caller.call = name
            try:
                raw, count = self._fill(name, card)
            except pynvml.NVMLError as error:
                absence = caller.absence(name, error)
                if absence is Absence.DRIVER_TOO_OLD:
                    continue
                return {}, absence
            self._suffix[kind] = suffix
            return self._records(kind, raw, count, nvml.STRIDES[suffix], total), None
        self._suffix.pop(kind, None)
        return {}, absence

    def _fill(self, name: str, device: Device) -> tuple[bytes, int]:
        """Let the driver write its records; return the buffer's bytes, and their number."""
        call = pynvml._nvmlGetFunctionPointer(name)  # noqa: SLF001 - pynvml's own wrapper assumes a record size
        for _ in range(8):
            buffer = ctypes.create_string_buffer(
                self._capacity * nvml.LARGEST_RECORD
            )  # all devices take turns at its bytes
            ctypes.memset(buffer, nvml.PATTERN, len(buffer))
            count = ctypes.c_uint(self._capacity)
            code = call(device, ctypes.byref(count), buffer if self._capacity else None)
            if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                break
            if count.value > MOST_PROCESSES:
                raise nvml.UnreadableError
            self._capacity = max(FIRST_CAPACITY, count.value * 5 // 4)
        if code != pynvml.NVML_SUCCESS:
            raise pynvml.NVMLError(code)
        if count.value > self._capacity:
            raise nvml.UnreadableError
        return buffer.raw, count.value

    def _records(self, kind: ProcessType, raw: bytes, count: int, documented: int, total: int | None) -> Uses:
        if count == 0:
            return {}
        data, stride, is_told = nvml.written_records(raw, count, documented)
        if stride != documented:
            self._note = f"the driver's process records are of {stride} bytes, not {documented}; they are read as such"
        last = self._seen.get(kind)
        if last is not None and last[0] == hash(data):
            return last[1]
        rows, odd = nvml.read_records(data, stride, LARGEST_SIZE if total is None else total)
        if odd and not is_told:
            raise nvml.UnreadableError
        mixed: dict[int, ProcessUse] = {}
        if len({pid for pid, _, _ in rows}) == len(rows) and all(
            instance == nvml.NO_INSTANCE for _, _, instance in rows
        ):
            uses: Uses = AlikeUses((pid for pid, _, _ in rows), (used for _, used, _ in rows), kind)
        else:
            for pid, used, instance in rows:
                row = ProcessUse(used, kind, None if instance == nvml.NO_INSTANCE else instance)
                mixed[pid] = row if pid not in mixed else _larger(mixed[pid], row)
            uses = mixed
        if odd:
            records = "1 record" if odd == 1 else f"{odd} records"
            self._note = f"{records} of {nvml.LISTS[kind]} with an impossible pid or size; the others are shown"
        else:
            self._seen[kind] = (hash(data), uses)  # odd records are reported each time
        return uses


def _larger(one: ProcessUse, other: ProcessUse) -> ProcessUse:
    sizes = [row.used for row in (one, other) if row.used is not None]
    kind: ProcessType = one.type if one.type == other.type else "M+C" if "M+C" in (one.type, other.type) else "C+G"
    return ProcessUse(max(sizes, default=None), kind, one.instance if one.instance is not None else other.instance)


class Accounts:
    """Peaks of the processes on one device, by NVML's accounting mode: the driver keeps them until after a process's
    end, so no peak between two looks is missed. Asked sometimes while a process runs, and after its end.
    """

    def __init__(self) -> None:
        self.peaks: dict[int, int] = {}
        self._on = False
        self._next_mode = self._next_peaks = float("-inf")
        self._listed: frozenset[int] = frozenset()

    def read(self, caller: Caller, device: Device, pids: Collection[int], now: float) -> dict[int, int]:
        """Look again if it is time to; `peaks` then has those of the running processes.

        Returns:
            The last peaks of the processes that the device does not list any more.
        """
        if now >= self._next_mode:
            mode, absence = caller.ask("nvmlDeviceGetAccountingMode", device)
            self._on = absence is None and bool(mode)
            self._next_mode = now + ASK_MODE_EVERY
        if not self._on:
            self.peaks, self._listed = {}, frozenset()
            return {}
        listed = frozenset(pids)
        gone, arrived = self._listed - listed, listed - self._listed
        self._listed = listed
        last = _peaks(caller, device, gone)
        if now >= self._next_peaks:
            self.peaks = _peaks(caller, device, listed)
            self._next_peaks = now + ASK_PEAKS_EVERY
        elif gone or arrived:
            still_listed = {pid: peak for pid, peak in self.peaks.items() if pid in listed}
            self.peaks = still_listed | _peaks(caller, device, arrived)
        return last


def _peaks(caller: Caller, device: Device, pids: Collection[int]) -> dict[int, int]:
    peaks: dict[int, int] = {}
    for pid in pids:
        stats, absence = caller.ask("nvmlDeviceGetAccountingStats", device, pid)
        if absence is None and stats.maxMemoryUsage < 1 << 60:
            peaks[pid] = stats.maxMemoryUsage
        elif absence is Absence.NOT_SUPPORTED:
            break
    return peaks


def accounting_modes() -> dict[int, bool | None]:
    """Return by GPU index whether accounting is on; None if the driver does not say. Raises SourceFailed if NVML cannot
    be initialised.
    """
    initialise()
    modes: dict[int, bool | None] = {}
    with contextlib.suppress(pynvml.NVMLError):
        for index in range(pynvml.nvmlDeviceGetCount()):
            modes[index] = None
            with contextlib.suppress(pynvml.NVMLError):
                modes[index] = bool(pynvml.nvmlDeviceGetAccountingMode(pynvml.nvmlDeviceGetHandleByIndex(index)))
    return modes
