"""Playing a recording into a session, from any place on.

Samples, peaks, reports of jobs and predictions are those of the time that is shown.
"""

import re
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator, Prediction
from vramtui.core.observation.history import History, Peak
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.jobs import Presets

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.monitor.session import MonitorSession

SPEEDS = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
SLICE = 0.02  # seconds at a time that samples are gone through without a look at keys and screen
QUIET = 120  # samples gone through at once from which alerts on the way are not reported


class NotThereError(UserError):
    """A time that the recording does not have, as far as it is read."""


class PlaybackPosition:
    """A position in the `times` of samples that moves with the clock while it plays, and stops at the end."""

    __slots__ = ("_clock", "_looked_at", "_times", "playing", "position", "speed")

    def __init__(self, times: Sequence[float], clock: Callable[[], float] = time.monotonic) -> None:
        self._times, self._clock = times, clock
        self._looked_at = clock()
        self.position = times[0]
        self.speed = SPEEDS[0]
        self.playing = True

    @property
    def start(self) -> float:
        return self._times[0]

    @property
    def end(self) -> float:
        return self._times[-1]

    @property
    def count(self) -> int:
        """Number of samples up to the position; the last of them is the one to show."""
        return max(1, bisect_right(self._times, self.position))

    def advance(self) -> None:
        now = self._clock()
        passed, self._looked_at = now - self._looked_at, now
        if self.playing:
            self.position = min(self.end, self.position + max(0.0, passed) * self.speed)
            self.playing = self.position < self.end

    def toggle(self) -> None:
        """Play or pause; at the end, play from the start."""
        self.advance()
        if not self.playing and self.position >= self.end:
            self.position = self.start
        self.playing = not self.playing

    def step(self, samples: int) -> None:
        """Pause, that many samples further on or back."""
        self.playing = False
        self.position = self._times[min(len(self._times), max(1, self.count + samples)) - 1]

    def seek(self, position: float) -> None:
        """Go to the position, or to the nearer end; keep playing if it played."""
        self.advance()
        self.position = min(self.end, max(self.start, position))

    def faster(self, direction: int) -> float:
        """Change to the next speed up (1) or down (-1), and return it."""
        self.advance()
        self.speed = SPEEDS[min(len(SPEEDS) - 1, max(0, SPEEDS.index(self.speed) + direction))]
        return self.speed

    def place(self, text: str) -> float:
        """Return the time meant by `12:03:20`, `+90`, `-1m30s` or `50%`.

        In a recording of several days, a time of the day is the one nearest to the position.

        Raises:
            NotThereError: the recording does not have this time.
            UserError: the text is none of these.
        """
        text = text.strip().lower()
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*%", text):
            return self.start + (self.end - self.start) * min(100.0, float(match[1])) / 100
        if text[:1] in {"+", "-"}:
            length, seconds = text[1:].strip(), 0.0
            if match := re.fullmatch(r"(?:(\d+):)?(\d+):(\d{2})", length):
                seconds = int(match[1] or 0) * 3600 + int(match[2]) * 60 + int(match[3])
            elif (match := re.fullmatch(r"(?:(\d+)h)?\s*(?:(\d+)m)?\s*(?:(\d+(?:\.\d+)?)s?)?", length)) and length:
                seconds = int(match[1] or 0) * 3600 + int(match[2] or 0) * 60 + float(match[3] or 0)
            else:
                raise UserError(f"{length!r} is not a duration; write +90, +1m30s, -2h or +1:30")
            return self.position + (seconds if text[0] == "+" else -seconds)
        match = re.fullmatch(r"(\d{1,2}):(\d{2})(?::(\d{2}(?:\.\d+)?))?", text)
        if match is None or int(match[1]) > 23 or int(match[2]) > 59 or float(match[3] or 0) >= 60:
            raise UserError(f"{text!r} is not a position in a recording; write 12:03:20, +90, -1m30s or 50%")
        hour, minute, second = int(match[1]), int(match[2]), float(match[3] or 0)
        first = time.localtime(self.start)
        meant = [
            time.mktime((first.tm_year, first.tm_mon, first.tm_mday + day, hour, minute, 0, 0, 0, -1)) + second
            for day in range(int((self.end - self.start) // 86400) + 2)
        ]
        # The screen shows times without fractions of a second.
        inside = [at for at in meant if self.start - 1 < at <= self.end]
        if not inside:
            span = f"{clock(self.start)} to {clock(self.end)}"
            raise NotThereError(f"{text} is not in the recording, which goes from {span}")
        return min(inside, key=lambda at: abs(at - self.position))


def clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))


