"""The samples, predictions, peaks and probes' reports of a recording. Only some samples are held decoded: a day of a
crowded host would take gigabytes.

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

Reports of probes are for each job the changes since the line about it before: `{"job": {"at": …, "pid": …, "new": true,
"changes": {…}, "moments": […], "ooms": […]}}`: `changes` are those of its
`vramtui.core.observation.probe_messages.ObservedJob`; `moments` and `ooms` are added to those known before. `new`
starts another job with this pid. A limited number of bytes a second is written, however many jobs there are. A line
that has to wait has the state at the time when it is written, so the end of each job is exact and the way there less
so. The first steps have every phase; a later phase is written if its figures differ from those in the step before and
there is room.
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
from vramtui.core.observation import probe_messages
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


BYTES_A_SECOND = 2000
BURST = 1 << 20  # bytes at once: every job begins with its hello and its first steps

LATER_MOMENTS = 16  # in one line, of steps after the first
MOST_STATES = 30_000  # of all jobs, in memory while a recording is played
MOST_LIVE = 8192  # jobs of a recording that goes on, those that ended included
FREE_MOMENTS = 0.5  # of BURST that must be left for later moments

Figures = tuple[int | None, ...]


class JobLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    at: Annotated[float, Meta(ge=0, lt=1e12)]
    pid: probe_messages.Pid
    new: bool = False
    changes: Changes = {}
    moments: tuple[probe_messages.PhaseEnd, ...] = ()
    ooms: tuple[probe_messages.OutOfMemory, ...] = ()


class _Written(msgspec.Struct, kw_only=True):
    """The last line about a job, and the last figures of each phase on each device."""

    job: probe_messages.ObservedJob
    at: float
    noted: float
    ends: dict[tuple[int, str], Figures]


class WrittenJobs:
    """Makes the lines about jobs, sample after sample."""

    def __init__(self) -> None:
        self._written: dict[int, _Written] = {}
        self._credit = float(BURST)
        self._at: float | None = None

    def lines(self, at: float, jobs: Sequence[probe_messages.ObservedJob]) -> Iterator[bytes]:
        """The lines for the sample taken at `at`: new jobs and turns first, then the job that waited longest."""
        passed = 0.0 if self._at is None else max(0.0, at - self._at)
        self._at = at
        self._credit = min(float(BURST), self._credit + passed * BYTES_A_SECOND)
        waiting: list[tuple[bool, float, probe_messages.ObservedJob]] = []
        for job in jobs:
            written = self._written.get(job.pid)
            if written is None:
                waiting.append((False, 0.0, job))
            elif written.job is not job:
                waiting.append((not _is_turn(written.job, job), written.at, job))
        for _, _, job in sorted(waiting, key=lambda entry: entry[:2]):
            if self._credit <= 0:
                break
            line = msgspec.json.encode({"job": self._line(at, job)})
            self._credit -= len(line)
            yield line
        if len(self._written) > len(jobs):
            known = {job.pid for job in jobs}
            self._written = {pid: written for pid, written in self._written.items() if pid in known}

    def _line(self, at: float, job: probe_messages.ObservedJob) -> JobLine:
        before = self._written.get(job.pid)
        if before is not None and before.job.hello is not None and before.job.hello != job.hello:
            before = None  # another process with this pid
        noted = -1.0 if before is None else before.noted
        ends = {} if before is None else before.ends
        first, later = [], []
        for end in job.moments:
            figures = (end.allocated, end.reserved, end.peak_allocated, end.peak_reserved)
            if end.at > noted and end.step < probe_messages.FIRST_STEPS:
                first.append(end)
            elif end.at > noted and figures != ends.get((end.device, end.phase)):
                later.append(end)
            ends[end.device, end.phase] = figures
        if self._credit <= FREE_MOMENTS * BURST:
            later = []
        latest = max((end.at for end in job.moments), default=noted)
        last_oom = -1.0 if before is None else max((oom.at for oom in before.job.ooms), default=-1.0)
        self._written[job.pid] = _Written(job=job, at=at, noted=latest, ends=ends)
        old = probe_messages.ObservedJob(pid=job.pid) if before is None else before.job
        return JobLine(
            at=at,
            pid=job.pid,
            new=before is None,
            changes=changes_between(_without_lists(old), _without_lists(job)),
            moments=(*first, *later[-LATER_MOMENTS:]),
            ooms=tuple(oom for oom in job.ooms if oom.at > last_oom),
        )


def _without_lists(job: probe_messages.ObservedJob) -> probe_messages.ObservedJob:
    beat = job.beat and msgspec.structs.replace(job.beat, moments=())
    return msgspec.structs.replace(job, beat=beat, moments=(), ooms=())


def _is_turn(old: probe_messages.ObservedJob, new: probe_messages.ObservedJob) -> bool:
    """More happened to the job than that time went on."""
    return (old.hello, old.end, old.gone, len(old.ooms)) != (new.hello, new.end, new.gone, len(new.ooms))


class ReadJobs:
    """The state of each job at any moment of a recording; one thread may add while another reads.

    Beyond `most` states of all jobs, every second one without a turn goes: the oldest are thinned most. Without
    `keeps_past` only the latest state of `MOST_LIVE` jobs is kept.
    """

    def __init__(self, most: int = MOST_STATES, *, keeps_past: bool = True) -> None:
        self._keeps_past = keeps_past
        self._last: dict[int, probe_messages.ObservedJob] = {}
        self._known: dict[int, tuple[list[float], list[probe_messages.ObservedJob]]] = {}
        self._most = self._next_thinning = most
        self._count = 0

    def take(self, line: JobLine) -> None:
        """Add the next line.

        Raises:
            msgspec.ValidationError: it does not make a job.
        """
        times, states = self._known.get(line.pid, ([], []))
        former = None if line.new else self._last.get(line.pid)
        job = with_changes(former or probe_messages.ObservedJob(pid=line.pid), {**line.changes, "pid": line.pid})
        moments = probe_messages.latest_moments(job.moments, line.moments) if line.moments else job.moments
        job = msgspec.structs.replace(job, moments=moments, ooms=(*job.ooms, *line.ooms)[-probe_messages.LATEST :])
        self._last[line.pid] = job
        if not self._keeps_past:
            self._known[line.pid] = [line.at], [job]
            if len(self._known) > MOST_LIVE:
                gone = (pid for pid, (_, states) in self._known.items() if states[-1].gone)
                forgotten = next(gone, next(iter(self._known)))
                del self._known[forgotten], self._last[forgotten]
            return
        place = bisect_right(times, line.at)  # not always the end: the clock may have been set back
        states.insert(place, job)  # before its time: another thread looks for times
        times.insert(place, line.at)
        self._known[line.pid] = times, states
        self._count += 1
        if self._count > self._next_thinning:
            for pid, (times, states) in self._known.items():
                last = len(times) - 1
                stay = [
                    at for at in range(last + 1) if at % 2 == 0 or at == last or _is_turn(states[at - 1], states[at])
                ]
                self._known[pid] = [times[at] for at in stay], [states[at] for at in stay]
            self._count = sum(len(times) for times, _ in self._known.values())
            # Turns always stay; without this margin each line would look through them again.
            self._next_thinning = max(self._most, self._count + self._most // 4)

    def at(self, when: float) -> tuple[probe_messages.ObservedJob, ...]:
        """Each job as it was known at `when`, seconds since the epoch."""
        # A copy: another thread may add meanwhile.
        states_then = ((states, bisect_right(times, when)) for times, states in list(self._known.values()))
        return tuple(states[place - 1] for states, place in states_then if place)
