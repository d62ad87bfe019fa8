"""Image-text and audio-text models with their towers running, beside traces of small ones.

Where a row has `cuda`, that is what the real PyTorch CUDA build allocated on a stubbed driver, with transformers' check
of how many tokens are images' taken out, which reads values that such a driver does not have.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.golden_workloads import RECORDED
from tests.recorded.architectures import preset_from
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import Model, TransformerModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import estimates_by

GOLDEN = Path(__file__).parents[2] / "golden" / "towers.jsonl"
ROWS: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text(encoding="utf-8").splitlines()]
WORDS = 64
MOST = 0.07
# Its modelling code works out the scores of all tokens where one is asked for, and its loss in bf16.
OWN_SCORES, MOST_OF_THOSE = "qwen2_audio", 0.14


def off(row: dict[str, Any], of: str = "allocated") -> float:
    key = "audio_tokens" if "audio_tokens" in row else "image_tokens"
    length = {"sequence_length": row[key] + WORDS, key: row[key]}
    run: TrainRun | InferRun = InferRun(torch=RECORDED, **length, new_tokens=1)
    if row["run"] == "train":
        run = TrainRun(torch=RECORDED, **length, precision="bf16", optimizer="adamw")
    estimate = ANALYTIC.estimate(Workload(model=preset_from(row["config"]).model, run=run), card("H100"))
    return estimate.allocated / int(row[of]) - 1


def model_of(kind: str) -> TransformerModel:
    model = preset_from(next(row for row in ROWS if row["type"] == kind)["config"]).model
    assert isinstance(model, TransformerModel)
    return model


def tower(model: Model, run: TrainRun | InferRun) -> dict[str, int]:
    parts = ANALYTIC.estimate(Workload(model=model, run=run), card("H100")).parts
    return {part.name: part.bytes for part in parts if part.name.startswith("tower")}


@for_each(ROWS)
def test_allocated_is_near_the_trace(row: dict[str, Any]) -> None:
    """What joins a tower to the words is not written out, nor what single towers keep beside their blocks."""
    assert abs(off(row)) < (MOST_OF_THOSE if row["type"] == OWN_SCORES else MOST)
    if "cuda" in row:
        assert abs(off(row, "cuda")) < MOST


def test_every_model_was_trained_and_asked_and_images_and_sound_are_read_in_turn() -> None:
    kinds = {row["type"] for row in ROWS}
    assert len(kinds) >= 8
    assert {(kind, run) for kind in kinds for run in ("infer", "train")} == {(row["type"], row["run"]) for row in ROWS}
    both = msgspec.structs.replace(model_of(ROWS[0]["type"]), audio_tower=model_of("voxtral").audio_tower)

    run = TrainRun(sequence_length=1024, precision="bf16", image_tokens=256, audio_tokens=375)
    seen = tower(both, msgspec.structs.replace(run, audio_tokens=None))
    heard = tower(both, msgspec.structs.replace(run, image_tokens=None))
    together = tower(both, run)
    for name in ("tower inputs", "tower outputs"):
        assert together[name] == seen[name] + heard[name]
    assert max(seen["tower activations"], heard["tower activations"]) < together["tower activations"]


@for_each([("gemma3", "image_tokens"), ("audioflamingo3", "audio_tokens")])
def test_without_the_tower_training_would_be_far_off(kind: str, tokens: str) -> None:
    """The test above would fail if nothing were counted."""
    row = next(row for row in ROWS if (row["type"], row["run"]) == (kind, "train"))
    blind = TrainRun(sequence_length=row[tokens] + WORDS, precision="bf16")
    allocated = ANALYTIC.estimate(Workload(model=model_of(kind), run=blind), card("H100")).allocated
    assert allocated / row["allocated"] < 0.8


def test_a_tower_keeps_its_blocks_inputs_alone_and_a_larger_batch_has_more_images() -> None:
    row = next(row for row in ROWS if (row["type"], row["run"]) == ("gemma3", "train"))
    model = preset_from(row["config"]).model

    def kept(checkpointing: Any) -> int:
        run = TrainRun(
            sequence_length=512, image_tokens=row["image_tokens"], precision="bf16", checkpointing=checkpointing
        )
        return tower(model, run)["tower activations"]

    assert kept("full") < kept("none") / 3
    row = ROWS[0]
    model = preset_from(row["config"]).model

    def pixels(batch: int) -> int:
        run = InferRun(batch_size=batch, sequence_length=512, image_tokens=row["image_tokens"], new_tokens=1)
        return tower(model, run)["tower inputs"]

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
    with pytest.raises(UserError, match="follows no tower for images or sound"):
        estimates_by("simulated", workload, card("H100"))


@for_each(rows(__file__, "sound_takes_its_tokens"))
def test_sound_takes_its_tokens(kind: str, seconds: float, tokens: int, positions: int) -> None:
    model = model_of(kind)
    assert (model.audio_tower.tokens(seconds), model.audio_tower.positions(tokens)) == (tokens, positions)
