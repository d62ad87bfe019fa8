"""Where the dashboard begins: a terminal that can show it, or a sentence."""

import io
import os
import subprocess
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


def test_textual_serve_gets_a_view_only_dashboard() -> None:
    """`textual serve` starts the command with pipes and these variables, and sends keys as packets."""
    served = {"TEXTUAL_DRIVER": command.WEB_DRIVER, "TEXTUAL_COLOR_SYSTEM": "truecolor", "COLUMNS": "100", "ROWS": "30"}
    program = subprocess.Popen(
        [sys.executable, "-m", "vramtui", "--demo", "--view-only"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, **served},
    )
    assert program.stdin is not None
    assert program.stdout is not None
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
