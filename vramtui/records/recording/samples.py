"""The samples, predictions and peaks of a recording. Only some samples are held decoded: a day of a crowded host would
take gigabytes.

They are kept in blocks of lines as in the file; each block begins with a whole sample. The blocks used last are held
decoded; the others are compressed, and decoded again when somebody asks.

Most lines are the fields that changed, so that a day of a crowded host fits in some tens of megabytes.
`{"utilization": 12, "memory": {"used": 1}, "processes": {"3": {"used_memory": 1}}}`: an object has only the fields that
differ, by their names in `vramtui.core.observation`. Rows that are still the same GPUs, processes or devices are
numbered by their places in the list before; otherwise the whole list is there.

Predictions and peaks: `{"prediction": {"number": 0, "preset": …, "title": …, "workload": {…}, "device": {…},
"estimate": {…}}}` is a `vramtui.core.estimate.estimate.Prediction`, written once. `{"processes": {"at": …,
"processes": [{"host", "gpu_uuid", "pid", "started_at", "prediction": 0, "peak": {"bytes", "at", "how", "interval"}}]}}`
has the processes whose prediction changed (by its number; null removes it), or whose lifetime peak no sample shows: it
was seen before the recording began or between two samples. `at` is the time of the sample.
"""

import threading
import zlib
from array import array
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Prediction
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import Process, ProcessKey, Sample, decode_sample, process_key
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.schema.workload import Workload

BLOCK = 30  # samples at least; a whole one comes once a minute
READY = 120  # blocks held decoded: two hours with a sample each second
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


def with_changes(old: Value, changes: Changes) -> Value:
    """The value after `old`; what did not change is shared between the two. Fields of a newer version are ignored.

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
            values[name] = with_changes(was, change)
        elif isinstance(change, dict) and name in ROWS:
            rows = list(was)
            for place, inner in msgspec.convert(change, dict[int, Changes], strict=False, str_keys=True).items():
                if not 0 <= place < len(rows):
                    raise msgspec.ValidationError(f"number {place} is missing in the sample before")
                rows[place] = with_changes(rows[place], inner)
            values[name] = tuple(rows)
        else:
            values[name] = msgspec.convert(change, fields[name].type, strict=False, str_keys=True)
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
    if is_whole(line):
        return bounded(decode_sample(line))
    changes = msgspec.json.decode(line, type=ChangesLine).changes
    if before is None:
        raise msgspec.ValidationError("these are changes without a sample before them")
    if "taken_at" not in changes:
        raise msgspec.ValidationError("Object missing required field `taken_at`")
    return bounded(with_changes(before, changes), before)


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


MOST_PREDICTIONS = 1000  # so that a day of stepping through batch sizes fits in a file too
FORGOTTEN = 4096  # processes that ended, before their peaks are forgotten
MOST_WAITING = 1 << 16  # peaks of a recording that goes on, whose sample has not come

Number = Annotated[int, Meta(ge=0)]


class PredictionLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Prediction and its number in the recording; `workload` is JSON."""

    preset: str
    title: str
    workload: msgspec.Raw
    device: Device
    estimate: Estimate
    number: Number


class ProcessEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A process, the number of its prediction from now on, and its peak."""

    host: str
    gpu_uuid: str
    pid: int
    started_at: float | None
    prediction: Number | UnsetType | None = UNSET
    peak: Peak | None = None

    @property
    def key(self) -> ProcessKey:
        return ProcessKey(self.host, self.gpu_uuid, self.pid, self.started_at)


class ProcessesLine(msgspec.Struct, frozen=True, kw_only=True):
    at: Annotated[float, Meta(ge=0, lt=1e12)]
    processes: tuple[ProcessEntry, ...]


class WrittenProcesses:
    """Makes the lines about predictions and peaks, sample after sample."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Workload, Device], int] = {}
        self._matched: dict[ProcessKey, tuple[Prediction, int]] = {}
        self._peaks: dict[ProcessKey, int] = {}

    def lines(self, tick: RecordedTick) -> Iterator[bytes]:
        sample, predictions = tick.sample, tick.predictions
        changed: dict[ProcessKey, int | None] = {}
        for key, prediction in predictions.items():
            before = self._matched.get(key)
            if before is not None and before[0] is prediction:
                continue
            which = (prediction.preset, prediction.workload, prediction.device)
            number = self._numbers.get(which)
            if number is None:
                if len(self._numbers) >= MOST_PREDICTIONS:
                    continue
                number = self._numbers[which] = len(self._numbers)
                fields = {name: getattr(prediction, name) for name in Prediction.__struct_fields__}
                fields["workload"] = msgspec.Raw(msgspec.json.encode(prediction.workload))
                yield msgspec.json.encode({"prediction": PredictionLine(**fields, number=number)})
            self._matched[key] = prediction, number
            if before is None or before[1] != number:
                changed[key] = number
        if len(self._matched) > len(predictions):
            # A process that ended needs no line.
            here = {process_key(sample.host.name, gpu, row) for gpu in sample.gpus for row in gpu.facts}
            for key in [key for key in self._matched if key not in predictions]:
                del self._matched[key]
                if key in here:
                    changed[key] = None
        peaks = {}
        for key, peak in tick.peaks.items():
            if peak.bytes > self._peaks.get(key, -1) and peak.at <= sample.taken_at:
                self._peaks[key] = peak.bytes
                if peak.at != sample.taken_at:  # else the sample shows it
                    peaks[key] = peak
        if len(self._peaks) > len(tick.peaks) + FORGOTTEN:
            self._peaks = {key: size for key, size in self._peaks.items() if key in tick.peaks}
        if changed or peaks:
            entries = tuple(
                ProcessEntry(
                    host=key.host,
                    gpu_uuid=key.gpu_uuid,
                    pid=key.pid,
                    started_at=key.started_at,
                    prediction=changed.get(key, UNSET),
                    peak=peaks.get(key),
                )
                for key in changed | peaks
            )
            yield msgspec.json.encode({"processes": ProcessesLine(at=sample.taken_at, processes=entries)})


class ReadProcesses:
    """The predictions and peaks of a recording; one thread may add while another reads. Without `keeps_past` it keeps
    no predictions, and `MOST_WAITING` peaks until their sample comes.
    """

    def __init__(self, *, keeps_past: bool = True) -> None:
        self._keeps_past = keeps_past
        self._known: dict[int, Prediction | None] = {}  # None: made by a newer version
        self._times: dict[ProcessKey, list[float]] = {}
        self._numbers: dict[ProcessKey, list[int | None]] = {}
        self._peaks: dict[float, list[tuple[ProcessKey, Peak]]] = {}

    def know(self, line: PredictionLine) -> bool:
        """Add a prediction; False if its model or run is unknown to this version."""
        fields = {name: getattr(line, name) for name in Prediction.__struct_fields__}
        try:
            fields["workload"] = msgspec.json.decode(line.workload, type=Workload)
        except msgspec.ValidationError:
            self._known[line.number] = None
            return False
        self._known[line.number] = Prediction(**fields)
        return True

    def take(self, line: ProcessesLine) -> None:
        """Add the next line.

        Raises:
            msgspec.ValidationError: a number has no prediction before this line.
        """
        for entry in line.processes:
            if entry.peak is not None:
                self._peaks.setdefault(line.at, []).append((entry.key, entry.peak))
            if entry.prediction is UNSET or not self._keeps_past:
                continue
            if entry.prediction is not None and entry.prediction not in self._known:
                raise msgspec.ValidationError(f"prediction {entry.prediction} is missing")
            times, numbers = self._times.get(entry.key, []), self._numbers.setdefault(entry.key, [])
            place = bisect_right(times, line.at)
            numbers.insert(place, entry.prediction)  # before its time: another thread looks for times
            times.insert(place, line.at)
            self._times[entry.key] = times
        while not self._keeps_past and sum(map(len, list(self._peaks.values()))) > MOST_WAITING:
            self._peaks.pop(min(self._peaks))

    def every_prediction(self) -> tuple[Prediction, ...]:
        """All predictions of the recording, in the order in which they were made."""
        return tuple(prediction for prediction in list(self._known.values()) if prediction is not None)

    def predictions_at(self, when: float) -> dict[ProcessKey, Prediction]:
        """The prediction of each process that had one at `when`, seconds since the epoch."""
        predictions = {}
        for key, times in list(self._times.items()):
            place = bisect_right(times, when)
            number = self._numbers[key][place - 1] if place else None
            prediction = None if number is None else self._known[number]
            if prediction is not None:
                predictions[key] = prediction
        return predictions

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks noted at the sample that was taken at exactly `when`."""
        return self._peaks.get(when, ())

    def pop_peaks(self, until: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks noted at samples up to that time, which are then forgotten."""
        due = [when for when in list(self._peaks) if when <= until]
        return [entry for when in due for entry in self._peaks.pop(when, ())]
