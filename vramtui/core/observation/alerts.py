"""What is about to go wrong, each said once when it begins and not again until it was over; and what the numbers of
NVIDIA's XID errors mean, by the page "Xid Errors" of its GPU deployment guide (r580).

Among it: whether memory grows steadily, and when it would reach a limit. A job that has taken its pool does not grow.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.estimate.estimate import PHASE_TITLES, USUAL_ERROR, Estimate
from vramtui.core.observation.history import SET_BACK, History
from vramtui.core.observation.readings import Gpu, ProcessKey, Sample
from vramtui.core.observation.track import Track
from vramtui.core.schema.settings import AlertRules, Kind

WINDOW = 300.0  # seconds looked back
LEAST_SPAN = 60.0
LEAST_RISES = 6
LEAST_GROWTH = 64 << 20  # bytes in the window
STEADY = 0.9  # share of the changes in the window that go up
PREDICTED: frozenset[Kind] = frozenset({"will_not_fit", "over"})
"""Kinds that speak of a prediction."""
XID_STANDS = 600.0  # seconds for which the last error of a GPU is shown as something to know now
# Seconds, and looks where they are far apart: trends take minutes, and a look reads what thousands of processes held.
GROWTH_EVERY, GROWTH_LOOKS = 15.0, 5


class Trend(msgspec.Struct, frozen=True):
    """Growth in bytes a second; it was between `slow` and `fast` over the parts of the window."""

    slope: float
    slow: float
    fast: float

    def reaches(self, room: int) -> tuple[float, float]:
        """Seconds until `room` more bytes are taken: the soonest and the latest."""
        return room / self.fast, room / self.slow if self.slow > 0 else float("inf")


def trend_of(times: Sequence[float], values: Sequence[int], now: float) -> Trend | None:
    """The growth of a series whose points stand where its value changed; None where it is no steady growth.

    Steady is: rising again and again in each third of the last minutes, nearly never falling, and not all at once.
    """
    first = bisect_left(times, now - WINDOW)
    if len(times) - first <= LEAST_RISES or now - times[first] < LEAST_SPAN:
        return None
    grown = values[-1] - values[first]
    if grown < LEAST_GROWTH:
        return None
    points = list(zip(times[first:], values[first:], strict=True))
    steps = [after - before for (_, before), (_, after) in pairwise(points)]
    rises = sum(step > 0 for step in steps)
    if rises < STEADY * len(steps) or max(steps) > grown / 2:
        return None
    thirds = _by_thirds(points, now)
    if min(thirds) <= 0:
        return None
    return Trend(grown / (now - points[0][0]), min(thirds), max(thirds))


def _by_thirds(points: list[tuple[float, int]], now: float) -> list[float]:
    """Bytes a second in each third of the time since the first point."""
    start, width = points[0][0], (now - points[0][0]) / 3
    levels = [_value_at(points, start + width * third) for third in range(4)]
    return [(after - before) / width for before, after in pairwise(levels)]


def _value_at(points: list[tuple[float, int]], at: float) -> int:
    known = [value for time, value in points if time <= at]
    return known[-1] if known else points[0][1]


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something a person should know now. `gpu_index`, and `process` where one is to blame, say where."""

    kind: Kind
    gpu_uuid: str
    gpu_index: int
    process: ProcessKey | None
    sentence: str
    since: float


Place = tuple[Kind, str, ProcessKey | None]


class _State(msgspec.Struct):
    """One place where something was wrong: since when, last when, and whether it was said."""

    began: float
    last: float
    alert: Alert
    is_raised: bool = False


