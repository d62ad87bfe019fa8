"""Event traces and memory snapshots, whole, broken and hostile."""

import gzip
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.allocator.replay import AllocatorReplay, Event, replay
from vramtui.records.allocator_traces.memory_snapshot import read_allocator_trace
from vramtui.records.allocator_traces.trace import AllocatorTrace

GOLDEN = Path(__file__).parents[1] / "golden"
TRACES = sorted((GOLDEN / "traces").glob("*.jsonl.gz"))
MIB = 1 << 20
KINDS = {"a": "alloc", "f": "free_requested", "c": "free_completed", "A": "segment_alloc", "F": "segment_free"}
H200 = 150_109_880_320


def _entries(path: Path) -> list[dict[str, Any]]:
    """A recorded run's allocator events in a snapshot's form."""
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    return [
        {"action": KINDS[kind], "addr": entry[0], "size": entry[1], "stream": entry[2], "time_us": 1, "frames": []}
        for kind, *entry in lines
        if kind in KINDS
    ]


def _served(entries: list[dict[str, Any]]) -> CachingAllocator:
    """The allocator that a run leaves behind."""
    allocator = CachingAllocator(H200)
    live: dict[int, int] = {}
    for entry in entries:
        if entry["action"] == "alloc":
            live[entry["addr"]] = allocator.malloc(entry["size"], entry["stream"])
        elif entry["action"] == "free_requested":
            allocator.free(live.pop(entry["addr"]))
    return allocator


def _segments(allocator: CachingAllocator) -> list[dict[str, Any]]:
    return [
        {
            "device": 0,
            "address": segment.address,
            "total_size": segment.size,
            "stream": segment.stream,
            "segment_type": segment.pool,
            "segment_pool_id": (0, 0),
            "is_expandable": False,
            "blocks": [
                {"address": b.address, "size": b.size, "requested_size": b.requested, "state": b.state, "frames": []}
                for b in segment.blocks
            ],
        }
        for segment in allocator.segments()
    ]


def _snapshot(entries: list[dict[str, Any]], segments: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    traces = [entries, []]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": [], **more}


def _written(path: Path, value: object) -> Path:
    path.write_bytes(pickle.dumps(value))
    return path


def _run(trace: AllocatorTrace) -> AllocatorReplay:
    total = trace.total_memory or 1 << 50
    config = AllocatorConfig.parse(trace.alloc_conf)
    return replay(trace.events, CachingAllocator(total, config), trace.placed)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_a_snapshot_replays_to_what_pytorch_had(path: Path, tmp_path: Path) -> None:
    entries = _entries(path)
    file = _written(tmp_path / "s.pickle", _snapshot(entries, _segments(_served(entries))))
    trace = read_allocator_trace(file)
    assert trace.warnings == ()
    assert trace.placed == ()
    assert trace.recorded is not None
    stats = _run(trace).allocator.stats
    assert trace.recorded.reserved == sum(e["size"] for e in entries if e["action"] == "segment_alloc")
    assert stats.reserved == trace.recorded.reserved
    assert stats.peak_reserved == trace.recorded.peak_reserved
    assert stats.allocated == trace.recorded.allocated
    assert (stats.ooms, trace.recorded.ooms) == (0, 0)
    assert trace.recorded.peak_allocated is None  # a snapshot does not tell it


def test_a_trace_that_begins_late_places_what_was_live(tmp_path: Path) -> None:
    entries = _entries(TRACES[0])
    half = len(entries) // 2
    while entries[half - 1]["action"] == "free_requested":
        half += 1
    segments = _segments(_served(entries))
    trace = read_allocator_trace(_written(tmp_path / "s.pickle", _snapshot(entries[half:], segments)))
    before = _live(_served(entries[:half]))
    assert sorted(event.size for event in trace.placed) == sorted(before)
    assert any(f"begins with {len(before)} blocks" in warning for warning in trace.warnings)
    result = _run(trace)
    assert not result.refusals
    assert result.allocator.stats.requested == sum(_live(_served(entries)))
    assert len(result.rows) == len(trace.events)


def _live(allocator: CachingAllocator) -> list[int]:
    blocks = [block for segment in allocator.segments() for block in segment.blocks]
    return [block.requested for block in blocks if block.state == "active_allocated"]


def _entry(action: str, addr: int = 0, size: int = 0, stream: int = 0, **more: Any) -> dict[str, Any]:
    return {"action": action, "addr": addr, "size": size, "stream": stream, **more}


def test_old_blocks_without_addresses_are_placed_too(tmp_path: Path) -> None:
    segment = {
        "address": 4096,
        "total_size": 2 * MIB,
        "blocks": [
            {"size": 1024, "state": "active_allocated"},
            {"size": 512, "state": "inactive"},
            {"size": 2 * MIB - 1536, "state": "active_allocated"},
        ],
    }
    entries = [_entry("alloc", 4096 + 1536, 2 * MIB - 1536)]
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(entries, [segment])))
    assert [event.size for event in trace.placed] == [1024]


