import msgspec
import pytest

from tests.app import scenes
from tests.app.driver import climbing, dashboard, give, known, press, screen_text, settle
from tests.app.fakes import PRESETS, RoundEstimator
from vramtui.app.editor.screen import EditorScreen
from vramtui.app.live import without_predicted
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.state.view import SortColumn, View
from vramtui.core.base.units import GIB
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.readings import Memory, ProcessKey
from vramtui.core.schema.preset import Known, PresetFile
from vramtui.core.schema.settings import Kind
from vramtui.core.schema.workload import TrainRun
from vramtui.monitor.derived_presets import ConfinedError, DerivedPresets
from vramtui.monitor.predictor import MaxBatchSearch, Predictor
from vramtui.monitor.session import MonitorSession

PREDICTED = RoundEstimator().estimate(PRESETS[0].preset.workload, None).process  # type: ignore[arg-type]  # not looked at


def key(pid: int, gpu: str = "GPU-0") -> ProcessKey:
    return ProcessKey("gpu01", gpu, pid, scenes.START - 600)


def state_with(*samples: object, derived: DerivedPresets | None = None) -> DashboardState:
    state = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator()), derived=derived))
    state.take_presets(PRESETS)
    for sample in samples or (scenes.usual(),):
        state.take(sample)  # type: ignore[arg-type]  # samples
    return state


def pids(view: View) -> list[int]:
    return [row.process.pid for row in view.rows if row.process]


def test_a_matched_process_is_set_beside_its_preset_and_what_is_tried_out() -> None:
    view = state_with(*climbing()).view()
    assert (known(view.chosen).id, known(view.chosen).predicted) == (key(4213), PREDICTED)
    assert (view.panel.preset.key, known(view.panel.comparison).peak) == ("llama-3.1-8b-lora", 58 * GIB)
    assert (known(view.series).predicted, view.panel.room) == (PREDICTED, 80 * GIB - (600 << 20) - 1 * GIB)
    state = state_with()
    before = state.view()
    state.step(("batch_size",), 1)
    after = state.view()
    grown = 4096 * 11 * (1 << 20) // 4
    assert known(after.panel.estimate).process == before.panel.estimate.process + grown
    assert (known(after.chosen).predicted, known(after.series).predicted) == (PREDICTED, PREDICTED)
    assert known(after.series).what_if == PREDICTED + grown
    assert after.bars[0].predicted == 59 * GIB + PREDICTED - 58 * GIB
    assert (after.panel.matched, after.panel.comparison) == (before.panel.estimate, before.panel.comparison)
    assert after.panel.changed == {"batch_size"}
    assert state.undo_steps()
    undone = known(state.view().panel)
    assert undone.workload == PRESETS[0].preset.workload
    assert undone.matched is None
    assert not state.undo_steps()


def test_matching_by_hand_and_back_and_the_order_of_a_chosen_row() -> None:
    state = state_with()
    state.assign(key(977), "qwen2.5-7b-serve")
    view = state.view()
    assert next(row for row in view.rows if row.id == key(977)).preset == "qwen2.5-7b-serve"
    assert known(view.panel).preset.key == "qwen2.5-7b-serve"
    state.assign(key(4213), None)
    assert next(row for row in state.view().rows if row.id == key(4213)).preset is None
    state.assign(key(4213), None, automatic=True)
    assert next(row for row in state.view().rows if row.id == key(4213)).preset == "llama-3.1-8b-lora"
    small, large = scenes.process(1, 1 * GIB, "a"), scenes.process(2, 2 * GIB, "b")
    state = state_with(scenes.sample(scenes.gpu(0, small, large)))
    assert pids(state.view()) == [2, 1]
    state.choose(key(1))
    grown = msgspec.structs.replace(small, used_memory=9 * GIB)
    newcomer = scenes.process(3, 20 * GIB, "c")
    state.take(scenes.sample(scenes.gpu(0, grown, large, newcomer), at=1))
    view = state.view()
    assert pids(view) == [2, 1, 3]
    assert view.is_frozen
    assert state.unfreeze_order()
    assert pids(state.view()) == [3, 1, 2]
    assert not state.unfreeze_order()


