"""Maps and advice of the Plan screen come to say what `estimate` says, wherever the answer decides whether it fits."""

import pytest

from vramtui.app.plan.axes import axes_of
from vramtui.app.plan.grid import Advice, GridCells, GridQuestion
from vramtui.core.estimate.devices import card
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.grid import answer_for
from vramtui.estimators.planner.planner import Planner

MODEL = TransformerModel(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, vocab_size=32000)
TRAIN = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=1024))
CARD = card("RTX4090")


@pytest.mark.slow
def test_what_may_fit_is_simulated_and_the_limit_goes_first() -> None:
    axes = {axis.name: axis for axis in axes_of(TRAIN, TRAIN, 8)}
    sheet = GridCells(GridQuestion(TRAIN, CARD, axes["batch"], axes["precision"], 8), (0, 0), DEFAULT)
    steps = sheet.fill(ANALYTIC)
    quick = {(x, y): answer_for(ANALYTIC, sheet.workload_at(x, y), CARD) for y in range(2) for x in range(3)}
    next(steps)
    next(steps)
    assert sheet.near_cells == {(0, 0)}, "the start is simulated first: all other cells are moved as it is"
    for _ in zip(range(sheet.total - 1), steps, strict=False):
        pass
    assert sheet.done == sheet.total
    assert not sheet.is_whole
    start, plain = sheet.cells()[0][0], quick[0, 0]
    assert start is not None
    assert start.process is not None
    assert plain.process is not None
    for (x, y), answer in quick.items():
        here = sheet.cells()[y][x]
        if (x, y) not in sheet.near_cells and answer.process is not None:
            assert here is not None
            assert here.process == answer.process * start.process // plain.process
    for _ in steps:
        pass
    assert sheet.is_whole
    refined = 0
    for y, row in enumerate(sheet.cells()):
        for x, answer in enumerate(row):
            if (x, y) in sheet.near_cells:
                refined += 1
                assert answer == answer_for(DEFAULT, sheet.workload_at(x, y), CARD)
        sizes = [answer.process for answer in row if answer is not None and answer.process is not None]
        assert sizes == sorted(sizes), "no cliff where the simulation ends"
    assert 10 < refined < sheet.total


def test_advice_goes_by_what_is_simulated() -> None:
    advice = Advice(TRAIN, CARD, 1, DEFAULT)
    for _ in advice.find(ANALYTIC):
        pass
    planner = Planner(ANALYTIC, TRAIN, CARD, 1, DEFAULT)
    assert advice.edges == (planner.edge("run.batch_size"), planner.edge("run.sequence_length"))
    assert (
        advice.edges[0].process
        == answer_for(DEFAULT, TRAIN.with_inputs(batch_size=advice.edges[0].largest), CARD).process
    )
    now = answer_for(DEFAULT, TRAIN, CARD)
    assert advice.fits == now.fits
    holding = {holds.card.name: holds.process for holds in advice.cards}
    near = answer_for(DEFAULT, TRAIN, card("A40"))
    assert holding["A40"] == near.process