def test_cached_memory_at_the_start_is_told(tmp_path: Path) -> None:
    segment = {"address": 0, "total_size": 2 * MIB, "blocks": [{"size": 2 * MIB, "state": "inactive"}]}
    entries = [_entry("alloc", 0, 512), _entry("free_requested", 0, 512), _entry("free_completed", 0, 512)]
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(entries, [segment])))
    assert trace.warnings == ("the trace begins with 2.0 MiB cached, which the replay does not have",)


def test_a_block_that_waits_for_another_stream_stays_active(tmp_path: Path) -> None:
    entries = [
        _entry("segment_alloc", 0, 30 * MIB),
        _entry("alloc", 0, 30 * MIB),
        _entry("free_requested", 0, 30 * MIB),
        _entry("segment_alloc", 30 * MIB, 30 * MIB),
        _entry("alloc", 30 * MIB, 30 * MIB),
        _entry("free_completed", 0, 30 * MIB),
        _entry("alloc", 0, 30 * MIB),
    ]
    segments = [
        {"address": at, "total_size": 30 * MIB, "blocks": [{"size": 30 * MIB, "state": "active_allocated"}]}
        for at in (0, 30 * MIB)
    ]
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(entries, segments)))
    assert trace.warnings == ()
    stats = _run(trace).allocator.stats
    assert (stats.reserved, stats.allocated, stats.active) == (60 * MIB, 60 * MIB, 60 * MIB)


def test_empty_cache_is_seen_in_what_was_given_back(tmp_path: Path) -> None:
    entries = [
        _entry("segment_alloc", 0, 30 * MIB),
        _entry("alloc", 0, 30 * MIB),
        _entry("free_requested", 0, 30 * MIB),
        _entry("free_completed", 0, 30 * MIB),
        _entry("segment_free", 0, 30 * MIB),
        _entry("snapshot"),
    ]
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(entries, [])))
    assert [event.op for event in trace.events] == ["alloc", "free", "complete", "empty_cache"]
    assert trace.warnings == ()
    again = [*entries[:-1], _entry("segment_alloc", 0, 40 * MIB), _entry("alloc", 0, 40 * MIB)]
    segment = {"address": 0, "total_size": 40 * MIB, "blocks": [{"size": 40 * MIB, "state": "active_allocated"}]}
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(again, [segment])))
    assert [event.op for event in trace.events] == ["alloc", "free", "complete", "empty_cache", "alloc"]
    assert "taken for empty_cache" in trace.warnings[0]


