"""How often it draws: less where nobody looks."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from textual.app import App

from vramtui.app import context
from vramtui.app.context import LEAST_BETWEEN_DRAWINGS, LEAST_DETACHED, LEAST_UNFOCUSED, RedrawThrottle, is_detached


def waited(monkeypatch: pytest.MonkeyPatch, *, has_focus: bool) -> float:
    """Seconds until the next drawing, right after one."""
    waits: list[float] = []
    monkeypatch.setattr(context, "call_after", lambda _app, seconds, _call: waits.append(seconds))
    throttle = RedrawThrottle(cast("App[Any]", SimpleNamespace(app_focus=has_focus)), lambda: None, lambda: 100.0)
    throttle.is_drawn()
    throttle.soon()
    return waits[0]


def test_less_is_drawn_without_the_focus_and_least_where_it_is_detached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    socket = tmp_path / "default"
    socket.touch()
    monkeypatch.setenv("TMUX", f"{socket},4213,0")
    socket.chmod(0o770)
    assert waited(monkeypatch, has_focus=True) == LEAST_BETWEEN_DRAWINGS
    assert waited(monkeypatch, has_focus=False) == LEAST_UNFOCUSED
    socket.chmod(0o660)
    assert waited(monkeypatch, has_focus=True) == LEAST_DETACHED


@pytest.mark.parametrize("told", ["", ",,", "/no/such/socket,1,0", "nonsense"])
def test_where_there_is_no_tmux_nothing_is_detached(told: str) -> None:
    assert not is_detached(told)