class Recorded(Protocol):
    """A recording as the dashboard plays it; times are seconds since the epoch."""

    @property
    def samples(self) -> Sequence[Sample]:
        """The samples in the order of their times; at least one."""

    @property
    def times(self) -> Sequence[float]: ...

    @property
    def reading(self) -> float | None:
        """How much of the file is read, from 0 to 1; None at its end."""

    @property
    def warnings(self) -> Sequence[str]:
        """Problems of the file, as far as it is read."""

    def jobs_at(self, when: float) -> "Sequence[ObservedJob]": ...

    def predictions_at(self, when: float) -> Mapping[ProcessKey, Prediction]: ...

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """Return the peaks noted at the sample of `when` that no sample shows."""

    def every_prediction(self) -> Sequence[Prediction]: ...


class RecordedEstimates:
    """Answers with the recorded estimates, and asks `estimator` about everything else."""

    __slots__ = ("_estimator", "_recorded", "name")

    def __init__(self, estimator: Estimator, predictions: Sequence[Prediction]) -> None:
        self.name = estimator.name
        self._estimator = estimator
        self._recorded: dict[tuple[Workload, Device], Estimate] = {}
        self.learn(predictions)

    def learn(self, predictions: Sequence[Prediction]) -> None:
        self._recorded.update({(one.workload, one.device): one.estimate for one in predictions})

    def knows(self, workload: Workload, device: Device) -> bool:
        return (workload, device) in self._recorded

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        recorded = self._recorded.get((workload, device))
        return self._estimator.estimate(workload, device) if recorded is None else recorded


