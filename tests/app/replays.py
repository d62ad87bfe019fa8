from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import climbing, settle
from tests.app.fakes import Announcing, FixedPresets, RoundEstimator
from tests.examples import Clock, Never, followed
from vramtui.app.app import Dashboard
from vramtui.app.context import PresetsRead
from vramtui.app.replay import ReplayController
from vramtui.core.estimate.estimate import Estimate, Ledger, Prediction
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.settings import Settings
from vramtui.core.schema.workload import Workload
from vramtui.monitor.jobs import Presets
from vramtui.monitor.session import MonitorSession


def assert_as_if_just_played(session: MonitorSession, samples: Sequence[Sample]) -> None:
    expected = followed(*samples)
    assert (session.sample, session.history.tracks.keys()) == (samples[-1], expected.tracks.keys())
    for key, track in expected.tracks.items():
        known = session.history.tracks[key]
        assert (known.peak, known.gone_at, known.last_seen) == (track.peak, track.gone_at, track.last_seen)
        assert (list(known.times), list(known.values)) == (list(track.times), list(track.values))


def recorded(preset: str, workload: Workload, process: int) -> Prediction:
    ledger = Ledger(allocated=process, reserved=process, process=process)
    return Prediction(
        preset=preset,
        title="As it was",
        workload=workload,
        device=device_of(scenes.usual().gpus[0]),
        estimate=Estimate(method="analytic", parts=(), ledger=ledger, peak_phase="step"),
    )


class Tape:
    """A recording in memory: every second of a job that grows, and what is said of it from a time on."""

    def __init__(
        self,
        samples: Sequence[Sample] | None = None,
        jobs: Sequence[tuple[float, ObservedJob]] = (),
        predictions: Sequence[tuple[float, ProcessKey, Prediction | None]] = (),
        peaks: Sequence[tuple[float, ProcessKey, Peak]] = (),
    ) -> None:
        self.samples = tuple(climbing() if samples is None else samples)
        self._jobs = jobs
        self._predictions = predictions
        self._peaks = peaks

    @property
    def times(self) -> Sequence[float]:
        return [sample.taken_at for sample in self.samples]

    @property
    def reading(self) -> float | None:
        return None

    @property
    def warnings(self) -> Sequence[str]:
        return ()

    def jobs_at(self, when: float) -> Sequence[ObservedJob]:
        return tuple({job.pid: job for at, job in self._jobs if at <= when}.values())

    def predictions_at(self, when: float) -> Mapping[ProcessKey, Prediction]:
        found = {key: prediction for at, key, prediction in self._predictions if at <= when}
        return {key: prediction for key, prediction in found.items() if prediction is not None}

    def peaks_at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        return [(key, peak) for at, key, peak in self._peaks if at == when]

    def every_prediction(self) -> Sequence[Prediction]:
        return tuple(prediction for _, _, prediction in self._predictions if prediction is not None)


def replay_of(player: Dashboard) -> ReplayController:
    assert player.parts.replay is not None
    return player.parts.replay


@asynccontextmanager
async def playing(
    tape: Tape, size: tuple[int, int] = (120, 35), *, presets: Presets | None = None, keys: dict[str, str] | None = None
) -> AsyncIterator[tuple[Announcing, Pilot[None], Clock]]:
    library = FixedPresets() if presets is None else presets
    player = Announcing(
        Never(), library, now=Clock(scenes.START), estimator=RoundEstimator(), settings=Settings(keys=keys or {})
    )
    player.play(tape, clock := Clock(0.0))
    async with player.run_test(size=size, notifications=True) as pilot:
        await pilot.pause()
        player.post_message(PresetsRead(library, library.problems))
        await settle(player, pilot)
        yield player, pilot, clock


async def pass_time(player: Announcing, pilot: Pilot[None], clock: Clock, seconds: float) -> None:
    clock.now += seconds
    replay_of(player).tick()
    await arrived(player, pilot)


async def arrived(player: Announcing, pilot: Pilot[None]) -> None:
    while not replay_of(player).feed.is_there:
        await pilot.pause(0.002)
    await settle(player, pilot)
