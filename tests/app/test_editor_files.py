import json
from pathlib import Path

import pytest

from tests.app import scenes
from tests.app.driver import known, press, screen_text, settle
from tests.app.editor_samples import PLAIN, TEXT, Edited, editor, on_top, preset_at, said, text_of
from vramtui.app.editor.screen import Difference, EditorScreen, Offers, Pick, QuestionDialog
from vramtui.app.ui.chooser import Ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB
from vramtui.presets import draft as drafts
from vramtui.presets.whole_files import NotDurableError

EIGHT = TEXT.replace("batch_size = 4 ", "batch_size = 8 ")


async def _change(edited: Edited) -> None:
    app, pilot, screen = edited
    screen.form.go_to("run.batch_size")
    await press(app, pilot, "8", "enter")


async def test_saving_writes_one_line_and_the_desk_knows_it_at_once(tmp_path: Path) -> None:
    path = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path) as (app, pilot, screen):
        app.state.step(("batch_size",), 1)
        await _change((app, pilot, screen))
        await press(app, pilot, "ctrl+s")
        assert path.read_text() == EIGHT
        assert said(app) == f"Saved as {path}"
        assert not screen.draft.is_changed
        assert screen.open.look.before is screen.open.look.estimate
        await press(app, pilot, "escape")
        panel = app.screen.view.panel  # type: ignore[attr-defined]  # it is Watch
        assert panel.workload.run.batch_size == 4  # the job says --batch 4, whatever the file says
        assert not panel.changed
        assert known(app.state.view().chosen).preset == "tiny"


async def test_a_bundled_preset_is_saved_under_a_name_of_its_own(tmp_path: Path) -> None:
    found = preset_at(tmp_path / "bundled" / "tiny.toml", bundled=True)
    own = tmp_path / "presets" / "tiny-mine.toml"
    async with editor(tmp_path, found=found, samples=[PLAIN]) as (app, pilot, screen):
        await _change((app, pilot, screen))
        await pilot.press("ctrl+s")
        assert on_top(app, Ask)
        await press(app, pilot, "escape", "ctrl+x")
        assert app.screen is screen
        assert "is a bundled preset and cannot be deleted" in said(app)
        assert screen.draft.bundled
        assert not own.exists()
        await press(app, pilot, "ctrl+s", "enter")
        assert own.read_text() == EIGHT
        assert not own.with_stem("tiny").exists()
        assert text_of(found) == TEXT
        assert said(app) == f"Saved for pid 4213 as {own}; the bundled one is unchanged."
        assert app.state.panel_key == "tiny-mine"
        await pilot.press("ctrl+s")
        assert app.screen is screen


async def test_under_the_bundled_name_it_stands_in_for_the_bundled_one(tmp_path: Path) -> None:
    found = preset_at(tmp_path / "bundled" / "tiny.toml", bundled=True)
    own = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path, found=found, samples=[PLAIN]) as (app, pilot, screen):
        await _change((app, pilot, screen))
        await press(app, pilot, "ctrl+s", "end", *["backspace"] * len("-mine"), "enter")
        assert own.read_text() == EIGHT
        assert text_of(found) == TEXT
        told = "Saved for pid 4213, overrides the bundled one;"
        assert said(app) == f"{told} delete {own} to undo this."
        assert app.state.session.presets["tiny"].path == str(own)
        assert not app.state.session.presets["tiny"].bundled
        assert not screen.draft.bundled


async def test_a_place_that_is_taken_is_asked_about(tmp_path: Path) -> None:
    found = preset_at(tmp_path / "bundled" / "tiny.toml", bundled=True)
    own = tmp_path / "presets" / "tiny.toml"
    own.parent.mkdir()
    own.write_text("not a preset")
    async with editor(tmp_path, found=found, samples=[PLAIN]) as (app, pilot, screen):
        await _change((app, pilot, screen))
        await pilot.press("ctrl+s", "end", *["backspace"] * len("-mine"), "enter")
        assert on_top(app, QuestionDialog)
        await press(app, pilot, "n")
        assert on_top(app, Ask)
        assert "is not a valid preset name" in await press(app, pilot, "end", "/", "enter")
        await press(app, pilot, "backspace", "2", "enter")
        assert (own.parent / "tiny2.toml").read_text() == EIGHT
        assert own.read_text() == "not a preset"
        assert "tiny2" in app.state.session.presets
    async with editor(tmp_path, found=found, samples=[PLAIN]) as edited:
        await _change(edited)
        await edited[1].press("ctrl+s", "end", *["backspace"] * len("-mine"), "enter", "r")
        await settle(edited[0], edited[1])
        assert own.read_text() == EIGHT


