"""The dashboard hands the jobs that run a preset to the history, and goes on whatever becomes of them."""

from collections.abc import Sequence

from tests.app import scenes
from tests.app.driver import climbing, dashboard, give, screen_text, settle
from vramtui.core.base.units import GIB
from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ObservedJob, ProbeDevice
from vramtui.core.runs.run import Run
from vramtui.monitor.writers import HistoryRunWriter

REFUSED = "the history /data/history.sqlite3 cannot be used: database or disk is full"


class Shelf(HistoryRunWriter):
    """Keeps runs in a list."""

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


async def test_what_is_tried_out_in_the_panel_is_not_what_runs() -> None:
    shelf = Shelf()
    async with dashboard(climbing()) as (app, pilot):
        before = app.state.view().panel
        await pilot.press("]", "]")
        await settle(app, pilot)
        app.session.run_writer = shelf
        await give(app, pilot, scenes.usual(1))
        panel = app.state.view().panel
        assert panel is not None
        assert panel.estimate is not None
        assert before is not None
        assert before.estimate is not None
        assert panel.estimate.process > before.estimate.process == shelf.kept[0].predicted.process
        assert (shelf.kept[0].workload["run"] or {})["batch_size"] == 4


async def test_a_choice_by_hand_counts_and_holding_the_screen_does_not() -> None:
    shelf = Shelf()
    async with dashboard(climbing()) as (app, pilot):
        await pilot.press("space")
        app.session.run_writer = shelf
        key = next(key for key in app.state.history.tracks if key.pid == 977)
        app.state.assign(key, "llama-3.1-8b-lora")
        await give(app, pilot, scenes.usual(1))
        assert {run.pid for run in shelf.kept} == {977, 4213}


async def test_what_the_job_tells_itself_is_kept() -> None:
    device = ProbeDevice(index=0, name="A100", total_memory=80 * GIB, capability=(8, 0), uuid="0")
    job = ObservedJob(pid=4213).heard(Hello(v=1, pid=4213, at=1.0, torch="2.9.0", devices=(device,)))
    counters = MemoryCounters(index=0, allocated_peak=50 * GIB, reserved_peak=57 * GIB)
    job = job.heard(Beat(v=1, pid=4213, at=2.0, step=1, devices=(counters,)))
    shelf = Shelf()
    async with dashboard() as (app, pilot):
        app.session.run_writer = shelf
        app.session.jobs = lambda: (job,)
        await give(app, pilot, scenes.usual())
        (run,) = shelf.kept
        assert (run.peak_how, run.observed.allocated, run.observed.context) == ("probe", 50 * GIB, GIB)


async def test_the_end_of_the_dashboard_is_a_last_word() -> None:
    shelf = Shelf()
    async with dashboard() as (app, pilot):
        app.session.run_writer = shelf
        await give(app, pilot, *climbing())
        await pilot.press("q")
    assert [(run.ending, run.observed.process) for run in shelf.last_words] == [("running", 58 * GIB)]


async def test_what_stands_in_the_way_is_a_problem_and_no_more() -> None:
    async with dashboard() as (app, pilot):
        app.session.run_writer = Shelf(REFUSED)
        await give(app, pilot, *climbing())
        assert "1 problem" in screen_text(app)
        await pilot.press("exclamation_mark")
        await settle(app, pilot)
        assert "database or disk is full" in " ".join(screen_text(app).split())
