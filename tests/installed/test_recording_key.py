"""`r` in the installed program: a file that plays again, however the recording or the program ends."""

import gzip
import os
import resource
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from tests.installed.conftest import Open
from tests.installed.our_presets import add_preset
from tests.installed.terminal import PATIENCE, Terminal
from vramtui.core.base.errors import UserError
from vramtui.records.recording.decoder import Recording, read_recording

WIDE = (160, 40)


def _recording(folder: Path) -> Path:
    (path,) = folder.glob("vramtui-*.jsonl.gz")
    return path


def _wait_for_words(terminal: Terminal, title: str, *words: str) -> None:
    """Wait until the last line begins so, and `!` has all of it, wherever the length of a path breaks its lines."""
    terminal.wait(lambda screen: bool(screen.strip()) and title in screen.rstrip().splitlines()[-1], title)
    terminal.send("!")

    def said(screen: str) -> bool:
        told = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in screen.splitlines()).split())
        return "Recent" in told and all(text in told for text in words)

    terminal.wait(said, f"{words} in what was said lately")
    terminal.send("\x1b")
    terminal.wait(lambda screen: "Recent" not in screen, "the window to close")


def _wait_for_samples(folder: Path, count: int, terminal: Terminal) -> Recording:
    """What is in the file as soon as it holds that many samples."""

    def there(_screen: str) -> bool:
        with suppress(UserError, ValueError):
            return len(read_recording(_recording(folder)).samples) >= count
        return False  # it is only being begun

    terminal.wait(there, f"{count} samples")
    return read_recording(_recording(folder))


def test_r_records_what_is_watched_and_r_ends_it(open_terminal: Open, tmp_path: Path) -> None:
    add_preset(tmp_path / "config")
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py", "ours")
    terminal.send("r")
    folder = tmp_path / "data" / "recordings"
    _wait_for_samples(folder, 4, terminal)
    terminal.wait_for("● REC 0")
    terminal.send("r")
    _wait_for_words(terminal, "Recording written", "samples")
    recording = read_recording(_recording(folder))
    assert recording.warnings == ()
    assert recording.header.interval == 0.1
    assert recording.header.versions["driver"] == "580.95.05"
    assert {made.preset for made in recording.every_prediction()} == {"ours"}
    terminal.send("q")
    assert terminal.ended() == 0
    again = open_terminal("--replay", str(_recording(folder)), size=WIDE, LD_LIBRARY_PATH="")
    again.wait_for("train_llama.py", "ours", "estimate as recorded")


@pytest.mark.parametrize(
    ("end", "code"),
    [(b"\x03", 130), (signal.SIGHUP, 128 + signal.SIGHUP)],
)
def test_leaving_ends_the_file_well(
    end: "bytes | signal.Signals", code: int, open_terminal: Open, tmp_path: Path
) -> None:
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    terminal.send("r")
    folder = tmp_path / "data" / "recordings"
    _wait_for_samples(folder, 2, terminal)
    if isinstance(end, bytes):
        terminal.send(end.decode())
    else:
        terminal.process.send_signal(end)
    assert terminal.ended() == code
    assert terminal.left_behind() == []
    assert read_recording(_recording(folder)).warnings == ()
    assert gzip.decompress(_recording(folder).read_bytes()), "and as gzip it is whole"
    assert f"vramtui: recorded in {_recording(folder)}".encode() in bytes(terminal.sent).replace(b"\r\n", b"")


def test_a_program_that_is_killed_leaves_all_but_its_last_sample(open_terminal: Open, tmp_path: Path) -> None:
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    terminal.send("r")
    folder = tmp_path / "data" / "recordings"
    count = len(_wait_for_samples(folder, 5, terminal).samples)
    os.kill(terminal.process.pid, signal.SIGKILL)
    terminal.process.wait(PATIENCE)
    recording = read_recording(_recording(folder))
    assert len(recording.samples) >= count
    assert all("was cut off" in warning for warning in recording.warnings)


def test_a_folder_that_cannot_be_used_is_said_and_the_dashboard_goes_on(open_terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "config" / "config.toml").write_text(f'[recording]\nfolder = "{tmp_path}/file/deep"\n')
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    terminal.send("r")
    _wait_for_words(terminal, "Recording ended", "cannot be used: not a directory")
    terminal.wait(lambda screen: "REC" not in screen.splitlines()[0])
    terminal.send("q")
    assert terminal.ended() == 0


def test_a_full_disk_is_said_and_the_dashboard_goes_on(open_terminal: Open, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "recordings"
    folder.mkdir(parents=True)
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (1500, 1500))  # nearly a full disk
    terminal.send("r")
    _wait_for_words(terminal, "Recording ended", "cannot be written")
    terminal.send("q")
    assert terminal.ended() == 0
    assert len(read_recording(_recording(folder)).samples) >= 1
