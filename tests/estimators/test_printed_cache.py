"""The printed arithmetic of the KV cache evaluates to its bytes."""

import re

import pytest

from tests.loaded_once import bundled_presets
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.methods import estimates_by

PRESETS = [
    found
    for found in bundled_presets()
    if isinstance(found.preset.model, TransformerModel) and isinstance(found.preset.run, InferRun)
]


def evaluate(formula: str) -> float:
    """Evaluate the products and sums of a printed formula, without its words."""
    arithmetic = re.sub(r", (?=[a-z]).*", "", formula).replace(",", "").replace(" x ", "*")
    arithmetic = re.sub("[A-Za-z/-]+", "", arithmetic)
    assert re.fullmatch(r"[\d.*+() ]+", arithmetic), formula
    return float(eval(arithmetic))  # noqa: S307 - digits and operators only, as asserted


@pytest.mark.parametrize("found", PRESETS, ids=lambda found: found.key)
def test_the_formula_is_the_bytes(found: PresetFile) -> None:
    (estimate,) = estimates_by(None, found.preset.workload, card("B200"))
    (part,) = [part for part in estimate.parts if part.name == "kv cache"]
    assert abs(evaluate(part.formula) - part.bytes) <= 512 * max(part.count, 1), part.formula
