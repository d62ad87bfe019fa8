"""Decoders with adapters, sliding windows and caches beside the traces of transformers' and peft's own code."""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.decoder_cases import CASES
from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic import ANALYTIC

RECORDS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parents[2] / "golden" / "decoders.json").read_text())
# Models of 300 MiB to 12 GiB. A block that fills a gap keeps what is left of it, up to 1 MiB, and only the allocator
# knows which do: each layer of the smaller ones has two such, which none of the large ones shows.
WORST = {"small": 0.014, "medium": 0.011, "large": 0.0001, "biased": 0.0001}


@lru_cache
def estimated(name: str) -> Estimate:
    return ANALYTIC.estimate(CASES[name].workload, card(CASES[name].device))


def off(name: str) -> float:
    return estimated(name).allocated / int(RECORDS[name]["peak_allocated"]) - 1


def test_every_case_has_been_traced() -> None:
    assert set(RECORDS) == set(CASES)


@for_each([name for name in CASES if name.startswith(("lora", "dora"))])
def test_adapters(name: str) -> None:
    assert abs(off(name)) <= WORST[name.split("-")[1]]
    assert estimated(name).peak_phase == RECORDS[name]["phase"]


def test_dora_costs_what_it_keeps_and_no_merged_weight() -> None:
    """Beside LoRA it keeps, for each of 16 targets, the base's answer in bf16 and the adapter's in fp32; the weights
    with their adapters multiplied out have gone by the end of the forward pass.
    """
    tokens, layers, queries, values, inner = 4 * 1024, 8, 2048, 512, 2048
    rows = layers * tokens * (queries + values)
    held = {
        name: next(m.categories["activations"] for m in estimated(name).timeline if m.phase == "forward")
        for name in ("lora-large", "dora-large")
    }
    assert held["dora-large"] - held["lora-large"] == pytest.approx(rows * (2 + 4), rel=0.001)
    assert layers * inner * (queries + values) * 4 > 0.01 * held["dora-large"]


@for_each([name for name in CASES if name.startswith("window")])
def test_sliding_windows(name: str) -> None:
    assert abs(off(name)) <= 0.0015
    assert estimated(name).peak_phase == RECORDS[name]["phase"]


def test_a_window_as_long_as_the_sequence_makes_a_mask_and_a_longer_one_none() -> None:
    """A mask is left out by transformers only where no token could be out of sight."""
    workload = CASES["window-bf16"].workload
    model = workload.model
    assert isinstance(model, TransformerModel)
    sizes = {
        window: ANALYTIC.estimate(
            msgspec.structs.replace(workload, model=msgspec.structs.replace(model, sliding_window=window)), card("H200")
        )
        for window in (256, 1024, 1025, None)
    }
    assert sizes[256].allocated == sizes[1024].allocated
    assert sizes[1025].allocated == sizes[None].allocated
    batch, length, layers = 4, 1024, 8
    masks = layers * batch * length * length * 2
    repeated = layers * 2 * (2048 - 512) * batch * length * 2
    assert sizes[1024].allocated - sizes[1025].allocated == masks + repeated
    assert any("mask of tokens x tokens" in note for note in sizes[1024].assumptions)
    assert not any("mask of tokens x tokens" in note for note in sizes[1025].assumptions)


def test_only_layers_that_slide_get_a_mask() -> None:
    workload = CASES["window-bf16"].workload
    model = workload.model
    half = msgspec.structs.replace(workload, model=msgspec.structs.replace(model, sliding_window_pattern=2))
    none = msgspec.structs.replace(workload, model=msgspec.structs.replace(model, sliding_window=None))
    whole, some, without = (ANALYTIC.estimate(each, card("H200")).allocated for each in (workload, half, none))
    assert some - without == (whole - without) // 2


@for_each([("lion-large", 0.0001), ("chunked-large", 0.009)])
def test_lion_and_the_loss_in_chunks(name: str, most: float) -> None:
    assert abs(off(name)) <= most
    assert estimated(name).peak_phase == RECORDS[name]["phase"]


@for_each(
    [
        ({"checkpointing": "selective"}, "run.checkpointing = 'selective'"),
        ({"optimizer": "paged_adamw_8bit"}, "run.optimizer = 'paged_adamw_8bit'"),
        ({"optimizer": "paged_adamw_32bit"}, "run.optimizer = 'paged_adamw_32bit'"),
        ({"precision": "fp8-mixed"}, "run.precision = 'fp8-mixed'"),
    ]
)
def test_what_nothing_has_held_states_no_error(changes: dict[str, Any], key: str) -> None:
    plain = CASES["lion-large"].workload
    assert ANALYTIC.estimate(plain, card("H200")).error is not None
    found = ANALYTIC.estimate(
        msgspec.structs.replace(plain, run=msgspec.structs.replace(plain.run, **changes)), card("H200")
    )
    assert found.error is None
    assert any(key in note for note in found.assumptions)


@for_each(["generate-llama", "generate-window"])
def test_generation_is_exact_but_for_counters(name: str) -> None:
    """What is not counted are four tensors of a number for each sequence."""
    assert 0 <= RECORDS[name]["peak_allocated"] - estimated(name).allocated <= 16 * 512
