import msgspec
import pytest

from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.observation.alerts import Alert, Alerts, trend_of
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, ProcessKey, Sample
from vramtui.core.schema.settings import AlertRules

GIB, MIB = 1 << 30, 1 << 20
KEY = ProcessKey("gpu01", "GPU-0", 1, 5.0)


def estimate(process: int, error: float | None = 0.05) -> Estimate:
    return Estimate(method="analytic", parts=(), ledger=Ledger(process=process), peak_phase="step", error=error)


class Watch:
    """A card of 100 GiB, a process on it, and the alerts that were said."""

    def __init__(self, predicted: int | None = None, rules: AlertRules | None = None) -> None:
        self.alerts = Alerts(rules)
        self.history = History()
        self.now = 1000.0
        self.predicted = {KEY: estimate(predicted) if predicted is not None else None}

    def see(self, used: int, seconds: float = 1.0, others: int = 0, **gpu: object) -> tuple[Alert, ...]:
        self.now += seconds
        row = Process(pid=1, type="C", used_memory=used, started_at=5.0, state="running")
        full = used + others
        memory = Memory(total=100 * GIB, used=full, reserved=0, free=100 * GIB - full)
        card = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100", memory=memory, processes=(row,))
        card = msgspec.structs.replace(card, **gpu)
        sample = Sample(taken_at=self.now, source="test", host=Host(name="gpu01"), gpus=(card,))
        self.history.add(sample)
        return self.alerts.update(sample, self.history, self.predicted)


def kinds(alerts: tuple[Alert, ...]) -> list[str]:
    return [alert.kind for alert in alerts]


def test_a_step_or_a_prediction_that_will_be_exceeded_is_said_before() -> None:
    watch = Watch(predicted=60 * GIB)
    assert watch.see(20 * GIB, others=50 * GIB) == ()
    assert watch.see(20 * GIB, others=50 * GIB) == ()
    (alert,) = watch.see(20 * GIB, others=50 * GIB)
    assert alert.kind == "will_not_fit"
    assert alert.sentence == "pid 1 will need 40.0 GiB more in optimizer step; GPU 0 has 30.0 GiB free"
    assert watch.see(20 * GIB, others=50 * GIB) == ()
    assert kinds(watch.alerts.standing) == ["will_not_fit"]
    watch = Watch(predicted=20 * GIB)
    assert all(watch.see(21 * GIB) == () for _ in range(5))
    said = [alert for _ in range(5) for alert in watch.see(22 * GIB)]
    assert [(alert.kind, alert.sentence) for alert in said] == [("over", "pid 1 holds 2.0 GiB more than predicted")]
    watch = Watch()
    said = []
    for second in range(200):
        said += watch.see(10 * GIB + second * 50 * MIB)
    (alert,) = said
    assert alert.kind == "growth"
    assert "pid 1 grows by 2.9 GiB a minute: GPU 0 is full in " in alert.sentence


def test_what_was_said_is_said_again_after_a_while_by_any_clock() -> None:
    watch = Watch(predicted=60 * GIB)
    for _ in range(5):  # a moment is no alert
        assert watch.see(20 * GIB, others=50 * GIB) == ()
        assert watch.see(20 * GIB) == ()
    crowd = [watch.see(20 * GIB, others=50 * GIB) for _ in range(4)]
    assert sum(map(len, crowd)) == 1
    for _ in range(5):  # it comes and goes
        watch.see(20 * GIB)
        assert watch.see(20 * GIB, others=50 * GIB) == ()
    for _ in range(12):
        assert watch.see(20 * GIB) == ()
    assert watch.alerts.standing == ()
    again = [watch.see(20 * GIB, others=50 * GIB) for _ in range(4)]
    assert sum(map(len, again)) == 1
    watch = Watch(predicted=60 * GIB)
    for _ in range(4):
        watch.see(20 * GIB, others=50 * GIB)
    assert kinds(watch.alerts.standing) == ["will_not_fit"]
    watch.see(20 * GIB, seconds=-3 * 3600.0)
    for _ in range(20):
        watch.see(20 * GIB)
    assert watch.alerts.standing == ()
    assert watch.see(20 * GIB, others=50 * GIB) == ()
    watch.see(20 * GIB, seconds=-3 * 3600.0, others=50 * GIB)
    said = [watch.see(20 * GIB, others=50 * GIB) for _ in range(4)]
    assert sum(map(len, said)) == 1


SECONDS = range(400)


@pytest.mark.parametrize(("watch", "seen"), [
    # Growth up to the prediction.
    (Watch(predicted=60 * GIB), [10 * GIB + second * 100 * MIB for second in SECONDS]),
    # A pool that is taken at once.
    *((Watch(), [GIB, 10 * GIB, *(pool + at % 3 * MIB for at in SECONDS)]) for pool in (80 * GIB, 99 * GIB)),
    # Going up and down.
    (Watch(), [(40 + 30 * (second % 7) // 7) * GIB for second in SECONDS]),
    # Growth that is far from the limit.
    (Watch(rules=AlertRules(horizon=60.0)), [10 * GIB + second * 10 * MIB for second in range(200)]),
])  # fmt: skip
def test_what_is_no_news(watch: Watch, seen: list[int]) -> None:
    assert all(watch.see(used) == () for used in seen)


def test_memory_held_by_the_dead_and_a_trend_that_needs_time() -> None:
    watch = Watch()
    dead = Process(pid=2, type="C", used_memory=GIB, state="exited")
    said = [alert for _ in range(4) for alert in watch.see(GIB, processes=(dead,))]
    assert [alert.sentence for alert in said] == ["exited processes still hold 1.0 GiB of GPU 0"]
    (lost,) = watch.see(GIB, state="lost", reason="it fell off the bus")
    assert lost.sentence == "GPU 0 is lost: it fell off the bus"
    assert Watch(rules=AlertRules(kinds=("over",))).see(GIB, state="lost") == ()  # a kind that is not wanted
    times = [float(second) for second in range(100)]
    rising = [second * 20 * MIB for second in range(100)]
    trend = trend_of(times, rising, 99.0)
    assert trend.slope == pytest.approx(20 * MIB)
    soonest, latest = trend.reaches(20 * GIB)
    assert soonest <= 1024 <= latest * 1.001
    assert trend_of(times[:40], rising[:40], 39.0) is None
    assert trend_of([0.0, 99.0], [0, 10 * GIB], 99.0) is None
    assert trend_of(times, rising, 500.0) is None  # it has stopped
