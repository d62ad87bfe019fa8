"""A process that no preset matches and whose model is known all the same."""

import msgspec

from tests.app import scenes
from tests.app.driver import dashboard, give, screen_text, settle
from tests.app.fakes import PRESETS
from vramtui.app.editor.screen import EditorScreen
from vramtui.core.schema.preset import Known, PresetFile
from vramtui.core.schema.workload import TrainRun
from vramtui.monitor.derived_presets import DerivedPresets


def derive(pid: int, command: str) -> PresetFile | None:
    """The notebook trains a model that lies beside it."""
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
        known=(Known("run.sequence_length", "command line", "--max_length 1024"),),
        assumed=("run.batch_size", "run.checkpointing"),
        derived="/srv/my-model",
    )


async def test_enter_makes_a_preset_of_a_derived_estimate() -> None:
    async with dashboard(derived=DerivedPresets(derive, wait=True)) as (app, pilot):
        await give(app, pilot, scenes.usual())
        row = next(row for row in app.state.view().rows if row.process is not None and row.process.pid == 977)
        assert row.preset == "derived:my model"
        app.state.select(row.id, freeze=True)
        await settle(app, pilot)
        shown = str(app.export_screenshot()).replace("&#160;", " ")
        assert "Estimate · derived:my model" in shown
        words = " ".join(shown.split())
        for said in ("derived from /srv/my-model", "--max_length 1024", "not on the command line", "weights 15.0 GiB"):
            assert all(word in words for word in said.split()), said
        assert row.predicted is None
        assert "does not fit" not in words
        await pilot.press("x")
        await settle(app, pilot)
        explained = " ".join(screen_text(app).replace("│", " ").split())
        assert "No prediction: what is assumed could move the total by more than a fifth" in explained
        assert "With batch 2, checkpointing none it would be" in explained
        await pilot.press("escape", "2")
        await settle(app, pilot)
        planned = " ".join(screen_text(app).replace("│", " ").split())
        assert "assumed: batch 2" in planned
        await pilot.press("escape")
        await settle(app, pilot)
        await pilot.press("right_square_bracket")
        await settle(app, pilot)
        panel = app.state.view().panel
        assert panel is not None
        assert panel.estimate is not None, "what a person tries out is estimated"
        await pilot.press("u", "enter")
        await settle(app, pilot)
        assert isinstance(app.screen, EditorScreen)
        draft = app.screen.draft
        assert (draft.name, draft.path) == ("my-model", None)
        assert draft.preset is not None
        assert draft.preset.run == TrainRun(batch_size=2, sequence_length=1024)


async def test_enter_still_shows_details_of_every_other_row() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        await pilot.press("enter")
        await settle(app, pilot)
        assert type(app.screen).__name__ == "Details"


async def test_a_selected_process_without_a_preset_is_said_to_have_none() -> None:
    async with dashboard([scenes.usual()]) as (app, pilot):
        for has_preset in (False, True):
            rows = [row for row in app.state.view().rows if row.kind == "process"]
            row = next(row for row in rows if (row.preset is not None) == has_preset)
            assert row.process is not None
            app.state.select(row.id, freeze=True)
            await settle(app, pilot)
            panel, text = app.state.view().panel, screen_text(app)
            assert (f"no prediction for pid {row.process.pid}" in text) != has_preset
            assert panel is None or panel.process == row.process  # never another's
            assert "no running process uses" not in text
