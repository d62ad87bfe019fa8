"""What a person chooses, and the View that follows from it."""

import msgspec

from tests.app import scenes
from tests.app.driver import climbing
from tests.app.fakes import PRESETS, RoundEstimator
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.state.view import SortColumn, View
from vramtui.core.base.units import GIB
from vramtui.core.observation.readings import ProcessKey
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession

PREDICTED = RoundEstimator().estimate(PRESETS[0].preset.workload, None).process  # type: ignore[arg-type]  # not looked at


def key(pid: int, gpu: str = "GPU-0") -> ProcessKey:
    return ProcessKey("gpu01", gpu, pid, scenes.START - 600)


def desk_with(*samples: object) -> DashboardState:
    desk = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator())))
    desk.take_presets(PRESETS)
    for sample in samples or (scenes.usual(),):
        desk.take(sample)  # type: ignore[arg-type]  # samples
    return desk


def pids(view: View) -> list[int]:
    return [row.process.pid for row in view.rows if row.process]


def test_a_matched_process_is_chosen_and_set_beside_its_preset() -> None:
    view = desk_with(*climbing()).view()
    assert view.chosen is not None
    assert view.panel is not None
    assert view.series is not None
    assert (view.chosen.id, view.chosen.predicted) == (key(4213), PREDICTED)
    assert view.panel.preset.key == "llama-3.1-8b-lora"
    assert view.panel.comparison is not None
    assert view.panel.comparison.peak == 58 * GIB
    assert view.series.predicted == PREDICTED
    assert view.panel.room == 80 * GIB - (600 << 20) - 1 * GIB


def test_what_is_tried_out_stands_beside_the_prediction() -> None:
    desk = desk_with()
    before = desk.view()
    desk.step(("batch_size",), 1)
    after = desk.view()
    grown = 4096 * 11 * (1 << 20) // 4
    assert before.panel is not None
    assert before.panel.estimate is not None
    assert after.panel is not None
    assert after.panel.estimate is not None
    assert after.chosen is not None
    assert after.series is not None
    assert after.panel.estimate.process == before.panel.estimate.process + grown
    assert after.chosen.predicted == PREDICTED
    assert after.series.predicted == PREDICTED
    assert after.series.what_if == PREDICTED + grown
    assert after.bars[0].predicted == 59 * GIB + PREDICTED - 58 * GIB
    assert after.panel.matched == before.panel.estimate
    assert after.panel.comparison == before.panel.comparison
    assert after.panel.changed == {"batch_size"}
    assert desk.undo_steps()
    undone = desk.view().panel
    assert undone is not None
    assert undone.workload == PRESETS[0].preset.workload
    assert undone.matched is None
    assert not desk.undo_steps()


def test_matching_by_hand_and_back() -> None:
    desk = desk_with()
    desk.assign(key(977), "qwen2.5-7b-serve")
    view = desk.view()
    assert next(row for row in view.rows if row.id == key(977)).preset == "qwen2.5-7b-serve"
    assert view.panel is not None
    assert view.panel.preset.key == "qwen2.5-7b-serve"
    desk.assign(key(4213), None)
    assert next(row for row in desk.view().rows if row.id == key(4213)).preset is None
    desk.assign(key(4213), None, automatic=True)
    assert next(row for row in desk.view().rows if row.id == key(4213)).preset == "llama-3.1-8b-lora"


def test_a_preset_nobody_runs_is_marked_where_it_would_start() -> None:
    desk = desk_with()
    desk.choose(key(5120, "GPU-1"), hold=True)
    desk.panel_key = "qwen2.5-7b-serve"
    view = desk.view()
    assert view.panel is not None
    assert view.panel.estimate is not None
    assert view.panel.process is None
    assert view.bars[1].predicted == 23 * GIB + view.panel.estimate.process


def test_another_row_of_the_same_gpu_keeps_the_comparison() -> None:
    desk = desk_with()
    desk.view()
    desk.choose(key(977), hold=True)
    view = desk.view()
    assert view.panel is not None
    assert view.panel.process is not None
    assert view.panel.process.pid == 4213


