import threading
from collections.abc import Sequence

import pytest
from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import climbing, dashboard, give, known, press, screen_text, settle
from tests.app.fakes import PRESETS, Still
from tests.app.replays import Tape as Played
from tests.app.replays import playing
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Prediction
from vramtui.core.observation.history import Peak
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.runs.run import Run
from vramtui.monitor.writers import MOST_WAITING, HistoryRunWriter, RecorderThread

SAMPLES = climbing(30)
Tick = tuple[Sample, tuple[ObservedJob, ...], dict[ProcessKey, Prediction]]


class Paper:
    """A recording in memory; writing waits for `ready`, and fails from sample `full` on."""

    where = "/data/vramtui-gpu01.jsonl.gz"

    def __init__(self, *, full: int | None = None, stuck: bool = False) -> None:
        self.ticks: list[Tick] = []
        self.peaks: dict[ProcessKey, Peak] = {}
        self.closed = threading.Event()
        self.ready = threading.Event()
        self.asked = threading.Event()
        self._full = full
        if not stuck:
            self.ready.set()

    def __call__(self, first: Sample, interval: float) -> "Paper":
        assert (first.taken_at, interval) == (SAMPLES[0].taken_at, 1.0)
        return self

    def write(self, tick: RecordedTick) -> None:
        self.asked.set()
        self.ready.wait(120)
        if len(self.ticks) == self._full:
            raise UserError("the recording cannot be written: no space left on device")
        self.peaks = dict(tick.peaks)
        self.ticks.append((tick.sample, tuple(tick.jobs), dict(tick.predictions)))

    def close(self) -> None:
        self.closed.set()


def told(app: Still) -> str:
    return "\n".join(f"{note.title} {note.message}" for note in app.announced)


async def stop(app: Still, pilot: Pilot[None], paper: Paper) -> None:
    await pilot.press("r")
    assert paper.closed.wait(60)
    while not any(note.title.startswith("Recording") for note in app.announced):
        await pilot.pause(0.002)
    await settle(app, pilot)


async def test_it_records_every_sample_until_it_is_pressed_again() -> None:
    paper = Paper()
    job = ObservedJob(pid=4213)
    async with dashboard(SAMPLES[:1], notifications=True) as (app, pilot):
        app.parts.recording.factory = paper
        app.session.jobs = lambda: (job,)
        await pilot.press("right_square_bracket", "r", "space")
        await give(app, pilot, *SAMPLES[1:5])
        await pilot.press("space")
        for sample in SAMPLES[5:13]:
            await give(app, pilot, sample)
        assert "● REC 00:12" in screen_text(app)
        await stop(app, pilot, paper)
        assert "REC" not in screen_text(app).splitlines()[0]
        assert paper.where in told(app)
        assert "13 samples" in told(app)
        assert [sample for sample, _, _ in paper.ticks] == SAMPLES[:13]
        _, jobs, predictions = paper.ticks[-1]
        assert jobs == (job,)
        (made,) = predictions.values()
        assert (made.preset, made.workload) == (PRESETS[0].key, PRESETS[0].preset.workload)
        assert made is next(iter(paper.ticks[1][2].values()))
        # The next one has the peaks from before it.
        await give(app, pilot, scenes.usual(14, trained=70 * GIB), scenes.usual(15, trained=20 * GIB))
        assert len(paper.ticks) == 13
        later = Paper()
        app.parts.recording.factory = lambda _first, _interval: later
        app.clear_notifications()
        await pilot.press("r")
        await stop(app, pilot, later)
        assert max(peak.bytes for peak in later.peaks.values()) == 70 * GIB


async def test_a_full_disk_or_a_closed_folder_is_one_sentence_and_the_dashboard_goes_on() -> None:
    def refuse(_first: Sample, _interval: float) -> Paper:
        raise UserError("the folder for recordings, /data, cannot be used: permission denied")

    paper = Paper(full=2)
    async with dashboard(SAMPLES[:1], notifications=True) as (app, pilot):
        app.parts.recording.factory = paper
        await pilot.press("r")
        await give(app, pilot, *SAMPLES[1:5])
        assert paper.closed.wait(60)
        while not app.announced:
            await pilot.pause(0.002)
        assert "no space left on device. What was written so far is in /data" in told(app)
        await give(app, pilot, *SAMPLES[5:8])
        assert "REC" not in screen_text(app).splitlines()[0]
        assert app.state.sample == SAMPLES[7]
        app.clear_notifications()
        app.parts.recording.factory = refuse
        await pilot.press("r")
        while not app.announced:
            await pilot.pause(0.002)
        assert "permission denied." in told(app)
        assert "What was written" not in told(app)
        await settle(app, pilot)
        assert "REC" not in screen_text(app).splitlines()[0]


