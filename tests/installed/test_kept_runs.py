"""Jobs that a dashboard watched are in the history afterwards, once each."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.installed.conftest import Open, Run
from tests.installed.our_presets import add_preset
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE


@pytest.fixture
def preset(stand_in: StandIn) -> None:
    add_preset(Path(stand_in.environment["VRAMTUI_CONFIG_DIR"] or ""), "mine", 8)


def kept(run: Run) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(run("history", "--json").stdout)["runs"]
    return rows


def once(run: Run, ending: str) -> dict[str, Any]:
    """The one entry that there is, when it says so."""
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
    assert row["observed"]["process"] == 35 * GIB
    assert row["values"] == [33 * GIB, 35 * GIB]
    terminal.send("q")
    assert terminal.ended() == 0
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
    second.send("q")
    assert second.ended() == 0
    assert once(run, "running")["observed"]["process"] == 36 * GIB


@pytest.mark.usefixtures("preset")
def test_the_demo_keeps_nothing(open_terminal: Open, run: Run) -> None:
    terminal = open_terminal("--demo", "--interval", "0.1")
    terminal.wait_for("Llama-3.1-8B")
    terminal.send("4")
    terminal.wait_for("Runs · 17 · the demo's, not real", "gpt2-124m")
    terminal.send("q")
    assert terminal.ended() == 0
    assert kept(run) == []
