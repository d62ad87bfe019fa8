"""Encoders, encoder-decoders, UNets and diffusion transformers: parts, phases, and what takes less."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_workloads import OTHERS, model
from tests.properties import examples
from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import InferRun, Lora, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.presets import PresetLibrary

KINDS = ("bert", "vit", "clip-vision", "clip-text", "t5", "flan-t5", "bart", "whisper", "sd", "sdxl", "flux")
FEW = examples(20)


@lru_cache
def estimated(name: str) -> Estimate:
    return ANALYTIC.estimate(OTHERS[name].workload, card("H100"))


def part_of(estimate: Estimate, name: str) -> Any:
    return next(part for part in estimate.parts if part.name == name)


@for_each(OTHERS)
def test_parts_sum_to_the_totals_and_every_step_ends_where_the_next_begins(name: str) -> None:
    """Gradients are all there when backward ends, and nothing but what lasts is left after zero_grad."""
    estimate = estimated(name)
    assert all(part.at_peak >= 0 and part.bytes >= 0 for part in estimate.parts)
    assert sum(part.at_peak for part in estimate.parts) == estimate.process
    inner = sum(part.at_peak for part in estimate.parts if part.line not in {"cached", "context"})
    assert inner == estimate.allocated
    assert all(row.allocated <= row.peak_allocated for row in estimate.timeline)
    if isinstance(OTHERS[name].workload.run, TrainRun):
        ends = {(row.phase, row.step): row.categories for row in estimate.timeline}
        assert set(ends["zero_grad", 1]) <= {"weights", "optimizer", "inputs", "workspaces", "master_weights"}
        assert ends["backward", 0].get("activations", 0) <= 1 << 20
        assert ends["zero_grad", 0] == ends["zero_grad", 1]


def training(name: str, **changes: Any) -> int:
    workload = OTHERS[f"{name}-fp32"].workload
    run: Any = workload.run
    plain = TrainRun(batch_size=run.batch_size, sequence_length=run.sequence_length, target_length=run.target_length)
    asked = Workload(model=workload.model, run=msgspec.structs.replace(plain, **changes))
    return ANALYTIC.estimate(asked, card("H100")).allocated


@pytest.mark.parametrize("name", KINDS)
@FEW
@given(batch=st.integers(1, 64))
def test_more_samples_never_take_less(name: str, batch: int) -> None:
    assert training(name, batch_size=batch + 1) >= training(name, batch_size=batch)


@pytest.mark.parametrize("name", ["bert", "t5", "bart"])
@FEW
@given(length=st.integers(8, 500))
def test_longer_samples_never_take_less(name: str, length: int) -> None:
    assert training(name, sequence_length=length + 1) >= training(name, sequence_length=length)


@for_each(KINDS)
def test_checkpointing_and_fewer_bytes_take_less(name: str) -> None:
    full = training(name, batch_size=64, precision="fp32")
    assert training(name, batch_size=64, precision="fp32", checkpointing="full") < full
    assert training(name, batch_size=64, precision="bf16") < full


@for_each(
    (name, key, more)
    for name, key in (
        ("bert", "num_hidden_layers"),
        ("t5", "decoder_layers"),
        ("sd", "layers_per_block"),
        ("flux", "num_single_layers"),
    )
    for more in (1, 2, 3)
)
def test_more_blocks_never_take_less(name: str, key: str, more: int) -> None:
    plain = model(name)
    deeper = msgspec.structs.replace(plain, **{key: getattr(plain, key) + more})
    length: Any = OTHERS[f"{name}-fp32"].workload.run
    run = TrainRun(batch_size=4, sequence_length=length.sequence_length)
    less, grown = (ANALYTIC.estimate(Workload(model=each, run=run), card("H100")) for each in (plain, deeper))
    assert grown.allocated > less.allocated
    assert parameter_count(deeper) > parameter_count(plain)


def test_the_cache_of_an_encoder_decoder() -> None:
    """Keys and values of 4 decoder layers, 4 heads of 64, of 64 new tokens and of 256 of the source, in bf16."""
    estimate = estimated("t5-bf16-infer")
    cache = part_of(estimate, "kv cache").bytes
    assert cache == 2 * 4 * 32 * 4 * 64 * 2 * (64 + 256)
    ends = {row.phase: row.categories["kv_cache"] for row in estimate.timeline if "kv_cache" in row.categories}
    assert (ends["prefill"], ends["decode"]) == (2 * 4 * 32 * 4 * 64 * 2 * (1 + 256), cache)
    run = InferRun(batch_size=8, sequence_length=512, new_tokens=512, precision="fp32")
    whole, half = (
        ANALYTIC.estimate(Workload(model=model("bart"), run=each), card("H100"))
        for each in (run, msgspec.structs.replace(run, kv_cache="bf16"))
    )
    assert part_of(whole, "kv cache").bytes == 2 * part_of(half, "kv cache").bytes


@for_each(["sd", "sdxl", "flux"])
def test_adapters_leave_no_gradients_of_the_base(name: str) -> None:
    """Only the adapters have gradients and states: two matrices beside each of the attentions' projections."""
    estimate = estimated(f"{name}-bf16-mixed-lora")
    weights, gradients = part_of(estimate, "weights"), part_of(estimate, "gradients").bytes
    assert gradients < weights.bytes / 20
    assert part_of(estimate, "optimizer").bytes == 2 * gradients
    assert f"{parameter_count(model(name)):,} frozen parameters x 2 B" in weights.formula


