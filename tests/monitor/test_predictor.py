from hypothesis import given
from hypothesis.strategies import integers
from msgspec import structs

from tests.app.fakes import MODEL, PRESETS, RoundEstimator
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import CARDS, card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.monitor.predictor import MOST_BATCH, MaxBatchSearch, Predictor, verdict

TRAIN = PRESETS[0].preset.workload
H100 = card("H100")


def test_estimates_are_made_once_and_a_total_keeps_none() -> None:
    estimator = RoundEstimator()
    predictor = Predictor(estimator)
    first = predictor.ask(TRAIN, H100)
    assert predictor.ask(Workload(model=MODEL, run=TRAIN.run), H100) is first
    assert estimator.asked == 1
    predictor.ask(TRAIN, card("T4"))
    assert estimator.asked == 2
    answer = Predictor(RoundEstimator()).ask(Workload(model=MODEL, run=TrainRun(sequence_length=1536)), H100)
    assert answer.estimate is None
    assert "max_position_embeddings" in answer.problem
    estimator = RoundEstimator()
    predictor = Predictor(estimator)
    assert not predictor.knows_total(TRAIN, H100)
    total = predictor.total(TRAIN, H100)
    assert predictor.knows_total(TRAIN, H100)
    assert total == predictor.total(TRAIN, H100) == estimator.estimate(TRAIN, H100).process
    assert estimator.asked == 2
    predictor.ask(TRAIN, H100)
    assert estimator.asked == 3
    contradictory = Workload(model=MODEL, run=TrainRun(sequence_length=1536))
    assert predictor.total(contradictory, H100) is None
    assert predictor.largest_batch(contradictory, H100) is None


def found_by(search: MaxBatchSearch | None) -> int:
    while search.largest is None:
        search.go_on()
    return search.largest


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    estimator = RoundEstimator()
    predictor = Predictor(estimator)
    for device in CARDS.values():
        most = found_by(predictor.largest_batch(TRAIN, device))
        for batch in (most, most + 1):
            if batch:
                run = TrainRun(batch_size=batch, sequence_length=4096, lora=getattr(TRAIN.run, "lora", None))
                needed = estimator.estimate(Workload(model=MODEL, run=run), device).process
                assert (needed <= device.total_memory) == (batch == most)
    asked = estimator.asked
    search = predictor.largest_batch(TRAIN, H100)
    other = structs.replace(TRAIN, run=structs.replace(TRAIN.run, batch_size=3))
    assert predictor.largest_batch(other, H100) is search  # the present size makes no difference
    assert estimator.asked == asked + 1
    assert found_by(MaxBatchSearch(lambda _: 1, 1, most=MOST_BATCH)) == MOST_BATCH


@given(most=integers(0, 5000))
def test_a_search_asks_once_a_turn_at_least_and_finds_the_edge(most: int) -> None:
    asked: list[int] = []

    def needs(batch: int) -> int:
        asked.append(batch)
        return batch

    search = MaxBatchSearch(needs, most)
    turns = 0
    while search.largest is None:
        before = len(asked)
        search.go_on(budget=0.0)
        assert len(asked) - before <= 1
        turns += 1
    assert search.largest == most
    assert len(asked) <= 30
    search.go_on()
    assert search.largest == most


def test_the_verdict_tells_apart_the_card_and_its_neighbours_where_all_is_known() -> None:
    estimate = RoundEstimator().estimate(TRAIN, H100)
    alone = verdict(estimate, None, H100, None, "GPU 0")
    assert (alone.is_enough, alone.spare) == (True, H100.total_memory - estimate.process)
    assert alone.line("GPU 0").endswith(f"{alone.spare / GIB:.1f} GiB spare")
    beside = verdict(estimate, None, H100, estimate.process - GIB, "GPU 0")
    assert beside.verdict == "does not fit"
    assert beside.sentence.endswith("1.0 GiB short; would fit GPU 0 if empty")
    small = verdict(estimate, None, card("A10"), None, "GPU 1")
    assert small.line("GPU 1").startswith("✗ does not fit GPU 1: needs ")
    model = TRAIN.model
    assert isinstance(model, TransformerModel)
    unknown = structs.replace(TRAIN, model=structs.replace(model, basis="generic"))
    estimate = RoundEstimator().estimate(unknown, H100)
    assert verdict(estimate, unknown, H100, None, "GPU 0").verdict == "unknown"
    assert Predictor(RoundEstimator()).fit(unknown, H100).verdict == "unknown"