class Alerts:
    """Watches samples go by.

    Args:
        rules: what is worth an alert.
    """

    def __init__(self, rules: AlertRules | None = None) -> None:
        self.rules = rules or AlertRules()
        self._states: dict[Place, _State] = {}
        self._growing: dict[str, tuple[float, int, list[Alert]]] = {}
        self._looks = 0
        self._looked_at = float("-inf")

    @property
    def standing(self) -> tuple[Alert, ...]:
        """What is wrong now, the oldest first."""
        return tuple(state.alert for state in self._states.values() if state.is_raised)

    def update(
        self,
        sample: Sample,
        history: History,
        predicted: Mapping[ProcessKey, Estimate | None],
        reported: Iterable[Alert] = (),
    ) -> tuple[Alert, ...]:
        """Look at a sample that the history has taken already.

        Args:
            sample: the moment.
            history: all that was seen before.
            predicted: the estimate for each matched process.
            reported: what jobs told of themselves.

        Returns:
            What begins now, to be said once.
        """
        now = sample.taken_at
        if self._looked_at - now > SET_BACK:
            for known in self._states.values():
                known.began, known.last = known.began + now - self._looked_at, now
                known.alert = msgspec.structs.replace(known.alert, since=known.began)
        self._looked_at = now
        self._looks += 1
        begins: list[Alert] = []
        wanted = (alert for alert in reported if alert.kind in self.rules.kinds)
        for alert in (*self._find_alerts(sample, history, predicted), *wanted):
            place = (alert.kind, alert.gpu_uuid, alert.process)
            state = self._states.get(place)
            if state is None:
                state = self._states[place] = _State(now, now, alert)
            state.last = now
            state.alert = msgspec.structs.replace(alert, since=state.began)
            if not state.is_raised and now - state.began >= self._patience(alert.kind):
                state.is_raised = True
                begins.append(state.alert)
        for place in [place for place, state in self._states.items() if self._is_over(state, now)]:
            del self._states[place]
        return tuple(begins)

    def _patience(self, kind: Kind) -> float:
        return 0.0 if kind in {"lost", "xid", "out_of_memory"} else self.rules.after

    def _is_over(self, state: _State, now: float) -> bool:
        """What was never said is forgotten at once; what was said has to stay away for a while."""
        return state.last < now - (self.rules.until if state.is_raised else 0.0)

    def _find_alerts(
        self, sample: Sample, history: History, predicted: Mapping[ProcessKey, Estimate | None]
    ) -> Iterable[Alert]:
        for gpu in sample.gpus:
            for alert in self._of_gpu(sample, gpu, history, predicted):
                if alert.kind in self.rules.kinds:
                    yield alert

    def _of_gpu(
        self, sample: Sample, gpu: Gpu, history: History, predicted: Mapping[ProcessKey, Estimate | None]
    ) -> Iterable[Alert]:
        if gpu.state == "lost":
            yield _alert("lost", gpu, None, f"GPU {gpu.index} is lost: {gpu.reason or 'it does not answer'}")
        if gpu.xid_errors and sample.taken_at - gpu.xid_errors[-1].at < XID_STANDS:
            yield _alert("xid", gpu, None, f"GPU {gpu.index} reported {xid_sentence(gpu.xid_errors[-1].code)}")
        if gpu.state != "ok":
            return
        left_behind = sum(row.used_memory or 0 for row in gpu.processes if row.state == "exited")
        if left_behind > self.rules.held:
            sentence = f"exited processes still hold {format_bytes(left_behind)} of GPU {gpu.index}"
            yield _alert("held_by_exited", gpu, None, sentence)
        here = history.here(sample.host.name, gpu.uuid)
        for row in gpu.processes if predicted else ():
            track = here.get(row.pid)
            estimate = predicted.get(track.key) if track is not None else None
            if track is not None and estimate is not None and row.state != "exited":
                yield from _against_prediction(gpu, track.key, track, estimate)
        yield from self._growths(sample, gpu, here, predicted)

    def _growths(
        self, sample: Sample, gpu: Gpu, here: Mapping[int, Track], predicted: Mapping[ProcessKey, Estimate | None]
    ) -> Iterable[Alert]:
        """What grows: looked into now and then, for there may be thousands of processes and trends take a minute."""
        since, look, growths = self._growing.get(gpu.uuid, (float("inf"), 0, []))
        past = sample.taken_at - since
        if past < 0 or (past >= GROWTH_EVERY and self._looks >= look + GROWTH_LOOKS):
            growths = []
            for row in gpu.processes:
                track = here.get(row.pid)
                if track is None or track.peak is None or row.used_memory is None or row.state == "exited":
                    continue
                estimate = predicted.get(track.key)
                # What grows is at its peak, and growth up to what was predicted is no news.
                if row.used_memory < track.peak.bytes or (estimate is not None and _most(track) <= estimate.process):
                    continue
                growths += self._growth(gpu, track.key, track, sample.taken_at)
            self._growing[gpu.uuid] = (sample.taken_at, self._looks, growths)
        yield from growths

    def _growth(self, gpu: Gpu, key: ProcessKey, track: Track, now: float) -> Iterable[Alert]:
        free = gpu.memory.free
        trend = trend_of(track.times, track.values, now)
        if free is None or trend is None:
            return
        soonest, latest = trend.reaches(free)
        if soonest > self.rules.horizon:
            return
        yield _alert("growth", gpu, key, _growing(gpu, key, trend, soonest, latest))


