import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.installed.conftest import Open
from tests.installed.stand_in import GIB, HARMLESS, StandIn
from tests.installed.terminal import BEGIN, END, PATIENCE
from tests.stub.world import DRIVER_NOT_LOADED, EVERY_CALL, FOR_EVER, StubProcess

SHOWN = ("H200 NVL", "L40S", "train_llama.py", "serve-vllm")


def test_it_shows_the_cards_at_every_size_and_follows_the_driver(open_terminal: Open, stand_in: StandIn) -> None:
    terminal = open_terminal("--interval", "0.2", size=(80, 24))
    terminal.wait_for(*SHOWN, "40.0", "33.0")
    for columns, rows in ((120, 35), (200, 50), (80, 24), (120, 35)):
        terminal.resize((columns, rows))
        terminal.wait(
            lambda text, columns=columns: (  # type: ignore[misc]  # bound for this round
                "train_llama.py" in text and max(len(line.rstrip()) for line in text.split("\n")) == columns
            ),
            f"lines of {columns} columns",
        )
    terminal.wait_for(*SHOWN, "40.0", "33.0")
    stand_in.busy.used = 45 * GIB + GIB // 2
    stand_in.busy.processes[0].used = 38 * GIB + GIB // 2
    stand_in.show()
    terminal.wait_for("45.5", "38.5")
    stand_in.busy.processes[0].used = 11 * GIB
    stand_in.other.processes = [StubProcess(stand_in.pids[1], 9 * GIB), StubProcess(stand_in.pids[0], 7 * GIB // 4)]
    stand_in.show()
    terminal.wait_for("11.0", "38.5", "1.8")  # a process's peak stays
    terminal.leave()
    assert terminal.sent.count(BEGIN) == terminal.sent.count(END) > 2, "no whole frames for a terminal that has them"


def test_the_first_rows_do_not_wait_for_textual(open_terminal: Open) -> None:
    """Textual asks the terminal what it can do; the rows stand there by then. The alternate screen is opened once."""
    terminal = open_terminal()
    terminal.wait_for(*SHOWN, "40.0", "33.0", "Processes")
    asked = terminal.sent.index(b"\x1b[?2048$p")
    assert all(word.encode() in terminal.sent[:asked] for word in SHOWN)
    assert terminal.sent.count(b"\x1b[?1049h") == 1
    terminal.leave()


@pytest.mark.parametrize(("key", "code"), [("q", 0), ("\x03", 130)], ids=["q", "ctrl-c"])
def test_a_key_before_textual_is_there_is_not_lost(open_terminal: Open, key: str, code: int) -> None:
    terminal = open_terminal()
    terminal.wait(lambda text: "train_llama.py" in text)
    terminal.leave(key, code)


def test_what_is_wrong_is_said_on_the_screen_there_was(open_terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[keys]\nno_such_action = "z"\n')
    terminal = open_terminal(VRAMTUI_CONFIG_DIR=str(tmp_path))
    assert (terminal.ended(), terminal.left_behind()) == (2, [])
    assert "no_such_action" in terminal.text
    assert "train_llama" not in terminal.text


def test_stopped_and_continued_it_goes_on_and_ctrl_c_ends_it(open_terminal: Open) -> None:
    terminal = open_terminal("--interval", "0.2")
    terminal.wait_for(*SHOWN, "Processes")
    for times, stopping in ((2, signal.SIGSTOP), (3, signal.SIGTSTP)):
        terminal.process.send_signal(stopping)
        program = psutil.Process(terminal.process.pid)
        terminal.wait(lambda _: program.status() == psutil.STATUS_STOPPED, "it to stop")  # noqa: B023 - waited for here
        terminal.process.send_signal(signal.SIGCONT)
        terminal.wait(lambda _, times=times: terminal.sent.count(b"\x1b[?1049h") == times)  # type: ignore[misc]  # as mypy sees it
        terminal.wait_for(*SHOWN)
    terminal.leave("\x03", 128 + signal.SIGINT)


def test_a_broken_connection_ends_it(open_terminal: Open) -> None:
    terminal = open_terminal()
    terminal.wait_for(*SHOWN)
    terminal.hang_up()
    terminal.process.wait(PATIENCE)


@pytest.mark.parametrize("leave", ["q", signal.SIGTERM], ids=["q", "SIGTERM"])
def test_a_hung_driver_holds_nothing_up(open_terminal: Open, stand_in: StandIn, leave: str | signal.Signals) -> None:
    terminal = open_terminal("--interval", "0.2")
    terminal.wait_for(*SHOWN)
    stand_in.world.hangs[EVERY_CALL] = FOR_EVER
    stand_in.show()
    age = re.compile(r"no answer.* for [1-9]\d* s|\b[1-9]\d* s ago")
    terminal.wait(lambda text: age.search(text) is not None and "H200 NVL" in text, "an age beside the card")
    # The driver never answers: whatever waited for it would never end.
    terminal.process.send_signal(leave) if isinstance(leave, signal.Signals) else terminal.send(leave)
    code = 128 + leave if isinstance(leave, signal.Signals) else 0
    assert (terminal.ended(), terminal.left_behind()) == (code, [])


def test_a_driver_that_hangs_from_the_start(open_terminal: Open, stand_in: StandIn) -> None:
    stand_in.world.hangs[EVERY_CALL] = FOR_EVER
    stand_in.show()
    terminal = open_terminal("--interval", "0.2")
    terminal.wait(lambda text: "vramtui" in text, "anything at all")
    terminal.leave()


def test_a_card_that_hangs_or_is_lost_leaves_the_other_alive(open_terminal: Open, stand_in: StandIn) -> None:
    terminal = open_terminal("--interval", "0.2")
    terminal.wait_for(*SHOWN)
    stand_in.busy.lose()
    stand_in.other.used = 21 * GIB // 2
    stand_in.show()
    terminal.wait(lambda text: "lost" in text.lower() and "10.5/45.0" in text)
    stand_in.busy.faults.clear()
    stand_in.busy.hangs["nvmlDeviceGetMemoryInfo_v2"] = FOR_EVER
    stand_in.show()
    terminal.wait_for("no answer")
    stand_in.other.used = 23 * GIB // 2
    stand_in.show()
    terminal.wait_for("11.5/45.0", "serve-vllm")
    terminal.leave()


@pytest.mark.parametrize("missing", ["driver", "library"])
def test_without_a_driver_it_says_why(open_terminal: Open, stand_in: StandIn, tmp_path: Path, missing: str) -> None:
    stand_in.world.init = DRIVER_NOT_LOADED if missing == "driver" else 0
    stand_in.show()
    library = str(tmp_path if missing == "library" else stand_in.environment["LD_LIBRARY_PATH"])
    terminal = open_terminal(LD_LIBRARY_PATH=library)
    terminal.wait_for("no GPU can be read", "d opens", "is not loaded" if missing == "driver" else "libnvidia-ml")
    assert "H200" not in terminal.text
    terminal.send("d")
    terminal.wait_for("demo", "H200", "not real")
    terminal.leave()


def test_a_hostile_name_is_letters_on_the_screen_and_in_snapshots(open_terminal: Open, tmp_path: Path) -> None:
    folder = tmp_path / "taken"
    folder.mkdir()
    terminal = open_terminal(size=(200, 50), cwd=folder)
    terminal.wait_for(HARMLESS, "hostile-argument", "train_llama.py")
    terminal.send("s")
    terminal.wait_for("vramtui-")
    assert sorted(path.suffix for path in folder.iterdir()) == [".html", ".md"]
    for path in folder.iterdir():
        text = path.read_text()
        assert "train_llama.py" in text.replace("&#160;", " ")
        assert "\x1b" not in text
    terminal.leave()
    assert b"[2J" in terminal.sent
    # The program's own screen is emptied before it is left; no name of a process did that.
    assert terminal.sent.count(b"\x1b[2J") == 1
    assert terminal.sent.rindex(b"\x1b[2J") > terminal.sent.rindex(b"hostile-argument")
    # The one title-like sequence that the screen's library sends sets the mouse pointer's shape.
    assert re.findall(rb"\x1b\](?!22;)", terminal.sent) == []
    assert re.findall(rb"(?<!\x1b\]22;default)\x07", terminal.sent) == []