def test_a_preset_is_marked_where_it_would_start_and_the_panel_of_a_row_without_one_is_of_no_other_process() -> None:
    state = state_with()
    state.choose(key(5120, "GPU-1"))
    state.panel_key = "qwen2.5-7b-serve"
    view = state.view()
    assert known(view.panel).process is None
    assert view.bars[1].predicted == 23 * GIB + known(known(view.panel).estimate).process
    memory = Memory(used=59 * GIB, free=40 * GIB, unified=True)
    shared = state_with(scenes.sample(msgspec.structs.replace(scenes.usual().gpus[0], memory=memory)))
    assert known(shared.view().panel).room == 98 * GIB  # what the host has, and the process's own
    state = state_with()
    state.view()
    state.choose(key(977))
    view = state.view()
    assert view.panel is None
    assert view.reason == "jupyter: model unknown · m assigns"
    why = {"jupyter lab": "", "x.py -m a/b": "model file not readable (owner bo)"}
    derived = DerivedPresets(lambda _, command: why[command], wait=True)
    seen = [scenes.process(pid, GIB // pid, command) for pid, command in enumerate(why, 1)]
    alone = state_with(scenes.sample(scenes.gpu(0, *seen)), derived=derived)
    words = "jupyter: model unknown · m assigns · x.py: model file not readable (owner bo)"
    assert alone.view().reason == words
    state.panel_key = "qwen2.5-7b-serve"  # chosen by `p`
    panel = known(state.view().panel)
    assert (panel.preset.key, panel.process) == ("qwen2.5-7b-serve", None)


def test_pause_holds_what_is_shown_and_the_history_goes_on() -> None:
    state = state_with(scenes.usual(0, trained=30 * GIB))
    assert state.toggle_pause()
    state.take(scenes.usual(1, trained=50 * GIB))
    state.take(scenes.usual(2, trained=40 * GIB))
    held = state.view()
    assert held.sample == scenes.usual(0, trained=30 * GIB)
    assert (known(held.chosen).now, known(held.chosen).peak) == (30 * GIB, 30 * GIB)
    assert list(known(held.series).values) == [30 * GIB]
    state.step(("batch_size",), 1)
    stepped = state.view()
    assert known(held.series).what_if is None
    assert stepped.series.what_if is not None
    assert not state.toggle_pause()
    live = state.view()
    assert (known(live.chosen).now, known(live.chosen).peak) == (40 * GIB, 50 * GIB)


def test_the_largest_come_first_until_a_person_sorts_and_sorting_twice_turns_the_order_round() -> None:
    rows = [scenes.process(100 + at, (at + 1) * GIB, "python x.py") for at in range(3)]
    state = state_with(scenes.sample(scenes.gpu(0, *rows), scenes.gpu(1, scenes.process(7, 9 * GIB, "python y.py"))))
    assert (state.view().sort, pids(state.view())) == ("now", [7, 102, 101, 100])
    state.sort_by("gpu")
    state.take(state.sample)  # type: ignore[arg-type]  # taken above
    assert state.view().sort == "gpu"
    state = state_with()
    state.sort_by("pid")
    assert pids(state.view()) == [977, 4213, 5120]
    state.sort_by("pid")
    assert pids(state.view()) == [5120, 4213, 977]
    state.sort_next(1)
    assert (state.sort, state.reverse) == ("gpu", False)


def test_before_the_first_sample_there_is_a_view_and_a_lost_gpu_keeps_its_last_figures() -> None:
    state = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator())))
    assert state.view().rows == ()
    assert state.snapshot() is None
    state.take_presets(PRESETS)
    state.panel_key = "qwen2.5-7b-serve"
    view = state.view()
    assert view.panel.gpu is None
    assert view.panel.estimate is not None
    state = state_with()
    state.view()
    state.step(("batch_size",), 1)
    first = known(state.snapshot()).holdings[0]
    assert (first.preset, known(first.estimate).process) == ("llama-3.1-8b-lora", PREDICTED)
    state = state_with(scenes.usual(0), scenes.troubled(30))
    lost = state.view().bars[0]
    assert (lost.gpu.state, lost.age, known(lost.last).memory.used) == ("lost", 30, 59 * GIB)


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
    state = state_with(msgspec.structs.replace(sample, gpus=(gpu, *sample.gpus[1:])))
    rows = [row for row in state.view().rows if row.gpu.index == 0 and row.predicted is not None]
    assert len(rows) == 2
    assert rows[0].predicted != rows[1].predicted
    state.choose(rows[0].id)
    state.view()
    state.step(("batch_size",), 1)
    panel = known(state.view().panel)
    assert panel.workload.run.batch_size == panel.preset.preset.run.batch_size + 1 != 5


