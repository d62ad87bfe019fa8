"""Decoders beside the peaks of the CUDA build of PyTorch 2.13 with transformers 5.23 and peft, on a stubbed driver."""

import json
import statistics
from pathlib import Path
from typing import Any

import msgspec

from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC

RUNS: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "cuda_decoders.json").read_text(encoding="utf-8")
)
# Measured: 1.65 % for an autocast to bf16 that a T4 emulates, 0.8 % in the middle, nearly all of it below: these are
# small models (0.3 to 0.9 GB), where a block that fills a gap keeps up to 1 MiB of it. From 2.9 GB on it is 0.04 %.
WORST, MEDIAN, LARGE = 0.017, 0.009, 0.0005
# `fp8-mixed` counts what Transformer Engine keeps; torchao's float8 linear layers (0.18, dynamic scaling, autocast to
# bf16, all but the head, not compiled) are held beside it: the estimate is 1.6 % and 4.0 % too low.
WORST_FP8 = 0.041


def _off(run: dict[str, Any]) -> float:
    workload = Workload(
        model=msgspec.convert(run["model"], TransformerModel), run=msgspec.convert(run["run"], TrainRun)
    )
    return ANALYTIC.estimate(workload, card(run["device"])).allocated / int(run["allocated"]) - 1


@for_each(RUNS)
def test_the_peak_of_allocated(run: dict[str, Any]) -> None:
    assert abs(_off(run)) <= (WORST_FP8 if run["run"]["precision"] == "fp8-mixed" else WORST)


def test_the_median_error() -> None:
    assert statistics.median(abs(_off(run)) for run in RUNS) <= MEDIAN


def test_large_models_are_nearly_exact() -> None:
    large = [run for run in RUNS if run["allocated"] > 1 << 31]
    assert large
    assert all(abs(_off(run)) <= LARGE for run in large)