class ReplayFeed:
    """Brings a session, which gets the recording's jobs and predictions from now on, to the playback's position, and
    delivers the sample of that position. Earlier ones go only into the history. Then it waits for `arrived`.

    Attributes:
        playback: the position.
        seeking: how much of a long way is done, from 0 to 1; None at the position.
        reading: how much of the file is read; None at its end.
    """

    __slots__ = (
        "_aim", "_awaited", "_deliver", "_estimates", "_fed", "_history", "_is_quiet", "_library", "_recording",
        "_session", "_sought", "_warned", "playback", "reading", "seeking",
    )  # fmt: skip

    def __init__(
        self,
        recording: Recorded,
        session: "MonitorSession",
        deliver: Callable[[Sample], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._recording, self._session, self._deliver = recording, session, deliver
        self.playback = PlaybackPosition(recording.times, clock)
        self.seeking: float | None = None
        self.reading: float | None = None
        self._warned = len(recording.warnings)
        self._library: Presets | None = None
        self._history = session.history
        self._fed = 0  # samples in the history
        self._aim = 0  # samples that it will have at the position
        self._is_quiet = False
        self._awaited: Sample | None = None
        self._sought = ""  # a place that the user typed and that is not read yet
        predictor = session.predictor
        self._estimates = RecordedEstimates(predictor.estimator, recording.every_prediction())
        predictor.answer_by(self._estimates)
        session.jobs = lambda: recording.jobs_at(self._at)
        session.recorded_peaks = recording.peaks_at

    def start(self) -> None:
        self._fed = 1
        self._arrive(self._recording.samples[0])

    def advance(self) -> bool:
        played, was = self.playback.playing, self.reading
        self.reading = self._recording.reading
        if was is not None:
            self._estimates.learn(self._recording.every_prediction())
        self.playback.advance()
        self.follow()
        return played or was is not None

    def follow(self) -> None:
        """Begin to go to the playback's position, unless that has begun."""
        wanted = self.playback.count
        if self.seeking is not None or self._awaited is not None or wanted == self._fed:
            return
        self._is_quiet = wanted < self._fed or wanted - self._fed > QUIET
        if wanted < self._fed:
            self._history, self._fed = History(), 0
        self._aim = wanted
        self.go_on()

    def go_on(self) -> None:
        """Go through samples for a moment, and deliver the last one on arrival. Call it again while `seeking`."""
        samples = self._recording.samples
        until = time.monotonic() + SLICE
        while self._fed < self._aim - 1:
            sample = samples[self._fed]
            self._history.add(sample)
            self._session.note_recorded_peaks(self._history, sample.taken_at)
            self._fed += 1
            if time.monotonic() > until and self._fed < self._aim - 1:
                self.seeking = self._fed / self._aim
                return
        self.seeking = None
        self._fed = self._aim
        self._session.history = self._history
        if self._is_quiet:
            self._session.restart_alerts()
        self._arrive(samples[self._aim - 1])

    def arrived(self, sample: Sample) -> None:
        """Note that the session has `sample`, and follow the position, which may have moved."""
        if sample is self._awaited:
            self._awaited = None
            self.follow()

    @property
    def is_there(self) -> bool:
        """True if the session is at the playback's position."""
        return self.seeking is None and self._awaited is None and self._fed == self.playback.count

    def _arrive(self, sample: Sample) -> None:
        self._awaited = sample
        self._expect(sample.taken_at)
        self._deliver(sample)

    def new_warnings(self) -> Sequence[str]:
        """Return the problems in the part of the file read since the last call."""
        warnings = self._recording.warnings
        new, self._warned = warnings[self._warned :], len(warnings)
        return new

    def retry(self) -> str:
        """Go to the place that was typed before it was read; return the problem, or nothing."""
        return self.seek(self._sought) if self._sought else ""

    def seek(self, text: str) -> str:
        """Go to the place that the user typed; return the problem, or nothing. If it is not read yet, `retry` goes."""
        if self.reading is not None and text.strip().endswith("%"):
            self._sought = text  # the length is not known yet
            return ""
        self._sought = ""
        try:
            self.playback.seek(self.playback.place(text))
        except NotThereError as error:
            if self.reading is None:
                return str(error)
            self._sought = text
        except UserError as error:
            return str(error)
        self.follow()
        return ""

    def knows(self, workload: Workload, device: Device) -> bool:
        return self._estimates.knows(workload, device)

    def take_library(self, presets: Presets) -> None:
        """Know today's presets; recorded predictions that differ from them get presets of their own."""
        self._library = presets
        self._expect(self._at)

    @property
    def _at(self) -> float:
        return self._session.sample.taken_at if self._session.sample is not None else 0.0

    def _expect(self, when: float) -> None:
        """Give each process the preset that it was predicted by then."""
        if self._library is None:
            return
        keys: dict[int, str] = {}
        expected: dict[ProcessKey, str | None] = {}
        for process, prediction in self._recording.predictions_at(when).items():
            if id(prediction) not in keys:
                keys[id(prediction)] = self._preset_of(prediction)
            expected[process] = keys[id(prediction)]
        self._session.recorded = expected

    def _preset_of(self, prediction: Prediction) -> str:
        """Return the key of a preset with that workload: today's, or one made from the recording."""
        today = None if self._library is None else self._library.find(prediction.preset)
        if today is not None and today.preset.workload == prediction.workload:
            return today.key
        key = f"{prediction.preset} (recorded)"
        known = self._session.presets.get(key)
        if known is None or known.preset.workload != prediction.workload:
            workload = prediction.workload
            preset = Preset(
                name=prediction.title,
                notes="As it was when the recording was made.",
                model=workload.model,
                run=workload.run,
                parallel=workload.parallel,
            )
            self._session.add_preset(PresetFile(key=key, path="", bundled=False, preset=preset))
        return key
