"""Predictions and peaks of processes in a recording.

`{"prediction": {"number": 0, "preset": …, "title": …, "workload": {…}, "device": {…}, "estimate": {…}}}` is a
`vramtui.core.estimate.estimate.Prediction`, written once. `{"processes": {"at": …, "processes": [{"host", "gpu_uuid",
"pid", "started_at", "prediction": 0, "peak": {"bytes", "at", "how", "interval"}}]}}` has the processes whose prediction
changed (by its number; null removes it), or whose lifetime peak no sample shows: it was seen before the recording began
or between two samples. `at` is the time of the sample.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from vramtui.core.base.compatibility import with_known_fields
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Prediction
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import ProcessKey, process_key
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.schema.workload import Workload

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
    """See the module's text."""

    at: Annotated[float, Meta(ge=0, lt=1e12)]
    processes: tuple[ProcessEntry, ...]


class WrittenProcesses:
    """Makes the lines about predictions and peaks, sample after sample."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Workload, Device], int] = {}
        self._matched: dict[ProcessKey, tuple[Prediction, int]] = {}
        self._peaks: dict[ProcessKey, int] = {}

    def lines(self, tick: RecordedTick) -> Iterator[bytes]:
        """The lines for one sample."""
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
            here = {process_key(sample.host.name, gpu, row) for gpu in sample.gpus for row in gpu.processes}
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
            fields["workload"] = with_known_fields(bytes(line.workload), Workload)
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
