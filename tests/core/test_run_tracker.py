"""What is kept of jobs that are watched: when a word on them is due, and what it says."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, ledger_from_parts
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import Beat, End, Hello, MemoryCounters, ObservedJob, ProbeDevice
from vramtui.core.observation.readings import Gpu, Host, ProcessKey, Sample
from vramtui.core.observation.readings import Process as Reading
from vramtui.core.runs.run import Run
from vramtui.core.runs.run_tracker import EVERY, MOST_POINTS, REFINED_EVERY, RunTracker, thinned
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import TrainRun

PRESET = PresetFile(
    key="p",
    path="p.toml",
    bundled=True,
    preset=Preset(
        name="P",
        model=TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=2, vocab_size=100),
        run=TrainRun(batch_size=8),
    ),
)
KEY = ProcessKey("h", "GPU-1", 7, 990.0)


def sample(at: float, used: int | None) -> Sample:
    """The job's process holding `used` bytes; without it where that is None."""
    processes = (
        () if used is None else (Reading(pid=7, type="C", used_memory=used, command="python t.py", started_at=990.0),)
    )
    gpu = Gpu(index=0, uuid="GPU-1", name="NVIDIA H200", processes=processes)
    return Sample(taken_at=at, source="test", host=Host(name="h", driver_version="580.1"), gpus=(gpu,))


def predict(found: PresetFile, device: Device) -> Estimate | None:
    assert device.name == "NVIDIA H200"
    ledger = ledger_from_parts({"weights": 10 * GIB}, reserved=11 * GIB, context=GIB)
    return Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step") if found.key == "p" else None


class TrackedHost:
    """Feeds samples; `says` has the runs that were due, sample by sample."""

    def __init__(self, job: ObservedJob | None = None) -> None:
        self.job = job
        self.history = History()
        self.predict = predict
        self.watched = RunTracker(self._predict, lambda pid, _uuid: (self.job, 0) if self.job and pid == 7 else None)

    def _predict(self, found: PresetFile, device: Device) -> Estimate | None:
        return self.predict(found, device)

    def take(self, at: float, used: int | None, preset: PresetFile | None = PRESET) -> list[Run]:
        taken = sample(at, used)
        self.history.add(taken)
        return self.watched.update(taken, self.history, {KEY: preset} if used is not None and preset else {})


def test_a_life() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(1000.0, GIB)
    assert (first.key, first.source, first.ending) == ("h/GPU-1/7/990", "watched", "running")
    assert (first.preset, first.model_kind, first.run_kind) == ("p", "transformer", "train")
    assert (first.workload["run"] or {})["batch_size"] == 8
    assert first.versions == {"driver": "580.1"}
    assert (first.method, first.predicted.process, first.predicted.weights) == ("analytic", 12 * GIB, 10 * GIB)
    assert tracked.take(1000.0 + EVERY - 1, 9 * GIB) == []
    (second,) = tracked.take(1000.0 + EVERY, 2 * GIB)
    assert second.observed.process == 9 * GIB
    assert second.error == pytest.approx(-0.25)
    assert (second.times, second.values) == ((10.0, 69.0, 70.0), (GIB, 9 * GIB, 2 * GIB))
    (last,) = tracked.take(1065.0, None)
    assert (last.ended_at, last.ending, last.key) == (1065.0, "exited", first.key)
    assert tracked.take(2000.0, None) == []
    assert tracked.watched.last_runs(tracked.history) == []


def test_a_clock_that_is_set_back_makes_no_run_end_before_it_began() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(90_000.0, GIB)
    (second,) = tracked.take(90_001.0 - 3 * 3600, 2 * GIB)  # said at once, and not when the clock has come as far again
    assert second.key == first.key
    assert second.seen_until is not None
    assert second.seen_until >= second.started_at
    assert list(second.times) == sorted(second.times)
    (last,) = tracked.take(90_002.0 - 3 * 3600 - 89_500, None)
    assert last.key == first.key
    assert last.ended_at is not None
    assert last.ended_at >= last.started_at
    assert min(last.times) >= 0


def test_a_nearer_estimate_is_told_before_the_minute_is_over() -> None:
    tracked = TrackedHost()
    (first,) = tracked.take(1000.0, GIB)
    assert first.method == "analytic"

    def nearer(found: PresetFile, device: Device) -> Estimate | None:
        estimate = predict(found, device)
        return estimate and msgspec.structs.replace(estimate, method="simulated")

    tracked.predict = nearer
    assert tracked.take(1000.0 + REFINED_EVERY - 1, GIB) == []
    (second,) = tracked.take(1000.0 + REFINED_EVERY, GIB)
    assert second.method == "simulated"
    assert tracked.take(1000.0 + 2 * REFINED_EVERY, GIB) == [], "and once"


