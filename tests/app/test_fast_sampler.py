import threading
from collections.abc import Collection, Mapping

import pytest

from tests.app import scenes
from tests.app.driver import climbing, dashboard, give, known, press, screen_text, settle
from tests.app.fakes import Still
from tests.examples import Never
from vramtui.app.context import SourceStuck
from vramtui.app.watch.windows import peak_words, reported_facts
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.observation.history import FastSample, Peak
from vramtui.core.observation.readings import ProcessKey
from vramtui.monitor.poller import FastSampler, fast_sampler_for

HIGH = 71 * GIB
TRAINER = ProcessKey("gpu01", "GPU-0", 4213, scenes.START - 600)
JUPYTER = ProcessKey("gpu01", "GPU-0", 977, scenes.START - 600)


class Close(Never):
    name = "close"

    def __init__(self) -> None:
        self.held: dict[str, dict[int, int]] = {}
        self.asked = threading.Event()

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        self.asked.set()
        return self.held.get(gpu_uuid, {})


class GivenSampler(FastSampler):
    def __init__(self) -> None:
        super().__init__(Close())
        self.aimed_at: list[ProcessKey] = []
        self.looks: list[FastSample] = []

    def start(self) -> None:
        """There is no thread."""

    def aim(self, keys: Collection[ProcessKey]) -> None:
        self.aimed_at = list(keys)

    def pop_until(self, until: float) -> list[FastSample]:
        due = [look for look in self.looks if look.at <= until]
        self.looks = [look for look in self.looks if look.at > until]
        return due


def text_of(app: Still) -> str:
    return " ".join(screen_text(app).replace("│", " ").split())


async def test_a_spike_is_in_every_panel_and_a_stuck_driver_is_left_alone() -> None:
    sampler = GivenSampler()
    async with dashboard(climbing(), sampler=sampler) as (app, pilot):
        assert sampler.aimed_at == [TRAINER]
        sampler.looks += [
            FastSample(TRAINER, scenes.START + at, used, 0.1)
            for at, used in ((0.1, 58 * GIB), (0.4, HIGH), (0.5, HIGH), (0.6, 58 * GIB), (1.3, 2 * HIGH))
        ]
        await give(app, pilot, scenes.usual(1))
        row = known(app.state.view().chosen)
        assert (row.peak, row.learned and row.learned.how, row.fast_since) == (HIGH, "sampled", scenes.START + 0.1)
        assert HIGH in known(app.state.view().series).values
        assert [look.used for look in sampler.looks] == [2 * HIGH]  # it is of after the sample, and waits
        await press(app, pilot, "i")
        assert "71.00 GiB at 08:00:00, sampled every 0.1 s since 08:00:00: short" in text_of(app)
    sampler = GivenSampler()
    async with dashboard([scenes.usual()], sampler=sampler) as (app, pilot):
        await pilot.press("space")  # a paused screen does not stop the looks
        sampler.looks.append(FastSample(TRAINER, scenes.START + 0.4, HIGH, 0.1))
        await give(app, pilot, scenes.usual(1))
        before = app.state.view().chosen
        await press(app, pilot, "space")
        after = app.state.view().chosen
        assert (before and before.peak, after and after.peak) == (58 * GIB, HIGH)
        app.post_message(SourceStuck())
        await settle(app, pilot)
        assert sampler.aimed_at == []
        await give(app, pilot, scenes.usual(2))
        assert sampler.aimed_at == [TRAINER]
        await press(app, pilot, "end")
        assert set(sampler.aimed_at) == {TRAINER, JUPYTER}


async def test_of_very_many_those_that_hold_most_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.monitor.session.MOST_LOOKED_AT", 2)
    jobs = [scenes.process(4000 + at, at * GIB, scenes.TRAIN) for at in range(1, 6)]
    sampler = GivenSampler()
    async with dashboard([scenes.sample(scenes.gpu(0, *jobs))], sampler=sampler) as (app, pilot):
        await press(app, pilot, "down", "down", "down", "down")
        assert {key.pid for key in sampler.aimed_at} == {4001, 4005, 4004}  # the last row is chosen


def test_the_thread_sleeps_until_it_is_aimed_and_fewer_samples_get_fewer_looks() -> None:
    source = Close()
    source.held = {"GPU-0": {4213: 5}}
    sampler = FastSampler(source, interval=0.001)
    sampler.start()
    assert not source.asked.is_set()
    sampler.aim([TRAINER])
    assert source.asked.wait(60)
    sampler.stop()
    sampler.join(60)
    assert not sampler.is_alive()
    assert {(look.key, look.used) for look in sampler.pop_until(float("inf"))} == {(TRAINER, 5)}
    assert sampler.pop_until(float("inf")) == []
    for interval, pace in ((0.2, 0.1), (1, 0.1), (5, 0.5), (10, 1), (60, 1)):
        paced = fast_sampler_for(source, "auto", interval)
        paced.aim([TRAINER])
        assert paced.pace == pace
    assert reported_facts(None) == reported_facts(Ledger(process=GIB)) == []
    assert reported_facts(Ledger(process=3 * GIB, reserved=2 * GIB, allocated=GIB)) == [
        ("allocated peak", "1.00 GiB, exact: reported by PyTorch (probe)"),
        ("reserved peak", "2.00 GiB, exact: reported by PyTorch (probe)"),
    ]


def test_where_nothing_moves_it_looks_twice_a_second_and_a_slow_driver_is_given_a_rest() -> None:
    now, slow, source = [100.0], [0.0], Close()
    source.held = {"GPU-0": {4213: 5}}

    def clock() -> float:
        now[0] += slow[0]
        return now[0]

    sampler = FastSampler(source, clock=clock)
    sampler.aim([TRAINER])
    assert sampler.step()
    assert sampler.pace == 0.1
    now[0] += 6
    sampler.step()
    assert sampler.pace == 0.5
    source.held = {"GPU-0": {4213: 6}}
    sampler.step()
    assert sampler.pace == 0.1
    now[0] += 6
    assert sampler.pace == 0.5
    sampler.aim([TRAINER])
    assert sampler.pace == 0.5
    sampler.aim([TRAINER, JUPYTER])
    assert sampler.pace == 0.1
    slow[0] = 1.5
    assert not sampler.step()


@pytest.mark.parametrize(("peak", "fast_since", "words"), [
    (None, None, "not known"),
    (Peak(bytes=GIB, at=0, interval=1.0), None, "1.00 GiB at 00:00:00, sampled every 1 s: short spikes"),
    (Peak(bytes=GIB, at=0), None, "1.00 GiB at 00:00:00, sampled: short spikes may be higher"),
    (Peak(bytes=GIB, at=0, interval=1.0), 60.0, "sampled every 0.1 s since 00:01:00: short spikes"),
    (Peak(bytes=GIB, at=0, how="accounting"), 60.0, "1.00 GiB, exact: the driver's accounting"),
    (Peak(bytes=GIB, at=0, how="probe"), None, "1.00 GiB, exact: reported by PyTorch (probe)"),
])  # fmt: skip
def test_a_peak_says_how_far_it_can_be_relied_on(peak: Peak | None, fast_since: float | None, words: str) -> None:
    assert words in peak_words(peak, fast_since, None if fast_since is None else 0.1)
