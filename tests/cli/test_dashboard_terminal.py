"""Where the dashboard begins: a terminal that can show it, or a sentence."""

import io
import sys

import pytest

from vramtui.cli.dashboard import command


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("name", ["dumb", "unknown"])
def test_a_terminal_without_a_cursor_is_refused_in_a_sentence(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", name)
    said = Terminal()
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, Terminal())
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as left:
        command.open_dashboard(command.DashboardOptions(demo=True))
    assert left.value.code == 2
    assert "TERM names one without" in said.getvalue()


def test_a_pipe_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    said = io.StringIO()
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    monkeypatch.setattr(sys, "stderr", said)
    with pytest.raises(SystemExit) as left:
        command.open_dashboard(command.DashboardOptions(demo=True))
    assert left.value.code == 2
    assert "vramtui ps --json" in said.getvalue()
