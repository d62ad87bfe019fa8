import gzip
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.commands import invoke
from vramtui.core.base.errors import UserError
from vramtui.records.memory_snapshot import HeldBlocks, HeldMemory, held_memory, read_held_memory

MIB = 1 << 20
OWN = [
    {"filename": "/opt/torch/nn/linear.py", "line": 3, "name": "forward"},
    {"filename": "train.py", "line": 12, "name": "step"},
]


def block(size: int, state: str = "active_allocated", frames: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"size": size * MIB, "state": state, "frames": frames or []}


def event(action: str, size: int, addr: int = 0, **more: object) -> dict[str, Any]:
    return {"action": action, "addr": addr * MIB, "size": size * MIB, "stream": 0, "frames": OWN, **more}


def failed_snapshot() -> dict[str, Any]:
    """GPU 1 was refused 50 MiB; after that, 20 MiB at address 120 were freed and 2 MiB at address 100 allocated."""
    blocks = [block(2, frames=OWN), block(18, "inactive"), block(20, "inactive"), block(60, frames=OWN), block(20)]
    segment = {"address": 100 * MIB, "total_size": 120 * MIB, "device": 1, "blocks": blocks}
    events = [
        event("segment_alloc", 120, 100),
        event("alloc", 20, 120),
        event("oom", 50, device_free=5 * MIB),
        event("free_requested", 20, 120),
        event("free_completed", 20, 120),
        event("alloc", 2, 100),
    ]
    other = {"address": 0, "total_size": 500 * MIB, "device": 0, "blocks": [block(500)]}
    return {"segments": [other, segment], "device_traces": [[], events]}


def read(snapshot: object) -> HeldMemory:
    return held_memory("a.pickle", pickle.dumps(snapshot))


def test_memory_at_the_failure_is_that_of_the_refused_request_and_small_blocks_are_fragmentation() -> None:
    held = read(failed_snapshot())
    assert (held.gpu, held.asked, held.device_free) == (1, 50 * MIB, 5 * MIB)
    assert (held.allocated, held.reserved) == (100 * MIB, 120 * MIB)
    assert (held.peak_allocated, held.peak_reserved) == (100 * MIB, 120 * MIB)
    assert held.holders == (HeldBlocks("train.py:12 step", 80 * MIB, 2), HeldBlocks("", 20 * MIB, 1))
    assert [one.size for one in held.largest] == [60 * MIB, 20 * MIB, 20 * MIB]
    assert held.cause.startswith("Not enough memory: 50.00 MiB were requested, the GPU had 5.00 MiB free")
    blocks = [block(30, "inactive"), block(10), block(30, "inactive")]
    segment = {"address": 0, "total_size": 70 * MIB, "device": 0, "blocks": blocks}
    held = read({"segments": [segment], "device_traces": [[event("oom", 50, device_free=0)]]})
    assert held.cause.startswith("Fragmentation: 50.00 MiB were requested and 60.00 MiB of the reserved memory")
    assert "largest free block has 30.00 MiB" in held.cause


def test_a_snapshot_without_events_shows_its_end_and_oom_explains_one(tmp_path: Path) -> None:
    path = tmp_path / "old.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(failed_snapshot()["segments"])))
    held = read_held_memory(path)
    assert (held.gpu, held.asked, held.allocated, held.peak_allocated) == (0, None, 500 * MIB, None)
    assert held.cause == "No request was refused. 0 B of the reserved memory is unused."
    path = tmp_path / "oom.pickle"
    path.write_bytes(pickle.dumps(failed_snapshot()))
    done = invoke("oom", str(path), columns=100)
    assert done.exit_code == 0
    shown = " ".join(done.stdout.split())
    assert "Not enough memory: 50.00 MiB were requested" in shown
    assert "GPU 1 allocated 100.00 MiB reserved 120.00 MiB" in shown
    assert "80.00 MiB 2 train.py:12 step" in shown


@pytest.mark.parametrize(("snapshot", "told"), [
    ({"segments": 1}, "is not a memory snapshot: segments"),
    ("text", "is not a memory snapshot"),
    ({"segments": []}, "holds no memory and no events"),
])  # fmt: skip
def test_another_pickle_is_a_sentence(snapshot: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        read(snapshot)