async def test_a_save_that_fails_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await _change((app, pilot, screen))

        def full(path: Path, text: str) -> None:
            del text
            raise UserError(f"{path} cannot be written: No space left on device; it has its old text")

        monkeypatch.setattr(drafts, "write_preset_text", full)
        await press(app, pilot, "ctrl+s")
        assert "No space left on device; it has its old text" in said(app)
        assert screen.draft.text == EIGHT == screen.area.text
        assert screen.draft.is_changed

        def powerless(path: Path, text: str) -> None:
            path.write_text(text)
            raise NotDurableError(f"{path} has the new text, but the disk did not confirm it")

        monkeypatch.setattr(drafts, "write_preset_text", powerless)
        await press(app, pilot, "ctrl+s")
        assert "the disk did not confirm it" in said(app)
        assert not screen.draft.is_changed


async def test_the_difference_the_way_back_and_a_text_that_is_no_toml(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await pilot.press("ctrl+d", "ctrl+r", "ctrl+z", "ctrl+y")
        assert app.screen is screen
        await _change((app, pilot, screen))
        await press(app, pilot, "ctrl+d")
        assert on_top(app, Difference)
        assert "+batch_size = 8   # one card" in screen_text(app)
        await press(app, pilot, "escape", "ctrl+r", "y")
        assert screen.draft.text == TEXT == screen.area.text
        await press(app, pilot, "ctrl+z")
        assert screen.area.text == EIGHT
    found = preset_at(tmp_path / "presets" / "tiny.toml")
    (tmp_path / "presets" / "tiny.toml").write_text(TEXT.replace("= 4096\n", "= =\n"))
    async with editor(tmp_path, (80, 24), found=found) as (app, pilot, screen):
        for _ in range(100):
            if app.focused is screen.area and screen.has_class("page-text"):
                break
            await pilot.pause()
        await settle(app, pilot)
        assert screen.area.cursor_location[0] == 13
        assert screen.has_class("page-text")
        assert "✗ 1 error  line 14: not valid TOML" in screen_text(app).splitlines()[-2]


@pytest.mark.parametrize(("answer", "place", "written"), [("s", "watch", EIGHT), ("d", "watch", TEXT)])
async def test_leaving_with_something_unsaved_asks(tmp_path: Path, answer: str, place: str, written: str) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await _change((app, pilot, screen))
        await pilot.press("escape")
        assert on_top(app, QuestionDialog)
        await pilot.press("escape")
        assert app.screen is screen
        await press(app, pilot, "escape", answer)
        assert place == known(app.screens.current).PLACE
        assert (tmp_path / "presets" / "tiny.toml").read_text() == written


async def test_no_other_screen_and_no_ctrl_c_takes_unsaved_text_away(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await _change((app, pilot, screen))
        app.action_show("timeline")
        await settle(app, pilot)
        assert on_top(app, QuestionDialog)
        await press(app, pilot, "d")
        assert [getattr(screen, "PLACE", "") for screen in app.screen_stack] == ["watch", "timeline"]
    async with editor(tmp_path) as (app, pilot, screen):
        await _change((app, pilot, screen))
        await press(app, pilot, "ctrl+c")
        assert on_top(app, QuestionDialog)
        await pilot.press("escape")
        assert app.screen is screen
        await pilot.press("ctrl+c", "ctrl+c")
        await pilot.pause()
        assert app.return_code == 130


async def test_deleting_asks_and_the_text_stays(tmp_path: Path) -> None:
    path = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path) as (app, pilot, screen):
        await pilot.press("ctrl+x", "escape")
        assert path.exists()
        await press(app, pilot, "ctrl+x", "y")
        assert not path.exists()
        assert "tiny" not in app.state.session.presets
        assert screen.area.text == TEXT
        await pilot.press("ctrl+x")
        assert app.screen is screen
        await press(app, pilot, "ctrl+s")
        assert path.read_text() == TEXT
        assert "tiny" in app.state.session.presets


async def test_a_file_that_another_program_changed_is_taken_and_one_that_has_gone_is_said(tmp_path: Path) -> None:
    path = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path) as (app, pilot, screen):
        screen.look()
        path.write_text(EIGHT)
        screen.look()
        await settle(app, pilot)
        assert screen.area.text == EIGHT
        assert "was changed by another program; this is its new text" in said(app)
        assert app.state.session.presets["tiny"].preset.run.batch_size == 8
    path = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path) as (app, pilot, screen):
        path.unlink()
        screen.look()
        screen.look()
        await settle(app, pilot)
        assert said(app) == f"{path} was deleted; saving writes it again."
        await press(app, pilot, "ctrl+s")
        assert path.read_text() == TEXT


