from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.moments import moment
from tests.tables import rows
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Process, Sample, encode_sample
from vramtui.records.recording.samples import changes_between, with_changes

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
    gpus=st.lists(gpus, max_size=2).map(tuple),
)


def through_json(before: Sample, after: Sample) -> dict[str, Any]:
    changes: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(changes_between(before, after)))
    return changes


@given(samples, samples)
def test_there_and_back(before: Sample, after: Sample) -> None:
    assert with_changes(before, through_json(before, after)) == after


def test_what_did_not_change_costs_nothing_and_a_newer_field_is_ignored() -> None:
    sample = moment().sample
    changes = through_json(sample, msgspec.structs.replace(sample, taken_at=sample.taken_at + 1))
    assert changes == {"taken_at": sample.taken_at + 1}
    assert with_changes(sample, changes).gpus[0] is sample.gpus[0]
    before = moment().sample
    busy = before.gpus[0]
    first = msgspec.structs.replace(busy.processes[0], cpu_percent=1.0, used_memory=77)
    gpu = msgspec.structs.replace(busy, processes=(first, *busy.processes[1:]))
    after = msgspec.structs.replace(before, gpus=(gpu, *before.gpus[1:]))
    assert through_json(before, after) == {"gpus": {"0": {"processes": {"0": {"used_memory": 77}}}}}
    sample = moment().sample
    was = encode_sample(sample)
    changes = {"colour": "red", "utilization": 5, "processes": {"0": {"colour": 1, "used_memory": 9}}}
    after = with_changes(sample, {"gpus": {"0": changes}, "fleet": 1})
    assert (after.gpus[0].utilization, after.gpus[0].processes[0].used_memory) == (5, 9)
    assert encode_sample(sample) == was


@pytest.mark.parametrize(("changes", "said"), rows(__file__, "changes_that_do_not_fit_are_refused"))
def test_changes_that_do_not_fit_are_refused(changes: dict[str, object], said: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=said):
        with_changes(moment().sample, {"gpus": changes})
