import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.installed.conftest import Open, Run
from tests.installed.our_presets import add_preset
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE, Terminal, seen
from tests.stub.world import StubProcess

SORTED = re.compile(r"[A-ZΔ]+[▴▾]")
MARKED = re.compile(r"▸\s+(\d{4})\s")


def test_the_mark_stays_and_the_panel_follows(open_terminal: Open) -> None:
    terminal = open_terminal("--demo")
    terminal.wait_for("Estimate · llama-3.1-8b-lora")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["4213"], "the mark on 4213")
    terminal.send("j")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["7044"], "the mark on the next row")
    terminal.send("k")  # a row that was chosen; until then the mark stays on the first one
    terminal.wait(lambda screen: MARKED.findall(screen) == ["4213"], "the mark on 4213 again")
    for keys in ("<", "o", ">>", ">", "o"):
        before = SORTED.findall(terminal.text)
        terminal.send(keys)
        # The head and the rows may arrive in two pieces, and between them the mark stands in two rows.
        terminal.wait(
            lambda screen, before=before: (  # type: ignore[misc]  # bound for this round
                SORTED.findall(screen) != before
                and MARKED.findall(screen) == ["4213"]
                and "Estimate · llama-3.1-8b-lora" in screen
            ),
            f"{keys!r} to sort, with the mark on 4213",
        )
    terminal.send("/gpu:1")
    terminal.wait(lambda screen: MARKED.findall(screen) == ["5120"], "the filter to leave one row")
    terminal.wait(lambda screen: "Estimate · qwen-2.5-7b" in screen, "the estimate to follow")
    terminal.send("\x1b")
    terminal.wait(lambda screen: "gpu:1" not in screen, "the filter to close")
    terminal.leave()


ESCAPE, PALETTE = "\x1b", "\x10"

# What is written at once, and what stands on the screen then. Other screens' keys: tests/app/test_cell_diff.py.
BURSTS = (("/qqwen", "qqwen"), ("/user:root", "user:root"), ("pqqr", "qqr"), ("mqqr", "qqr"), (f"{PALETTE}qqr", "qqr"))


