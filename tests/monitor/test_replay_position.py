from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.examples import Clock
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.monitor.replay import SPEEDS, PlaybackPosition

NOON = 1795176000.0  # 2026-11-20 12:00:00 UTC


def hour(at: float = NOON) -> tuple[PlaybackPosition, Clock]:
    clock = Clock(0.0)
    return PlaybackPosition([at + second for second in range(3601)], clock), clock


def test_it_plays_at_its_speed_stops_at_the_end_and_begins_again() -> None:
    playback, clock = hour()
    clock.now = 10
    playback.advance()
    assert (playback.position, playback.count) == (NOON + 10, 11)
    assert [playback.faster(1) for _ in range(7)] == [2, 5, 10, 30, 60, 60, 60]
    clock.now = 20
    playback.advance()
    assert playback.position == NOON + 610
    assert [playback.faster(-1) for _ in range(6)] == [30, 10, 5, 2, 1, 1]
    clock.now = 99999
    playback.advance()
    assert (playback.position, playback.playing, playback.count) == (playback.end, False, 3601)
    playback, clock = hour()
    playback.seek(NOON + 9e9)
    clock.now = 1
    playback.advance()
    assert not playback.playing
    playback.toggle()
    assert (playback.position, playback.playing) == (NOON, True)


def test_held_it_stays_and_steps_go_from_sample_to_sample() -> None:
    playback, clock = hour()
    playback.toggle()
    clock.now = 100
    playback.advance()
    assert playback.position == NOON
    playback.toggle()
    clock.now = 101
    playback.advance()
    assert playback.position == NOON + 1
    playback, _ = hour()
    playback.seek(NOON + 10.5)
    playback.step(1)
    assert (playback.position, playback.playing) == (NOON + 11, False)
    playback.step(-1)
    assert playback.position == NOON + 10
    playback.step(-99)
    assert playback.position == NOON
    playback.step(99999)
    assert playback.position == NOON + 3600


@pytest.mark.parametrize(("text", "place"), rows(__file__, "places_as_people_write_them"))
def test_places_as_people_write_them(text: str, place: float) -> None:
    playback, _ = hour()
    playback.seek(NOON + 1800)
    assert playback.place(text) == NOON + place


@pytest.mark.parametrize(("text", "said"), rows(__file__, "places_that_are_none_are_said"))
def test_places_that_are_none_are_said(text: str, said: str) -> None:
    playback, _ = hour()
    with pytest.raises(UserError, match=said):
        playback.place(text)


def test_times_of_the_day_are_found_over_midnight_and_without_a_fraction() -> None:
    clock = Clock(0.0)
    playback = PlaybackPosition([NOON + minute * 60 for minute in range(3 * 24 * 60)], clock)
    playback.seek(NOON + 40 * 3600)
    assert playback.place("13:00") == NOON + 49 * 3600
    assert playback.place("11:00") == NOON + 47 * 3600
    assert playback.place("00:30") == NOON + 36.5 * 3600
    playback, _ = hour(NOON + 0.75)
    playback.seek(playback.place("12:00:00"))
    assert playback.count == 1


@given(st.text(max_size=12))
def test_whatever_is_typed_is_a_place_or_refused(text: str) -> None:
    playback, _ = hour()
    with suppress(UserError):
        playback.seek(playback.place(text))
    assert playback.start <= playback.position <= playback.end


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.floats(0, 100)),
            st.tuples(st.just("seek"), st.floats(-10, 4000)),
            st.tuples(st.just("step"), st.integers(-5, 5)),
            st.tuples(st.just("speed"), st.sampled_from([-1, 1])),
            st.tuples(st.just("toggle"), st.just(0)),
        )
    )
)
def test_it_is_always_at_a_sample_of_the_recording(moves: list[tuple[str, float]]) -> None:
    playback, clock = hour()
    for move, amount in moves:
        if move == "pass":
            clock.now += amount
            playback.advance()
        elif move == "seek":
            playback.seek(NOON + amount)
        elif move == "step":
            playback.step(int(amount))
        elif move == "speed":
            playback.faster(int(amount))
        else:
            playback.toggle()
        assert playback.start <= playback.position <= playback.end
        assert 1 <= playback.count <= 3601
        assert playback.speed in SPEEDS