def test_a_refused_request_tells_the_devices_memory(tmp_path: Path) -> None:
    refused = _entry("oom", 0, 90 * MIB, device_free=70 * MIB)
    del refused["addr"]
    entries = [
        _entry("segment_alloc", 0, 30 * MIB),
        _entry("alloc", 0, 30 * MIB),
        refused,
        _entry("free_requested", 0, 30 * MIB),
        _entry("free_completed", 0, 30 * MIB),
        _entry("segment_free", 0, 30 * MIB),
        _entry("segment_alloc", 0, 90 * MIB),
        _entry("alloc", 0, 90 * MIB),
    ]
    segment = {"address": 0, "total_size": 90 * MIB, "blocks": [{"size": 90 * MIB, "state": "active_allocated"}]}
    trace = read_allocator_trace(_written(tmp_path / "s", _snapshot(entries, [segment])))
    assert trace.total_memory == 100 * MIB
    assert "empty_cache" not in [event.op for event in trace.events]
    result = _run(trace)
    assert [refusal.event for refusal in result.refusals] == [1]
    assert (result.allocator.stats.ooms, result.allocator.stats.retries) == (1, 2)
    assert result.allocator.stats.reserved == 90 * MIB


def test_the_recorded_settings_are_followed(tmp_path: Path) -> None:
    entries = [_entry("alloc", 0, 512)]
    segment = {"address": 0, "total_size": 2 * MIB, "blocks": [{"size": 512, "state": "active_allocated"}]}
    for told, expected, warned in [
        ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, "max_split_size_mb:64", False),
        ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "expandable_segments:True", False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": True}, "expandable_segments:True", False),
        ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "", True),
    ]:
        snapshot = _snapshot(entries, [segment], allocator_settings=told)
        trace = read_allocator_trace(_written(tmp_path / "s", snapshot))
        assert trace.alloc_conf == expected
        assert any("recorded settings are not followed" in warning for warning in trace.warnings) == warned


def test_one_gpu_of_several(tmp_path: Path) -> None:
    snapshot = {
        "segments": [{"address": 0, "total_size": 2 * MIB, "device": 1, "blocks": []}],
        "device_traces": [[_entry("alloc", 0, 512)], [_entry("alloc", 0, 1024), _entry("alloc", 1024, 512)], []],
    }
    file = _written(tmp_path / "s", snapshot)
    trace = read_allocator_trace(file)
    assert len(trace.events) == 2
    assert "GPU 1 of 2 with events is followed; --gpu picks another" in trace.warnings
    assert [event.size for event in read_allocator_trace(file, gpu=0).events] == [512]
    with pytest.raises(UserError, match="no events of GPU 2, only of 0, 1"):
        read_allocator_trace(file, gpu=2)


class _Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("echo boom >&2",)


@pytest.mark.parametrize("gzipped", [False, True])
def test_a_pickle_that_would_run_code_is_one_sentence(
    gzipped: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = pickle.dumps({"segments": [], "device_traces": [[_Bomb()]]})
    file = tmp_path / "s.pickle"
    file.write_bytes(gzip.compress(content) if gzipped else content)
    with pytest.raises(UserError, match=r"it asks for posix\.system, and a pickle that does may run code"):
        read_allocator_trace(file)
    assert "boom" not in capfd.readouterr().err


@pytest.mark.parametrize("value", [Path(), {1}.__class__, print, object(), complex(1, 2)])
def test_nothing_but_plain_values_comes_out(value: object, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a plain memory snapshot"):
        read_allocator_trace(_written(tmp_path / "s", {"segments": [value]}))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "holds no events; they are kept only after torch.cuda.memory._record_memory_history()"),
        ({"segments": [], "device_traces": [[], []]}, "holds no events"),
        ({"device_traces": []}, "is not a memory snapshot"),
        ({"segments": [], "device_traces": [[{"action": 3}]]}, "device_traces[0][0].action: Expected `str`"),
        ({"segments": [], "device_traces": [[{"action": "alloc", "size": -1}]]}, "[0].size: Expected `int` >= 0"),
        (3, "is not a memory snapshot: Expected `object`, got `int`"),
    ],
)
def test_a_pickle_of_something_else_is_one_sentence(value: object, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        read_allocator_trace(_written(tmp_path / "s", value))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cut=st.integers(0, 400), flip=st.integers(0, 400), value=st.integers(0, 255))
def test_a_broken_pickle_is_one_sentence(cut: int, flip: int, value: int, tmp_path: Path) -> None:
    segment = {"address": 0, "total_size": 2 * MIB, "blocks": [{"size": 512, "state": "active_allocated"}]}
    content = bytearray(pickle.dumps(_snapshot([_entry("alloc", 0, 512)], [segment])))
    content[2 + flip % (len(content) - 2)] = value
    file = tmp_path / "s"
    file.write_bytes(content[: max(1, len(content) - cut)])
    try:
        trace = read_allocator_trace(file)
    except UserError as error:
        assert "\n" not in str(error)  # noqa: PT017 - either outcome is fine, only nothing else is
    else:
        assert isinstance(trace, AllocatorTrace)


