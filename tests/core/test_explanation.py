"""The chapters hold the whole estimate: nothing is left out and nothing is told twice."""

import re

import pytest

from vramtui.core.estimate.devices import card
from vramtui.core.estimate.explanation import WORDS, arithmetic, chapters, peak_sentence
from vramtui.core.schema.models import TorchModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.methods import estimates_by
from vramtui.presets import PresetLibrary

PRESETS = [found for found in PresetLibrary().all() if not isinstance(found.preset.model, TorchModel)]


@pytest.mark.parametrize("found", PRESETS, ids=lambda found: found.key)
def test_every_part_is_told_once_with_its_arithmetic(found: PresetFile) -> None:
    estimate = estimates_by(None, found.preset.workload, card("H200"))[0]
    told = chapters(estimate)
    assert sorted(part.name for chapter in told for part in chapter.parts) == sorted(
        part.name for part in estimate.parts
    )
    for chapter in told:
        words = f"{chapter.words.what} {chapter.words.changed_by} {chapter.words.sure}"
        if not isinstance(found.preset.run, TrainRun):
            assert not re.search("autograd|gradient|checkpointing|optimizer|QLoRA", words), "nothing is trained"
        else:
            assert chapter.words is WORDS[chapter.line]
        assert chapter.at_peak == sum(part.at_peak for part in chapter.parts)
        for part in chapter.parts:
            assert part.formula in arithmetic(part)
            assert part.name in arithmetic(part)


def test_the_peak_is_told_with_the_three_totals() -> None:
    found = PresetLibrary().get("gpt2-124m")
    estimate = estimates_by(None, found.preset.workload, card("H200"))[0]
    sentence = peak_sentence(estimate)
    assert "step" in sentence
    assert all(word in sentence for word in ("allocated", "reserved", "process", "GiB"))


def test_a_rule_without_totals_is_told_too() -> None:
    found = PresetLibrary().get("gpt2-124m")
    assert "Peak: " in peak_sentence(estimates_by("rules:bytes-per-parameter", found.preset.workload, card("H200"))[0])