def test_targets_are_as_long_as_the_source_and_the_loss_of_a_diffusion_model_stays_whole() -> None:
    assert training("t5", target_length=None) == training("t5", target_length=256)
    assert training("t5", target_length=64) < training("t5", target_length=128)
    noise = 4 * 16 * 4 * model("sd").sample_size ** 2
    assert f"{noise:,} B that the last mse_loss keeps" in part_of(estimated("sd-fp32"), "inputs").formula


@for_each([(True, 1_665_465_344), (False, 1_667_234_816)])
def test_activations_in_place_hardly_matter_to_a_resnet(inplace: bool, true_peak: int) -> None:
    """Torchvision's ResNet-50, batch 16, SGD with momentum, in the CUDA build of PyTorch 2.13.0 on a stubbed A100."""
    workload = PresetLibrary(user_folder=Path("none")).get("resnet-50-train").preset.workload
    changed = msgspec.structs.replace(workload, model=msgspec.structs.replace(workload.model, inplace=inplace))
    found = ANALYTIC.estimate(changed.with_run(batch_size=16, precision="fp32"), card("A100-80GB"))
    assert found.allocated == pytest.approx(true_peak, rel=0.02)


# Peaks in GiB by engine `cuda` on a simulated RTX 4090: PyTorch 2.13.0, diffusers 0.42.1, bitsandbytes 0.50.2. FLUX.1
# has 2 double and 4 single blocks here, and adapters of rank 16 train on the attentions of both.
@for_each([
    ("flux-dev-lora", 512, "nf4", "full", 1.369), ("flux-dev-lora", 512, "nf4", "none", 2.202),
    ("flux-dev-lora", 1024, "nf4", "full", 2.465), ("flux-dev-lora", 512, "fp8", "full", 1.957),
    ("flux-dev-lora", 512, "fp8", "none", 3.991), ("sdxl-lora", 128, "fp8", "full", 3.562),
    ("sdxl-lora", 128, "fp8", "none", 14.203),
])  # fmt: skip
def test_adapters_on_quantized_denoisers(name: str, size: int, quantization: Any, how: Any, gib: float) -> None:
    preset = PresetLibrary(user_folder=Path("none")).get(name).preset
    blocks = {"num_layers": 2, "num_single_layers": 4, "parameters": None} if name.startswith("flux") else {}
    smaller = msgspec.structs.replace(preset.model, sample_size=size, **blocks)
    adapters = Lora(rank=16, target_modules=("to_q", "to_k", "to_v", "to_out"))
    run = TrainRun(precision="bf16-mixed", lora=adapters, quantization=quantization, checkpointing=how)
    found = ANALYTIC.estimate(Workload(model=smaller, run=run), card("RTX4090"))
    assert found.allocated / 2**30 == pytest.approx(gib, rel=0.025)