def _against_prediction(gpu: Gpu, key: ProcessKey, track: Track, estimate: Estimate | None) -> Iterable[Alert]:
    used, free = track.last_used, gpu.memory.free
    if estimate is None or not estimate.process or used is None:
        return
    allowed = USUAL_ERROR if estimate.error is None else estimate.error
    peak = _most(track)
    if peak > estimate.process * (1 + allowed):
        sentence = f"pid {key.pid} holds {format_bytes(peak - estimate.process)} more than predicted"
        yield _alert("over", gpu, key, sentence)
    to_come = estimate.process - peak
    # Cached memory counts as used, so what is still to come has to be free.
    if free is not None and to_come > free and peak < estimate.process * (1 - allowed):
        phase = PHASE_TITLES[estimate.peak_phase]
        when = phase if estimate.peak_step is None else f"step {estimate.peak_step + 1} ({phase})"
        sentence = (
            f"pid {key.pid} will need {format_bytes(to_come)} more in {when}; "
            f"GPU {gpu.index} has {format_bytes(free)} free"
        )
        yield _alert("will_not_fit", gpu, key, sentence)


def _most(track: Track) -> int:
    return max(track.last_used or 0, track.peak.bytes if track.peak else 0)


def _growing(gpu: Gpu, key: ProcessKey, trend: Trend, soonest: float, latest: float) -> str:
    when = f"{format_duration(soonest)} to {format_duration(latest)}"
    a_minute = format_bytes(round(trend.slope * 60))
    return f"pid {key.pid} grows by {a_minute} a minute: GPU {gpu.index} is full in {when}"


def _alert(kind: Kind, gpu: Gpu, process: ProcessKey | None, sentence: str) -> Alert:
    return Alert(kind=kind, gpu_uuid=gpu.uuid, gpu_index=gpu.index, process=process, sentence=sentence, since=0.0)


MEANINGS: Final[dict[int, str]] = {
    13: "a kernel of a job failed, or touched memory that it may not (graphics engine exception)",
    31: "a job touched memory that it does not have (GPU memory page fault)",
    32: "a job's commands arrived damaged: driver, PCIe or the job itself (invalid push buffer)",
    38: "the driver's firmware failed",
    43: "a job's own error ended its work on the GPU; the GPU is in order",
    45: "a job's work was cleaned up after an earlier error, or because the job was ended",
    48: "memory has an error of two bits that cannot be corrected: reset the GPU",
    61: "a microcontroller of the GPU warns",
    62: "a microcontroller of the GPU stands still: reset the GPU",
    63: "a row of memory was noted to be replaced: it is at the next reset",
    64: "a row of memory could not be noted to be replaced: reset the GPU",
    68: "the video decoder failed",
    69: "a kernel of a job failed (graphics engine class error)",
    74: "an NVLink connection failed: see both GPUs at its ends",
    79: "the GPU has fallen off the bus: restart the host, then look at power, heat and its seat",
    92: "many errors of one bit in memory, all corrected",
    94: "an uncorrectable memory error ended the job that had that memory, and no other",
    95: "an uncorrectable memory error that other jobs may have met as well: reset the GPU",
    109: "a job's context could not be switched in time",
    119: "the GPU's own processor (GSP) does not answer the driver: reset the GPU",
    120: "the GPU's own processor (GSP) failed: reset the GPU",
    137: "a job used another GPU's memory without leave over NVLink",
    140: "memory has an error that could not be corrected: reset the GPU",
    143: "the GPU could not be initialised",
    154: "the driver says that the GPU has to be reset, or the host restarted",
}


def xid_sentence(code: int) -> str:
    """The number and what it means, as far as it is known here."""
    meaning = MEANINGS.get(code)
    return f"XID {code}: {meaning}" if meaning else f"XID {code} (see NVIDIA's list of Xid errors)"
