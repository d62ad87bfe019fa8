from typing import Any

import msgspec
import pytest

from tests.golden_workloads import DECODERS
from tests.tables import for_each, rows
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload
from vramtui.estimators.analytic import ANALYTIC

WINDOW = DECODERS["window-bf16"].workload


def estimated(workload: Workload, model: dict[str, Any] | None = None, **run: object) -> Estimate:
    changed = msgspec.structs.replace(
        workload.with_run(**run), model=msgspec.structs.replace(workload.model, **(model or {}))
    )
    return ANALYTIC.estimate(changed, card("H200"))


def test_dora_keeps_no_merged_weight_and_only_sliding_layers_get_a_mask() -> None:
    """Beside LoRA it keeps, for each of 16 targets, the base's answer in bf16 and the adapter's in fp32; the weights
    with their adapters multiplied out have gone by the end of the forward pass.
    """
    tokens, layers, queries, values, inner = 4 * 1024, 8, 2048, 512, 2048
    lora, dora = (
        next(m.categories["activations"] for m in estimated(DECODERS[name].workload).timeline if m.phase == "forward")
        for name in ("lora-large", "dora-large")
    )
    assert dora - lora == pytest.approx(layers * tokens * (queries + values) * (2 + 4), rel=0.001)
    assert layers * inner * (queries + values) * 4 > 0.01 * dora
    # A mask is left out by transformers only where no token could be out of sight.
    sizes = {window: estimated(WINDOW, {"sliding_window": window}) for window in (256, 1024, 1025, None)}
    assert (sizes[256].allocated, sizes[1025].allocated) == (sizes[1024].allocated, sizes[None].allocated)
    batch, length, layers = 4, 1024, 8
    masks = layers * batch * length * length * 2
    repeated = layers * 2 * (2048 - 512) * batch * length * 2
    assert sizes[1024].allocated - sizes[1025].allocated == masks + repeated
    assert any("mask of tokens x tokens" in note for note in sizes[1024].assumptions)
    assert not any("mask of tokens x tokens" in note for note in sizes[1025].assumptions)
    half = estimated(WINDOW, {"sliding_window_pattern": 2})
    assert half.allocated - sizes[None].allocated == (sizes[256].allocated - sizes[None].allocated) // 2


@for_each(rows(__file__, "what_nothing_has_held_states"))
def test_what_nothing_has_held_states_no_error(key: str, value: Any) -> None:
    plain = DECODERS["lion-large"].workload
    assert estimated(plain).error is not None
    found = estimated(plain, **{key: value})
    assert found.error is None
    assert any(f"run.{key} = '{value}'" in note for note in found.assumptions)
