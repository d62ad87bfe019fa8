"""A dashboard for the tests that leave it: its source answers once and then hangs, as a stuck driver does."""

import sys
import threading
import time

from tests.app import scenes
from tests.app.fakes import FixedPresets, RoundEstimator
from tests.examples import Never
from vramtui.app.app import Dashboard
from vramtui.app.services import StartOptions
from vramtui.app.shutdown import run_dashboard
from vramtui.core.observation.readings import Sample


class Hangs(Never):
    name = "hangs"

    def __init__(self) -> None:
        self._answered = False

    def read(self) -> Sample:
        if self._answered:
            threading.Event().wait()
        self._answered = True
        return scenes.usual()


def end_of_time() -> float:
    """As CPython has it beyond 2262."""
    raise OverflowError("timestamp too large to convert to C _PyTime_t")


def jump() -> None:
    time.time = end_of_time
    time.time()


if __name__ == "__main__":
    dashboard = Dashboard(Hangs(), FixedPresets(), interval=0.05, start=StartOptions(estimator=RoundEstimator()))
    if "break" in sys.argv:
        dashboard.call_later(lambda: 1 / 0)
    if "clock" in sys.argv:
        dashboard.call_later(jump)
    sys.exit(run_dashboard(dashboard))
