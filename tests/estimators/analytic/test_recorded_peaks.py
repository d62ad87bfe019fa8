"""Estimates of the analytic method beside recorded peaks of PyTorch's own allocator, and beside traces of real code."""

import json
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.golden_workloads import DECODERS, OTHERS, TRANSFORMERS, WORKLOADS, Case
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC, parameter_count

GOLDEN = Path(__file__).parents[2] / "golden"
# A block that fills a gap in a segment keeps what is left of it, up to 1 MiB, and only the allocator knows which do.
# That is under 1 % of any job worth the name, but a toy of 100 MiB shows it.
LEFT_OVER = 3.25 * (1 << 20)


class Recorded(NamedTuple):
    """One run: its peak of allocated, how far off its estimate may be (a share, or bytes), and the peak's phase."""

    workload: Workload
    device: str
    allocated: int
    worst: float
    phase: str | None = None
    room: float = 0


def read(name: str) -> Any:
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def trained(folder: str, device: str) -> dict[str, Recorded]:
    peaks = {path.stem: json.loads(path.read_text())["peak_allocated"] for path in (GOLDEN / folder).glob("*.json")}
    return {name: Recorded(WORKLOADS[name], device, peak, 0.0125, None, LEFT_OVER) for name, peak in peaks.items()}


def with_cases(name: str, cases: dict[str, Case], limits: dict[str, float], device: str = "") -> dict[str, Recorded]:
    found, told = {}, read(name)
    for key, case in cases.items():
        if not key.startswith(tuple(limits)) or key not in told:
            continue
        row = told[key] if isinstance(told[key], dict) else {"peak_allocated": told[key]}
        worst = limits[max((start for start in limits if key.startswith(start)), key=len)]
        phase = row.get("phase") if cases is DECODERS else None
        found[key] = Recorded(case.workload, device or case.device, row["peak_allocated"], worst, phase)
    return found


def on_cuda(name: str) -> dict[str, Recorded]:
    """Runs of the CUDA build of PyTorch 2.13 with transformers 5.23 and peft, on a stubbed driver.

    `fp8-mixed` counts what Transformer Engine keeps; torchao's float8 linear layers (0.18, dynamic scaling, autocast to
    bf16, all but the head, not compiled) are compared with it: the estimate is 1.6 % and 4.0 % too low.
    """
    found = {}
    for at, row in enumerate(read(name)):
        small = 0.041 if row["run"]["precision"] == "fp8-mixed" else 0.017
        worst = 0.0005 if row["allocated"] > 1 << 31 else small
        tables = {"model": {"kind": "transformer", **row["model"]}, "run": {"kind": "train", **row["run"]}}
        found[f"{at}"] = Recorded(msgspec.convert(tables, Workload), row["device"], row["allocated"], worst)
    return found


# With the longest word that a name begins with, how far off its estimate may be. Models of 300 MiB to 12 GiB: each
# layer of the smaller ones has two blocks that fill a gap, which none of the large ones shows.
ADAPTERS = {f"{how}-small": 0.014 for how in ("lora", "dora")} | {f"{how}-medium": 0.011 for how in ("lora", "dora")}
ADAPTERS |= dict.fromkeys(("lora-large", "dora-large", "dora-biased", "lion-large"), 0.0001)
ADAPTERS |= {"chunked-large": 0.009, "window": 0.0015}
# Each group with how far off the estimate in the middle may be. Measured: 2.93 % for FLUX with checkpointing in bf16.
# On a T4, where bf16 has no fused attention, 3.16 % too little for CLIP's text encoder, 2.7 % for Whisper, 1 % for the
# others; with the fused kernels of an H100 BERT and the encoder-decoders would be 26 to 32 % too little. Of the CUDA
# build 1.65 % for an autocast to bf16 that a T4 emulates, nearly all of it below: small models (0.3 to 0.9 GB).
GROUPS: dict[str, tuple[dict[str, Recorded], float]] = {
    "H200": (trained("training/h200", "H200"), 0.01),
    "A100": (trained("training/a100", "A100"), 0.01),
    "other kinds": (with_cases("other_models", OTHERS, {"": 0.03}, "H100"), 0.005),
    "other kinds before Ampere": (with_cases("cuda_before_ampere", OTHERS, {"": 0.032}, "T4"), 0.01),
    "decoders": (with_cases("decoders", DECODERS, ADAPTERS), 0.011),
    "the CUDA build": (on_cuda("cuda_decoders"), 0.009),
}


def estimated(run: Recorded) -> Estimate:
    return ANALYTIC.estimate(run.workload, card(run.device))


@pytest.mark.parametrize("group", GROUPS)
def test_the_peak_of_allocated(group: str) -> None:
    runs, median = GROUPS[group]
    wrong, errors = {}, []
    for name, run in runs.items():
        found = estimated(run)
        errors.append(abs(found.allocated / run.allocated - 1))
        near = abs(found.allocated - run.allocated) <= max(run.worst * run.allocated, run.room)
        if not near or run.phase not in {None, found.peak_phase}:
            wrong[name] = (errors[-1], found.peak_phase)
    assert wrong == {}
    assert statistics.median(errors) <= median


def test_every_case_has_its_peak() -> None:
    assert set(GROUPS["other kinds"][0]) == set(OTHERS) == set(read("other_models"))
    decoders = {name for name in DECODERS if not name.startswith("generate")}
    assert (set(GROUPS["decoders"][0]), set(read("decoders"))) == (decoders, set(DECODERS))
    assert set(GROUPS["other kinds before Ampere"][0]) == set(read("cuda_before_ampere"))
    transformers = [GROUPS["H200"][0][name] for name in TRANSFORMERS]
    assert statistics.median(abs(estimated(run).allocated / run.allocated - 1) for run in transformers) <= 0.001
    assert any(run.allocated > 1 << 31 for run in GROUPS["the CUDA build"][0].values())


@pytest.mark.parametrize("name", ["generate-llama", "generate-window"])
def test_generation_is_exact_but_for_counters(name: str) -> None:
    """What is not counted are four tensors of a number for each sequence."""
    found = ANALYTIC.estimate(DECODERS[name].workload, card(DECODERS[name].device))
    assert 0 <= read("decoders")[name]["peak_allocated"] - found.allocated <= 16 * 512


@pytest.mark.parametrize("name", WORKLOADS)
def test_each_phase_the_parameters_and_the_model_to_the_byte(name: str) -> None:
    recorded, estimate = read(f"training/h200/{name}"), estimated(GROUPS["H200"][0][name])
    rows = recorded["rows"]
    assert parameter_count(WORKLOADS[name].model) == recorded["parameters"]
    fullest = max(rows, key=lambda row: row[4])
    assert (estimate.peak_phase, estimate.peak_step) == (fullest[0], fullest[1])
    if "eager" not in name:  # its masks of 4 MiB share segments, and one in five keeps what is left
        built = next(row for row in rows if row[0] == "model")
        assert sum(part.bytes for part in estimate.parts if part.line == "weights") == built[2]
    for step in (0, 1):
        for phase in ("forward", "backward", "step", "zero_grad"):
            seen = [(end, peak) for of, at, end, _, peak, *_ in rows if (of, at) == (phase, step)]
            moments = [moment for moment in estimate.timeline if moment.step == step and moment.phase == phase]
            assert moments[-1].allocated == pytest.approx(seen[-1][0], rel=0.035, abs=LEFT_OVER)
            peak = max(moment.peak_allocated for moment in moments)
            assert peak == pytest.approx(max(peak for _, peak in seen), rel=0.035, abs=LEFT_OVER)
