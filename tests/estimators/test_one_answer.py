"""One figure for one preset and card, whoever asks: `estimate`, `pick`, `card`, a table of cards, and a screen once it
is settled.
"""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.app import scenes
from tests.loaded_once import bundled_presets
from vramtui.cli.estimate.command import fit_of
from vramtui.cli.main import program
from vramtui.cli.run.placement import need_of
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.observation.readings import Memory
from vramtui.core.schema.decoder_models import RuleModel
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import USUAL, estimates_by
from vramtui.estimators.planner.card_table import answers_on
from vramtui.monitor.predictor import LazyUsual, Predictor

CARDS = tuple(map(card, ("T4", "RTX4090", "A100-40GB", "L40S", "H100", "H200")))
PRESETS = [found for found in bundled_presets() if not isinstance(found.preset.model, RuleModel)]
FEW, MANY = PRESETS[:: len(PRESETS) // 4], PRESETS[:: max(1, len(PRESETS) // 30)]


def hold_together(found: PresetFile) -> None:
    workload = found.preset.workload
    predictor = Predictor(LazyUsual())
    tables = {there.name: answer.process for there, answer in answers_on(ANALYTIC, workload, CARDS, USUAL)}
    for device in CARDS:
        try:
            (estimate,) = estimates_by(None, workload, device)
        except UserError:
            assert predictor.ask(workload, device).estimate is None
            continue
        empty = Memory(total=device.total_memory, used=0, reserved=0, free=device.total_memory)
        gpu = scenes.gpu(0, name=device.name, memory=empty, compute_capability=device.capability)
        picked = need_of(None, found, 1).fit(gpu)
        assert picked is not None
        assert picked.needs == estimate.process
        shown = predictor.ask(workload, device).estimate
        assert shown is not None
        assert shown.process == estimate.process
        total = predictor.total(workload, device)
        assert total == estimate.process
        # A table of cards asks the nearer method once for each compute capability; a card that is nearly full keeps
        # somewhat less or more cached.
        assert tables[device.name] == pytest.approx(estimate.process, rel=0.005), device.name


@pytest.mark.parametrize("found", FEW, ids=lambda found: str(found.key))
def test_one_figure_for_one_preset_and_card(found: PresetFile) -> None:
    hold_together(found)


@pytest.mark.parametrize("found", FEW, ids=lambda found: str(found.key))
def test_a_picture_has_the_same_figure(found: PresetFile, tmp_path: Path) -> None:
    device = card("H200")
    (estimate,) = estimates_by(None, found.preset.workload, device)
    picture = tmp_path / "card.svg"
    done = CliRunner().invoke(program(), ["card", str(found.key), "--gpu", "H200", "-o", str(picture)])
    assert done.exit_code == 0, done.output
    assert fit_of(found, estimate, device).sentence in picture.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("found", MANY, ids=lambda found: str(found.key))
def test_one_figure_for_many_presets(found: PresetFile) -> None:
    hold_together(found)
