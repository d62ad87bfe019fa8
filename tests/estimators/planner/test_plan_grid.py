"""Maps over two keys, against an estimator whose every byte is known, and against the analytic one."""

import pytest

from tests.estimators.planner.known import Known, card
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.planner.card_table import plan_grid

MODEL = TransformerModel(
    hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=100, max_position_embeddings=4096
)
JOB = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=128, attention="eager"))


def test_a_small_map_is_exact() -> None:
    grid = plan_grid(Known(), JOB, card(4000), ("run.batch_size", (3, 1, 2)), ("run.sequence_length", (100, 150, 600)))
    assert grid.exact
    assert grid.across == ("run.batch_size", (1, 2, 3))
    assert grid.sizes == ((2000, 3000, 4000), (2500, 4000, 5500), (None, None, None))
    assert grid.fits == ((True, True, True), (True, True, False), (False, False, False))


def test_a_large_map_asks_a_thousand_times_at_most_and_has_an_exact_edge() -> None:
    known = Known()
    batches, lengths = range(1, 101), range(1, 501, 5)
    grid = plan_grid(known, JOB, card(100_000), ("run.batch_size", batches), ("run.sequence_length", lengths))
    assert not grid.exact
    assert known.asked <= 1000
    for y, sizes, fits in zip(lengths, grid.sizes, grid.fits, strict=True):
        assert fits == tuple(1000 + 10 * x * y <= 100_000 for x in batches)
        # Bytes are linear in each key here, so straight lines between the nodes are the truth.
        assert sizes == tuple(1000 + 10 * x * y for x in batches)


@pytest.mark.slow
def test_sizes_stay_on_their_side_of_the_edge() -> None:
    room = 3 << 30
    grid = plan_grid(
        ANALYTIC, JOB, card(room), ("run.batch_size", range(1, 61)), ("run.sequence_length", range(64, 4097, 64))
    )
    cells = [
        (size, fit)
        for row, fits in zip(grid.sizes, grid.fits, strict=True)
        for size, fit in zip(row, fits, strict=True)
    ]
    assert {fit for _, fit in cells} == {True, False}
    assert all(size is not None and (size <= room) == fit for size, fit in cells)


def test_a_map_with_one_row_or_one_column() -> None:
    one = plan_grid(Known(), JOB, card(4000), ("run.batch_size", range(1, 60)), ("run.sequence_length", (100,)))
    assert one.fits[0].count(True) == 3
    assert one.sizes[0][58] == 60000
    nothing = plan_grid(Known(), JOB, card(4000), ("run.batch_size", ()), ("run.sequence_length", (100,)))
    assert nothing.sizes == ((),)


def test_a_key_that_is_no_number() -> None:
    with pytest.raises(UserError, match="not a key with a whole number"):
        plan_grid(Known(), JOB, card(9), ("run.batch_size", (1,)), ("run.optimizer", (1,)))
