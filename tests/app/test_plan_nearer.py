"""Maps and advice of the Plan screen come to say what `estimate` says, wherever the answer decides whether it fits."""

import pytest

from vramtui.app.plan.model import Advice, GridCells, GridQuestion, axes_of
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.card_table import answer_for
from vramtui.estimators.planner.planner import Planner

MODEL = TransformerModel(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, vocab_size=32000)
TRAIN = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=1024))
CARD = card("RTX4090")


@pytest.mark.slow
def test_what_may_fit_is_simulated_and_the_limit_goes_first() -> None:
    axes = {axis.name: axis for axis in axes_of(TRAIN, TRAIN, 8)}
    heatmap = GridCells(GridQuestion(TRAIN, CARD, axes["batch"], axes["precision"], 8), (0, 0), DEFAULT)
    steps = heatmap.fill(ANALYTIC)
    quick = {(x, y): answer_for(ANALYTIC, heatmap.workload_at(x, y), CARD) for y in range(2) for x in range(3)}
    next(steps)
    next(steps)
    assert heatmap.exact_cells == {(0, 0)}, "the start is simulated first: all other cells are moved as it is"
    for _ in zip(range(heatmap.total - 1), steps, strict=False):
        pass
    assert heatmap.done == heatmap.total
    assert not heatmap.is_whole
    start, plain = heatmap.cells()[0][0], quick[0, 0]
    assert start is not None
    assert start.process is not None
    assert plain.process is not None
    for (x, y), answer in quick.items():
        here = heatmap.cells()[y][x]
        if (x, y) not in heatmap.exact_cells and answer.process is not None:
            assert here is not None
            assert here.process == answer.process * start.process // plain.process
    for _ in steps:
        pass
    assert heatmap.is_whole
    refined = 0
    for y, row in enumerate(heatmap.cells()):
        for x, answer in enumerate(row):
            if (x, y) in heatmap.exact_cells:
                refined += 1
                assert answer == answer_for(DEFAULT, heatmap.workload_at(x, y), CARD)
        sizes = [answer.process for answer in row if answer is not None and answer.process is not None]
        assert sizes == sorted(sizes), "no cliff where the simulation ends"
    assert 10 < refined < heatmap.total


def test_advice_goes_by_what_is_simulated() -> None:
    advice = Advice(TRAIN, CARD, 1, DEFAULT)
    for _ in advice.find(ANALYTIC):
        pass
    planner = Planner(ANALYTIC, TRAIN, CARD, 1, DEFAULT)
    assert advice.edges == (planner.edge("run.batch_size"), planner.edge("run.sequence_length"))
    assert (
        advice.edges[0].process == answer_for(DEFAULT, TRAIN.with_run(batch_size=advice.edges[0].largest), CARD).process
    )
    now = answer_for(DEFAULT, TRAIN, CARD)
    assert advice.fits == now.fits
    holding = {holds.card.name: holds.process for holds in advice.cards}
    near = answer_for(DEFAULT, TRAIN, card("A40"))
    assert holding["A40"] == near.process
