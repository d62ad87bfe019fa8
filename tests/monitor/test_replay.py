from collections.abc import Sequence

import pytest

from tests.app import scenes
from tests.app.driver import climbing
from tests.app.fakes import PRESETS, FixedPresets, RoundEstimator
from tests.app.replays import Tape, assert_as_if_just_played, recorded
from tests.examples import Clock
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.settings import AlertRules
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.replay import ReplayFeed
from vramtui.monitor.session import MonitorSession

LONG = climbing(600, to=60)
TRAINER = ProcessKey("gpu01", "GPU-0", 4213, scenes.START - 600)


class Played:
    def __init__(self, tape: Tape) -> None:
        self.clock = Clock(0.0)
        self.session = MonitorSession(predictor=Predictor(RoundEstimator()), alert_rules=AlertRules(after=0.0))
        self.session.take_presets(PRESETS)
        self.shown: list[Sample] = []
        self.said: list[str] = []
        self.feed = ReplayFeed(tape, self.session, self.shown.append, self.clock)
        self.feed.take_library(FixedPresets())
        self.feed.start()
        self.ingest()

    def ingest(self) -> None:
        while self.feed.seeking is not None or not self.feed.is_there:
            if self.feed.seeking is not None:
                self.feed.go_on()
                continue
            self.session.ingest(self.shown[-1])
            self.said += [alert.kind for alert in self.session.new_alerts]
            self.feed.arrived(self.shown[-1])

    def wait(self, seconds: float) -> None:
        self.clock.now += seconds
        self.feed.advance()
        self.ingest()

    def go_to(self, text: str) -> str:
        problem = self.feed.seek(text)
        self.ingest()
        return problem

    def assert_knows(self, samples: Sequence[Sample]) -> None:
        assert_as_if_just_played(self.session, samples)


@pytest.mark.parametrize("slice_seconds", [0.0, 60.0])
def test_any_place_is_as_if_it_had_just_been_watched(slice_seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.monitor.replay.SLICE", slice_seconds)
    played = Played(Tape(LONG))
    played.assert_knows(LONG[:1])
    played.wait(30)
    played.assert_knows(LONG[:31])
    played.feed.playback.toggle()
    for text, count in (("100%", 600), ("-90", 510), ("+5", 515), ("0%", 1)):
        assert played.go_to(text) == ""
        played.assert_knows(LONG[:count])
    assert "is not a position in a recording" in played.go_to("5x")


def test_what_is_delivered_is_waited_for_and_alerts_on_the_way_stand() -> None:
    played = Played(Tape(LONG))
    played.clock.now = 10
    played.feed.advance()
    played.clock.now = 20
    played.feed.advance()
    assert played.shown[-1] == LONG[10]
    played.ingest()
    assert played.shown[-1] == LONG[20]
    played.assert_knows(LONG[:21])
    needed = RoundEstimator().estimate(PRESETS[0].preset.workload, device_of(LONG[0].gpus[0])).process
    over = [scenes.usual(at, trained=needed + 9 * GIB if at > 5 else GIB) for at in range(400)]
    played = Played(Tape(over))
    played.wait(10)
    assert "over" in played.said
    played = Played(Tape(over))
    played.feed.playback.toggle()
    played.go_to("100%")
    assert played.said == []
    assert "over" in {alert.kind for alert in played.session.alerts}


def test_predictions_reports_and_peaks_are_those_of_the_time() -> None:
    job = ObservedJob(pid=4213)
    then = recorded(PRESETS[0].key, PRESETS[1].preset.workload, 77 * GIB)
    tape = Tape(
        LONG,
        jobs=[(LONG[100].taken_at, job)],
        predictions=[(LONG[100].taken_at, TRAINER, then), (LONG[200].taken_at, TRAINER, None)],
        peaks=[(LONG[50].taken_at, TRAINER, Peak(bytes=63 * GIB, at=LONG[49].taken_at + 0.5, interval=0.1))],
    )
    played = Played(tape)
    session = played.session
    assert (session.matched[TRAINER].key, session.jobs()) == (PRESETS[0].key, ())
    assert session.peaks()[TRAINER].bytes < 20 * GIB
    played.wait(50)
    assert session.peaks()[TRAINER].bytes == 63 * GIB
    played.wait(100)
    estimate = session.estimates()[TRAINER]
    assert (session.matched[TRAINER].key, estimate.process) == (f"{PRESETS[0].key} (recorded)", 77 * GIB)
    assert played.feed.knows(then.workload, then.device)
    assert session.jobs() == (job,)
    played.wait(100)
    assert session.matched[TRAINER].key == PRESETS[0].key
    played.go_to("5%")
    assert session.jobs() == ()
    assert session.peaks()[TRAINER].bytes < 63 * GIB


class Growing(Tape):
    def __init__(self) -> None:
        super().__init__(LONG)
        self._all, self.samples = self.samples, self.samples[:100]
        self._times = [sample.taken_at for sample in self.samples]
        self.wrong: list[str] = []

    @property
    def reading(self) -> float | None:
        return 0.5 if len(self.samples) < len(self._all) else None

    @property
    def warnings(self) -> Sequence[str]:
        return self.wrong

    @property
    def times(self) -> Sequence[float]:
        return self._times

    def more(self) -> None:
        self.samples = self._all
        self._times[:] = [sample.taken_at for sample in self.samples]
        self.wrong.append("one line is broken")


def test_a_place_that_is_not_read_yet_is_gone_to_as_soon_as_it_is() -> None:
    tape = Growing()
    played = Played(tape)
    played.feed.playback.toggle()
    played.wait(1)
    assert played.feed.reading == 0.5
    assert played.go_to("50%") == ""
    played.assert_knows(LONG[:1])
    tape.more()
    assert played.feed.advance()
    assert played.feed.retry() == ""
    played.ingest()
    played.assert_knows(LONG[:300])
    assert list(played.feed.new_warnings()) == ["one line is broken"]
    assert list(played.feed.new_warnings()) == []
    assert not played.feed.advance()
