"""Nets for images by their names, beside the CUDA build of PyTorch 2.13 with torchvision 0.28 on a stubbed driver."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.recorded.cudnn import cudnn_without_device
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import SequentialModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.readers.config_json import parse_config
from vramtui.models.readers.torchvision import vision_table
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named

GOLDEN = Path(__file__).parents[2] / "golden" / "vision.json"
RUNS: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))
# Measured over 14 nets: -2.1 to +0.3 % in fp32, -2.7 to -0.1 % under autocast; cuDNN's workspaces are not counted.
BELOW, ABOVE = 0.028, 0.004


def _net(name: str) -> SequentialModel:
    return msgspec.convert(vision_table(name), SequentialModel)


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run['net']} {run['precision']}")
def test_the_peak_of_training(run: dict[str, Any]) -> None:
    training = msgspec.convert({key: run[key] for key in ("batch_size", "precision", "optimizer")}, TrainRun)
    with cudnn_without_device():
        found = ANALYTIC.estimate(Workload(model=_net(run["net"]), run=training), card("H200")).allocated
    assert -BELOW <= found / int(run["allocated"]) - 1 <= ABOVE


@pytest.mark.parametrize("name", [run["net"] for run in RUNS[:14]])
def test_parameters_are_the_modules_own(name: str) -> None:
    """`parameters` is the module's own count, and the estimator holds the layers against it."""
    run = next(run for run in RUNS if run["net"] == name)
    assert _net(name).parameters == parameter_count(_net(name)) == run["parameters"]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("timm/convnext_tiny.in12k_ft_in1k", 28_589_128), ("swin_small_patch4_window7_224", 49_606_258),
        ("regnety_032", 19_436_338), ("deit_tiny_patch16_224", 5_717_416), ("vit_large_patch16_384", 304_715_752),
        ("vit_small_patch32_224", 22_878_952), ("vit_b_16", 86_567_656),
    ],
)  # fmt: skip
def test_names_of_timm_and_torchvision(name: str, parameters: int, tmp_path: Path) -> None:
    found = preset_named(name, PresetLibrary(tmp_path)).preset.model
    assert parameter_count(found) == parameters


def test_a_net_by_its_name_or_config_and_one_that_is_not_known(tmp_path: Path) -> None:
    values = {"architecture": "convnext_tiny", "num_classes": 10, "pretrained_cfg": {"input_size": [3, 288, 288]}}
    model = parse_config(values).model
    assert model["input_shape"] == [3, 288, 288]
    assert parameter_count(msgspec.convert(model, SequentialModel)) == 28_589_128 - 990 * 769
    (tmp_path / "config.json").write_text('{"architecture": "coatnet_0"}', encoding="utf-8")
    with pytest.raises(UserError, match="timm's 'coatnet_0'"):
        preset_named(str(tmp_path / "config.json"), PresetLibrary(tmp_path))


def _list(*layers: dict[str, Any], shape: tuple[int, ...] = (3, 16, 16)) -> SequentialModel:
    return msgspec.convert({"kind": "sequential", "input_shape": shape, "layers": layers}, SequentialModel)


CONV = {"type": "conv", "out_channels": 8, "kernel_size": 3, "padding": 1}


def test_a_unet_without_conditions_and_a_skip_over_repeats() -> None:
    net = _list(
        CONV, {"type": "mark", "name": "skip"}, {"type": "pooling"}, CONV, {"type": "upsample"},
        {"type": "join", "names": ["skip"], "how": "concat"}, {**CONV, "out_channels": 3},
    )  # fmt: skip
    assert parameter_count(net) == (27 * 8 + 8) + (72 * 8 + 8) + (144 * 3 + 3)
    down = {"type": "repeat", "times": 2, "layers": [CONV, {"type": "activation"}]}
    net = _list(CONV, {"type": "mark", "name": "up"}, down, {"type": "join", "names": ["up"], "how": "concat"}, CONV)
    assert parameter_count(net) == (27 * 8 + 8) + 2 * (72 * 8 + 8) + (144 * 8 + 8)


@pytest.mark.parametrize(("layers", "sentence"), [
    ([CONV, {"type": "join", "names": ["a"]}], "nothing before it is marked 'a'"),
    ([{"type": "mark", "name": "a"}, CONV, {"type": "join", "names": ["a"]}], "does not go with"),
    ([CONV, {"type": "window-attention", "num_heads": 3}], "window attention of 3 heads"),
])  # fmt: skip
def test_branches_that_do_not_fit_are_refused(layers: list[dict[str, Any]], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        parameter_count(_list(*layers))
