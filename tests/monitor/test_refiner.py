import threading

from tests.app.fakes import RoundEstimator
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.planner import value_at
from vramtui.monitor.predictor import Predictor, Refiner

MODEL = TransformerModel(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
JOB = Workload(model=MODEL, run=TrainRun(sequence_length=64))
H200 = card("H200")
LONG = 20.0


def test_what_stays_chosen_is_simulated_and_what_is_refused_asked_once() -> None:
    refiner = Refiner(lambda: DEFAULT)
    told = []
    refiner.tell = lambda: told.append(1)
    predictor = Predictor(refiner=refiner)
    first = predictor.ask(JOB, H200).estimate
    assert first.method == "analytic"
    assert refiner.wait(LONG)
    second = predictor.ask(JOB, H200).estimate
    assert second == DEFAULT.estimate(JOB, H200)
    assert (second.method, second.allocated) == ("simulated", first.allocated)
    assert predictor.total(JOB, H200) == second.process
    assert told
    # What a recording or a test answers by is not made nearer by an estimator that knows nothing of it.
    refiner = Refiner(lambda: DEFAULT)
    predictor = Predictor(refiner=refiner)
    predictor.answer_by(RoundEstimator())
    predictor.ask(JOB, H200)
    assert predictor.refiner is None
    asked = []

    class Refusing:
        name = "refusing"

        def estimate(self, workload: Workload, device: Device) -> Estimate:
            asked.append((workload, device))
            raise UserError("no")

    refiner = Refiner(Refusing)
    assert refiner.simulated((JOB, H200)) is None
    assert refiner.wait(LONG)
    assert refiner.simulated((JOB, H200)) is None
    assert asked == [(JOB, H200)]


def test_the_largest_batch_comes_to_be_that_of_what_is_simulated() -> None:
    """The flat share keeps too much cached here, so that fewer seem to fit."""
    small = Device(name="small", total_memory=2 * GIB, capability=H200.capability)
    refiner = Refiner(lambda: DEFAULT, settled=0.0)
    predictor = Predictor(refiner=refiner)
    search = predictor.largest_batch(JOB, small)
    while search.largest is None:
        search.go_on()
    pending = True
    while pending:
        largest, pending = predictor.nearer_batch(JOB, small, search.largest)
        assert not pending or largest == search.largest
        assert refiner.wait(LONG)
    assert largest > search.largest
    sizes = {batch: DEFAULT.estimate(JOB.with_run(batch_size=batch), small).process for batch in (largest, largest + 1)}
    assert sizes[largest] <= small.total_memory < sizes[largest + 1]


def test_an_estimate_that_is_asked_for_goes_before_a_batch() -> None:
    asked: list[Workload] = []
    begun, waits = threading.Event(), threading.Event()

    class Slow:
        name = "slow"

        def estimate(self, workload: Workload, device: Device) -> Estimate:
            asked.append(workload)
            begun.set()
            assert waits.wait(LONG)
            return ANALYTIC.estimate(workload, device)

    refiner = Refiner(Slow, settled=0.0)
    question = (JOB, Device(name="small", total_memory=2 * GIB, capability=(9, 0)))
    assert refiner.largest_batch(question, 30) is None
    assert begun.wait(LONG)
    assert refiner.simulated((JOB, H200)) is None
    waits.set()
    assert refiner.wait(LONG)
    assert asked[1] == JOB
    found = refiner.largest_batch(question, 30)
    assert found is not None
    assert found > 30
    sizes = [value_at(job, "run.batch_size") for job in asked if job != JOB]
    assert len(sizes) == len(set(sizes))
