"""Nets for detection and segmentation by torchvision's names, beside PyTorch 2.13's CUDA build on a stubbed driver.

There no value is known, so that every choice of boxes was set to as many as the net takes at most.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import SequentialModel
from vramtui.core.schema.workload import InferRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.estimators.analytic.stated_errors import SPREADS, kind_of
from vramtui.models.readers.torchvision import vision_table
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named

GOLDEN = Path(__file__).parents[2] / "golden" / "detection.json"
RUNS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
# Measured on these runs. What inference lacks are images held twice and a block's input while the block runs.
SPREAD = {("train", "fp32"): (0.041, 0.1), ("train", "bf16-mixed"): (0.1, 0.05), ("infer", "fp32"): (0.2, 0.01)}
# "num_params" of torchvision 0.28's published weights.
PUBLISHED = {
    "fasterrcnn_resnet50_fpn": 41_755_286, "fasterrcnn_resnet50_fpn_v2": 43_712_278,
    "fasterrcnn_mobilenet_v3_large_fpn": 19_386_354, "fasterrcnn_mobilenet_v3_large_320_fpn": 19_386_354,
    "maskrcnn_resnet50_fpn": 44_401_393, "maskrcnn_resnet50_fpn_v2": 46_359_409,
    "keypointrcnn_resnet50_fpn": 59_137_258, "retinanet_resnet50_fpn": 34_014_999,
    "retinanet_resnet50_fpn_v2": 38_198_935, "fcos_resnet50_fpn": 32_269_600, "ssd300_vgg16": 35_641_826,
    "ssdlite320_mobilenet_v3_large": 3_440_060, "fcn_resnet50": 35_322_218, "fcn_resnet101": 54_314_346,
    "deeplabv3_resnet50": 42_004_074, "deeplabv3_resnet101": 60_996_202, "deeplabv3_mobilenet_v3_large": 11_029_328,
    "lraspp_mobilenet_v3_large": 3_221_538,
}  # fmt: skip


def _workload(run: dict[str, Any]) -> Workload:
    kind: type[TrainRun | InferRun] = TrainRun if run["kind"] == "train" else InferRun
    asked = {key: run[key] for key in ("batch_size", "precision")}
    asked |= {"optimizer": run["optimizer"]} if run["kind"] == "train" else {}
    return Workload(model=msgspec.convert(vision_table(run["net"]), SequentialModel), run=msgspec.convert(asked, kind))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['net']} {run['kind']} {run['precision']}")
def test_the_peak(run: dict[str, Any]) -> None:
    below, above = SPREAD[run["kind"], run["precision"]]
    found = ANALYTIC.estimate(_workload(run), card("H200")).allocated
    assert -below <= found / int(run["allocated"]) - 1 <= above


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_parameters_are_the_published_weights(name: str, parameters: int, tmp_path: Path) -> None:
    assert parameter_count(preset_named(name, PresetLibrary(tmp_path)).preset.model) == parameters


def test_frozen_stages_and_transposed_or_dilated_convolutions() -> None:
    """Of Faster R-CNN's 41.8 M parameters the first convolution and stage are frozen, 222,400 of them."""
    run = {
        "net": "fasterrcnn_resnet50_fpn", "kind": "train", "batch_size": 1, "precision": "fp32", "optimizer": "adamw",
    }  # fmt: skip
    estimate = ANALYTIC.estimate(_workload(run), card("H200"))
    states = next(part.bytes for part in estimate.parts if part.name == "optimizer")
    assert states == pytest.approx(8 * (41_755_286 - 222_400), rel=0.002)
    head = {**CONV, "out_channels": 3}
    assert parameter_count(_list(head, {**head, "weights": "shared"})) == 3 * 3 * 9 + 3
    net = _list(
        {"type": "mark", "name": "image"},
        {**CONV, "padding": 2, "dilation": 2, "stride": 2},
        {"type": "conv", "out_channels": 3, "kernel_size": 2, "stride": 2, "transposed": True},
        {"type": "join", "names": ["image"]},
    )
    assert parameter_count(net) == 8 * 27 + 8 + 8 * 12 + 3
    net = _list({"type": "mark", "name": "level"}, CONV, {"type": "regions", "names": ["levle"]})
    with pytest.raises(UserError, match=r"nothing before it is marked 'levle' .did you mean level."):
        parameter_count(net)


def test_a_net_nearly_named_so_or_weights_beside_a_refused_config_are_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean deeplabv3_resnet50"):
        preset_named("deeplab3_resnet50", PresetLibrary(tmp_path))
    # The sentence sent people from the config to the weights and back.
    (tmp_path / "config.json").write_text('{"architectures": ["UnheardForCausalLM"], "model_type": "unheard"}')
    tensor = {"dtype": "F32", "shape": [8, 8], "data_offsets": [0, 256]}
    header = json.dumps({"encoder.subsampling.linear.weight": tensor}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(256))
    with pytest.raises(UserError, match=r"holds 64 numbers.*'UnheardForCausalLM' but has no "):
        preset_named(str(tmp_path / "model.safetensors"), PresetLibrary(tmp_path))


def test_a_detector_has_the_net_that_its_config_names_or_is_refused(tmp_path: Path) -> None:
    """DETR's 41.5 M parameters were read as 11 M: those of its ResNet-50 stand in no key."""
    config: dict[str, Any] = {"architectures": ["DetrForObjectDetection"], "model_type": "detr", "d_model": 256}
    config |= {"num_hidden_layers": 6, "encoder_layers": 6, "decoder_layers": 6}
    config |= {"encoder_ffn_dim": 2048, "encoder_attention_heads": 8, "decoder_attention_heads": 8}
    known = config | {"backbone": "resnet50", "id2label": {str(index): "" for index in range(91)}}
    (tmp_path / "config.json").write_text(json.dumps(known), encoding="utf-8")
    read = preset_named(str(tmp_path / "config.json"), PresetLibrary(tmp_path))
    assert parameter_count(read.preset.model) == 41_524_768  # facebook/detr-resnet-50's own
    (tmp_path / "config.json").write_text(json.dumps(config | {"backbone": "swin_tiny"}), encoding="utf-8")
    with pytest.raises(UserError, match=r"'DetrForObjectDetection' but has a net of its own in backbone"):
        preset_named(str(tmp_path / "config.json"), PresetLibrary(tmp_path))
    tensor = {"dtype": "F32", "shape": [64, 3, 7, 7], "data_offsets": [0, 37632]}
    header = json.dumps({"model.backbone.conv1.weight": tensor}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(37632))
    assert parameter_count(preset_named(str(tmp_path), PresetLibrary(tmp_path)).preset.model) == 64 * 3 * 7 * 7


def _list(*layers: dict[str, Any]) -> SequentialModel:
    return msgspec.convert({"kind": "sequential", "input_shape": [3, 64, 64], "layers": layers}, SequentialModel)


CONV = {"type": "conv", "out_channels": 8, "kernel_size": 3, "padding": 1}


@pytest.mark.parametrize("run", [run for run in RUNS if run["kind"] == "infer"], ids=lambda run: str(run["net"]))
def test_what_is_stated_of_asking_a_detector_holds_what_was_measured(run: dict[str, Any]) -> None:
    workload = _workload(run)
    kind = kind_of(workload)
    assert kind == "detection infer"
    spread = SPREADS[kind][0]
    off = int(run["allocated"]) / ANALYTIC.estimate(workload, card("H200")).allocated - 1
    assert -spread.below <= off <= spread.above
