"""Who may send signals: a dashboard on this machine's own processes, unless it is read-only."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.cli.dashboard import command
from vramtui.cli.dashboard.command import signaller_for
from vramtui.cli.main import program
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.writer import RecordingHeader, RecordingWriter
from vramtui.sources.demo.source import DemoSource
from vramtui.sources.host.signals import Signals


def test_on_this_machine_it_may() -> None:
    signaller, _ = signaller_for(OpenedSource(DemoSource()), read_only=False, from_command_line=False)
    assert isinstance(signaller, Signals)


@pytest.mark.parametrize(("told", "words"), [(True, "--read-only"), (False, "dashboard.read_only")])
def test_read_only_sends_nothing_and_says_what_made_it_so(told: bool, words: str) -> None:
    signaller, refusal = signaller_for(OpenedSource(DemoSource()), read_only=True, from_command_line=told)
    assert signaller is None
    assert words in refusal


def test_nor_does_the_demo() -> None:
    signaller, refusal = signaller_for(open_source(demo=True, replay=None), read_only=False, from_command_line=False)
    assert signaller is None
    assert "demo" in refusal


def test_nor_does_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl.gz"
    writer = RecordingWriter(path, RecordingHeader())
    writer.write(RecordedTick(DemoSource().read()))
    writer.close()
    signaller, refusal = signaller_for(open_source(demo=False, replay=path), read_only=False, from_command_line=False)
    assert signaller is None
    assert "replay" in refusal


@pytest.mark.parametrize(("options", "read_only"), [([], False), (["--read-only"], True)])
def test_the_option_arrives(options: list[str], read_only: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, object] = {}
    monkeypatch.setattr(command, "open_dashboard", lambda **given: asked.update(given))
    assert CliRunner().invoke(program([]), options).exit_code == 0
    assert asked["read_only"] is read_only
