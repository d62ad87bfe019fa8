import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.app import scenes
from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.cli.common.option_groups import DashboardOptions
from vramtui.cli.dashboard import command
from vramtui.cli.dashboard.services import SnapshotSaver, first_time_hint, signaller_for
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.observation.history import History
from vramtui.core.observation.snapshot import RecordedTick, take_snapshot
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.presets.settings import read_settings
from vramtui.records.recording.files import RecordingHeader, RecordingWriter
from vramtui.sources.demo import DemoSource
from vramtui.sources.host.signals import Signals


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("kind", "term", "words"), [
    (Terminal, "dumb", "TERM names one without"),
    (Terminal, "unknown", "TERM names one without"),
    (io.StringIO, "xterm", "vramtui ps --json"),
])  # fmt: skip
def test_an_output_that_cannot_show_it_is_one_sentence(
    kind: type[io.StringIO], term: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", term)
    said = kind()
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, kind())
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as left:
        command.open_dashboard(DashboardOptions(demo=True))
    assert left.value.code == 2
    assert words in said.getvalue()


def test_textual_serve_gets_a_view_only_dashboard() -> None:
    """`textual serve` starts the command with pipes and these variables, and sends keys as packets."""
    served = {"TEXTUAL_DRIVER": command.WEB_DRIVER, "TEXTUAL_COLOR_SYSTEM": "truecolor", "COLUMNS": "100", "ROWS": "30"}
    program = subprocess.Popen(
        [sys.executable, "-m", "vramtui", "--demo", "--view-only"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **served},
    )
    seen = b""
    try:
        for words, key in ((b"train.py", b"e"), (b"view-only", b"q")):
            while words not in seen:
                seen += (piece := os.read(program.stdout.fileno(), 1 << 16))
                assert piece, seen
            program.stdin.write(b"D" + len(key).to_bytes(4, "big") + key)
            program.stdin.flush()
        assert program.wait(30) == 0
    finally:
        program.kill()
        program.communicate()


def test_the_hint_for_a_first_time_is_shown_once(tmp_path: Path) -> None:
    marker = tmp_path / "data" / "welcomed"
    assert "New here?" in first_time_hint(marker)
    assert first_time_hint(marker) == ""
    (tmp_path / "file").touch()
    assert first_time_hint(tmp_path / "file" / "welcomed") == "", "it would come at every start"


def test_a_choice_for_snapshots_is_kept_with_everything_else(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("# mine\n[dashboard]\ninterval = 2.0  # calm\n\n[snapshot]\nfolder = 'old'\n")
    saver = SnapshotSaver(SnapshotSettings(folder="old"), config)
    saver.choose(SnapshotSettings(folder=str(tmp_path / "new"), formats=("json", "md")))
    kept = read_settings(config)
    assert kept.snapshot == SnapshotSettings(folder=str(tmp_path / "new"), formats=("json", "md"))
    assert kept.dashboard.interval == 2.0
    assert config.read_text().startswith("# mine\n[dashboard]\ninterval = 2.0  # calm\n")
    saver.choose(SnapshotSettings(formats=("csv",)))
    assert read_settings(config).snapshot == SnapshotSettings(formats=("csv",))


def test_a_snapshot_is_written_as_chosen(tmp_path: Path) -> None:
    saver = SnapshotSaver(SnapshotSettings(), tmp_path / "config" / "config.toml")
    saver.choose(SnapshotSettings(folder=str(tmp_path / "out"), formats=("json", "html")))
    snapshot = take_snapshot(scenes.usual(), History(), {}, lambda _preset, _device: None, {})
    paths = [Path(path) for path in saver(snapshot, "<svg/>")]
    assert sorted(path.suffix for path in paths) == [".html", ".json"]
    assert all(path.parent == tmp_path / "out" for path in paths)
    assert "<svg/>" in paths[1].read_text()


def test_a_broken_settings_file_is_left_unchanged(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text("[dashbord]\n")
    saver = SnapshotSaver(SnapshotSettings(), config)
    with pytest.raises(UserError, match="dashboard"):
        saver.choose(SnapshotSettings(formats=("json",)))
    assert config.read_text() == "[dashbord]\n"
    assert saver.settings.formats == ("json",)


def test_signals_go_only_to_this_machine_and_not_if_they_are_off(tmp_path: Path) -> None:
    here = OpenedSource(DemoSource())
    signaller, _ = signaller_for(here, no_signals=False, from_command_line=False)
    assert isinstance(signaller, Signals)
    path = tmp_path / "day.jsonl.gz"
    writer = RecordingWriter(path, RecordingHeader())
    writer.write(RecordedTick(DemoSource().read()))
    writer.close()
    demo, recording = open_source(demo=True, replay=None), open_source(demo=False, replay=path)
    for opened, is_off, from_command_line, words in (
        (here, True, True, "--no-signals"),
        (here, True, False, "dashboard.no_signals"),
        (demo, False, False, "demo"),
        (recording, False, False, "replay"),
    ):
        signaller, refusal = signaller_for(opened, no_signals=is_off, from_command_line=from_command_line)
        assert signaller is None
        assert words in refusal


@pytest.mark.parametrize(("options", "no_signals"), [([], False), (["--no-signals"], True)])
def test_the_option_arrives(options: list[str], no_signals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[DashboardOptions] = []
    monkeypatch.setattr(command, "open_dashboard", asked.append)
    assert CliRunner().invoke(program([]), options).exit_code == 0
    assert [one.no_signals for one in asked] == [no_signals]
