from pathlib import Path

import pytest

from tests.app import scenes
from tests.app.driver import dashboard, give, known, press, screen_text, settle
from tests.app.editor_samples import PLAIN, TEXT, editor, on_top, preset_at, said, text_of
from tests.app.fakes import FixedPresets
from vramtui.app.editor.form_panel import DraftEstimator, EditorView, FormPanel
from vramtui.app.editor.screen import EditorScreen, Pick
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Ledger
from vramtui.estimators.methods import DEFAULT
from vramtui.monitor.predictor import LazyAnalytic, Refiner
from vramtui.presets import PresetLibrary
from vramtui.presets.draft import Draft, FormField


def _key(form: FormPanel) -> str:
    return form.entry.key


async def test_opening_and_leaving_changes_nothing_and_needs_a_preset_that_can_be_read(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        assert screen.area.text == TEXT == screen.draft.text
        assert not screen.draft.is_changed
        await press(app, pilot, "escape")
        assert known(app.screens.current).PLACE == "watch"
        assert (tmp_path / "presets" / "tiny.toml").read_text() == TEXT
    async with dashboard() as (app, pilot):
        await pilot.press("e", "E")
        assert not isinstance(app.screen, EditorScreen)
        assert {note.message for note in app.announced} == {"Choose a preset first: p"}
    found = preset_at(tmp_path / "presets" / "tiny.toml")
    (tmp_path / "presets" / "tiny.toml").unlink()
    async with dashboard(presets=FixedPresets([found]), preset="tiny") as (app, pilot):
        await pilot.press("e")
        assert not isinstance(app.screen, EditorScreen)
        assert "tiny.toml" in said(app)


async def test_form_and_text_are_two_sides_of_one_draft(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.batch_size")
        await press(app, pilot, "1", "6", "enter")
        expected = TEXT.replace("batch_size = 4   # one card", "batch_size = 16   # one card")
        assert screen.draft.text == expected == screen.area.text
        assert screen.area.cursor_location[0] == expected.splitlines().index("batch_size = 16   # one card")
        await press(app, pilot, "ctrl+z")
        assert screen.draft.text == TEXT == screen.area.text
        await press(app, pilot, "ctrl+y")
        assert screen.area.text == expected
    async with editor(tmp_path) as (app, pilot, screen):
        screen.area.focus()
        screen.area.move_cursor((12, len("batch_size = 4")))
        await press(app, pilot, "backspace", "8")
        assert screen.draft.text == TEXT.replace("batch_size = 4", "batch_size = 8")
        entry = screen.form.entry
        assert isinstance(entry, FormField)
        assert (entry.key, entry.value) == ("run.batch_size", "8")
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.batch_size")
        await press(app, pilot, "down")
        assert _key(screen.form) == "run.sequence_length"
        assert screen.area.cursor_location[0] == 13
        await press(app, pilot, "f6", "up", "up", "up")
        assert screen.area.cursor_location[0] == 10
        assert _key(screen.form) == "run"


async def test_a_quick_estimate_gives_way_to_the_simulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes against the saved text are always between two estimates of one method."""
    refiner = Refiner(lambda: DEFAULT, settled=0.0)
    preset = preset_at(tmp_path / "presets" / "tiny.toml")
    async with editor(tmp_path, found=preset, estimator=LazyAnalytic(), refiner=refiner) as (app, pilot, screen):
        looks: list[EditorView] = []
        look = DraftEstimator.look

        def looked(self: DraftEstimator, draft: Draft, observed: Ledger | None = None) -> EditorView:
            looks.append(look(self, draft, observed))
            return looks[-1]

        monkeypatch.setattr(DraftEstimator, "look", looked)
        screen.form.go_to("run.batch_size")
        await pilot.press("enter", "backspace", "9", "enter")
        view = screen.open.look
        while view.is_quick or view.before is None:
            assert refiner.wait(60)
            await give(app, pilot, scenes.usual())
            view = screen.open.look
            assert ("≈" in screen_text(app)) == view.is_quick
        assert view.workload is not None
        exact = DEFAULT.estimate(view.workload, view.card.device)
        before = DEFAULT.estimate(preset.preset.workload, view.card.device)
        assert (view.estimate, view.before) == (exact, before)
        quick = [one for one in looks if one.is_quick]
        assert quick
        for one in quick:
            assert known(one.estimate).method == known(one.before).method != exact.method


async def test_typing(tmp_path: Path) -> None:
    """Letters are no keys of the app, Escape takes back what is typed, and a caret goes through it."""
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("name")
        await press(app, pilot, "q", "1", "question_mark", "r", "enter")
        assert app.screen is screen
        assert screen.draft.text == TEXT.replace('"Tiny"', '"q1?r"')
        await pilot.press("ctrl+z")
        screen.form.go_to("run.gradient_accumulation_steps")
        await pilot.press("8")
        assert "gradient_accumulation_steps = 8" in screen.draft.text
        await pilot.press("escape")
        assert screen.draft.text == TEXT
        screen.form.go_to("run.batch_size")
        await pilot.press("enter", "backspace", "9", "escape")
        assert screen.draft.text == TEXT
        screen.form.go_to("name")
        await pilot.press("enter", "home", "right", "delete", "left", "x", "end", "y", "enter")
        assert screen.draft.preset.name == "xTnyy"
        await pilot.press("enter", "ctrl+u", "a", "space", "b", "ctrl+w", "c", "enter")
        assert screen.draft.preset.name == "a c"
        await pilot.press("backspace", "enter")
        assert screen.draft.preset.name == "a "
        await press(app, pilot, "f6", "home", "up", "q", "3")
        assert app.screen is screen
        assert screen.draft.text.startswith("q3# Started")


async def test_tables_open_and_changed_parts_are_marked(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("name")
        await pilot.press("ctrl+down", "ctrl+down", "down", "down")
        assert _key(screen.form) == "run.batch_size"
        await pilot.press("ctrl+up")
        assert _key(screen.form) == "run"
        screen.form.go_to("[run.lora]")
        await press(app, pilot, "right", "down", "8", "enter")
        assert "[run.lora]\nrank = 8\n" in screen.draft.text
        await press(app, pilot, "up", "delete")
        assert screen.draft.text.rstrip() == TEXT.rstrip()
        await pilot.press("left", "enter", "space")
        assert _key(screen.form) == "run.lora"
    async with editor(tmp_path) as (app, pilot, screen):
        before = screen.open.look.estimate
        screen.form.go_to("run.batch_size")
        await press(app, pilot, "8")
        assert known(screen.open.look.estimate).process - known(before).process == 44 * GIB
        assert screen_text(app).count("+44.00") == 4  # activations, and the three totals
        assert "does not fit" in screen_text(app)
    unknown = TEXT.replace("vocab_size", 'basis = "generic"\nvocab_size')
    found = preset_at(tmp_path / "presets" / "tiny.toml", unknown)
    async with editor(tmp_path, found=found) as (app, _, _):
        shown = " ".join(screen_text(app).split())
        assert "unknown whether it fits GPU 0" in shown
        assert "✓ fits" not in shown


async def test_a_wrong_value_is_marked_where_it_stands_and_the_last_good_estimate_stays(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        good = known(screen.open.look.estimate)
        screen.form.go_to("run.precision")
        screen.open.put("run.precision", "bf61-mixed")
        await settle(app, pilot)
        assert screen.open.look.estimate is good
        assert not screen.open.look.is_current
        shown = screen_text(app)
        assert "✗ run.precision is 'bf61-mixed' (did you mean" in shown
        assert "line 15: run.precision is 'bf61-mixed'" in shown
        assert "✗ precision" in shown
        assert 'precision = "bf61-mixed"  ✗ run.precision' in shown
        assert "last valid" in shown
        screen.open.put("run.precision", "bf16-mixed")
        await settle(app, pilot)
        assert screen.open.look.is_current
        assert "✗ precision" not in screen_text(app)
        screen.open.put("run.sequence_length", "1536")
        assert [problem.key for problem in screen.draft.problems] == ["model.max_position_embeddings"], (
            "the estimator's"
        )


async def test_pages_of_a_small_terminal_always_show_the_total_and_follow_the_keys(tmp_path: Path) -> None:
    async with editor(tmp_path, (80, 24)) as (app, pilot, screen):
        for panel, page in (("text", "text"), ("totals", "estimate"), ("fields", "form")):
            await press(app, pilot, "f6")
            assert known(app.focused).id == panel
            assert screen.has_class(f"page-{page}")
            assert all(words in screen_text(app).splitlines()[-2] for words in ("61.0 GiB", "fits GPU 0"))
        for panel, key in (("totals", "ctrl+pageup"), ("fields", "ctrl+pagedown")):
            await press(app, pilot, key)
            assert known(app.focused).id == panel
    async with editor(tmp_path, (80, 24)) as (app, pilot, screen):
        await pilot.press("f6")
        await pilot.resize_terminal(120, 35)
        await settle(app, pilot)
        await pilot.press("tab")
        await pilot.resize_terminal(80, 24)
        await settle(app, pilot)
        assert screen.has_class("page-estimate")
        assert "Preset editor" in await press(app, pilot, "f1")  # a panel without keys of its own has the focus


async def test_every_key_is_in_the_help_and_what_was_typed_stands_once_saved(tmp_path: Path) -> None:
    async with editor(tmp_path, (99, 200)) as (app, pilot, screen):  # the help has one column
        titles = {command.title for command in app.get_system_commands(screen)}
        for binding in screen.BINDINGS:
            assert binding.tooltip in titles
        shown = await press(app, pilot, "f1")
        assert "Preset editor: form (focused)" in shown
        assert "Preset editor: form (focused)" in shown
        everywhere = shown[shown.index("Everywhere") :]
        assert "Quit with exit code 130" in everywhere
        for typed in ("Watch: what uses", "Start or stop recording", "Suspend to the shell"):
            assert typed not in everywhere  # 1, r and K are letters here, and Ctrl+Z undoes
        assert "Undo" in shown
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.batch_size")
        await press(app, pilot, "8", "ctrl+z")
        assert screen.draft.text == TEXT
        await press(app, pilot, "7", "ctrl+s", "escape")
        assert app.screen is not screen
        assert (tmp_path / "presets" / "tiny.toml").read_text() == TEXT.replace("batch_size = 4", "batch_size = 7")


async def test_shipped_presets_open_unchanged_and_hostile_text_is_harmless(tmp_path: Path) -> None:
    found = PresetLibrary(tmp_path / "none").get("llama-3.1-8b-lora")
    async with editor(tmp_path, (80, 24), found=found, samples=[PLAIN]) as (app, pilot, screen):
        await press(app, pilot, "down", "f6", "down", "end", "f6", "f6")
        assert screen.area.text == text_of(found)
        assert not screen.draft.is_changed
    path = tmp_path / "presets" / "tiny.toml"
    found = preset_at(path)
    path.write_text(TEXT.replace("# Started", "# \x1b[2J\x07[red]Started").replace('"Tiny"', '"[bold]\\u001b[2J"'))
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        assert "\x1b" not in screen_text(app)
        screen.area.move_cursor((0, 0))
        await settle(app, pilot)
        assert "\x1b" not in screen_text(app)
        assert "[red]Started" in screen_text(app)
        assert screen.draft.problems


async def test_values_are_stepped_chosen_and_clicked(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "home")
        await pilot.click("#form", offset=(10, 2))
        assert _key(screen.form) == "name"
        await pilot.click("#form", offset=(10, 2))
        await press(app, pilot, "x", "enter")
        assert 'name = "Tinyx"' in screen.draft.text
        screen.form.go_to("run.batch_size")
        await pilot.press("right", "right", "left")
        assert "batch_size = 5 " in screen.draft.text
        screen.form.go_to("run.precision")
        await press(app, pilot, "enter")
        assert on_top(app, Pick)
        assert "bf16 weights and gradients; the optimizer keeps fp32 copies" in screen_text(app)
        await press(app, pilot, "down", "enter")
        assert 'precision = "fp16-mixed"' in screen.draft.text
        await pilot.press("t")
        assert 'precision = "tf32"' in screen.draft.text
        screen.form.go_to("model.qk_norm")
        await pilot.press("space")
        assert "qk_norm = true" in screen.draft.text
        await pilot.press("delete")
        assert "qk_norm" not in screen.draft.text


async def test_it_opens_with_what_was_stepped_and_goes_back_to_the_screen_it_came_from(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "escape", "right_square_bracket", "right_square_bracket", "e")
        opened = app.screen
        assert isinstance(opened, EditorScreen)
        assert opened is not screen
        assert opened.draft.text == TEXT.replace("batch_size = 4", "batch_size = 6")
        assert "not saved yet" in said(app)
    async with editor(tmp_path) as (app, pilot, screen):
        for place in ("2", "3"):
            await press(app, pilot, "escape", place)
            below = app.screen
            assert below is not screen
            await press(app, pilot, "e")
            assert isinstance(app.screen, EditorScreen)
            await press(app, pilot, "escape")
            assert app.screen is below


async def test_the_form_opens_at_the_value_that_people_change_first_and_keeps_its_place(tmp_path: Path) -> None:
    async with editor(tmp_path, (80, 24)) as (app, pilot, screen):
        assert _key(screen.form) == "run.batch_size"
        assert screen.area.cursor_location[0] == TEXT.splitlines().index("batch_size = 4   # one card")
        lines = screen_text(app).splitlines()
        title = next(at for at, line in enumerate(lines) if "▾ Run" in line)
        assert "batch size" in lines[title + 2]
        await press(app, pilot, "f6", "f6", "f6")
        assert _key(screen.form) == "run.batch_size"
        assert "▾ Run" in screen_text(app).splitlines()[title]
    # Also on a field that the text does not say, until the text's cursor goes to another line.
    async with editor(tmp_path, (80, 24)) as (app, pilot, screen):
        screen.form.go_to("run.max_grad_norm")
        await press(app, pilot, "f6", "end", "left", "f6", "f6")
        assert _key(screen.form) == "run.max_grad_norm"
        await press(app, pilot, "f6", "down", "f6", "f6")
        assert _key(screen.form) == "run.sequence_length"


async def test_what_was_refused_stands_in_its_field_until_something_else_does(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "0", "x", "down")
        assert screen.draft.text == TEXT
        for words in ("✗ batch size", "0x", "run.batch_size is '0x'; a whole number is needed"):
            assert words in screen_text(app)
        await press(app, pilot, "ctrl+s")
        assert said(app) == "Not saved: run.batch_size is '0x'; a whole number is needed"
        await press(app, pilot, "up", "enter", "backspace", "backspace", "9", "ctrl+s")
        assert said(app).startswith("Saved as ")
        assert (tmp_path / "presets" / "tiny.toml").read_text() == TEXT.replace("batch_size = 4", "batch_size = 9")


async def test_a_field_is_found_by_its_name_and_a_path_may_begin_with_the_key_that_finds(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.batch_size")
        await press(app, pilot, *"/kv", "space", *"lora", "enter", "8")
        assert _key(screen.form) == "model.kv_lora_rank"
        assert "kv_lora_rank = 8" in screen.draft.text
        screen.area.focus()
        await press(app, pilot, "ctrl+f", *"batch", "enter")
        assert _key(screen.form) == "run.batch_size"
        assert screen.form.fields.has_focus
    text = TEXT.replace("hidden_size", 'config = "a"\nhidden_size')
    async with editor(tmp_path) as (app, pilot, screen):
        screen.draft.replace_text(text)
        screen.open.refresh()
        screen.form.go_to("model.config")
        await press(app, pilot, *"/x", "enter")
        assert 'config = "/x"' in screen.draft.text


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_what_the_process_holds_is_beside_the_prediction(tmp_path: Path, size: tuple[int, int]) -> None:
    async with editor(tmp_path, size) as (app, pilot, screen):
        await press(app, pilot, "8")
        if size[0] > 80:
            assert "predicted      change  observed        Δ" in screen_text(app)
            assert "─ Estimate · pid 4213 · GPU 0 ─" in screen_text(app)
            process = next(line for line in screen_text(app).splitlines() if "── process" in line)
            assert process.split("process")[1].split()[:4] == ["105.01", "+44.00", "58.00", "−44.8"]
        else:
            assert "105.0 GiB (+44.0 GiB) observed 58.0 GiB (−44.8 %) ✗ does not fit GPU 0  " in screen_text(app)
        assert screen.open.look.observed is not None


async def test_five_keys_from_the_process_to_its_new_prediction(tmp_path: Path) -> None:
    found = preset_at(tmp_path / "bundled" / "tiny.toml", bundled=True)
    async with editor(tmp_path, found=found) as (app, pilot, _):  # with the first key
        assert "[x] use for pid 4213" in await press(app, pilot, "8", "ctrl+s")
        await press(app, pilot, "enter")
        assert said(app).startswith("Saved for pid 4213 as ")
        await press(app, pilot, "escape")
        row = known(app.state.view().chosen)
        assert (row.preset, row.process is not None and row.process.pid) == ("tiny-mine", 4213)
        assert known(row.predicted) > 100 * GIB, "with the batch of the editor, not that of the command line"
    other = preset_at(tmp_path / "bundled" / "small.toml", bundled=True)
    async with editor(tmp_path, found=other) as (app, pilot, _):
        await press(app, pilot, "8", "ctrl+s", "tab", "space", "shift+tab", "enter")
        assert said(app).endswith("the bundled one is unchanged."), "the mark was taken away"
