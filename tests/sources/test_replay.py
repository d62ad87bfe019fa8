"""A recording as a source."""

import pytest

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Host, Sample
from vramtui.sources.feed import ReplaySource


def _samples() -> tuple[Sample, ...]:
    return tuple(Sample(taken_at=at, source="demo", host=Host(name="h")) for at in (100.0, 101.0, 102.5))


def test_a_recording_plays_at_its_own_pace_and_stays_on_its_last_sample() -> None:
    now = [5.0]
    replay = ReplaySource(_samples(), clock=lambda: now[0])
    seen = []
    for now[0] in (5.0, 5.9, 6.0, 7.4, 7.5, 99.0):
        seen.append(replay.read().taken_at)
    assert seen == [100.0, 100.0, 101.0, 101.0, 102.5, 102.5]


def test_it_can_play_faster() -> None:
    now = [0.0]
    replay = ReplaySource(_samples(), speed=10, clock=lambda: now[0])
    replay.read()
    now[0] = 0.25
    assert replay.read().taken_at == 102.5


def test_an_empty_recording_is_said() -> None:
    with pytest.raises(SourceFailed, match="holds no samples"):
        ReplaySource(())
