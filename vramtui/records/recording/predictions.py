"""What was predicted, in a recording: each prediction once, and which process had which from when on.

`{"prediction": {"number": 0, "preset": …, "title": …, "workload": {…}, "device": {…}, "estimate": {…}}}` is one as
`vramtui.core.estimate.estimate.Prediction` has it: the preset's key and name, its exact workload, the card, and the
estimate with its Ledger. `{"matched": {"at": …, "processes": [{"host", "gpu_uuid", "pid", "started_at", "prediction":
0}]}}` says which processes have another prediction than before, by its number; null is none. `at` is the time of the
sample at which it was noted.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from vramtui.core.base.compatibility import with_known_fields
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Prediction
from vramtui.core.observation.readings import ProcessKey, Sample, process_key
from vramtui.core.schema.workload import Workload

MOST_PREDICTIONS = 1000  # so that a day of stepping through batch sizes fits in a file as well

Number = Annotated[int, Meta(ge=0)]


class PredictionLine(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a Prediction, and the number that it is called by in its recording; `workload` is one as JSON."""

    preset: str
    title: str
    workload: msgspec.Raw
    device: Device
    estimate: Estimate
    number: Number


class MatchedProcess(msgspec.Struct, frozen=True, kw_only=True):
    """A process, and the number of its prediction; None where it has none from now on."""

    host: str
    gpu_uuid: str
    pid: int
    started_at: float | None
    prediction: Number | None


class MatchedLine(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's text."""

    at: Annotated[float, Meta(ge=0, lt=1e12)]
    processes: tuple[MatchedProcess, ...]


class WrittenPredictions:
    """Makes the lines about predictions, sample after sample."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, Workload, Device], int] = {}
        self._matched: dict[ProcessKey, tuple[Prediction, int]] = {}

    def lines(self, sample: Sample, predictions: Mapping[ProcessKey, Prediction]) -> Iterator[bytes]:
        """The lines for `sample`, in which these processes have predictions."""
        changed: list[MatchedProcess] = []
        for key, prediction in predictions.items():
            before = self._matched.get(key)
            if before is not None and before[0] is prediction:
                continue
            number = self._numbers.get((prediction.preset, prediction.workload, prediction.device))
            if number is None:
                if len(self._numbers) >= MOST_PREDICTIONS:
                    continue
                number = self._number(prediction)
                yield _line(prediction, number)
            self._matched[key] = prediction, number
            if before is None or before[1] != number:
                changed.append(_process(key, number))
        if len(self._matched) > len(predictions):
            changed += self._lost(sample, predictions)
        if changed:
            yield msgspec.json.encode({"matched": MatchedLine(at=sample.taken_at, processes=tuple(changed))})

    def _number(self, prediction: Prediction) -> int:
        number = len(self._numbers)
        self._numbers[prediction.preset, prediction.workload, prediction.device] = number
        return number

    def _lost(self, sample: Sample, predictions: Mapping[ProcessKey, Prediction]) -> list[MatchedProcess]:
        """Processes that are still there without the prediction they had; of those that are gone nothing is said."""
        here = {process_key(sample.host.name, gpu, row) for gpu in sample.gpus for row in gpu.processes}
        lost = [key for key in self._matched if key not in predictions]
        for key in lost:
            del self._matched[key]
        return [_process(key, None) for key in lost if key in here]


class ReadPredictions:
    """Which process had which prediction at any moment of a recording."""

    def __init__(self) -> None:
        self._known: dict[int, Prediction] = {}
        self._unreadable: set[int] = set()
        self._times: dict[ProcessKey, list[float]] = {}
        self._numbers: dict[ProcessKey, list[int | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._known)

    def know(self, line: PredictionLine) -> bool:
        """Note one more prediction; False where it is of a model or a run that this version does not know."""
        fields = {name: getattr(line, name) for name in Prediction.__struct_fields__}
        try:
            fields["workload"] = with_known_fields(bytes(line.workload), Workload)
        except msgspec.ValidationError:
            self._unreadable.add(line.number)
            return False
        self._known[line.number] = Prediction(**fields)
        return True

    def take(self, line: MatchedLine) -> None:
        """Note which processes have which.

        Raises:
            msgspec.ValidationError: there is no prediction of that number before this line.
        """
        for process in line.processes:
            is_known = process.prediction is None or process.prediction in self._known
            if not is_known and process.prediction not in self._unreadable:
                raise msgspec.ValidationError(f"there is no prediction {process.prediction} before it")
            key = ProcessKey(process.host, process.gpu_uuid, process.pid, process.started_at)
            times, numbers = self._times.get(key, []), self._numbers.setdefault(key, [])
            place = bisect_right(times, line.at)
            # The number first: somebody may look meanwhile, and looks for times.
            numbers.insert(place, process.prediction if is_known else None)
            times.insert(place, line.at)
            self._times[key] = times

    def every(self) -> tuple[Prediction, ...]:
        """All predictions of the recording, in the order in which they were made."""
        return tuple(self._known.values())

    def at(self, when: float) -> dict[ProcessKey, Prediction]:
        """The prediction of each process that had one at `when`, seconds since the epoch."""
        predictions = {}
        for key, times in list(self._times.items()):
            place = bisect_right(times, when)
            number = self._numbers[key][place - 1] if place else None
            if number is not None:
                predictions[key] = self._known[number]
        return predictions


def _line(prediction: Prediction, number: int) -> bytes:
    fields = {name: getattr(prediction, name) for name in Prediction.__struct_fields__}
    fields["workload"] = msgspec.Raw(msgspec.json.encode(prediction.workload))
    return msgspec.json.encode({"prediction": PredictionLine(**fields, number=number)})


def _process(key: ProcessKey, number: int | None) -> MatchedProcess:
    return MatchedProcess(
        host=key.host, gpu_uuid=key.gpu_uuid, pid=key.pid, started_at=key.started_at, prediction=number
    )
