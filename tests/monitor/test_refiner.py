"""Estimates that are made nearer beside the screen."""

from tests.app.stand_ins import RoundEstimator
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.methods import USUAL
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.refiner import Refiner

MODEL = TransformerModel(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
JOB = Workload(model=MODEL, run=TrainRun(sequence_length=64))
H200 = card("H200")
LONG = 20.0


def test_what_stays_chosen_is_simulated() -> None:
    refiner = Refiner(lambda: USUAL)
    told = []
    refiner.tell = lambda: told.append(1)
    predictor = Predictor(refiner=refiner)
    first = predictor.ask(JOB, H200).estimate
    assert first is not None
    assert first.method == "analytic"
    assert refiner.wait(LONG)
    second = predictor.ask(JOB, H200).estimate
    assert second is not None
    assert second == USUAL.estimate(JOB, H200)
    assert (second.method, second.allocated) == ("simulated", first.allocated)
    assert predictor.total(JOB, H200) == second.process
    assert told


def test_what_is_refused_is_asked_once() -> None:
    asked = []

    class Refusing:
        name = "refusing"

        def estimate(self, workload: Workload, device: Device) -> Estimate:
            asked.append((workload, device))
            raise UserError("no")

    refiner = Refiner(Refusing)
    assert refiner.found((JOB, H200)) is None
    assert refiner.wait(LONG)
    assert refiner.found((JOB, H200)) is None
    assert asked == [(JOB, H200)]


def test_other_estimators_are_left_alone() -> None:
    """What a recording or a test answers by is not made nearer by an estimator that knows nothing of it."""
    refiner = Refiner(lambda: USUAL)
    predictor = Predictor(refiner=refiner)
    predictor.answer_by(RoundEstimator())
    predictor.ask(JOB, H200)
    assert predictor.refiner is None
