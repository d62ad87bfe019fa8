"""The simulated allocator beside PyTorch 2.13's own answers, after every event."""

import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from vramtui.estimators.allocator.caching import AllocatorOutOfMemoryError, CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.torch_facts.releases import RULES

GOLDEN = Path(__file__).parents[1] / "golden"
TRACES = sorted((GOLDEN / "allocator").glob("*.json.gz"))
REAL = sorted((GOLDEN / "real").glob("*.json.gz"))
UNLIMITED = 1 << 46
# The counters of a row; `oom` is the event's own: how many requests it saw refused.
COLUMNS = (
    "allocated", "reserved", "active", "requested", "inactive_split", "segments", "active_blocks",
    "inactive_split_blocks", "peak_allocated", "peak_reserved", "retries", "oom",
)  # fmt: skip


class Replay(NamedTuple):
    """The counters after every event, as in `COLUMNS`, and the allocator as it was left."""

    rows: list[list[int]]
    allocator: CachingAllocator


def _read(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def _run(document: Any, release: tuple[int, int] = RULES) -> Replay:
    settings = document.get("settings", {"total_memory": UNLIMITED, "env": {}})
    config = AllocatorConfig.parse(settings["env"].get("PYTORCH_CUDA_ALLOC_CONF", ""))
    allocator = CachingAllocator(settings["total_memory"], config, release)
    blocks: dict[int, int] = {}
    rows = []
    for event in document["events"]:
        refused = 0
        match event["op"]:
            case "alloc":
                try:
                    blocks[event["id"]] = allocator.malloc(event["size"], event.get("stream") or 0)
                except AllocatorOutOfMemoryError:
                    refused = 1
            case "free":
                # The request for this name may have been refused here and served where the trace was made.
                block = blocks.pop(event["id"], None)
                if block is not None:
                    allocator.free(block)
            case "empty_cache":
                allocator.empty_cache()
            case "fraction":
                allocator.set_memory_fraction(event["value"])
            case other:
                raise AssertionError(other)
        counts = _pieces(allocator) | {"oom": refused}
        rows.append([counts[name] if name in counts else getattr(allocator.stats, name) for name in COLUMNS])
    return Replay(rows, allocator)


def _pieces(allocator: CachingAllocator) -> dict[str, int]:
    """The counters that PyTorch keeps and ours does not: blocks, and free pieces of segments of a fixed size."""
    blocks = [(segment.size, block) for segment in allocator.segments() for block in segment.blocks]
    active = sum(block.state != "inactive" for _, block in blocks)
    is_fixed = not allocator.config.expandable_segments
    free = [block.size for size, block in blocks if is_fixed and block.state == "inactive" and block.size < size]
    return {"inactive_split": sum(free), "inactive_split_blocks": len(free), "active_blocks": active}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_every_counter_after_every_event_and_the_segments_at_the_end(path: Path) -> None:
    document = _read(path)
    assert tuple(document["columns"]) == COLUMNS
    result = _run(document)
    assert len(result.rows) == len(document["rows"])
    for number, (row, expected) in enumerate(zip(result.rows, document["rows"], strict=True)):
        names = {
            name: (ours, theirs) for name, ours, theirs in zip(COLUMNS, row, expected, strict=True) if ours != theirs
        }
        assert not names, f"event {number}, {document['events'][number]}: {names} (ours, PyTorch's)"
    # The third field is left out: PyTorch's snapshot of these runs says False for expandable segments as well.
    ends = [[address, size, pool, blocks] for address, size, _, pool, blocks in document["final_segments"]]
    assert _segments(result) == ends


def _segments(result: Replay) -> list[Any]:
    return [
        [s.address, s.size, s.pool, [[b.size, b.requested, b.state] for b in s.blocks]]
        for s in result.allocator.segments()
    ]


@pytest.mark.parametrize("release", [(2, 12), (2, 13)])
def test_which_of_equal_blocks_is_taken(release: tuple[int, int]) -> None:
    """A step of a ResNet-50 as PyTorch 2.12's CUDA build served it: by the oldest block; later ones go by address."""
    document = _read(GOLDEN / "allocator_2.12.json.gz")
    result = _run(document, release)
    expected = [[address, size, pool, blocks] for address, size, _, pool, blocks in document["final_segments"]]
    assert result.rows == document["rows"]
    assert (_segments(result) == expected) is (release == (2, 12))


def test_the_traces_reach_what_is_hard() -> None:
    """Retries, refusals, and every setting are in what is compared."""
    assert (len(TRACES), len(REAL)) == (10, 2)
    documents = [_read(path) for path in TRACES]
    rows = [row for document in documents for row in document["rows"]]
    assert sum(row[COLUMNS.index("oom")] for row in rows) > 0
    assert max(row[COLUMNS.index("retries")] for row in rows) > 1
    assert {event["op"] for document in documents for event in document["events"]} == {
        "alloc", "free", "empty_cache", "fraction",
    }  # fmt: skip
    settings = " ".join(document["settings"]["env"].get("PYTORCH_CUDA_ALLOC_CONF", "") for document in documents)
    assert all(key in settings for key in ("max_split_size_mb", "garbage_collection_threshold", "expandable_segments"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name)
def test_peaks_of_real_training_runs(path: Path) -> None:
    document = _read(path)
    stats = _run(document).allocator.stats
    assert stats.peak_allocated == document["peak_allocated"]
    assert (stats.peak_reserved, stats.allocated) == (document["peak_reserved"], document["allocated_at_end"])
    assert stats.reserved == document["reserved_at_end"]


@pytest.mark.parametrize("path", sorted((GOLDEN / "traces").glob("*.jsonl.gz")), ids=lambda path: path.name)
def test_every_address_of_training_runs(path: Path) -> None:
    allocator = CachingAllocator(150_109_880_320)
    live: dict[int, int] = {}
    segments = 0
    for line in gzip.decompress(path.read_bytes()).splitlines():
        kind, *entry = json.loads(line)
        if kind == "a":
            address, size, stream = entry
            live[address] = allocator.malloc(size, stream)
            assert (address, live[address]) in {(b.address, b.number) for s in allocator.segments() for b in s.blocks}
        elif kind == "f":
            allocator.free(live.pop(entry[0]))
        elif kind == "A":
            segments += 1
    assert live
    assert allocator.stats.segments == segments > 0
