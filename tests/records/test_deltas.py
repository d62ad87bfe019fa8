"""A sample and what changed make the sample after it, for any two samples of one host."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.moments import moment
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Process, Sample, encode_sample
from vramtui.records.recording.deltas import Delta, DeltaLine, difference, following

maybe = st.none() | st.integers(0, 1 << 40)
processes = st.builds(
    Process,
    pid=st.integers(1, 4),
    type=st.sampled_from(["C", "G", "C+G"]),
    used_memory=maybe,
    peak_memory=maybe,
    command=st.none() | st.sampled_from(["a", "b"]),
    started_at=st.none() | st.just(5.0),
    state=st.sampled_from(["running", "exited"]),
    absent=st.dictionaries(st.just("used_memory"), st.sampled_from(Absence), max_size=1),
)
gpus = st.builds(
    Gpu,
    index=st.just(0),
    uuid=st.just("GPU-0"),
    name=st.just("NVIDIA H200"),
    state=st.sampled_from(["ok", "lost"]),
    memory=st.builds(Memory, total=maybe, used=maybe),
    processes=st.lists(processes, max_size=3).map(tuple),
    utilization=st.none() | st.integers(0, 100),
    compute_capability=st.none() | st.just((9, 0)),
    throttle_reasons=st.none() | st.lists(st.sampled_from(["power cap", "idle"]), max_size=2).map(tuple),
    final_peaks=st.dictionaries(st.integers(1, 9), st.integers(0, 9), max_size=2),
)
samples = st.builds(
    Sample,
    taken_at=st.floats(0, 1e9),
    source=st.just("nvml"),
    host=st.builds(Host, name=st.just("gpu01"), cpu_percent=st.none() | st.floats(0, 100)),
    gpus=st.lists(gpus, min_size=1, max_size=1).map(tuple),
)


def through_json(delta: Delta) -> Delta:
    return msgspec.json.decode(msgspec.json.encode(DeltaLine(delta)), type=DeltaLine).delta


@given(samples, samples)
def test_there_and_back(before: Sample, after: Sample) -> None:
    delta = difference(before, after)
    assert delta is not None
    assert following(before, through_json(delta), []) == after


def test_what_did_not_change_costs_nothing_and_is_shared() -> None:
    sample = moment().sample
    later = msgspec.structs.replace(sample, taken_at=sample.taken_at + 1)
    delta = difference(sample, later)
    assert delta == Delta(taken_at=later.taken_at)
    assert following(sample, through_json(delta), []).gpus[0] is sample.gpus[0]


def test_a_processs_cpu_waits_for_the_next_whole_sample() -> None:
    before = moment().sample
    busy = before.gpus[0]
    first = msgspec.structs.replace(busy.processes[0], cpu_percent=1.0, used_memory=77)
    gpu = msgspec.structs.replace(busy, processes=(first, *busy.processes[1:]))
    after = msgspec.structs.replace(before, gpus=(gpu, *before.gpus[1:]))
    delta = difference(before, after)
    assert delta is not None
    assert delta.gpus == {0: {"processes": {"0": {"used_memory": 77}}}}


def test_other_devices_need_a_whole_sample() -> None:
    sample = moment().sample
    assert difference(sample, msgspec.structs.replace(sample, gpus=sample.gpus[1:])) is None


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({9: {"index": 1}}, "there is no number 9"),
        ({0: {"index": "one"}}, "Expected `int`"),
        ({0: {"processes": {"99": {}}}}, "there is no number 99"),
        ({0: {"processes": 3}}, "neither a list nor an object"),
        ({0: {"processes": {"x": {}}}}, "Expected `int`"),
        ({0: {"processes": [{}]}}, "missing required field"),
    ],
)
def test_a_delta_that_does_not_follow_is_refused(changes: dict[int, dict[str, object]], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        following(moment().sample, Delta(taken_at=1.0, gpus=changes), [])


def test_a_field_of_a_newer_version_is_passed_over() -> None:
    sample = moment().sample
    changes: dict[str, object] = {
        "colour": "red",
        "utilization": 5,
        "processes": {"0": {"colour": 1, "used_memory": 9}},
    }
    after = following(sample, Delta(taken_at=1.0, gpus={0: changes}), [])
    assert (after.gpus[0].utilization, after.gpus[0].processes[0].used_memory) == (5, 9)


def test_nothing_of_the_sample_before_is_changed() -> None:
    before = moment().sample
    was = encode_sample(before)
    following(before, Delta(taken_at=1.0, gpus={0: {"processes": {"0": {"used_memory": 1}}, "index": 7}}), [])
    assert encode_sample(before) == was
