"""Every published figure, through the preset that ships for it."""

from pathlib import Path

import msgspec
import pytest

from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate, Phase
from vramtui.core.estimate.ledger import CATEGORIES, TOTALS, Line
from vramtui.core.schema.workload import Workload
from vramtui.estimators.rules import RULES, estimate_rules
from vramtui.presets import parse_preset

PRESETS = Path(__file__).parents[3] / "presets" / "rules"
ALL = sorted(PRESETS.glob("*.toml"))
GIB = 1 << 30
MIB = 1 << 20


def answer(key: str) -> Estimate:
    path = PRESETS / f"rule-{key}.toml"
    (estimate,) = estimate_rules(parse_preset(path.read_text(), path).workload, card("H100"))
    return estimate


def parse(key: str, **changed: int) -> Workload:
    path = PRESETS / f"rule-{key}.toml"
    workload = parse_preset(path.read_text(), path).workload
    assert workload.rule is not None
    return msgspec.structs.replace(workload, rule=msgspec.structs.replace(workload.rule, **changed))


def part(estimate: Estimate, name: str) -> int:
    return next(part.bytes for part in estimate.parts if part.name == name)


def steps(estimate: Estimate, step: int = 0) -> dict[Phase, int]:
    return {moment.phase: moment.allocated for moment in estimate.timeline if moment.step == step}


def test_blocks() -> None:
    found = answer("blocks")
    assert [found.bytes for found in found.parts] == [3584, 4096]


def test_linear_layer_step_by_step() -> None:
    found = answer("linear")
    assert steps(found) == {
        "build": 257_024,
        "input": 258_048,
        "forward": 8_778_752,
        "backward": 17_555_456,
        "delete": 17_039_360,
        "clear": 0,
    }
    assert found.process == 17_555_456
    assert found.peak_phase == "backward"


def test_the_published_function_of_an_encoder_decoder() -> None:
    found, corrected = answer("encoder-decoder-published"), answer("encoder-decoder")
    assert found.process == 4_606_325_555
    assert found.ledger.activations == 2_829_189_120
    assert part(found, "weights") == 443_972_813
    assert part(found, "masks") == 1_179_648
    assert part(found, "source and target ids") == 65_536
    assert (found.ledger.activations, corrected.ledger.activations) == (2_829_189_120, 3_041_132_544)
    # Each difference is an erratum with its bytes: ReLU twice (12 F), one of logits and log-probabilities, N.
    told = " ".join(found.assumptions)
    n, f, v = 32 * 128 * 512 * 4, 32 * 128 * 2048 * 4, 32 * 128 * 37000 * 4
    assert (corrected.ledger.activations or 0) - (found.ledger.activations or 0) == v + n - 12 * f
    assert all(f"{size:,} B" in told for size in (12 * f, v, n))


def test_a_gpt_is_an_encoder_alone() -> None:
    workload = parse("encoder-decoder-published", decoder_layers=0)
    (found,) = estimate_rules(workload, card("H100"))
    assert part(found, "decoder, kept") == 0
    assert part(found, "weights") < part(answer("encoder-decoder-published"), "weights")


def test_where_a_source_is_wrong_the_rule_says_so_and_by_how_much() -> None:
    for key, words in {
        "bytes-per-parameter": ("TF32", "2 GB more"),
        "kv-cache": ("MQA",),
        "lora-calculator": ("4,608", "0.977 GiB"),
        "gpt2-residual": ("67.1 GB",),
        "resnet50": ("im2col",),
    }.items():
        told = [line for line in answer(key).assumptions if line.startswith("Erratum: ")]
        assert all(any(word in line for line in told) for word in words), key


def test_four_bits_beside_adapters_are_qlora() -> None:
    folder = PRESETS.parent / "llama"
    path = folder / "llama-3.1-8b-qlora.toml"
    (found,) = estimate_rules(parse_preset(path.read_text(), path).workload, card("H100"), "bytes-per-parameter")
    assert found.process == 8_030_261_248 // 2


