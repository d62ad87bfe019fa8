"""Image-text models with their towers running, beside traces of small ones and, of two, the real CUDA build."""

from typing import Any

import pytest

from benchmarks.architectures import preset_from
from benchmarks.towers import WORDS, off, rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import estimates_by

ROWS = rows()
MOST = 0.07


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['type']}-{row['run']}" for row in ROWS])
def test_allocated_is_near_the_trace(row: dict[str, Any]) -> None:
    """What joins a tower to the words is not written out, nor what single towers keep beside their blocks."""
    assert abs(off(row)) < MOST
    if "cuda" in row:
        assert abs(off(row, "cuda")) < MOST


def test_every_model_was_trained_and_asked() -> None:
    kinds = {row["type"] for row in ROWS}
    assert len(kinds) >= 4
    assert {(kind, run) for kind in kinds for run in ("infer", "train")} == {(row["type"], row["run"]) for row in ROWS}


def test_without_the_tower_training_would_be_far_off() -> None:
    """The test above would fail if nothing were counted."""
    row = next(row for row in ROWS if (row["type"], row["run"]) == ("gemma3", "train"))
    model = preset_from(row["config"]).model
    assert isinstance(model, TransformerModel)
    blind = TrainRun(sequence_length=row["image_tokens"] + WORDS, precision="bf16")
    allocated = ANALYTIC.estimate(Workload(model=model, run=blind), card("H100")).allocated
    assert allocated is not None
    assert allocated / row["allocated"] < 0.8


def test_checkpointing_keeps_the_blocks_inputs_alone() -> None:
    row = next(row for row in ROWS if (row["type"], row["run"]) == ("gemma3", "train"))
    model = preset_from(row["config"]).model

    def kept(checkpointing: Any) -> int:
        run = TrainRun(
            sequence_length=512, image_tokens=row["image_tokens"], precision="bf16", checkpointing=checkpointing
        )
        parts = ANALYTIC.estimate(Workload(model=model, run=run), card("H100")).parts
        return next(part.bytes for part in parts if part.name == "tower activations")

    assert kept("full") < kept("none") / 3


def test_a_larger_batch_has_as_many_more_images() -> None:
    row = ROWS[0]
    model = preset_from(row["config"]).model

    def pixels(batch: int) -> int:
        run = InferRun(batch_size=batch, sequence_length=512, image_tokens=row["image_tokens"], new_tokens=1)
        parts = ANALYTIC.estimate(Workload(model=model, run=run), card("H100")).parts
        return next(part.bytes for part in parts if part.name == "pixels")

    assert pixels(4) == 4 * pixels(1)


def test_what_the_allocator_keeps_beside_a_tower_is_a_share() -> None:
    """The tower's requests are not played to the simulated allocator, so that it is not asked."""
    row = ROWS[0]
    workload = Workload(
        model=preset_from(row["config"]).model, run=InferRun(sequence_length=512, image_tokens=256, new_tokens=1)
    )
    (estimate,) = estimates_by(None, workload, card("H100"))
    assert estimate.method == "analytic"
    assert (estimate.ledger.cached or 0) > 0
    with pytest.raises(UserError, match="follows no tower for images"):
        estimates_by("simulated", workload, card("H100"))
