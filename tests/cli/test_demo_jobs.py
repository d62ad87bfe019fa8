from tests.loaded_once import bundled_presets
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.cli.common.demo_jobs import demo_jobs
from vramtui.monitor.jobs import observed_beside
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession
from vramtui.sources.demo import DemoSource


def test_totals_stay_within_the_process_and_a_loading_job_has_told_nothing() -> None:
    now = [1_000_000.0]
    demo = DemoSource(clock=lambda: now[0])
    for _ in range(600):
        now[0] += 7
        told = demo_jobs(demo)
        for gpu in demo.read().gpus:
            for process in gpu.processes:
                ledger = observed_beside(lambda told=told: told, gpu, process, None)  # type: ignore[misc]  # bound for this round
                if ledger.allocated is None:
                    continue
                parts = (ledger.weights, ledger.gradients, ledger.optimizer, ledger.activations)
                assert sum(part or 0 for part in parts) == ledger.allocated
                assert (ledger.allocated or 0) <= (ledger.reserved or 0)
    now = [1_000_000.0]
    demo = DemoSource(clock=lambda: now[0])

    def reports() -> bool:
        return any(job.pid == 4214 and job.peaks for job in demo_jobs(demo))

    while reports() or not any(p.pid == 4214 for p in demo.read().gpus[0].processes):
        now[0] += 1
    (young,) = [job for job in demo_jobs(demo) if job.pid == 4214]
    assert young.hello.preset == "llama-3.1-8b-lora", "it was started with a preset"
    assert not reports()
    now[0] += 70
    assert reports()


def test_the_panel_and_snapshots_have_the_observed_parts() -> None:
    demo = DemoSource(clock=lambda: 1_000_000.0)
    state = DashboardState(MonitorSession(predictor=Predictor()))
    state.session.jobs = lambda: demo_jobs(demo)
    state.take_presets(bundled_presets())
    state.take(demo.read())
    panel, snapshot = state.view().panel, state.snapshot()
    assert panel.comparison is not None
    holding = next(holding for holding in snapshot.holdings if holding.key.pid == panel.process.pid)
    assert holding.comparison is not None
    for comparison in (panel.comparison, holding.comparison):
        rows = {row.line: row for row in comparison.rows}
        assert rows["weights"].difference == 0
        assert -0.02 < (rows["allocated"].fraction or 1) < 0
