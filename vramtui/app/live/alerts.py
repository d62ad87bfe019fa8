"""Saying alerts: on the screen, and by bell, desktop notification or a command where the settings want it."""

import os
import subprocess
import threading
from collections.abc import Iterable

import msgspec
from textual.app import App

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.core.base.text import printable
from vramtui.core.observation.alerts import PREDICTED, Alert
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import AlertRules, Kind

LIMIT = 30.0  # seconds that a command may take


def title_of(kind: Kind) -> str:  # noqa: PLR0911 - a return a kind, which mypy holds to be all of them
    """What an alert is called; a kind without a name here is no program that type-checks."""
    match kind:
        case "will_not_fit":
            return "It will not fit"
        case "growth":
            return "Memory grows"
        case "over":
            return "More than predicted"
        case "held_by_exited":
            return "Memory held by exited processes"
        case "lost":
            return "GPU lost"
        case "xid":
            return "Error of the driver"
        case "out_of_memory":
            return "Out of memory"


def without_predicted(alerts: Iterable[Alert], *, is_monitor: bool) -> tuple[Alert, ...]:
    """`alerts`; where only the monitor is shown none that speaks of a prediction."""
    return tuple(alert for alert in alerts if not (is_monitor and alert.kind in PREDICTED))


class AlertFeature(Feature):
    """Says what the latest sample is the first to show.

    Args:
        shared: the dashboard.
        rules: how it is said.
    """

    def __init__(self, shared: AppContext, rules: AlertRules) -> None:
        self._shared = shared
        self._rules = rules

    def mute(self) -> None:
        """Say it on the screen alone: what was alarming when it was recorded calls nobody now."""
        self._rules = msgspec.structs.replace(self._rules, bell=False, notification=False, command=None)

    def on_sample(self, sample: Sample) -> None:
        """Say what is new in it."""
        del sample
        state = self._shared.state
        self.say(without_predicted(state.session.new_alerts, is_monitor=state.is_monitor))

    def say(self, alerts: Iterable[Alert]) -> None:
        """Say new alerts in every way that is wanted; those of one kind are one event on the screen."""
        app, rules = self._shared.app, self._rules
        kinds: dict[Kind, list[Alert]] = {}
        for alert in alerts:
            kinds.setdefault(alert.kind, []).append(alert)
            if rules.command:
                threading.Thread(target=_run, args=(rules.command, alert), name="alert", daemon=True).start()
        for kind, same in kinds.items():
            sentence = same[0].sentence
            if len(same) > 1:
                indices = ", ".join(map(str, sorted({alert.gpu_index for alert in same})))
                sentence = f"{len(same)} at once, on GPU {indices}. The first: {sentence} (! lists all)"
            app.notify(sentence, title=title_of(kind), severity="warning", timeout=10, markup=False)
            if rules.notification:
                _notify_desktop(app, sentence)
        if kinds and rules.bell:
            app.bell()


def _notify_desktop(app: App[None], sentence: str) -> None:
    driver = app._driver  # noqa: SLF001 - Textual has no public way to write to the terminal
    if driver is not None and not app.is_headless:
        driver.write(f"\x1b]9;vramtui: {printable(sentence)}\x07")


def _run(command: str, alert: Alert) -> None:
    """Run the person's own command, whose output goes nowhere: the screen belongs to the dashboard."""
    environment = {**os.environ, "VRAMTUI_ALERT": printable(alert.sentence), "VRAMTUI_ALERT_KIND": alert.kind}
    try:
        subprocess.run(  # noqa: S602 - it is a line of the person's own config file
            command,
            shell=True,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=LIMIT,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return