def test_the_order_stays_while_a_row_is_chosen_by_hand() -> None:
    small, large = scenes.process(1, 1 * GIB, "a"), scenes.process(2, 2 * GIB, "b")
    desk = desk_with(scenes.sample(scenes.gpu(0, small, large)))
    desk.sort_by("now")
    assert pids(desk.view()) == [2, 1]
    desk.choose(key(1), hold=True)
    grown = msgspec.structs.replace(small, used_memory=9 * GIB)
    newcomer = scenes.process(3, 20 * GIB, "c")
    desk.take(scenes.sample(scenes.gpu(0, grown, large, newcomer), at=1))
    view = desk.view()
    assert pids(view) == [2, 1, 3]
    assert view.held
    assert desk.let_go()
    assert pids(desk.view()) == [3, 1, 2]
    assert not desk.let_go()


def test_pause_holds_what_is_shown_and_the_history_goes_on() -> None:
    desk = desk_with(scenes.usual(0, trained=10 * GIB))
    assert desk.toggle_pause()
    desk.take(scenes.usual(1, trained=50 * GIB))
    desk.take(scenes.usual(2, trained=20 * GIB))
    held = desk.view()
    assert held.sample == scenes.usual(0, trained=10 * GIB)
    assert held.chosen is not None
    assert (held.chosen.now, held.chosen.peak) == (10 * GIB, 10 * GIB)
    assert held.series is not None
    assert list(held.series.values) == [10 * GIB]
    desk.step(("batch_size",), 1)
    stepped = desk.view()
    assert stepped.series is not None
    assert held.series.what_if is None
    assert stepped.series.what_if is not None
    assert not desk.toggle_pause()
    live = desk.view()
    assert live.chosen is not None
    assert (live.chosen.now, live.chosen.peak) == (20 * GIB, 50 * GIB)


def test_a_lost_gpu_keeps_its_last_figures_with_their_age() -> None:
    desk = desk_with(scenes.usual(0), scenes.troubled(30))
    lost = desk.view().bars[0]
    assert lost.gpu.state == "lost"
    assert lost.age == 30
    assert lost.last is not None
    assert lost.last.memory.used == 59 * GIB


def test_sorting_twice_by_one_column_turns_it_round() -> None:
    desk = desk_with()
    desk.sort_by("pid")
    assert pids(desk.view()) == [977, 4213, 5120]
    desk.sort_by("pid")
    assert pids(desk.view()) == [5120, 4213, 977]
    desk.sort_next(1)
    assert (desk.sort, desk.reverse) == ("gpu", False)


def test_a_snapshot_holds_the_prediction_of_what_runs() -> None:
    desk = desk_with()
    desk.view()
    desk.step(("batch_size",), 1)
    taken = desk.snapshot()
    assert taken is not None
    first = taken.holdings[0]
    assert first.preset == "llama-3.1-8b-lora"
    assert first.estimate is not None
    assert first.estimate.process == PREDICTED


def test_two_jobs_of_one_preset_have_the_predictions_of_their_own_flags() -> None:
    sample = scenes.usual()
    gpu = sample.gpus[0]
    first, second = gpu.processes[:2]
    commands = (f"{scenes.TRAIN} --batch-size 2", f"{scenes.TRAIN} --batch-size 1")
    changed = tuple(
        msgspec.structs.replace(process, command=command)
        for process, command in zip((first, second), commands, strict=True)
    )
    gpu = msgspec.structs.replace(gpu, processes=changed)
    desk = desk_with(msgspec.structs.replace(sample, gpus=(gpu, *sample.gpus[1:])))
    rows = [row for row in desk.view().rows if row.gpu.index == 0 and row.predicted is not None]
    assert len(rows) == 2
    assert rows[0].predicted != rows[1].predicted
    desk.choose(rows[0].id, hold=True)
    desk.view()
    desk.step(("batch_size",), 1)
    panel = desk.view().panel
    assert panel is not None
    assert panel.workload.run.batch_size == panel.preset.preset.run.batch_size + 1 != 5  # type: ignore[union-attr]  # it has one