def test_every_operation_of_an_event_trace(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = [
        {"op": "fraction", "value": 0.5},
        {"op": "alloc", "id": 1, "size": 100, "stream": 2},
        {"op": "record_stream", "id": 1, "stream": 3},
        {"op": "free", "id": 1},
        {"op": "synchronize", "stream": 3},
        {"op": "complete", "id": 1},
        {"op": "synchronize"},
        {"op": "reset_peaks"},
        {"op": "empty_cache"},
    ]
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"events": events}))
    trace = read_allocator_trace(file)
    assert trace.events == tuple(Event(**event) for event in events)
    assert (trace.recorded, trace.rows, trace.total_memory, trace.alloc_conf) == (None, None, None, "")
    assert _run(trace).allocator.stats.reserved == 0


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("", "neither an event trace (a JSON object) nor a memory snapshot (a pickle)"),
        ("[]", "neither an event trace"),
        ('{"events": [', "is not whole JSON (line 1, column"),
        ("{}", "Object missing required field `events`"),
        ('{"events": [{"op": "malloc", "id": 1}]}', "events[0].op: Invalid value 'malloc'"),
        ('{"events": [{"op": "alloc", "id": 1}]}', "events[0]: Object missing required field `size`"),
        ('{"events": [{"op": "alloc", "id": 1, "size": -1}]}', "events[0].size: Expected `int` >= 0"),
        ('{"events": [{"op": "alloc", "id": 1, "size": 1, "steam": 2}]}', "unknown field `steam`"),
        ('{"events": [{"op": "fraction", "value": 1.5}]}', "events[0].value: Expected `float` <= 1"),
        ('{"events": [{"op": "free", "id": 1}]}', "event 0 is free of id 1, which is not live"),
        (
            '{"events": [{"op": "alloc", "id": 1, "size": 1}, {"op": "alloc", "id": 1, "size": 1}]}',
            "event 1 allocates id 1, which is live already",
        ),
        ('{"events": [], "settings": {"total_memory": 0}}', "settings.total_memory: Expected `int` >= 1"),
        ('{"events": [], "columns": ["a"], "rows": [[1]]}', "1 rows for 0 events"),
        ('{"events": [], "columns": ["a"], "rows": [[1, 2]]}', "one number for each of columns"),
    ],
)
def test_a_wrong_event_trace_is_one_sentence(content: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(content)
    with pytest.raises(UserError) as caught:
        read_allocator_trace(file)
    assert sentence in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="none does not exist"):
        read_allocator_trace(tmp_path / "none")
    with pytest.raises(UserError, match="is not a plain file"):
        read_allocator_trace(tmp_path)
    whole = gzip.compress(b'{"events": []}')
    for broken in (whole[:-4], whole[:12] + b"\xff\xff\xff" + whole[15:], b"\x1f\x8b"):
        (tmp_path / "t.gz").write_bytes(broken)
        with pytest.raises(UserError, match="it is not a whole gzip file"):
            read_allocator_trace(tmp_path / "t.gz")


def test_a_gpu_is_for_snapshots(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"events": []}')
    with pytest.raises(UserError, match="--gpu is for memory snapshots"):
        read_allocator_trace(tmp_path / "t.json", gpu=0)