@pytest.mark.parametrize(("answer", "text"), [("t", EIGHT), ("k", TEXT.replace('"Tiny"', '"Mine"'))])
async def test_it_is_asked_about_where_something_is(tmp_path: Path, answer: str, text: str) -> None:
    path = tmp_path / "presets" / "tiny.toml"
    async with editor(tmp_path) as (app, pilot, screen):
        screen.open.put("name", "Mine")
        path.write_text(EIGHT)
        screen.look()
        await settle(app, pilot)
        assert on_top(app, QuestionDialog)
        assert "+batch_size = 8   # one card" in screen_text(app)
        screen.look()
        await pilot.press("escape", "ctrl+s")
        assert on_top(app, QuestionDialog), "saving over another text asks too"
        assert path.read_text() == EIGHT
        await press(app, pilot, answer)
        assert app.screen is screen
        assert screen.area.text == text
        screen.look()
        assert app.screen is screen
        await pilot.press("ctrl+s")
        assert path.read_text() == text


def _editor_that(monkeypatch: pytest.MonkeyPatch, folder: Path, command: str) -> None:
    script = folder / "editor.sh"
    script.write_text(f"#!/bin/sh\n{command}\n")
    script.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(script))


async def _outside(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import nullcontext  # noqa: PLC0415 - only here

    app, pilot, _ = edited
    monkeypatch.setattr(app, "suspend", nullcontext)
    await press(app, pilot, "escape", "E")


async def test_the_own_editor_edits_the_file_or_its_errors_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _editor_that(monkeypatch, tmp_path, "sed -i 's/batch_size = 4/batch_size = 8/' \"$1\"")
    async with editor(tmp_path) as edited:
        await _outside(edited, monkeypatch)
        assert edited[0].state.session.presets["tiny"].preset.run.batch_size == 8
        assert "again" in said(edited[0])
    _editor_that(monkeypatch, tmp_path, "sed -i 's/bf16-mixed/bf61-mixed/' \"$1\"")
    async with editor(tmp_path) as edited:
        await _outside(edited, monkeypatch)
        app = edited[0]
        assert on_top(app, EditorScreen)
        assert "did you mean" in screen_text(app)
    async with editor(tmp_path, samples=[scenes.usual()]) as edited:
        monkeypatch.setenv("VISUAL", "/no/such/editor")
        await _outside(edited, monkeypatch)
        assert "/no/such/editor cannot be started" in said(edited[0])


async def test_a_copy_of_a_bundled_preset_is_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = preset_at(tmp_path / "bundled" / "tiny.toml", bundled=True)
    _editor_that(monkeypatch, tmp_path, "true")
    async with editor(tmp_path, found=found) as edited:
        await _outside(edited, monkeypatch)
        assert not (tmp_path / "presets" / "tiny.toml").exists()
        assert edited[0].state.session.presets["tiny"].bundled
        assert "Nothing was changed: tiny stays the bundled one" in said(edited[0])
    _editor_that(monkeypatch, tmp_path, "sed -i 's/batch_size = 4/batch_size = 8/' \"$1\"")
    async with editor(tmp_path, found=found) as edited:
        await _outside(edited, monkeypatch)
        assert text_of(found) == TEXT
        assert (tmp_path / "presets" / "tiny.toml").read_text() == EIGHT
        assert "overrides the bundled one" in said(edited[0])


async def test_a_preset_of_ones_own_is_renamed_with_its_file(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        folder = tmp_path / "presets"
        (folder / "taken.toml").write_text(TEXT)
        screen.form.go_to("run.batch_size")
        assert "choose another name" in await press(app, pilot, "8", "f2", "end", *["backspace"] * 4, *"taken", "enter")
        await press(app, pilot, "end", *"-not", "enter")
        assert not (folder / "tiny.toml").exists()
        assert (folder / "taken-not.toml").read_text() == TEXT
        # What was not saved is not saved yet, and is saved there.
        assert screen.draft.is_changed
        await press(app, pilot, "ctrl+s")
        assert (folder / "taken-not.toml").read_text() == TEXT.replace("batch_size = 4", "batch_size = 8")
        assert app.state.panel_key == "taken-not"
        assert "tiny" not in app.state.session.presets


CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}


async def test_from_a_models_file(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    async with editor(tmp_path) as (app, pilot, screen):
        await pilot.press("ctrl+n")
        assert on_top(app, Pick)
        await press(app, pilot, "enter", *"no.json", "enter")
        assert on_top(app, Ask)
        assert "no.json" in screen_text(app)
        await pilot.press(*(["backspace"] * 7))
        app.screen.query_one("Input").value = str(folder / "config.json")  # type: ignore[attr-defined]  # an Input
        await press(app, pilot, "enter")
        assert app.screen is screen
        assert screen.draft.path is None
        assert "hidden_size = 512" in screen.area.text
        assert screen.draft.is_changed
        await press(app, pilot, "ctrl+s")
        assert (tmp_path / "presets" / f"{screen.draft.name}.toml").read_text() == screen.area.text
        assert screen.draft.name in app.state.session.presets


async def test_a_new_one_is_a_copy_and_asks_about_what_is_unsaved(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "down", "enter")
        assert on_top(app, Ask)
        assert "is not a valid preset name" in await press(app, pilot, "end", "/", "enter")
        await press(app, pilot, "backspace", "enter")
        assert screen.draft.name == "tiny-copy"
        await press(app, pilot, "ctrl+s")
        assert (tmp_path / "presets" / "tiny-copy.toml").read_text() == TEXT
        assert app.state.panel_key == "tiny-copy"
    async with editor(tmp_path) as (app, pilot, screen):
        screen.open.put("name", "Mine")
        await pilot.press("ctrl+n")
        assert on_top(app, QuestionDialog)
        await press(app, pilot, "d")
        assert on_top(app, Pick)


async def test_from_a_process_what_is_offered_is_ticked_or_not(tmp_path: Path) -> None:
    line = "python train.py --model nobody/knows --per_device_train_batch_size 6 --bf16 --max_seq_length 512"
    sample = scenes.sample(scenes.gpu(0, scenes.process(77, 20 * GIB, line)))
    async with editor(tmp_path, samples=[sample]) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "end", "enter")
        window = app.screen
        assert isinstance(window, Offers)
        shown = screen_text(app)
        assert "run.batch_size = 6" in shown
        assert "from --per_device_train_batch_size 6" in shown
        offers = [offer.key for offer in window.offers]
        await press(app, pilot, *(["down"] * offers.index("run.batch_size")), "space", "ctrl+s")
        assert app.screen is screen
        assert screen.draft.name == "pid-77"
        assert "batch_size" not in screen.draft.text
        assert "sequence_length = 512" in screen.draft.text
        assert screen.draft.problems


async def test_another_kind_goes_into_the_file(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.kind")
        await press(app, pilot, "enter", "down", "enter")
        assert screen.draft.text == TEXT.replace('"train"', '"infer"')
        assert not on_top(app, QuestionDialog)  # an inference run has all of these keys
        screen.open.put("run.optimizer", "adamw")
        await press(app, pilot, "enter", "enter")
        assert on_top(app, QuestionDialog)
        assert "run.optimizer" in screen_text(app)
        await press(app, pilot, "y")
        assert screen.draft.text == TEXT.replace('"train"', '"infer"')


async def test_from_a_process_or_a_training_file_what_is_not_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("model_name_or_path: nobody/knows\nper_device_train_batch_size: 6\nbf16: true\nmade_up: 1\n")
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "down", "down", "enter")
        assert on_top(app, Ask)
        assert "none.yaml does not exist" in await press(app, pilot, *"none.yaml", "enter")
        app.screen.query_one("Input").value = str(path)  # type: ignore[attr-defined]  # an Input
        await press(app, pilot, "enter")
        assert on_top(app, Offers)
        shown = screen_text(app)
        assert "run.batch_size = 6" in shown
        assert "made_up." in shown.partition("Not used of ")[2]
        await press(app, pilot, "ctrl+s")
        assert app.screen is screen
        assert screen.draft.name == "sft"
        assert 'precision = "bf16-mixed"' in screen.draft.text
    line = "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 6"
    sample = scenes.sample(scenes.gpu(0, scenes.process(2**22 + 1, 20 * GIB, line)))
    async with editor(tmp_path, samples=[sample]) as (app, pilot, _):
        await press(app, pilot, "ctrl+n", "end", "enter")
        assert on_top(app, Offers)
        assert "ds.json is not read: the folder it was named from is not known." in screen_text(app)
