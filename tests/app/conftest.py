"""What the dashboard's tests share: quiet surroundings, a time zone that stands still, and patience by the loop."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import textual.app
import textual.pilot

from tests.app.idling import idle


@pytest.fixture(autouse=True)
def _quiet_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No settings of the person who runs the tests, and every clock in UTC."""
    for name in ("NO_COLOR", "VRAMTUI_ASCII", "TEXTUAL_THEME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(autouse=True)
def _patient_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pilot's pause is over when there is nothing left to do, however slow the machine is."""
    for module in (textual.app, textual.pilot):
        monkeypatch.setattr(module, "wait_for_idle", idle)