def test_every_opening_key_with_text_behind_it(open_terminal: Open, tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    terminal = open_terminal("--demo", "--preset", "llama-3.1-8b-lora", cwd=folder)
    terminal.wait_for("train")
    for burst, shown in BURSTS:
        assert shown not in terminal.text, terminal.text
        terminal.send(burst)
        terminal.wait(lambda screen, shown=shown: shown in screen, f"{burst!r} to arrive")  # type: ignore[misc]  # bound for this round
        assert terminal.process.poll() is None, burst
        terminal.send(ESCAPE)
        terminal.wait(lambda screen, shown=shown: shown not in screen, f"{burst!r} to be closed")  # type: ignore[misc]  # as above
    terminal.send(f"/qq{ESCAPE}pgpt")  # Esc and the key behind it, too
    terminal.wait(lambda screen: "│ gpt" in screen, "Esc and p to arrive")
    terminal.send(ESCAPE)
    terminal.wait(lambda screen: "│ gpt" not in screen, "the list to be closed")
    terminal.send("\x1b[200~qsrXq\x1b[201~/sq")  # text pasted outside an input does nothing
    terminal.wait_for("sq")
    assert (terminal.process.poll(), list(folder.iterdir())) == (None, [])
    terminal.send(f"{ESCAPE}")
    terminal.wait(lambda screen: "sq" not in screen, "the filter to close")
    terminal.leave()


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
        terminal.wait_for("Saved for pid 4213 as")
        terminal.send("\x1b")
        terminal.wait_for("Processes", "predicted")
        terminal.leave()
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
        terminal.wait_for("Processes", "predicted peak 76.2")  # the job tells which preset it was started with
        terminal.leave()


DOWN, UP, REDRAW = "\x1b[B", "\x1b[A", "\x0c"
HELP = "Down"


def _cells(terminal: Terminal) -> list[object]:
    text, screen = terminal.text, terminal.screen
    return [[seen(screen.buffer[y][x]) for x in range(screen.columns)] for y in range(screen.lines)] + [text]


def _pause(terminal: Terminal) -> None:
    terminal.send(" ")
    terminal.wait_for("PAUSED")
    terminal.rest()


def _sent_anew(terminal: Terminal) -> list[object]:
    terminal.send(REDRAW)
    _look_at_help(terminal)
    terminal.rest()
    return _cells(terminal)


def _look_at_help(terminal: Terminal) -> None:
    terminal.send("?")
    terminal.wait_for(HELP)
    terminal.send(ESCAPE)
    terminal.wait(lambda screen: HELP not in screen)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_small_changes_add_up_to_the_whole(open_terminal: Open, stand_in: StandIn, size: tuple[int, int]) -> None:
    pid, other = stand_in.pids[:2]
    stand_in.busy.processes = [StubProcess(pid, 20 * GIB), StubProcess(other, 12 * GIB)]
    stand_in.show()
    terminal = open_terminal("--interval", "0.2", "--preset", "llama-3.1-8b-lora", size=size)
    terminal.wait_for("20.0")
    _look_at_help(terminal)  # the hint for newcomers goes with that
    for number, key in enumerate((DOWN, "]", DOWN, "}", UP, "[", "<", ">")):
        stand_in.busy.processes[0].used = (21 + number) * GIB
        stand_in.show()
        terminal.send(key)
        terminal.wait_for(f"{21 + number}.0")
    # What is found in the background is drawn later, and what a key answered goes by itself.
    terminal.wait(lambda screen: "empty card: about" not in screen and "What if" not in screen)
    _pause(terminal)
    assert _cells(terminal) == _sent_anew(terminal)
    terminal.leave()


def test_what_is_painted_under_a_message_is_there_when_the_message_goes(open_terminal: Open, stand_in: StandIn) -> None:
    terminal = open_terminal("--interval", "0.2")
    terminal.wait_for("33.0")
    _look_at_help(terminal)
    terminal.send("z")
    terminal.wait_for("Graph: ")
    for used in (34, 35, 36):
        stand_in.busy.processes[0].used = used * GIB
        stand_in.show()
        terminal.wait_for(f"{used}.0")
    terminal.wait(lambda screen: "Graph: " not in screen)
    _pause(terminal)
    assert _cells(terminal) == _sent_anew(terminal)


@pytest.fixture
def preset(stand_in: StandIn) -> None:
    add_preset(Path(stand_in.environment["VRAMTUI_CONFIG_DIR"] or ""), "mine", 8)


def kept(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("history", "--json").stdout)["runs"]
    return rows


def once(run: Run, ending: str) -> dict[str, Any]:
    for _ in range(200):
        rows = kept(run)
        assert len(rows) <= 1
        if rows and rows[0]["ending"] == ending:
            return rows[0]
        time.sleep(0.05)
    raise AssertionError(f"not {ending} in the history: {rows}")


@pytest.mark.usefixtures("preset")
def test_a_watched_job(open_terminal: Open, run: Run, stand_in: StandIn) -> None:
    terminal = open_terminal("--interval", "0.1")
    terminal.wait_for("train_llama.py", "33.0")
    row = once(run, "running")
    assert (row["pid"], row["preset"], row["source"]) == (stand_in.pids[0], "mine", "watched")
    assert row["workload"]["run"]["batch_size"] == 8
    stand_in.busy.processes[0].used = 35 * GIB
    stand_in.show()
    terminal.wait_for("35.0")
    stand_in.busy.processes = stand_in.busy.processes[1:]
    stand_in.show()
    row = once(run, "exited")
    terminal.send("4")
    terminal.wait_for("Runs · 1", "mine", "35.0", "ended")
    terminal.send("\r")
    terminal.wait_for("Run 1 · mine", "hidden_size = 4096")
    terminal.send("\x1b")
    terminal.wait(lambda text: "hidden_size = 4096" not in text)
    assert (row["observed"]["process"], row["values"]) == (35 * GIB, [33 * GIB, 35 * GIB])
    terminal.leave()
    assert once(run, "exited") == row


@pytest.mark.usefixtures("preset")
def test_two_dashboards_one_of_them_killed(open_terminal: Open, run: Run, stand_in: StandIn) -> None:
    first, second = open_terminal("--interval", "0.1"), open_terminal("--interval", "0.1")
    for terminal in (first, second):
        terminal.wait_for("train_llama.py", "33.0")
    once(run, "running")
    first.process.kill()
    first.process.wait(PATIENCE)
    stand_in.busy.processes[0].used = 36 * GIB
    stand_in.show()
    second.wait_for("36.0")
    second.leave()
    assert once(run, "running")["observed"]["process"] == 36 * GIB


@pytest.mark.usefixtures("preset")
def test_the_demo_keeps_nothing(open_terminal: Open, run: Run) -> None:
    terminal = open_terminal("--demo", "--interval", "0.1")
    terminal.wait_for("Llama-3.1-8B")
    terminal.send("4")
    terminal.wait_for("Runs · 17 · the demo's, not real", "gpt2-124m")
    terminal.leave()
    assert kept(run) == []