def test_mlp() -> None:
    train, inference = answer("mlp"), answer("mlp-inference")
    assert steps(train)["forward"] == 8_692_224
    assert train.timeline[2].categories["workspaces"] == 8_519_680
    # The backward pass: a second workspace, a gradient per weight, and ReLU's result let go.
    assert steps(train)["backward"] == 8_692_224 + 8_519_680 + 162_304 - 2_048
    # Inference mode lets ReLU's result go as soon as the next layer has read it.
    assert steps(inference)["forward"] == 8_692_224 - 2_048 == part(train, "forward in inference mode")


def test_layer_norm_by_hand() -> None:
    found = answer("layernorm")
    assert found.process == 2048
    assert {p.name for p in found.parts if p.at_peak} == {"x", "w", "normalised x", "y"}
    assert steps(found) == {"build": 512, "input": 1024, "forward": 2048}
    assert part(found, "forward in inference mode") == 1536


def test_four_steps_of_adam() -> None:
    found = answer("optimizer-timeline")
    assert steps(found) == {
        "build": 257_024,
        "input": 359_424,
        "forward": 459_776,
        "backward": 716_800,
        "step": 1_130_496,
        "zero_grad": 873_472,
    }
    later = {"forward": 973_824, "backward": 1_230_848, "step": 1_130_496, "zero_grad": 873_472}
    assert [steps(found, step) for step in (1, 2, 3)] == [later] * 3
    after_backward = next(moment for moment in found.timeline if moment.phase == "backward")
    assert after_backward.categories == {
        "weights": 257_024,
        "inputs": 102_400,
        "activations": 100_352,
        "gradients": 257_024,
    }
    assert found.timeline[-1].categories == {"weights": 257_024, "inputs": 102_400, "optimizer": 514_048}
    assert (found.process, found.peak_phase, found.peak_step) == (1_230_848, "backward", 1)


def test_four_steps_of_sgd() -> None:
    found = answer("optimizer-timeline-sgd")
    first = {"forward": 459_776, "backward": 716_800, "step": 616_448, "zero_grad": 359_424}
    assert steps(found) == {"build": 257_024, "input": 359_424} | first
    assert [steps(found, step) for step in (1, 2, 3)] == [first] * 3
    assert found.ledger.optimizer is None


def test_bytes_per_parameter() -> None:
    mixed = answer("bytes-per-parameter")
    assert (mixed.ledger.weights, mixed.ledger.gradients, mixed.ledger.optimizer) == (
        48 * 10**9,
        16 * 10**9,
        64 * 10**9,
    )
    assert mixed.process == 128 * 10**9
    assert answer("bytes-per-parameter-lora").process == 14 * 10**9
    phases = {name: part(mixed, f"all, {name}") / (8 * 10**9) for name in ("full fp16", "LoRA", "QLoRA")}
    assert phases == {"full fp16": 8, "LoRA": 2, "QLoRA": 0.5}
    weights = {
        name: part(mixed, f"weights in {name}") / (8 * 10**9)
        for name in ("fp32", "tf32", "fp16", "bf16", "int8", "int4")
    }
    assert weights == {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "int8": 1, "int4": 0.5}


def test_residual_states_of_gpt2() -> None:
    found = answer("gpt2-residual")
    assert part(found, "weights, fp16") == 3 * 10**9
    assert part(found, "model states") == 24 * 10**9
    assert round(part(found, "activations") / 10**9) == 60
    assert round(part(found, "activations, checkpointed as published") / 10**9) == 8
    assert part(found, "activations, one input stored per layer") == 1600 * 32 * 1024 * 48 * 2
    assert part(found, "fused fp32 buffer") == 6 * 10**9
    assert found.ledger.allocated == 24 * 10**9 + part(found, "activations") + 6 * 10**9
    assert part(found, "fragmentation") / found.process == pytest.approx(0.3)


