"""Lists and tables of tables in the preset editor's form."""

from pathlib import Path

from textual.pilot import Pilot

from tests.app.driver import screen_text, settle
from tests.app.editor_samples import editor, preset_at, said
from tests.app.fakes import Still
from vramtui.app.editor.screen import EditorScreen
from vramtui.presets.form.types import FormField

NET = """\
name = "Net"
notes = \"\"\"
One line,
and another.
\"\"\"

[model]
kind = "convnet"
stages = [
  { blocks = 2, channels = 64 }, # the first
  { blocks = 3, channels = 128, stride = 2 },
]

[run]
kind = "train"
batch_size = 4
"""
LAYERS = """\
name = "Layers"

[model]
kind = "sequential"
input_shape = [
  4, # features
]

[[model.layers]]
type = "linear"
out_features = 8 # eight

[[model.layers]]
type = "activation"

[run]
kind = "train"
batch_size = 4
"""


def _key(screen: EditorScreen) -> str:
    entry = screen.form.entry
    assert isinstance(entry, FormField)
    return entry.key


async def _press(app: Still, pilot: Pilot[None], *keys: str) -> None:
    await pilot.press(*keys)
    await settle(app, pilot)


async def test_elements_are_opened_changed_added_moved_and_taken_out(tmp_path: Path) -> None:
    async with editor(tmp_path, found=preset_at(tmp_path / "net.toml", NET)) as (app, pilot, screen):
        screen.form.go_to("model.stages")
        assert "2 elements" in screen_text(app)
        await _press(app, pilot, "right", "down")
        assert _key(screen) == "model.stages[0]"
        assert "blocks 2, channels 64" in screen_text(app)
        await _press(app, pilot, "space", "down", "down", "9", "6", "enter")
        assert screen.draft.text == NET.replace("channels = 64", "channels = 96")
        assert screen.area.cursor_location[0] == 9
        await _press(app, pilot, "ctrl+z", "left", "left")
        assert (_key(screen), screen.draft.text) == ("model.stages[0].channels", NET.replace("64", "48"))
        await _press(app, pilot, "ctrl+z", "ctrl+z")
        screen.form.go_to("model.stages[0]")
        await _press(app, pilot, "alt+down")
        assert _key(screen) == "model.stages[1]"
        assert screen.draft.text == NET.replace(
            "  { blocks = 2, channels = 64 }, # the first\n  { blocks = 3, channels = 128, stride = 2 },\n",
            "  { blocks = 3, channels = 128, stride = 2 },\n  { blocks = 2, channels = 64 }, # the first\n",
        )
        await _press(app, pilot, "alt+up", "alt+up")
        assert (_key(screen), screen.draft.text) == ("model.stages[0]", NET)
        await _press(app, pilot, "insert")
        assert (_key(screen), screen.draft.text.count("channels = 64 }")) == ("model.stages[1]", 2)
        await _press(app, pilot, "delete")
        assert screen.draft.text == NET
        screen.form.go_to("model.stages[0]")
        await _press(app, pilot, "delete", "delete", "delete")
        assert screen.draft.text == NET.replace("  { blocks = 2, channels = 64 }, # the first\n", "").replace(
            "  { blocks = 3, channels = 128, stride = 2 },\n", ""
        )
        await _press(app, pilot, "enter")
        assert "{ blocks = 1, channels = 1 }" in screen.draft.text


async def test_tables_of_a_list_are_repeated_groups(tmp_path: Path) -> None:
    async with editor(tmp_path, found=preset_at(tmp_path / "layers.toml", LAYERS)) as (app, pilot, screen):
        screen.form.go_to("model.layers[0].out_features")
        await _press(app, pilot, "9", "enter")
        assert screen.draft.text == LAYERS.replace("= 8 #", "= 9 #")
        screen.form.go_to("model.layers[1]")
        await _press(app, pilot, "insert")
        assert _key(screen) == "model.layers[2]"
        assert screen.draft.text.count('[[model.layers]]\ntype = "activation"\n\n') == 2
        await _press(app, pilot, "delete", "ctrl+z", "ctrl+z", "ctrl+z")
        assert screen.draft.text == LAYERS
        screen.form.go_to("model.layers")
        await _press(app, pilot, "x")
        assert screen.draft.text == LAYERS
        assert "open it with Right" in said(app)


async def test_plain_lists_take_one_more_as_it_is_typed(tmp_path: Path) -> None:
    async with editor(tmp_path, found=preset_at(tmp_path / "layers.toml", LAYERS)) as (app, pilot, screen):
        screen.form.go_to("model.input_shape")
        await _press(app, pilot, "insert", "6", "4")
        assert screen.draft.text == LAYERS.replace("  4, # features\n", "  4, # features\n  64,\n")
        await _press(app, pilot, "escape")
        assert screen.draft.text == LAYERS
        await _press(app, pilot, "x")
        assert "model.input_shape[1] is 'x'; a whole number is needed" in screen_text(app)
        await _press(app, pilot, "escape", "up", "left", "left")
        assert screen.draft.text == LAYERS.replace("  4,", "  2,")
        await _press(app, pilot, "ctrl+z", "ctrl+z")
        assert screen.draft.text == LAYERS


async def test_a_list_over_lines_can_be_typed_on_one(tmp_path: Path) -> None:
    text = LAYERS.replace("  4, # features", "  4,")
    async with editor(tmp_path, found=preset_at(tmp_path / "layers.toml", text)) as (app, pilot, screen):
        screen.form.go_to("model.input_shape")
        await _press(app, pilot, "enter", "enter")
        assert screen.draft.text == text
        await _press(app, pilot, "enter", "left", "comma", "5", "enter")
        assert screen.draft.text == text.replace("[\n  4,\n]", "[4,5]")
        await _press(app, pilot, "ctrl+z", "enter", "backspace", "escape")
        assert screen.draft.text == text


async def test_a_text_over_lines_is_typed_with_its_line_ends(tmp_path: Path) -> None:
    async with editor(tmp_path, (200, 50), found=preset_at(tmp_path / "net.toml", NET)) as (app, pilot, screen):
        screen.form.go_to("notes")
        assert "One line,⏎and another.⏎" in screen_text(app)
        await _press(app, pilot, "enter", "x", "ctrl+j", "y", "enter")
        assert screen.draft.text == NET.replace('another.\n"""', 'another.\nx\ny"""')
        assert "another.⏎x⏎y" in screen_text(app)


async def test_what_is_wrong_in_an_element_opens_it(tmp_path: Path) -> None:
    found = preset_at(tmp_path / "net.toml", NET)
    (tmp_path / "net.toml").write_text(NET.replace("128", "0"))
    async with editor(tmp_path, found=found) as (app, pilot, screen):
        assert _key(screen) == "model.stages[1].channels"
        assert "✗ model.stages[1].channels is 0; it must be" in screen_text(app)
        screen.area.focus()
        screen.area.move_cursor((9, 0))
        await settle(app, pilot)
        assert _key(screen) == "model.stages[0]"
