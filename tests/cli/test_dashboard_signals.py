"""Who may send signals: a dashboard on this machine's own processes, unless they are off."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.cli.dashboard import command
from vramtui.cli.dashboard.services import signaller_for
from vramtui.cli.main import program
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.decoder import RecordingHeader
from vramtui.records.recording.writer import RecordingWriter
from vramtui.sources.demo import DemoSource
from vramtui.sources.host.signals import Signals


def test_on_this_machine_it_may() -> None:
    signaller, _ = signaller_for(OpenedSource(DemoSource()), no_signals=False, from_command_line=False)
    assert isinstance(signaller, Signals)


@pytest.mark.parametrize(("told", "words"), [(True, "--no-signals"), (False, "dashboard.no_signals")])
def test_no_signals_sends_nothing_and_says_what_made_it_so(told: bool, words: str) -> None:
    signaller, refusal = signaller_for(OpenedSource(DemoSource()), no_signals=True, from_command_line=told)
    assert signaller is None
    assert words in refusal


def test_nor_does_the_demo() -> None:
    signaller, refusal = signaller_for(open_source(demo=True, replay=None), no_signals=False, from_command_line=False)
    assert signaller is None
    assert "demo" in refusal


def test_nor_does_a_recording(tmp_path: Path) -> None:
    path = tmp_path / "day.jsonl.gz"
    writer = RecordingWriter(path, RecordingHeader())
    writer.write(RecordedTick(DemoSource().read()))
    writer.close()
    signaller, refusal = signaller_for(open_source(demo=False, replay=path), no_signals=False, from_command_line=False)
    assert signaller is None
    assert "replay" in refusal


@pytest.mark.parametrize(("options", "no_signals"), [([], False), (["--no-signals"], True)])
def test_the_option_arrives(options: list[str], no_signals: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[command.DashboardOptions] = []
    monkeypatch.setattr(command, "open_dashboard", asked.append)
    assert CliRunner().invoke(program([]), options).exit_code == 0
    assert [one.no_signals for one in asked] == [no_signals]