def test_resnet50() -> None:
    found = answer("resnet50")
    assert round(part(found, "weights") / MIB) == 99
    assert part(found, "responses of one image") == 64 * 10**6
    assert round(part(found, "responses") / 10**9) == 2
    assert part(found, "responses, lowered, as published") == 7_500_000_000
    # The real network: torchvision's card says 25,557,032 parameters.
    assert part(found, "weights, from the layers") == 4 * 25_557_032
    assert round(part(found, "responses of one image, from the layers") / 4 / 10**6) == 16
    assert part(found, "outputs x K²") == pytest.approx(7.5e9, rel=0.002)
    # im2col of every convolution: inputs x K² x pixels of the output, at batch 32 in fp32.
    assert part(found, "im2col matrices, from the layers") == 2_657_320_960


def test_lora_calculator() -> None:
    train, infer = answer("lora-calculator"), answer("lora-calculator-inference")
    assert round(train.process / GIB, 3) == 65.981 == round(part(infer, "all, training") / GIB, 3)
    assert round(infer.process / GIB, 3) == 59.055 == round(part(train, "all, inference") / GIB, 3)
    assert {p.name: round(p.bytes / GIB, 3) for p in train.parts if p.at_peak} == {
        "CUDA kernels": 2.0,
        "weights": 50.291,
        "gradients": 1.006,
        "moments": 2.012,
        "activations": 2.855,
        "logits": 7.816,
    }


def test_kv_cache() -> None:
    found = answer("kv-cache")
    assert found.process == 64 * GIB
    assert part(found, "keys and values as MQA") == 2 * GIB


def test_linear_in_batch() -> None:
    assert answer("linear-in-batch").process == 22 * 10**9


def test_accelerate_table() -> None:
    found = answer("accelerate")
    megabytes = {p.name: round(p.bytes / MIB, 2) for p in found.parts}
    assert megabytes["model"] == 413.18
    assert megabytes["largest layer"] == 84.95
    assert megabytes["model in fp16"] == 206.59
    assert megabytes["model in int8"] == 103.29
    assert megabytes["model in int4"] == 51.65
    assert megabytes["training in mixed precision"] == 826.36
    assert round(part(found, "training using Adam") / GIB, 2) == 1.61


def test_selective_recomputation_saves_what_the_paper_says() -> None:
    found = answer("activation-recomputation")
    whole, core = found.process + part(found, "attention core"), part(found, "attention core")
    assert core / found.process * 34 == pytest.approx(80)
    assert round(100 * core / whole) == 70


def test_zero_figure_1() -> None:
    found = answer("zero")
    names = ("baseline", "ZeRO-1 (optimizer)", "ZeRO-2 (and gradients)", "ZeRO-3 (and parameters)")
    assert [round(part(found, f"all, {name}") / 10**9, 1) for name in names] == [120.0, 31.4, 16.6, 1.9]
    assert found.process == part(found, "all, ZeRO-3 (and parameters)")


def test_deepspeed_examples() -> None:
    two, three = answer("deepspeed-zero2"), answer("deepspeed-zero3")
    assert round(two.process / GIB, 2) == 15.93
    assert round(part(two, "all, optimizer offloaded") / GIB, 2) == 5.31
    assert round(three.process / GIB, 2) == 6.09
    assert round(part(three, "all, optimizer offloaded") / GIB, 2) == 0.78
    assert round(part(three, "all, parameters and optimizer offloaded") / GIB, 2) == 0.12


def test_every_rule_has_a_preset() -> None:
    assert {answer(path.stem.removeprefix("rule-")).method for path in ALL} == {f"rules:{name}" for name in RULES}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_parts_and_ledger_agree(path: Path) -> None:
    found = answer(path.stem.removeprefix("rule-"))
    names = [part.name for part in found.parts]
    assert len(set(names)) == len(names)
    assert sum(part.at_peak for part in found.parts) == found.process
    lines: tuple[Line, ...] = (*CATEGORIES, "context", "other")
    for line in lines:
        alive = [part.at_peak for part in found.parts if part.line == line]
        assert (found.ledger.bytes_of(line) or 0) == sum(alive)
    assert not any(part.at_peak for part in found.parts if part.line in TOTALS)
    assert found.ledger.allocated == sum(found.ledger.bytes_of(line) or 0 for line in CATEGORIES)
    assert all(part.formula and part.source and part.lifetime for part in found.parts)
