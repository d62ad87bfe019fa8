"""Estimates are made once, and never raise."""

from tests.app.stand_ins import MODEL, PRESETS, RoundEstimator
from vramtui.app.predicting import Predictor, verdict
from vramtui.core.devices import CARDS, card
from vramtui.core.units import GIB
from vramtui.core.workload import TrainRun, Workload

TRAIN = PRESETS[0].preset.workload
H100 = card("H100")


def test_an_estimate_is_made_once_for_each_workload_and_card() -> None:
    estimator = RoundEstimator()
    predictor = Predictor(estimator)
    first = predictor.ask(TRAIN, H100)
    assert predictor.ask(Workload(model=MODEL, run=TRAIN.run), H100) is first
    assert estimator.asked == 1
    predictor.ask(TRAIN, card("T4"))
    assert estimator.asked == 2


def test_what_cannot_be_estimated_is_a_sentence() -> None:
    answer = Predictor(RoundEstimator()).ask(Workload(model=MODEL, run=TrainRun(sequence_length=1536)), H100)
    assert answer.estimate is None
    assert "max_position_embeddings" in answer.problem


def test_the_largest_batch_fits_and_one_more_does_not() -> None:
    estimator = RoundEstimator()
    predictor = Predictor(estimator)
    for device in CARDS.values():
        most = predictor.largest_batch(TRAIN, device)
        assert most is not None
        for batch in (most, most + 1):
            if batch:
                run = TrainRun(batch_size=batch, sequence_length=4096, lora=getattr(TRAIN.run, "lora", None))
                needed = estimator.estimate(Workload(model=MODEL, run=run), device).process
                assert (needed <= device.total_memory) == (batch == most)
    asked = estimator.asked
    predictor.largest_batch(TRAIN, H100)
    assert estimator.asked == asked


def test_the_verdict_tells_apart_the_card_and_its_neighbours() -> None:
    estimate = RoundEstimator().estimate(TRAIN, H100)
    spare = H100.total_memory - estimate.process
    assert verdict(estimate, H100, None, "GPU 0") == (True, f"fits GPU 0 with {spare / GIB:.1f} GiB spare")
    fits, sentence = verdict(estimate, H100, estimate.process - GIB, "GPU 0")
    assert not fits
    assert sentence == "fits an empty GPU 0, but others hold too much of it now: 1.0 GiB short"
    fits, sentence = verdict(estimate, card("A10"), None, "GPU 1")
    assert not fits
    assert sentence.startswith("does not fit GPU 1: ")
