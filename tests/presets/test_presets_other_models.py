"""Presets of encoders, encoder-decoders, UNets and diffusion transformers: counts proven, and jobs recognised."""

from typing import Any

import pytest

from tests.loaded_once import bundled_presets
from tests.tables import for_each, rows
from vramtui.core.estimate.devices import card
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.core.schema.models import DiffusionTransformerModel, EncoderDecoderModel, EncoderModel, UNetModel
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.presets import bundled_folder

GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
OTHER = (EncoderModel, EncoderDecoderModel, UNetModel, DiffusionTransformerModel)
BUNDLED = {found.key: found.preset for found in bundled_presets()}
PRESETS = {key: preset for key, preset in BUNDLED.items() if isinstance(preset.model, OTHER)}

# What transformers builds, by its own classes and the published sizes. Flan-T5's output layer, which the checkpoint has
# and transformers ties all the same, is 32,128 x 2,048 more.
BUILT = {key: built for key, *built in rows(__file__, "built")}
# diffusers' models are counted by their published checkpoints.
PUBLISHED = dict(rows(__file__, "published"))


def test_every_preset_is_counted_with_both_of_clips_towers() -> None:
    assert set(PRESETS) == set(BUILT) | set(PUBLISHED)
    assert len(PRESETS) >= 12
    # With the text's projection of 768 x 768 and the temperature, they are the published model.
    towers = (PRESETS[key].model for key in ("clip-vit-l14-vision-infer", "clip-vit-l14-text-infer"))
    assert sum(parameter_count(tower) for tower in towers) + 768 * 768 + 1 == 427_616_513


@pytest.mark.torch
@for_each(BUILT)
def test_transformers_builds_as_many_parameters(key: str) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config, kind, sizes, more = BUILT[key]
    with torch.device("meta"):
        model = getattr(transformers, kind)(getattr(transformers, config)(**sizes))
    model.tie_weights()
    assert sum(parameter.numel() for parameter in model.parameters()) + more == parameter_count(PRESETS[key].model)


@for_each(PUBLISHED)
def test_the_published_count(key: str) -> None:
    assert parameter_count(PRESETS[key].model) == PUBLISHED[key]


@for_each(PRESETS)
def test_it_says_what_it_is_and_what_is_taken_for_granted(key: str) -> None:
    preset = PRESETS[key]
    estimate = ANALYTIC.estimate(preset.workload, card("H200"))
    assert estimate.assumptions
    assert all(part.formula and part.source and part.lifetime for part in estimate.parts)


@for_each(sorted(bundled_folder().rglob("*.toml")))
def test_other_models_say_where_their_shapes_are_from(path: Any) -> None:
    if path.stem in PRESETS:
        assert path.read_text(encoding="utf-8").startswith("# Shapes: ")


@for_each(rows(__file__, "commands_find_their_preset_and_no_other"))
def test_commands_find_their_preset_and_no_other(command: str, keys: list[str]) -> None:
    rules = {key: preset.match for key, preset in BUNDLED.items() if preset.match}
    process = Process(pid=1, type="C", command=command)
    assert [key for key, match in rules.items() if matches(match, GPU, process)] == keys
