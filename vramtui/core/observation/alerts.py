"""Alerts, each raised once when it begins and again only after it was over; and the meaning of NVIDIA's XID errors, by
the page "Xid Errors" of its GPU deployment guide (r580).

One alert is about steady growth and when it reaches the limit; a job that has taken its pool does not grow.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import chain, pairwise
from pathlib import Path

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.estimate.estimate import PHASE_TITLES, USUAL_ERROR, Estimate
from vramtui.core.observation.history import SET_BACK, History, Track, TrackTable
from vramtui.core.observation.readings import Gpu, ProcessKey, Sample
from vramtui.core.schema.settings import AlertRules, Kind

WINDOW = 300.0  # seconds looked back
LEAST_SPAN = 60.0
LEAST_RISES = 6
LEAST_GROWTH = 64 << 20  # bytes in the window
STEADY = 0.9  # share of the changes in the window that go up
PREDICTED: frozenset[Kind] = frozenset({"will_not_fit", "over"})
"""Kinds that need a prediction."""
XID_STANDS = 600.0  # seconds for which the last error of a GPU is shown as something to know now
# Seconds, and samples if they are far apart: trends take minutes, and a search reads thousands of series.
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
    """The steady growth of a series whose points are the changes of its value, or None.

    Steady growth rises repeatedly in each third of the last minutes, hardly ever falls, and does not come all at once.
    """
    first = bisect_left(times, now - WINDOW)
    if len(times) - first <= LEAST_RISES or now - times[first] < LEAST_SPAN:
        return None
    grown = values[-1] - values[first]
    if grown < LEAST_GROWTH:
        return None
    steps = [after - before for before, after in pairwise(values[first:])]
    rises = sum(step > 0 for step in steps)
    if rises < STEADY * len(steps) or max(steps) > grown / 2:
        return None
    start, width = times[first], (now - times[first]) / 3
    places = (bisect_right(times, start + width * third) - 1 for third in range(4))
    levels = [values[max(place, first)] for place in places]
    thirds = [(after - before) / width for before, after in pairwise(levels)]
    return Trend(grown / (now - start), min(thirds), max(thirds)) if min(thirds) > 0 else None


class Alert(msgspec.Struct, frozen=True, kw_only=True):
    """Something to know now, about a GPU or one of its processes."""

    kind: Kind
    gpu_uuid: str
    gpu_index: int
    process: ProcessKey | None
    sentence: str


Place = tuple[Kind, str, ProcessKey | None]


class _State(msgspec.Struct):
    """An alert, raised or not, with its first and last time."""

    began: float
    last: float
    alert: Alert
    is_raised: bool = False


class Alerts:
    """Watches samples go by."""

    def __init__(self, rules: AlertRules | None = None) -> None:
        self.rules = rules or AlertRules()
        self._states: dict[Place, _State] = {}
        self._growing: dict[str, tuple[float, int, list[Alert]]] = {}
        self._looks = 0
        self._looked_at = float("-inf")

    @property
    def standing(self) -> tuple[Alert, ...]:
        return tuple(state.alert for state in self._states.values() if state.is_raised)

    def update(
        self,
        sample: Sample,
        history: History,
        predicted: Mapping[ProcessKey, Estimate | None],
        reported: Iterable[Alert] = (),
    ) -> tuple[Alert, ...]:
        """Look at a sample that the history has taken already.

        Returns:
            What begins now, to be said once.
        """
        now = sample.taken_at
        if self._looked_at - now > SET_BACK:
            for known in self._states.values():
                known.began, known.last = known.began + now - self._looked_at, now
        self._looked_at = now
        self._looks += 1
        begins: list[Alert] = []
        seen = (alert for gpu in sample.gpus for alert in self._of_gpu(sample, gpu, history, predicted))
        for alert in chain(seen, reported):
            if alert.kind not in self.rules.kinds:
                continue
            place = (alert.kind, alert.gpu_uuid, alert.process)
            state = self._states.get(place)
            if state is None:
                state = self._states[place] = _State(now, now, alert)
            state.last = now
            state.alert = alert
            patience = 0.0 if alert.kind in {"lost", "xid", "out_of_memory"} else self.rules.after
            if not state.is_raised and now - state.began >= patience:
                state.is_raised = True
                begins.append(state.alert)
        for place, state in list(self._states.items()):
            # An alert that was not raised is forgotten at once; a raised one has to stay away for a while.
            if state.last < now - (self.rules.until if state.is_raised else 0.0):
                del self._states[place]
        return tuple(begins)

    def _of_gpu(
        self, sample: Sample, gpu: Gpu, history: History, predicted: Mapping[ProcessKey, Estimate | None]
    ) -> Iterable[Alert]:
        if gpu.state == "lost":
            yield _alert("lost", gpu, None, f"GPU {gpu.index} is lost: {gpu.reason or 'it does not answer'}")
        if gpu.xid_errors and sample.taken_at - gpu.xid_errors[-1].at < XID_STANDS:
            yield _alert("xid", gpu, None, f"GPU {gpu.index} reported {xid_sentence(gpu.xid_errors[-1].code)}")
        if gpu.state != "ok":
            return
        left_behind = sum(size or 0 for one, size in zip(gpu.facts, gpu.sizes, strict=True) if one.state == "exited")
        if left_behind > self.rules.held:
            sentence = f"exited processes still hold {format_bytes(left_behind)} of GPU {gpu.index}"
            yield _alert("held_by_exited", gpu, None, sentence)
        here = history.here(sample.host.name, gpu.uuid)
        for row in gpu.facts if predicted else ():
            track = here.get(row.pid)
            estimate = predicted.get(track.key) if track is not None else None
            if track is not None and estimate is not None and row.state != "exited":
                pid, process, free = track.key.pid, estimate.process, gpu.memory.free
                if not process or track.last_used is None:
                    continue
                allowed, peak = USUAL_ERROR if estimate.error is None else estimate.error, _most(track)
                if peak > process * (1 + allowed):
                    sentence = f"pid {pid} holds {format_bytes(peak - process)} more than predicted"
                    yield _alert("over", gpu, track.key, sentence)
                # Cached memory counts as used, so the rest has to be free.
                if free is not None and process - peak > free and peak < process * (1 - allowed):
                    phase = PHASE_TITLES[estimate.peak_phase]
                    when = phase if estimate.peak_step is None else f"step {estimate.peak_step + 1} ({phase})"
                    has = f"GPU {gpu.index} has {format_bytes(free)} free"
                    sentence = f"pid {pid} will need {format_bytes(process - peak)} more in {when}; {has}"
                    yield _alert("will_not_fit", gpu, track.key, sentence)
        yield from self._growths(sample, gpu, here, predicted)

    def _growths(
        self, sample: Sample, gpu: Gpu, here: TrackTable, predicted: Mapping[ProcessKey, Estimate | None]
    ) -> Iterable[Alert]:
        """Growing processes, searched now and then: there may be thousands, and trends take a minute."""
        since, look, growths = self._growing.get(gpu.uuid, (float("inf"), 0, []))
        past, free = sample.taken_at - since, gpu.memory.free
        if past < 0 or (past >= GROWTH_EVERY and self._looks >= look + GROWTH_LOOKS):
            growths = []
            facts = gpu.facts if free is not None else ()
            for row, used, track in zip(facts, gpu.sizes, here.of(facts)):  # noqa: B905 - no facts, or all alike
                if track is None or track.peak is None or used is None or row.state == "exited":
                    continue
                estimate = predicted.get(track.key)
                # A growing process is at its peak, and growth up to the prediction is expected.
                if used < track.peak.bytes or (estimate is not None and _most(track) <= estimate.process):
                    continue
                trend = trend_of(track.times, track.values, sample.taken_at)
                if free is None or trend is None:
                    continue
                soonest, latest = trend.reaches(free)
                if soonest <= self.rules.horizon:
                    when = f"{format_duration(soonest)} to {format_duration(latest)}"
                    a_minute = format_bytes(round(trend.slope * 60))
                    sentence = f"pid {row.pid} grows by {a_minute} a minute: GPU {gpu.index} is full in {when}"
                    growths.append(_alert("growth", gpu, track.key, sentence))
            self._growing[gpu.uuid] = (sample.taken_at, self._looks, growths)
        yield from growths


def _most(track: Track) -> int:
    return max(track.last_used or 0, track.peak.bytes if track.peak else 0)


def _alert(kind: Kind, gpu: Gpu, process: ProcessKey | None, sentence: str) -> Alert:
    return Alert(kind=kind, gpu_uuid=gpu.uuid, gpu_index=gpu.index, process=process, sentence=sentence)


@cache
def xid_sentence(code: int) -> str:
    meaning = toml.loads(Path(__file__).with_name("xids.toml").read_text(encoding="utf-8")).get(str(code))
    return f"XID {code}: {meaning}" if meaning else f"XID {code} (see NVIDIA's list of Xid errors)"
