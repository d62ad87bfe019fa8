import re
from pathlib import Path
from typing import Any

import pytest

from tests.app import scenes
from vramtui.app.state.view import View
from vramtui.app.themes import Palette, palette_variables
from vramtui.core.base.errors import SourceFailed
from vramtui.core.estimate.devices import card
from vramtui.core.observation.readings import METRICS, Problem
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.rules import estimate_rules
from vramtui.presets import parse_preset
from vramtui.presets.library import PresetLibrary

TEXT = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text(encoding="utf-8")
BLOCKS = dict(re.findall(r"```\w+\n# (\S+)\n(.*?)```", TEXT, re.DOTALL))


def run(path: str) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(BLOCKS[path], path, "exec"), names)  # noqa: S102 - it is the documentation's own code
    return names


def test_a_source(tmp_path: Path) -> None:
    example = run("vramtui/sources/node_file.py")
    example["HERE"] = tmp_path / "gpus"
    with pytest.raises(SourceFailed, match="cannot be read"):
        example["open_here"]()
    (tmp_path / "gpus").write_text('{"total": 100, "used": 40}\n')
    because = Problem(where="NVML", message="It is not there.")
    sample = example["open_here"](because).read()
    (gpu,) = sample.gpus
    assert (gpu.memory.free, gpu.unattributed) == (60, 40)
    assert sample.problems == (because,)
    assert set(gpu.absent) == {"processes", *METRICS}


def test_a_formula_a_preset_and_a_panel() -> None:
    model = PresetLibrary().get("llama-3.1-8b-lora").preset.model
    piece = run("vramtui/estimators/analytic/sampled_logits.py")["sampled_logits"](model, 16)
    assert piece.bytes == 16 * 128_256 * 4
    path = Path("presets/llama/llama-3.2-1b-lora.toml")
    preset = parse_preset(BLOCKS[str(path)], path)
    assert ANALYTIC.estimate(preset.workload, card("RTX4090")).process < card("RTX4090").total_memory
    panel = run("vramtui/app/watch/hottest.py")["Hottest"]()
    palette = Palette(
        palette_variables({"foreground": "#d7deea", "background": "#101418", "primary": "#4f9cf9"}, dark=True)
    )
    (line,) = panel.build(View(sample=scenes.usual()), palette, 40, 1)
    assert "hottest: GPU" in line.text
    assert (line.cell_length, panel.build(View(), palette, 40, 1)) == (40, [])


def test_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.estimators.rules.RULES", {})
    run("vramtui/estimators/sixteen.py")
    workload = PresetLibrary().get("gpt2-124m").preset.workload
    (estimate,) = estimate_rules(workload, card("H100"), "sixteen")
    assert estimate.process == 16 * 124_439_808
