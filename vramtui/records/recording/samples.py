"""The samples of a recording. Only some are held decoded: a day of a crowded host would take gigabytes.

They are kept in blocks of lines as in the file; each block begins with a whole sample. The blocks used last are held
decoded; the others are compressed, and decoded again when somebody asks.

Most lines are the fields that changed, so that a day of a crowded host fits in some tens of megabytes.
`{"utilization": 12, "memory": {"used": 1}, "processes": {"3": {"used_memory": 1}}}`: an object has only the fields that
differ, by their names in `vramtui.core.observation`. Rows that are still the same GPUs, processes or devices are
numbered by their places in the list before; otherwise the whole list is there.
"""

import threading
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, overload

import msgspec

from vramtui.core.base.compatibility import with_possible_fields
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.readings import Process, Sample, decode_sample

BLOCK = 30  # samples at least; a whole one comes once a minute
READY = 120  # blocks held decoded: two hours with a sample each second
MOST_MENDED = 8 << 20  # bytes of a line; 16 cards with 1,024 processes are 6 MB
OF_MORE = 30  # held decoded if there are more than READY
# Fields that are lists of rows, and what makes two rows the same.
ROWS = {"gpus": attrgetter("uuid"), "processes": attrgetter("pid", "started_at"), "devices": attrgetter("index")}
# Every process changes these at every tick: they wait for the next whole sample.
LEFT_OUT = frozenset({"cpu_percent", "host_memory", "sm_percent"})

Changes = dict[str, Any]
Value = TypeVar("Value", bound=msgspec.Struct)


def changes_between(old: msgspec.Struct, new: msgspec.Struct) -> Changes:
    """The fields of `new` that differ from `old`, ready for JSON."""
    left_out = LEFT_OUT if type(new) is Process else ()
    changes: Changes = {}
    for name in new.__struct_fields__:
        was, now = getattr(old, name), getattr(new, name)
        if was is now or name in left_out:
            continue
        if name in ROWS and list(map(ROWS[name], was)) == list(map(ROWS[name], now)):
            rows = {
                str(place): inner
                for place, (one, other) in enumerate(zip(was, now, strict=True))
                if one is not other and (inner := changes_between(one, other))
            }
            if rows:
                changes[name] = rows
        elif was != now:
            is_nested = isinstance(now, msgspec.Struct) and type(was) is type(now)
            changes[name] = changes_between(was, now) if is_nested else msgspec.to_builtins(now, str_keys=True)
    return changes


def with_changes(old: Value, changes: Changes, left_out: list[str] | None = None) -> Value:
    """The value after `old`; what did not change is shared between the two. Fields of a newer version are ignored.
    `left_out` takes the names of fields with an impossible value, which become None; without it they are an error.

    Raises:
        msgspec.ValidationError: the changes do not fit `old`.
    """
    if not changes:
        return old
    fields = _fields(type(old))
    values: Changes = {}
    for name, change in changes.items():
        if name not in fields:
            continue
        was = getattr(old, name)
        if isinstance(change, dict) and isinstance(was, msgspec.Struct):
            values[name] = with_changes(was, change, left_out)
        elif isinstance(change, dict) and name in ROWS:
            rows = list(was)
            for place, inner in msgspec.convert(change, dict[int, Changes], strict=False, str_keys=True).items():
                if not 0 <= place < len(rows):
                    raise msgspec.ValidationError(f"number {place} is missing in the sample before")
                rows[place] = with_changes(rows[place], inner, left_out)
            values[name] = tuple(rows)
        else:
            try:
                values[name] = msgspec.convert(change, fields[name].type, strict=False, str_keys=True)
            except msgspec.ValidationError:
                if left_out is None or fields[name].default is not None:
                    raise
                values[name] = None
                left_out.append(name)
    return msgspec.structs.replace(old, **values)


@cache
def _fields(kind: type) -> dict[str, msgspec.structs.FieldInfo]:
    return {field.name: field for field in msgspec.structs.fields(kind)}


