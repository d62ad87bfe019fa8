"""The preset editor of the installed program, in a terminal."""

import sys
from pathlib import Path

from tests.installed.terminal import Terminal

PROGRAM = str(Path(sys.executable).with_name("vramtui"))
COMMAND = (PROGRAM, "--demo", "--preset", "llama-3.1-8b-lora")


def test_a_bundled_preset_is_edited_into_ones_own(tmp_path: Path) -> None:
    with Terminal(COMMAND, size=(120, 35), env={"VRAMTUI_CONFIG_DIR": str(tmp_path)}) as terminal:
        terminal.wait_for("Estimate")
        terminal.send("e")
        terminal.wait_for("TOML ·", "Bundled preset")
        terminal.wait_for("run.batch_size")
        # To another field and back, and a figure, all in one go as over a slow connection.
        terminal.send("\x1b[1;5B\x1b[1;5A\x1b[B\x1b[B7")
        terminal.wait_for("batch_size = 7", "── process", "+")
        terminal.send("\x13")
        terminal.wait_for("Save the preset", "llama-3.1-8b-lora-mine")
        terminal.send("\r")
        terminal.wait_for("Saved as")
        terminal.send("\x1b")
        terminal.wait_for("Processes", "predicted")
        terminal.send("q")
        assert terminal.ended() == 0
    text = (tmp_path / "presets" / "llama-3.1-8b-lora-mine.toml").read_text()
    shipped = next((Path(__file__).parents[2] / "presets").rglob("llama-3.1-8b-lora.toml")).read_text()
    assert text == shipped.replace("batch_size = 4", "batch_size = 7")


def test_the_own_editor_has_the_terminal_to_itself(tmp_path: Path) -> None:
    script = tmp_path / "editor.sh"
    script.write_text("#!/bin/sh\necho EDITING\nread answer\nsed -i 's/batch_size = 4/batch_size = 7/' \"$1\"\n")
    script.chmod(0o755)
    env: dict[str, str | None] = {"VRAMTUI_CONFIG_DIR": str(tmp_path), "VISUAL": str(script)}
    with Terminal(COMMAND, size=(120, 35), env=env) as terminal:
        terminal.wait_for("Estimate")
        terminal.send("E")
        terminal.wait_for("EDITING")
        terminal.send("done\n")
        terminal.wait_for("overrides the bundled one")  # which goes again before long
        terminal.wait_for("Processes", "predicted 76.2")  # the job tells which preset it was started with
        terminal.send("q")
        assert terminal.ended() == 0
        assert terminal.left_behind() == []