def test_a_filter_takes_the_panel_along_and_counts_no_job_twice() -> None:
    state = state_with(*climbing())
    before = state.view().bars[0].predicted
    state.set_filter("nobody-has-this-in-a-row")
    view = state.view()
    assert not view.rows
    assert before is not None
    assert view.bars[0].predicted == before
    state = state_with(two_jobs())
    state.assign(key(300, "GPU-1"), "qwen2.5-7b-serve")
    state.panel_key = None
    state.view()
    state.set_filter("gpu:1")
    other = state.view()
    assert (known(other.chosen).id, known(other.panel).preset.key) == (key(300, "GPU-1"), "qwen2.5-7b-serve")
    state.set_filter("jupyter")
    assert state.view().chosen.id == key(977)
    state.set_filter("")
    back = state.view()
    assert (known(back.chosen).id, back.panel) == (key(977), None)  # the largest, without a preset


def two_jobs(at: float = 0.0) -> object:
    return scenes.sample(
        scenes.gpu(0, scenes.process(4213, 58 * GIB, scenes.TRAIN), scenes.process(977, 60 * GIB, "jupyter lab")),
        scenes.gpu(1, scenes.process(300, 20 * GIB, "vllm serve Qwen/Qwen2.5-7B-Instruct", user="bo")),
        at=at,
    )


def test_the_cursor_is_on_the_first_row_and_stays_with_a_preset_that_was_asked_for() -> None:
    columns: tuple[SortColumn, ...] = ("pid", "now", "user", "command", "pid")
    for is_chosen in (False, True):
        state = state_with(two_jobs())
        if is_chosen:
            state.choose(key(4213))
        for column in columns:
            state.sort_by(column)
            view = state.view()
            assert view.chosen is view.rows[view.chosen_at]
            assert view.chosen.id == key(4213) if is_chosen else view.chosen_at == 0
            assert (None if view.panel is None else view.panel.preset.key) == view.chosen.preset
    state = state_with()
    state.panel_key = "qwen2.5-7b-serve"
    for at in range(3):
        state.take(two_jobs(at))  # type: ignore[arg-type]  # a sample
        assert known(state.view().panel).preset.key == "qwen2.5-7b-serve"
    state = state_with(two_jobs())
    state.view()
    state.choose(key(977))
    state.view()
    assert state.unfreeze_order()
    state.sort_by("now")
    assert known(state.view().chosen).id == key(977)


def test_the_monitor_shows_what_is_seen_and_nothing_predicted() -> None:
    state = state_with(*climbing())
    state.is_monitor = True
    view = state.view()
    assert (view.is_monitor, view.predicts, view.panel, view.sort) == (True, False, None, "now")
    assert not any(row.predicted for row in view.rows)
    held = [row.now for row in view.rows if row.kind == "process" and row.now is not None]
    assert held == sorted(held, reverse=True)
    state.is_monitor = False
    assert state.view().panel is not None
    kinds: tuple[Kind, ...] = ("over", "will_not_fit", "growth", "lost")
    alerts = [Alert(kind=kind, gpu_uuid="", gpu_index=0, process=None, sentence="") for kind in kinds]
    assert without_predicted(alerts, is_monitor=False) == tuple(alerts)
    assert [alert.kind for alert in without_predicted(alerts, is_monitor=True)] == ["growth", "lost"]


def test_what_could_not_be_derived_is_shown_with_its_sample() -> None:
    def refuse(pid: int, command: str) -> None:
        raise ConfinedError(f"pid {pid}: {command} takes too much")

    state = DashboardState(
        MonitorSession(predictor=Predictor(RoundEstimator()), derived=DerivedPresets(refuse, wait=True))
    )
    state.session.take_presets(())
    state.take(scenes.usual())
    assert state.view().sample is state.sample
    assert any("takes too much" in problem.message for problem in known(state.sample).problems)


WORDS = "largest batch on an empty card: "


