import re

import pytest
from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import climbing, dashboard, screen_text, settle
from tests.app.fakes import PRESETS, Announcing
from tests.app.replays import Tape, arrived, assert_as_if_just_played, pass_time, playing, recorded, replay_of
from vramtui.app.app import Dashboard
from vramtui.app.help.controller import keys_shown
from vramtui.app.help.dialog import Help
from vramtui.app.replay import ReplayBar
from vramtui.app.state.view import ReplayPosition
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ObservedJob, ProbeDevice
from vramtui.core.observation.readings import ProcessKey, Sample, process_key
from vramtui.monitor.replay import PlaybackPosition

LONG = climbing(600, to=60)


def playback_of(player: Announcing) -> PlaybackPosition:
    return replay_of(player).feed.playback


async def press(player: Announcing, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await arrived(player, pilot)


async def go_to(player: Announcing, pilot: Pilot[None], text: str) -> None:
    await press(player, pilot, "g")
    await press(player, pilot, *text, "enter")


async def test_it_plays_sample_by_sample_and_seeking_leaves_no_trace_of_what_comes_later() -> None:
    tape = Tape(LONG)
    async with playing(tape) as (player, pilot, clock):
        assert_as_if_just_played(player.state.session, LONG[:1])
        await pass_time(player, pilot, clock, 30)
        assert_as_if_just_played(player.state.session, LONG[:31])
        await press(player, pilot, *[")"] * 5)
        await pass_time(player, pilot, clock, 2)
        assert_as_if_just_played(player.state.session, LONG[:151])
        assert "60x" in screen_text(player)
        await pass_time(player, pilot, clock, 999)
        assert_as_if_just_played(player.state.session, LONG)
        assert not playback_of(player).playing
    falling = [*climbing(60, to=70), *(scenes.usual(at, trained=20 * GIB) for at in range(1, 60))]
    async with playing(Tape(falling)) as (player, pilot, _):
        await press(player, pilot, "space")
        await go_to(player, pilot, "100%")
        assert_as_if_just_played(player.state.session, falling)
        assert "70.0" in screen_text(player)
        await go_to(player, pilot, "+5")
        await go_to(player, pilot, "-90")
        assert_as_if_just_played(player.state.session, falling[:29])
        assert "70.0" not in screen_text(player)


async def test_a_screen_that_is_drawn_before_it_knows_its_panels(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a sample can come between a screen's parts being there and the screen hearing of it."""
    finds = ViewScreen.on_mount

    def draws_first(screen: ViewScreen) -> None:
        assert isinstance(screen.app, Dashboard)
        screen.app.draw()
        finds(screen)

    monkeypatch.setattr(ViewScreen, "on_mount", draws_first)
    async with playing(Tape(LONG)) as (player, pilot, clock):
        await press(player, pilot, "2")
        await pass_time(player, pilot, clock, 3)
        assert isinstance(player.screen.query_one(ReplayBar).view, ReplayPosition)


async def test_space_steps_and_skips() -> None:
    async with playing(Tape(LONG)) as (player, pilot, clock):
        await press(player, pilot, "space")
        await pass_time(player, pilot, clock, 30)
        assert_as_if_just_played(player.state.session, LONG[:1])
        assert "‖" in screen_text(player)
        await press(player, pilot, "space")
        await pass_time(player, pilot, clock, 30)
        assert_as_if_just_played(player.state.session, LONG[:31])
        assert "PAUSED" not in screen_text(player)
        await pass_time(player, pilot, clock, 270)
        for key, at in (("ctrl+right", 361), ("shift+left", 351), ("ctrl+left", 291), ("shift+right", 301)):
            await press(player, pilot, key)
            assert_as_if_just_played(player.state.session, LONG[:at])
        await press(player, pilot, "full_stop")
        assert_as_if_just_played(player.state.session, LONG[:302])
        await press(player, pilot, "comma", "comma")
        assert_as_if_just_played(player.state.session, LONG[:300])
        await pass_time(player, pilot, clock, 5)  # a step holds
        assert_as_if_just_played(player.state.session, LONG[:300])


async def test_a_long_way_is_gone_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.monitor.replay.SLICE", 0.0)
    samples = climbing(150, to=60)  # each is a slice of its own
    async with playing(Tape(samples)) as (player, pilot, _):
        await press(player, pilot, "space")
        assert replay_of(player).seek("100%") == ""
        assert replay_of(player).feed.seeking is not None
        (line,) = player.screen.query_one(ReplayBar).shown
        assert "seeking" in line.text
        assert player.state.sample == samples[0]
        # Another wish on the way counts as soon as the first place is reached.
        playback_of(player).step(-10)
        await arrived(player, pilot)
        assert_as_if_just_played(player.state.session, samples[:140])
        assert "seeking" not in screen_text(player)


async def test_what_is_no_place_is_said_and_can_be_mended() -> None:
    async with playing(Tape(LONG)) as (player, pilot, _):
        (row,) = (row for row in player.state.view().rows if row.id == training(LONG[0]))
        assert row.preset == PRESETS[0].key  # no prediction is recorded: today's presets match
        await press(player, pilot, "space")
        await go_to(player, pilot, "5x")
        assert player.query("SeekBar") or player.screen.query("SeekBar")
        assert any("is not a position in a recording" in str(note.message) for note in player.announced)
        await press(player, pilot, "backspace", "0", "%", "enter")
        assert not player.screen.query("SeekBar")
        assert_as_if_just_played(player.state.session, LONG[:300])
        assert player.state.snapshot().sample == LONG[299]
        await press(player, pilot, "g", "9", "escape")
        assert not player.screen.query("SeekBar")
        assert_as_if_just_played(player.state.session, LONG[:300])
        await press(player, pilot, "down")
        assert player.state.view().is_frozen
        for place in "341":  # every screen has the line and the keys
            await press(player, pilot, place)
            assert player.screen.query(ReplayBar)
            before = playback_of(player).position
            await press(player, pilot, "full_stop")
            assert playback_of(player).position > before


async def test_a_click_on_the_bar_goes_there_and_its_line_fits_every_width() -> None:
    async with playing(Tape(LONG)) as (player, pilot, clock):
        await press(player, pilot, "space")
        bar = player.screen.query_one(ReplayBar)
        begin, stop = bar.bar
        for at, number in ((stop - 1, len(LONG)), (begin, 1)):
            await pilot.click(bar, offset=(at, 0))
            await arrived(player, pilot)
            assert_as_if_just_played(player.state.session, LONG[:number])
        await pilot.click(bar, offset=(1, 0))
        assert playback_of(player).playing
        await pass_time(player, pilot, clock, 300)
        for size in ((80, 24), (200, 50), (40, 12), (120, 35)):
            await pilot.resize_terminal(*size)
            await settle(player, pilot)
            (line,) = player.screen.query_one(ReplayBar).shown
            assert line.cell_length == size[0]
            assert "▶" in line.text
            assert "1x" in line.text


async def test_the_keys_can_be_remapped_stand_in_the_help_and_are_nowhere_without_a_recording() -> None:
    async with playing(Tape(LONG), keys={"replay.on": "n"}) as (player, pilot, _):
        await press(player, pilot, "n")
        assert_as_if_just_played(player.state.session, LONG[:2])
        await press(player, pilot, "question_mark")
        assert isinstance(player.screen, Help)
        text = player.screen.text().plain
        assert "While a recording is played" in text
        assert re.search(r"n +Pause, one sample forward", text)
    async with dashboard(LONG[:1]) as (app, pilot):
        await pilot.press("g", "full_stop")
        assert not app.screen.query("SeekBar, ReplayBar")
        shown = keys_shown(app, app.screens.current)
        assert not [binding for _, binding in shown if (binding.id or "").startswith("replay.")]


def training(sample: Sample) -> ProcessKey:
    return process_key(sample.host.name, sample.gpus[0], sample.gpus[0].processes[0])


async def test_what_was_predicted_then_is_shown_though_the_preset_has_changed() -> None:
    key, workload = PRESETS[0].key, PRESETS[0].preset.workload
    changed = recorded(key, workload.with_run(batch_size=7), 77 * GIB)
    tape = Tape(
        LONG,
        predictions=[
            (LONG[0].taken_at, training(LONG[0]), recorded(key, workload, 71 * GIB)),
            (LONG[100].taken_at, training(LONG[0]), changed),
            (LONG[200].taken_at, training(LONG[0]), recorded("gone", workload.with_run(batch_size=3), 77 * GIB)),
            (LONG[300].taken_at, training(LONG[0]), None),
        ],
    )
    async with playing(tape) as (player, pilot, clock):

        def row() -> tuple[str | None, int | None]:
            (found,) = (row for row in player.state.view().rows if row.id == training(LONG[0]))
            return found.preset, found.predicted

        player.state.choose(training(LONG[0]))
        assert row() == (key, 71 * GIB)
        await pass_time(player, pilot, clock, 100)
        assert row() == (f"{key} (recorded)", 77 * GIB)
        player.state.choose(training(LONG[0]))
        await settle(player, pilot)
        assert "estimate as recorded" in screen_text(player)
        assert f"{key} (recorded)" in screen_text(player)
        await press(player, pilot, "right_square_bracket")
        assert "estimate made now" in screen_text(player)
        await press(player, pilot, "u")
        await pass_time(player, pilot, clock, 100)
        assert row() == ("gone (recorded)", 77 * GIB)
        await pass_time(player, pilot, clock, 100)
        assert row()[0] == key


async def test_what_the_job_had_told_then() -> None:
    pid = LONG[0].gpus[0].processes[0].pid
    device = ProbeDevice(index=0, name="A100", total_memory=80 * GIB, capability=(8, 0), uuid="GPU-0")
    hello = ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=1.0, devices=(device,)))

    def told(size: int) -> ObservedJob:
        counters = MemoryCounters(index=0, allocated=size, allocated_peak=size, reserved_peak=size + GIB)
        return hello.heard(
            Beat(v=1, pid=pid, at=2.0, step=1, devices=(counters,), parts={"weights": {"cuda:0": 3 * GIB}})
        )

    tape = Tape(
        LONG,
        [(LONG[100].taken_at, told(40 * GIB)), (LONG[200].taken_at, told(50 * GIB))],
        [
            (
                LONG[0].taken_at,
                training(LONG[0]),
                recorded(PRESETS[0].key, PRESETS[0].preset.workload.with_run(batch_size=3), 60 * GIB),
            )
        ],
    )
    async with playing(tape) as (player, pilot, clock):
        player.state.choose(training(LONG[0]))

        def allocated() -> int | None:
            panel = player.state.view().panel
            return next((row.observed for row in panel.comparison.rows if row.line == "allocated"), None)

        assert allocated() is None
        await pass_time(player, pilot, clock, 150)
        assert allocated() == 40 * GIB
        await pass_time(player, pilot, clock, 100)
        assert allocated() == 50 * GIB
        await press(player, pilot, "ctrl+left")
        await press(player, pilot, "ctrl+left")
        assert allocated() == 40 * GIB


async def test_peaks_that_no_sample_shows_are_known_from_when_they_were_noted() -> None:
    key = training(LONG[0])
    tape = Tape(
        LONG,
        peaks=[
            (LONG[0].taken_at, key, Peak(bytes=62 * GIB, at=1.0)),
            (LONG[50].taken_at, key, Peak(bytes=63 * GIB, at=LONG[49].taken_at + 0.5, interval=0.1)),
        ],
    )
    async with playing(tape) as (player, pilot, clock):

        def peak() -> int | None:
            (found,) = (row for row in player.state.view().rows if row.id == key)
            return found.peak

        assert peak() == 62 * GIB
        await pass_time(player, pilot, clock, 49)
        assert peak() == 62 * GIB
        await press(player, pilot, "full_stop")
        assert peak() == 63 * GIB
        await go_to(player, pilot, "100%")
        assert peak() == 63 * GIB
        await press(player, pilot, "g", *"10%", "enter")
        assert peak() == 63 * GIB
        await press(player, pilot, "g", *"5%", "enter")
        assert peak() == 62 * GIB