class ChangesLine(msgspec.Struct, frozen=True):
    """A sample as changes since the sample before."""

    changes: Changes


def is_whole(line: bytes) -> bool:
    """The line is a sample that needs no sample before it."""
    return not line.startswith(b'{"changes":')


def sample_in(line: bytes, before: Sample | None) -> Sample:
    """The sample in a line of a recording, without impossible figures, which one of its problems then names.

    Raises:
        msgspec.DecodeError: it is not a sample, or does not follow `before` (UnicodeDecodeError also says so).
    """
    left_out: list[str] = []
    if is_whole(line):
        try:
            sample = decode_sample(line)
        except msgspec.ValidationError:
            rows = ("gpus", "processes")
            mended = with_possible_fields(line, Sample, rows, left_out) if len(line) <= MOST_MENDED else None
            if mended is None:
                raise
            sample = mended
        return bounded(sample, left_out=left_out)
    changes = msgspec.json.decode(line, type=ChangesLine).changes
    if before is None:
        raise msgspec.ValidationError("these are changes without a sample before them")
    if "taken_at" not in changes:
        raise msgspec.ValidationError("Object missing required field `taken_at`")
    return bounded(with_changes(before, changes, left_out), before, left_out)


class Samples(Sequence[Sample]):
    """Samples by number, added in the order of the file and read in the order of their times.

    One thread may add while another reads; `sort` is for when all are there.

    Attributes:
        times: when each was taken, in seconds since the epoch.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self._starts: list[int] = []
        self._blocks: list[list[bytes] | bytes] = []
        self._ready: OrderedDict[int, list[Sample]] = OrderedDict()
        self._order: Sequence[int] | None = None
        self._lock = threading.Lock()

    def add(self, line: bytes, sample: Sample) -> None:
        """Add the next line, and the sample in it."""
        with self._lock:
            if not self._starts or (is_whole(line) and len(self.times) - self._starts[-1] >= BLOCK):
                self._starts.append(len(self.times))
                self._blocks.append([])
                self._ready[len(self._blocks) - 1] = []
                self._make_room()
            block = self._blocks[-1]
            assert isinstance(block, list), "the last block is never put away while it grows"
            block.append(line)
            self._ready[len(self._blocks) - 1].append(sample)
            self.times.append(sample.taken_at)

    def sort(self) -> bool:
        """Put them in the order of their times; False if they are in it."""
        if all(one <= other for one, other in zip(self.times, self.times[1:], strict=False)):
            return False
        self._order = sorted(range(len(self.times)), key=self.times.__getitem__)
        self.times[:] = array("d", sorted(self.times))  # in place: others hold this array
        return True

    def in_hand(self) -> "Sequence[Sample]":
        """All of them in a tuple if they are few enough; otherwise these."""
        return tuple(self) if len(self._blocks) <= READY else self

    def __len__(self) -> int:
        return len(self.times)

    @overload
    def __getitem__(self, place: int) -> Sample: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sample]: ...
    def __getitem__(self, place: int | slice) -> "Sample | Sequence[Sample]":
        if isinstance(place, slice):
            return tuple(self[number] for number in range(*place.indices(len(self))))
        number = range(len(self))[place]
        if self._order is not None:
            number = self._order[number]
        with self._lock:
            block = bisect_right(self._starts, number) - 1
            samples = self._ready.get(block)
            if samples is not None:
                self._ready.move_to_end(block)
            else:
                stored = self._blocks[block]
                samples = []
                for line in zlib.decompress(stored).split(b"\n") if isinstance(stored, bytes) else stored:
                    samples.append(sample_in(line, samples[-1] if samples else None))
                self._ready[block] = samples
                self._make_room()
            return samples[number - self._starts[block]]

    def _make_room(self) -> None:
        while len(self._ready) > (READY if len(self._blocks) <= READY else OF_MORE):
            block, _ = self._ready.popitem(last=False)
            stored = self._blocks[block]
            if isinstance(stored, list):
                self._blocks[block] = zlib.compress(b"\n".join(stored), 1)
