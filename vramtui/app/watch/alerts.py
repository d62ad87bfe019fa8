"""Saying alerts: on the screen, and by bell, desktop notification or a command where the settings want it."""

import os
import subprocess
import threading

from textual.app import App

from vramtui.core.base.text import printable
from vramtui.core.observation.alerts import Alert, AlertRules

TITLES = {
    "will_not_fit": "It will not fit",
    "growth": "Memory grows",
    "over": "More than predicted",
    "held_by_exited": "Memory held by exited processes",
    "lost": "GPU lost",
}
LIMIT = 30.0  # seconds that a command may take


def say(app: App[None], alert: Alert, rules: AlertRules) -> None:
    """Say one alert in every way that is wanted."""
    app.notify(alert.sentence, title=TITLES[alert.kind], severity="warning", timeout=10, markup=False)
    if rules.bell:
        app.bell()
    if rules.notification:
        _notify_desktop(app, alert)
    if rules.command:
        threading.Thread(target=_run, args=(rules.command, alert), name="alert", daemon=True).start()


def _notify_desktop(app: App[None], alert: Alert) -> None:
    driver = app._driver  # noqa: SLF001 - Textual has no public way to write to the terminal
    if driver is not None and not app.is_headless:
        driver.write(f"\x1b]9;vramtui: {printable(alert.sentence)}\x07")


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