def test_before_the_first_sample_there_is_a_view_all_the_same() -> None:
    desk = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator())))
    assert desk.view().rows == ()
    assert desk.snapshot() is None
    desk.take_presets(PRESETS)
    desk.panel_key = "qwen2.5-7b-serve"
    view = desk.view()
    assert view.panel is not None
    assert view.panel.gpu is None
    assert view.panel.estimate is not None


def test_a_filter_that_hides_a_job_does_not_count_it_twice() -> None:
    desk = desk_with(*climbing())
    before = desk.view().bars[0].predicted
    desk.set_filter("nobody-has-this-in-a-row")
    view = desk.view()
    assert not view.rows
    assert before is not None
    assert view.bars[0].predicted == before


def two_jobs(at: float = 0.0) -> object:
    """Two jobs that presets recognise and one that none does."""
    return scenes.sample(
        scenes.gpu(
            0,
            scenes.process(4213, 58 * GIB, scenes.TRAIN),
            scenes.process(977, 60 * GIB, "jupyter lab"),
        ),
        scenes.gpu(1, scenes.process(300, 20 * GIB, "vllm serve Qwen/Qwen2.5-7B-Instruct", user="bo")),
        at=at,
    )


def test_the_cursor_stays_with_its_process_and_the_panel_with_the_cursor() -> None:
    """Whatever the order, without a row chosen by hand."""
    desk = desk_with(two_jobs())
    first = desk.view()
    assert first.chosen is not None
    assert first.panel is not None
    assert (first.chosen.id, first.panel.preset.key) == (key(4213), "llama-3.1-8b-lora")
    columns: tuple[SortColumn, ...] = ("pid", "now", "user", "command", "pid")
    for column in columns:
        desk.sort_by(column)
        view = desk.view()
        assert view.chosen is not None
        assert view.panel is not None
        assert view.chosen.id == key(4213)
        assert view.rows[view.chosen_at].id == key(4213)
        assert view.panel.preset.key == "llama-3.1-8b-lora"


def test_where_a_filter_takes_the_cursor_the_panel_follows() -> None:
    desk = desk_with(two_jobs())
    desk.assign(key(300, "GPU-1"), "qwen2.5-7b-serve")
    desk.panel_key = "llama-3.1-8b-lora"
    desk.view()
    desk.set_filter("gpu:1")
    other = desk.view()
    assert other.chosen is not None
    assert other.panel is not None
    assert (other.chosen.id, other.panel.preset.key) == (key(300, "GPU-1"), "qwen2.5-7b-serve")
    desk.set_filter("jupyter")
    assert desk.view().chosen.id == key(977)  # type: ignore[union-attr]  # the only row
    desk.set_filter("")
    back = desk.view()
    assert back.chosen is not None
    assert back.panel is not None
    assert back.chosen.preset == back.panel.preset.key


def test_a_preset_that_was_asked_for_stays_until_the_cursor_moves() -> None:
    desk = desk_with()
    desk.panel_key = "qwen2.5-7b-serve"
    for at in range(3):
        desk.take(two_jobs(at))  # type: ignore[arg-type]  # a sample
        view = desk.view()
        assert view.panel is not None
        assert view.panel.preset.key == "qwen2.5-7b-serve"


def test_after_esc_the_cursor_stays_where_it_was() -> None:
    desk = desk_with(two_jobs())
    desk.view()
    desk.choose(key(977), hold=True)
    desk.view()
    assert desk.let_go()
    desk.sort_by("now")
    view = desk.view()
    assert view.chosen is not None
    assert view.chosen.id == key(977)


def test_the_monitor_shows_what_is_seen_and_nothing_predicted() -> None:
    desk = desk_with(*climbing())
    assert desk.toggle_monitor()
    view = desk.view()
    assert (view.is_monitor, view.predicts, view.panel, view.sort) == (True, False, None, "now")
    assert not any(row.predicted for row in view.rows)
    held = [row.now for row in view.rows if row.kind == "process" and row.now is not None]
    assert held == sorted(held, reverse=True)
    assert not desk.toggle_monitor()
    assert desk.view().panel is not None
