"""What the dashboard's tests share: quiet surroundings, a time zone that stands still, and patience by the loop."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import textual.app
import textual.pilot
from syrupy.assertion import SnapshotAssertion
from textual._compositor import Compositor
from textual.css.model import RuleSet
from textual.css.stylesheet import Stylesheet
from textual.screen import Screen

from tests.app.idling import idle
from tests.app.svg import SvgExtension
from vramtui.monitor.poller import Poller

UPDATE = Compositor.render_update
PARSE_RULES = Stylesheet._parse_rules
PARSED: dict[object, list[RuleSet]] = {}
PATIENCE = 10.0  # seconds for one that was asked to stop to end after its read


@pytest.fixture(autouse=True)
def _quiet_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
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


@pytest.fixture(autouse=True)
def _unpainted(monkeypatch: pytest.MonkeyPatch) -> None:
    """No update is made of what changed: there is no terminal that it would be sent to, and making it takes two fifths
    of a test's time. Pictures and the text of the screen are made in full when they are asked for, and each dashboard
    is once more at its end.
    """

    def nothing(
        self: Compositor, full: bool = False, screen_stack: list[Screen[object]] | None = None, simplify: bool = False
    ) -> object:
        if full:
            return UPDATE(self, full, screen_stack, simplify)
        self._dirty_regions.clear()
        return None

    monkeypatch.setattr(Compositor, "render_update", nothing)


@pytest.fixture(autouse=True)
def _styles_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same text with the same variables is the same rules for every dashboard: a tenth of the time of its start."""

    def parse_once(self: Stylesheet, css: str, *others: object, **named: object) -> list[RuleSet]:
        key = (css, others, *named.items(), *self._variables.items())
        if key not in PARSED:
            PARSED[key] = PARSE_RULES(self, css, *others, **named)  # type: ignore[arg-type] # as it is called
        return PARSED[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_once)


@pytest.fixture(autouse=True)
def _no_poller_is_left() -> Iterator[None]:
    """One that polls on after its test speaks to a dashboard that is gone, in the middle of another test."""
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and isinstance(thread, Poller)]
    for thread in left:
        thread.join(PATIENCE)
    assert not [thread.name for thread in left if thread.is_alive()]


@pytest.fixture
def painted(_unpainted: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Compositor, "render_update", UPDATE)


@pytest.fixture
def picture(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgExtension)
