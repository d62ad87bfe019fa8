"""What a job's probe tells stands beside what was predicted: in the panel's parts and in the Timeline's bars."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.app.driver import climbing, dashboard, screen_text, settle
from tests.app.fakes import PRESETS, FixedPresets
from vramtui.app.state.dashboard_state import row_ledger
from vramtui.app.timeline.trace_jobs import observed_moments
from vramtui.core.base.units import GIB
from vramtui.core.observation.probe_messages import Beat, End, Hello, MemoryCounters, ObservedJob, PhaseEnd, ProbeDevice
from vramtui.core.observation.readings import ProcessKey


def job(pid: int, uuid: str) -> ObservedJob:
    """A job in its first step, on the card that the driver calls `uuid`."""
    card = ProbeDevice(index=1, name="card", total_memory=80 * GIB, capability=(9, 0), uuid=uuid.removeprefix("GPU-"))
    ends = (
        PhaseEnd(at=1.0, phase="build", step=0, device=1, allocated=15 * GIB, peak_allocated=15 * GIB),
        PhaseEnd(at=2.0, phase="forward", step=0, device=1, allocated=50 * GIB, peak_allocated=55 * GIB),
        PhaseEnd(at=3.0, phase="backward", step=0, device=1, allocated=16 * GIB),
        PhaseEnd(at=3.0, phase="backward", step=0, device=0, allocated=1),
        PhaseEnd(at=4.0, phase="step", step=0, device=1),
    )
    beat = Beat(
        v=1,
        pid=pid,
        at=4.0,
        step=0,
        devices=(MemoryCounters(index=1, allocated_peak=55 * GIB, reserved_peak=57 * GIB),),
        parts={"weights": {"cuda:1": 15 * GIB}, "optimizer": {"cuda:1": GIB}},
        moments=ends,
    )
    return ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=0.0, devices=(card,))).heard(beat)


async def test_parts_and_phases_of_the_job_that_runs_the_preset() -> None:
    async with dashboard(climbing(), (120, 35)) as (app, pilot):
        view = app.state.view()
        assert view.chosen is not None
        assert view.chosen.process is not None
        told = (job(view.chosen.process.pid, view.chosen.gpu.uuid),)

        def jobs() -> Sequence[ObservedJob]:
            return told

        app.session.jobs = jobs
        ledger = row_ledger(jobs, view.chosen)
        assert (ledger.weights, ledger.optimizer, ledger.allocated) == (15 * GIB, GIB, 55 * GIB)
        assert (ledger.activations, ledger.cached, ledger.process) == (39 * GIB, 2 * GIB, view.chosen.peak)
        panel = app.state.view().panel
        assert panel is not None
        moments = observed_moments(jobs, panel)
        assert [(one.phase, one.allocated, one.peak_allocated) for one in moments] == [
            ("build", 15 * GIB, 15 * GIB),
            ("forward", 50 * GIB, 55 * GIB),
            ("backward", 16 * GIB, 16 * GIB),
        ]
        await settle(app, pilot)
        assert "55.00" in app.parts.export.picture()
        await pilot.press("3")
        await settle(app, pilot)
        assert "observed:&#160;3&#160;phases" in app.parts.export.picture()


async def test_other_jobs_and_other_cards_tell_nothing_of_it() -> None:
    async with dashboard(climbing()) as (app, _):
        row = app.state.view().chosen
        assert row is not None
        assert row.process is not None
        for stranger in (job(row.process.pid + 1, row.gpu.uuid), job(row.process.pid, "GPU-another")):
            app.session.jobs = lambda told=(stranger,): told  # type: ignore[misc]  # a default is how a loop binds
            panel = app.state.view().panel
            assert panel is not None
            assert observed_moments(app.state.jobs, panel) == ()
            ledger = row_ledger(app.state.jobs, row)
            assert (ledger.allocated, ledger.process) == (None, row.peak)


async def test_growth_of_a_job_that_died_without_last_words_is_no_context() -> None:
    async with dashboard(climbing()) as (app, _):
        row = app.state.view().chosen
        assert row is not None
        assert row.process is not None
        running = job(row.process.pid, row.gpu.uuid)
        row = replace(row, peak=60 * GIB)
        contexts = [
            row_ledger(lambda told=one: (told,), row).context  # type: ignore[misc]  # a default is how a loop binds
            for one in (running, replace(running, gone=True), replace(running, gone=True, end=End(v=1, pid=1, at=5.0)))
        ]
        assert contexts == [3 * GIB, None, 3 * GIB]


async def test_without_a_preset_the_jobs_own_figures_are_shown() -> None:
    """On Watch in place of the estimate, stacked in the graph, and phase by phase on Timeline."""
    async with dashboard(climbing(), (120, 35), presets=FixedPresets(())) as (app, pilot):
        view = app.state.view()
        assert view.panel is None
        chosen = view.chosen
        assert chosen is not None
        assert chosen.process is not None
        told = (job(chosen.process.pid, chosen.gpu.uuid),)
        app.session.jobs = lambda: told
        await settle(app, pilot)
        text = screen_text(app)
        assert f"Reported by pid {chosen.process.pid}" in text
        assert "15.00" in text
        assert "m assigns a preset" in text
        await pilot.press("3")
        await settle(app, pilot)
        text = screen_text(app)
        assert "1 forward" in text
        assert "Phases · observed" in text


async def test_beside_another_preset_they_are_a_line() -> None:
    async with dashboard(climbing(), (120, 35), preset=PRESETS[1].key) as (app, pilot):
        chosen = app.state.view().chosen
        assert chosen is not None
        assert isinstance(chosen.id, ProcessKey)
        assert chosen.process is not None
        pid = chosen.process.pid
        app.state.assign(chosen.id, None)
        told = (job(pid, chosen.gpu.uuid),)
        app.session.jobs = lambda: told
        await settle(app, pilot)
        assert f"pid {pid} reports at its peak" in screen_text(app)