@pytest.mark.slow
async def test_a_long_search_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, held, turns = MaxBatchSearch.go_on, [True], [0]

    def one(self: MaxBatchSearch) -> None:
        if not held[0]:
            turns[0] += 1
            go_on(self, 0.0)  # one estimate a turn, however quick they are

    monkeypatch.setattr(MaxBatchSearch, "go_on", one)
    async with dashboard(climbing(), size=(160, 50)) as (app, pilot):
        assert f"{WORDS}…" in screen_text(app)
        await pilot.press("right_square_bracket")
        assert f"{WORDS}…" in screen_text(app)
        held[0] = False
        while f"{WORDS}…" in screen_text(app):
            await pilot.pause()
        assert screen_text(app).partition(WORDS)[2].split()[0].isdigit()
        assert turns[0] > 3


def derive(pid: int, command: str) -> PresetFile | None:
    del pid
    if command != "jupyter lab":
        return None
    run = TrainRun(batch_size=2, sequence_length=1024)
    preset = msgspec.structs.replace(PRESETS[0].preset, name="my model", run=run)
    return PresetFile(
        key="derived:my model",
        path="/srv/my-model",
        bundled=False,
        preset=preset,
        known=(
            Known("run.sequence_length", "command line", "--max_length 1024"),
            Known("run.lora", "launcher's default", "Trainer's default"),
        ),
        assumed=("run.batch_size", "run.checkpointing"),
        derived="/srv/my-model",
    )


async def test_enter_makes_a_preset_of_a_derived_estimate() -> None:
    async with dashboard(derived=DerivedPresets(derive, wait=True)) as (app, pilot):
        await give(app, pilot, scenes.usual())
        row = next(row for row in app.state.view().rows if row.process is not None and row.process.pid == 977)
        assert row.preset == "derived:my model"
        app.state.choose(row.id)
        await settle(app, pilot)
        shown = str(app.export_screenshot()).replace("&#160;", " ")
        assert "Estimate · my model" in shown
        words = " ".join(shown.split())
        for said in (
            "derived from /srv/my-model",
            "--max_length 1024",
            "not on the command line",
            "weights 15.0 GiB",
            "; LoRA by Trainer",
        ):
            assert all(word in words for word in said.split()), said
        assert row.predicted is None
        assert "does not fit" not in words
        await press(app, pilot, "x")
        explained = " ".join(screen_text(app).replace("│", " ").split())
        assert "No prediction: what is assumed could move the total by more than a fifth" in explained
        assert "With batch 2, checkpointing none it would be" in explained
        await press(app, pilot, "escape", "2")
        assert "assumed: batch 2" in " ".join(screen_text(app).replace("│", " ").split())
        await press(app, pilot, "escape")
        await press(app, pilot, "right_square_bracket")
        assert known(app.state.view().panel).estimate is not None, "what a person tries out is estimated"
        await press(app, pilot, "u", "enter")
        assert isinstance(app.screen, EditorScreen)
        draft = app.screen.draft
        assert (draft.name, draft.path) == ("my-model", None)
        assert known(draft.preset).run == TrainRun(batch_size=2, sequence_length=1024)


@pytest.mark.parametrize(
    ("size", "keys", "says"), [((80, 24), "", True), ((120, 35), "", False), ((120, 35), "v", True)]
)
async def test_a_low_or_folded_screen_says_under_the_rows_why_nothing_is_predicted(
    size: tuple[int, int], keys: str, says: bool
) -> None:
    async with dashboard(size=size, derived=DerivedPresets(derive, wait=True)) as (app, pilot):
        await give(app, pilot, scenes.usual())
        chosen = {row.process.pid: row.id for row in app.state.view().rows if row.process is not None}
        app.state.choose(chosen[977])
        await press(app, pilot, *keys)
        words = "batch and checkpointing are not on the"
        assert any("╰" in line and words in line for line in screen_text(app).splitlines()) is says
        app.state.choose(chosen[4213])
        await settle(app, pilot)
        assert words not in screen_text(app)


async def test_rows_with_a_preset_or_none_show_details_and_say_so() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await press(app, pilot, "enter")
        assert type(app.screen).__name__ == "Details"
        await press(app, pilot, "escape")
        for has_preset in (False, True):
            rows = [row for row in app.state.view().rows if row.kind == "process"]
            row = next(row for row in rows if (row.preset is not None) == has_preset)
            app.state.choose(row.id)
            await settle(app, pilot)
            panel, text = app.state.view().panel, screen_text(app)
            assert (f"no prediction for pid {row.process.pid}" in text) != has_preset
            assert panel is None or panel.process == row.process  # never another's
            assert "no running process uses" not in text
