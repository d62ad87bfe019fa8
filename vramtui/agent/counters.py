"""Counters of a GPU: bytes over its links, repaired memory, video engines, and its XID errors.

The numbers of fields, their units and the struct are those of nvml.h (nvidia-ml-py 13.x has the same).
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Callable
from typing import Any

from .nvml import ABSENCES

EVERY_LINK = 0xFFFFFFFF  # as a field's scope: the sum over all links
KIB = 1024
# The field of a number: its number in nvml.h, scope, and bytes a unit.
RATES = (
    ("nvlink_sent", 138, EVERY_LINK, KIB),
    ("nvlink_received", 139, EVERY_LINK, KIB),
    ("pcie_sent", 197, 0, 1),
    ("pcie_received", 198, 0, 1),
)
REMAPPED, REMAP_PENDING = (142, 143), 144  # rows, by correctable and uncorrectable errors: cards since Ampere
RETIRED, RETIRE_PENDING = (29, 30), 31  # pages, by single and double bit errors: cards before
NUMBERS = (*REMAPPED, REMAP_PENDING, *RETIRED, RETIRE_PENDING)
ASKED = (*((number, scope) for _, number, scope, _ in RATES), *((number, 0) for number in NUMBERS))
WIDE = (2, 3)  # nvmlValueType_t of 64 bits; a 32-bit count of bytes would wrap between two looks
NARROW = 1
ENGINES = (
    ("encoder_utilization", "nvmlDeviceGetEncoderUtilization"),
    ("decoder_utilization", "nvmlDeviceGetDecoderUtilization"),
)
XID_EVENT = 0x8  # nvmlEventTypeXidCriticalError
MOST_XIDS = 32  # kept, the latest
FIELDS = (*(row[0] for row in RATES), "memory_repairs", "repair_pending", "xid_errors")
METRICS = (*FIELDS, *(row[0] for row in ENGINES))


class FieldValue(ctypes.Structure):
    """`nvmlFieldValue_t`; the union is read as eight bytes."""

    _fields_ = [
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("kind", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    ]


# Its field, kind, code and value: ten of them as ctypes' attributes take longer than the driver does.
_FIELD = struct.Struct("=I20xiiQ")


class EventData(ctypes.Structure):
    """NVML's `nvmlEventData_t`, field for field."""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


class CardCounters:
    """Reads one card's counters from look to look. `call` asks a function of NVML by its name and gives its code, 13
    where the library does not have it; of the `clock` only differences matter; `xids` were seen before.
    """

    def __init__(
        self,
        call: Callable[..., int],
        clock: Callable[[], float] = time.monotonic,
        xids: list[dict[str, float]] | None = None,
    ) -> None:
        self._call = call
        self._clock = clock
        self._before: dict[str, tuple[float, int]] = {}
        self._events: ctypes.c_void_p | None = None
        self._fields = _asked_fields()
        self.xids: list[dict[str, float]] = xids or []

    def begin_anew(self) -> None:
        """The card or the driver was loaded again: ask for everything anew. The errors that were seen stay."""
        self._before, self._events = {}, None

    def read(self, device: object) -> tuple[dict[str, Any], dict[str, str]]:
        """The numbers by field of a Gpu, and why some are missing. Rates are bytes a second since the look before; the
        first look has none.
        """
        values: dict[str, Any] = {}
        absent: dict[str, str] = {}
        self._read_fields(device, values, absent)
        for name, function in ENGINES:
            percent, period = ctypes.c_uint(), ctypes.c_uint()
            code = self._call(function, device, ctypes.byref(percent), ctypes.byref(period))
            if code or percent.value > 100:
                absent[name] = ABSENCES.get(code, "failed")
            else:
                values[name] = percent.value
        code = 0
        if self._events is None:
            events = ctypes.c_void_p()
            code = self._call("nvmlEventSetCreate", ctypes.byref(events))
            if not code:
                code = self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(XID_EVENT), events)
                if code:
                    self._call("nvmlEventSetFree", events)
                else:
                    self._events = events
        for _ in range(0 if code else MOST_XIDS):  # those that came since the last look
            event = EventData()
            if self._call("nvmlEventSetWait_v2", self._events, ctypes.byref(event), 0):
                break
            if event.type & XID_EVENT:
                self.xids = [*self.xids[1 - MOST_XIDS :], {"at": time.time(), "code": int(event.data)}]
        if code:  # of a driver that does not report them
            absent["xid_errors"] = ABSENCES.get(code, "failed")
        else:
            values["xid_errors"] = tuple(self.xids)
        return values, absent

    def _read_fields(self, device: object, values: dict[str, Any], absent: dict[str, str]) -> None:
        code = self._call("nvmlDeviceGetFieldValues", device, len(ASKED), self._fields)
        if code:
            absent.update(dict.fromkeys(FIELDS[:-1], ABSENCES.get(code, "failed")))
            return
        records = list(_FIELD.iter_unpack(bytes(self._fields)))
        if [record[0] for record in records] != [number for number, _ in ASKED]:
            self._fields = _asked_fields()  # a driver that writes something else is asked the same again
        read = {number: records[place][1:] for place, (number, _) in enumerate(ASKED)}
        answers: dict[str, tuple[int | None, str]] = {}
        now = self._clock()
        for name, number, _, size in RATES:  # bytes a second since the look before; `size` is bytes a unit
            kind, code, value = read[number]
            if code or kind not in WIDE:
                # nvmlDeviceGetPcieThroughput may tell: 20 ms a direction, for who looks at it
                why = ABSENCES.get(code, "failed") if code else "not_supported"
                answers[name] = None, "not_asked" if name.startswith("pcie") else why
                continue
            at, count = self._before.get(name, (now, 0))
            self._before[name] = (now, value)
            if now <= at or value < count:  # the first look, or the driver was loaded anew
                answers[name] = None, "first_look"
            else:
                answers[name] = int((value - count) * size / (now - at)), ""
        repairs = [_number(read[number]) for number in (*REMAPPED, *RETIRED)]
        pending = [_number(read[number]) for number in (REMAP_PENDING, RETIRE_PENDING)]
        untold = ABSENCES.get(read[REMAPPED[0]][1], "failed")
        for name, numbers in (("memory_repairs", repairs), ("repair_pending", pending)):
            known = [number for number in numbers if number is not None]
            answers[name] = (sum(known) if known else None, untold)
        for name, (value, why) in answers.items():
            if value is None:
                absent[name] = why
            else:
                values[name] = bool(value) if name == "repair_pending" else value


def _asked_fields() -> ctypes.Array[FieldValue]:
    """The fields to read, which the driver fills in; ctypes takes longer to make them than the driver to answer."""
    fields = (FieldValue * len(ASKED))()
    for place, (number, scope) in enumerate(ASKED):
        fields[place].field, fields[place].scope = number, scope
    return fields


def _number(answer: tuple[int, ...]) -> int | None:
    """One field as the driver answers: the type of its value, an error's code or 0, and the value's eight bytes."""
    kind, code, value = answer
    return None if code or kind not in (NARROW, *WIDE) else value & 0xFFFFFFFF if kind == NARROW else value
