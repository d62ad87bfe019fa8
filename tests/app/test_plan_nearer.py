"""Maps and advice of the Plan screen come to say what `estimate` says, wherever the answer decides whether it fits."""

import pytest

from vramtui.app.plan.axes import axes_of
from vramtui.app.plan.grid import Advice, GridCells, GridQuestion
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import USUAL
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.planner import NEAR, Planner

MODEL = TransformerModel(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, vocab_size=32000)
TRAIN = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=1024))
CARD = card("RTX4090")


@pytest.mark.slow
def test_what_may_fit_is_simulated_and_the_limit_goes_first() -> None:
    axes = {axis.name: axis for axis in axes_of(TRAIN, TRAIN, 8)}
    sheet = GridCells(GridQuestion(TRAIN, CARD, axes["batch"], axes["precision"], 8), (0, 0), USUAL)
    steps = sheet.fill(ANALYTIC)
    for _ in zip(range(sheet.total), steps, strict=False):
        pass
    assert sheet.done == sheet.total
    assert not sheet.is_whole
    quick = sheet.cells()
    next(steps)
    first = [
        (x, y)
        for y, row in enumerate(sheet.cells())
        for x, answer in enumerate(row)
        if answer != quick[y][x] and answer is not None
    ]
    assert first == [(0, 0)]
    for _ in steps:
        pass
    assert sheet.is_whole
    refined = 0
    for y, row in enumerate(sheet.cells()):
        for x, answer in enumerate(row):
            former = quick[y][x]
            assert former is not None
            if former.process is None or former.process > CARD.total_memory * NEAR:
                assert answer == former
            else:
                refined += 1
                assert answer == answer_for(USUAL, sheet.workload_at(x, y), CARD)
    assert 10 < refined < sheet.total


def test_advice_goes_by_what_is_simulated() -> None:
    advice = Advice(TRAIN, CARD, 1, USUAL)
    for _ in advice.find(ANALYTIC):
        pass
    planner = Planner(ANALYTIC, TRAIN, CARD, 1, USUAL)
    assert advice.edges == (planner.edge("run.batch_size"), planner.edge("run.sequence_length"))
    assert (
        advice.edges[0].process
        == answer_for(USUAL, TRAIN.with_inputs(batch_size=advice.edges[0].largest), CARD).process
    )
    now = answer_for(USUAL, TRAIN, CARD)
    assert advice.fits == now.fits
    holding = {holds.card.name: holds.process for holds in advice.cards}
    near = answer_for(USUAL, TRAIN, card("A40"))
    assert holding["A40"] == near.process