async def test_a_stuck_disk_freezes_nothing_and_what_it_missed_is_counted() -> None:
    paper = Paper(stuck=True)
    async with dashboard(SAMPLES[:1], notifications=True) as (app, pilot):
        app.parts.recording.factory = paper
        await pilot.press("r")
        assert paper.asked.wait(60)
        for at in range(MOST_WAITING + 5):
            app.parts.recording.on_sample(scenes.usual(at / 10))
        await settle(app, pilot)
        assert "(5 lost)" in screen_text(app)
        paper.ready.set()
        await stop(app, pilot, paper)
        assert "5 dropped: the disk was too slow" in told(app)
        assert len(paper.ticks) == MOST_WAITING + 1


@pytest.mark.parametrize("stuck", [False, True])
async def test_leaving_ends_the_file_and_waits_for_no_disk(stuck: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if stuck:
        monkeypatch.setattr("vramtui.app.live.LEAVING", 0.01)
    paper = Paper(stuck=stuck)
    async with dashboard(SAMPLES[:1]) as (app, pilot):
        app.parts.recording.factory = paper
        await pilot.press("r")
        assert paper.asked.wait(60)
        await give(app, pilot, *SAMPLES[1:3])
        await pilot.press("q")
    words = app.parts.recording.last_words
    if stuck:
        assert "the disk does not answer" in words
        paper.ready.set()
    else:
        assert paper.closed.is_set()
        assert len(paper.ticks) == 3
        assert words == f"vramtui: recorded in {paper.where}\n"


async def test_nothing_is_recorded_of_a_recording_or_by_a_thread_that_was_given_nothing() -> None:
    async with playing(Played(SAMPLES)) as (player, pilot, _):
        await pilot.press("r")
        assert "Only live data can be recorded" in "".join(str(n.message) for n in player.announced)
    ended: list[RecorderThread] = []

    def never(_first: Sample, _interval: float) -> Paper:
        raise AssertionError

    thread = RecorderThread(never, 1.0, ended.append)
    thread.start()
    thread.finish()
    thread.join(60)
    assert (ended, thread.where, thread.written, thread.dropped, thread.problem) == ([thread], "", 0, 0, "")


REFUSED = "the history /data/history.sqlite3 cannot be used: database or disk is full"


class Shelf(HistoryRunWriter):
    def __init__(self, problem: str = "") -> None:
        self.problem = problem
        self.kept: list[Run] = []
        self.last_words: list[Run] = []

    def keep(self, runs: Sequence[Run]) -> None:
        self.kept += runs

    def finish(self, runs: Sequence[Run], patience: float) -> None:
        assert patience <= 1
        self.last_words += runs


async def test_a_matched_job_is_kept_and_others_are_not() -> None:
    shelf = Shelf()
    async with dashboard() as (app, pilot):
        app.session.run_writer = shelf
        await give(app, pilot, *climbing())
        (first,) = shelf.kept
        assert (first.pid, first.preset, first.gpu_uuid) == (4213, "llama-3.1-8b-lora", "GPU-0")
        assert first.predicted.weights == 15 * GIB
        await give(app, pilot, scenes.sample(scenes.gpu(0), scenes.gpu(1), at=10))
        last = shelf.kept[-1]
        assert (last.key, last.ending, last.ended_at) == (first.key, "exited", scenes.START + 10)
        assert last.observed.process == 58 * GIB
    shelf = Shelf()
    async with dashboard() as (app, pilot):
        app.session.run_writer = shelf
        await give(app, pilot, *climbing())
        await pilot.press("q")
    assert [(run.ending, run.observed.process) for run in shelf.last_words] == [("running", 58 * GIB)]
    async with dashboard() as (app, pilot):
        app.session.run_writer = Shelf(REFUSED)
        await give(app, pilot, *climbing())
        assert "1 problem" in screen_text(app)
        await press(app, pilot, "exclamation_mark")
        assert "database or disk is full" in " ".join(screen_text(app).split())


async def test_what_the_preset_predicts_is_kept_and_what_is_tried_out_is_not() -> None:
    shelf = Shelf()
    async with dashboard(climbing()) as (app, pilot):
        before = app.state.view().panel
        await press(app, pilot, "]", "]")
        app.session.run_writer = shelf
        await give(app, pilot, scenes.usual(1))
        panel = known(app.state.view().panel)
        assert known(panel.estimate).process > known(known(before).estimate).process == shelf.kept[0].predicted.process
        assert (shelf.kept[0].workload["run"] or {})["batch_size"] == 4
    shelf = Shelf()
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("space")
        app.session.run_writer = shelf
        key = next(key for key in app.state.session.history.tracks if key.pid == 977)
        app.state.assign(key, "llama-3.1-8b-lora")
        await give(app, pilot, scenes.usual(1))
        assert {run.pid for run in shelf.kept} == {977, 4213}