def test_a_quick_estimate_is_kept_of_a_job_that_is_over_alone() -> None:
    """One that goes on has no prediction until the nearer one is there: the history has no mark for a quick figure."""
    quick = {"is": True}
    tracked = TrackedHost()
    tracked.watched = RunTracker(predict, lambda _pid, _uuid: None, lambda _preset, _device: quick["is"])
    (first,) = tracked.take(1000.0, GIB)
    assert (first.method, first.predicted.process, first.error) == ("", None, None)
    assert tracked.take(1000.0 + REFINED_EVERY, GIB) == [], "nothing new is known"
    (given,) = tracked.watched.last_runs(tracked.history)
    assert given.predicted.process == 12 * GIB
    quick["is"] = False
    (second,) = tracked.take(1000.0 + 2 * REFINED_EVERY, GIB)
    assert (second.method, second.predicted.process) == ("analytic", 12 * GIB)
    quick["is"] = True
    (last,) = tracked.take(1000.0 + 3 * REFINED_EVERY, None)
    assert last.predicted.process == 12 * GIB


def test_what_the_job_tells_itself() -> None:
    hello = Hello(
        v=1,
        pid=7,
        at=1.0,
        torch="2.9.0",
        devices=(ProbeDevice(index=0, name="H200", total_memory=GIB, capability=(9, 0), uuid="1"),),
    )
    counters = MemoryCounters(index=0, allocated_peak=8 * GIB, reserved_peak=9 * GIB)
    beat = Beat(v=1, pid=7, at=2.0, step=1, devices=(counters,), parts={"weights": {"cuda:0": GIB}})
    tracked = TrackedHost(ObservedJob(pid=7).heard(hello).heard(beat))
    (early,) = tracked.take(1000.0, 2 * GIB)
    assert (early.peak_how, early.observed.process, early.observed.reserved) == ("probe", None, 9 * GIB)
    tracked.take(1001.0, 9 * GIB + 500)
    assert tracked.job is not None
    tracked.job = tracked.job.heard(End(v=1, pid=7, at=3.0, error="OutOfMemoryError", out_of_memory=True))
    (last,) = tracked.take(1002.0, None)
    assert (last.ending, last.observed.context, last.observed.weights) == ("out_of_memory", 500, GIB)
    assert last.observed.activations == 7 * GIB
    assert last.versions["torch"] == "2.9.0"


def test_another_preset_is_told_at_once_and_none_ends_it() -> None:
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    other = msgspec.structs.replace(PRESET, key="q")
    (told,) = tracked.take(1001.0, GIB, other)
    assert (told.preset, told.method, told.predicted.process) == ("q", "", None)
    assert tracked.take(1002.0, GIB, None) == []
    assert tracked.take(1100.0, GIB, None) == []
    assert tracked.take(1101.0, None) == []


def test_the_rest_is_what_still_goes_on() -> None:
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    tracked.take(1010.0, 3 * GIB)
    (rest,) = tracked.watched.last_runs(tracked.history)
    assert (rest.ending, rest.seen_until, rest.observed.process) == ("running", 1010.0, 3 * GIB)


def test_a_card_that_does_not_answer_ends_nothing() -> None:
    tracked = TrackedHost()
    tracked.take(1000.0, GIB)
    silent = msgspec.structs.replace(sample(1001.0, None).gpus[0], state="lost")
    taken = msgspec.structs.replace(sample(1001.0, None), gpus=(silent,))
    tracked.history.add(taken)
    assert tracked.watched.update(taken, tracked.history, {}) == []
    assert tracked.take(1000.0 + EVERY, GIB)


@given(st.lists(st.integers(0, 1 << 40), max_size=5 * MOST_POINTS))
def test_a_thinned_series_is_short_and_keeps_its_peak(values: list[int]) -> None:
    times, kept = thinned(list(map(float, range(len(values)))), values)
    assert len(times) == len(kept) <= MOST_POINTS
    assert max(kept, default=None) == max(values, default=None)
    assert times == sorted(times)
    assert all(values[int(at)] == value for at, value in zip(times, kept, strict=True))
    if len(values) <= MOST_POINTS:
        assert kept == values
