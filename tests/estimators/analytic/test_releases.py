"""Estimates under other releases of PyTorch, and under settings of its allocator, beside what its CUDA builds held.

`golden/settings.jsonl` has the peaks of the recorded workloads on an H200, three steps each.
"""

import json
import statistics
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.golden_workloads import WORKLOADS
from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.sizes.runtime import UNFOLLOWED
from vramtui.estimators.methods import DEFAULT

GOLDEN = Path(__file__).parents[2] / "golden" / "settings.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
MODEL = TransformerModel(
    hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, max_position_embeddings=128
)
SMALL = 1 << 29  # below it one segment of 20 MiB is several percent
WORST_ALLOCATED, WORST_RESERVED = 0.0165, 0.085
MEDIAN_ALLOCATED, MEDIAN_RESERVED = 0.003, 0.004


@lru_cache
def estimated(at: int) -> Estimate:
    row = ROWS[at]
    workload = WORKLOADS[row["workload"]]
    run = msgspec.structs.replace(workload.run, torch=row["torch"], alloc_conf=row["alloc_conf"] or None)
    return DEFAULT.estimate(msgspec.structs.replace(workload, run=run), card("H200"))


@for_each(range(len(ROWS)))
def test_the_peaks(at: int) -> None:
    row, estimate = ROWS[at], estimated(at)
    assert estimate.allocated == pytest.approx(row["allocated"], rel=WORST_ALLOCATED)
    assert estimate.reserved == pytest.approx(row["reserved"], rel=WORST_RESERVED, abs=21 << 20)
    ledger = estimate.ledger
    assert (ledger.allocated or 0) + (ledger.cached or 0) == ledger.reserved
    assert sum(part.at_peak for part in estimate.parts) == estimate.process


@for_each(sorted({row["alloc_conf"].partition(":")[0] for row in ROWS}))
def test_the_median_error(conf: str) -> None:
    chosen = [at for at, row in enumerate(ROWS) if row["alloc_conf"].partition(":")[0] == conf]
    off = [abs((estimated(at).reserved or 0) / ROWS[at]["reserved"] - 1) for at in chosen]
    assert statistics.median(off) <= MEDIAN_RESERVED
    off = [abs((estimated(at).allocated or 0) / row["allocated"] - 1) for at, row in enumerate(ROWS)]
    assert statistics.median(off) <= MEDIAN_ALLOCATED


def test_the_newest_release_is_taken_and_what_is_not_known_is_said() -> None:
    code = (
        "from vramtui.estimators.analytic import ANALYTIC\n"
        "from vramtui.core.estimate.devices import card\n"
        "from tests.estimators.analytic.test_releases import MODEL, TrainRun, Workload\n"
        "from vramtui.estimators.torch_facts.releases import NEWEST\n"
        "runs = TrainRun(), TrainRun(torch='.'.join(map(str, NEWEST)))\n"
        "unsaid, newest = (ANALYTIC.estimate(Workload(model=MODEL, run=run), card('H200')) for run in runs)\n"
        "assert unsaid.ledger == newest.ledger\n"
        "print(*set(unsaid.assumptions) - set(newest.assumptions), sep='\\n')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    )
    assert done.stdout == "as under PyTorch 2.15, the newest that is known; run.torch names another\n"
    found = ANALYTIC.estimate(Workload(model=MODEL, run=TrainRun(torch="2.6.0")), card("H200"))
    assert "run.torch = '2.6.0': measured only with PyTorch 2.12 to 2.15; taken as 2.12" in found.assumptions
    run = TrainRun(sequence_length=128, alloc_conf="expandable_segments:True")
    several = DEFAULT.estimate(Workload(model=MODEL, run=run, parallel=Parallel(data=2)), card("H200"))
    one = DEFAULT.estimate(Workload(model=MODEL, run=run), card("H200"))
    assert UNFOLLOWED in several.assumptions
    assert UNFOLLOWED not in one.assumptions
    held = {(row["alloc_conf"].partition(":")[0], row["torch"][:4]) for row in ROWS}
    settings = ("expandable_segments", "garbage_collection_threshold", "max_split_size_mb", "roundup_power2_divisions")
    assert {(one, release) for one in settings for release in ("2.13", "2.15")} <= held
    assert len({row["workload"] for row in ROWS}) >= 6


@for_each([TrainRun(sequence_length=128), InferRun(sequence_length=128, new_tokens=4)])
def test_a_release_decides_whether_workspaces_are_kept(run: TrainRun | InferRun) -> None:
    kept, passing = (
        ANALYTIC.estimate(Workload(model=MODEL, run=msgspec.structs.replace(run, torch=torch)), card("H200"))
        for torch in ("2.14.1+cu130", "2.15")
    )
    threads = 2 if isinstance(run, TrainRun) else 1
    assert kept.ledger.workspaces == threads * (32 << 20)
    assert (passing.ledger.workspaces or 0) <= 32 << 20
    assert (passing.allocated or 0) < (kept.allocated or 0)


@for_each([("2.13", 1006911488, 1077936128), ("2.14", 855527424, 918552576)])
def test_shared_heads_in_fp32_run_on_the_kernel_of_the_release(release: str, allocated: int, reserved: int) -> None:
    """Peaks of three steps of transformers' Llama of these sizes, AdamW, by the CUDA builds of 2.13.0 and 2.14.1."""
    model = TransformerModel(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, intermediate_size=1408,
        vocab_size=8000, max_position_embeddings=512,
    )  # fmt: skip
    run = TrainRun(batch_size=4, sequence_length=512, precision="fp32", optimizer="adamw", torch=release)
    estimate = DEFAULT.estimate(Workload(model=model, run=run), card("H200"))
    assert estimate.allocated == pytest.approx(allocated, rel=0.008)
    assert estimate.reserved == pytest.approx(reserved, rel=0.008)
