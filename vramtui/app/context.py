"""The interface between the dashboard and its features: shared parts, whole screens, and the base of a feature."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from textual.app import App

from vramtui.app.keys import FIRST
from vramtui.app.redraw import RedrawThrottle
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.ui.keybar import NoticeLine
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Absence, Sample
from vramtui.core.observation.source import PcieTraffic


class Feature(Protocol):
    """A part of the dashboard, which calls its features in one order."""

    def on_sample(self, sample: Sample) -> None:
        del sample

    @property
    def busy(self) -> bool:
        """Work in the background that the screen waits for goes on."""
        return False

    def close(self) -> None:
        """End at once, or within a second."""
        return


class ScreenRouter:
    """Shows one whole screen after another; `makers` makes them by name. Watch stays below them, so that it is there at
    once.
    """

    __slots__ = ("_app", "_draw", "_drawn", "makers")

    def __init__(self, app: App[None], draw: Callable[[], None]) -> None:
        self._app, self._draw = app, draw
        self.makers: Mapping[str, Callable[[], ViewScreen]] = {}
        self._drawn: ViewScreen | None = None

    @property
    def current(self) -> ViewScreen | None:
        """The present whole screen, below any windows."""
        return next((screen for screen in reversed(self._app.screen_stack) if isinstance(screen, ViewScreen)), None)

    @property
    def first(self) -> ViewScreen | None:
        shown = (screen for screen in self._app.screen_stack if isinstance(screen, ViewScreen))
        return next((screen for screen in shown if screen.PLACE == FIRST), None)

    def to_draw(self) -> ViewScreen | None:
        """Return the current screen; put the last one away if it is another."""
        current = self.current
        if self._drawn is not None and self._drawn is not current:
            self._drawn.put_away()
        self._drawn = current
        return current

    def show(self, name: str) -> None:
        """Show the screen called `name`, unless a window is open."""
        current = self.current
        if current is None or name == current.PLACE or self._app.screen is not current:
            return
        if current.PLACE != FIRST:
            self._app.pop_screen()
        if name != FIRST:
            self._app.push_screen(self.makers[name]())
        self._draw()


MOST_RECENT = 5
CHOOSE_PRESET, NOT_READ = "Choose a preset first: p", "The presets are still being read: try again in a moment."
ONLY_MONITOR = "Only the monitor is shown: M on Watch shows predictions as well."


def why_no_preset(state: DashboardState) -> str:
    """Return why there is nothing to do with a preset: none is chosen, none is read yet, or predictions are off."""
    if state.is_monitor:
        return ONLY_MONITOR
    return CHOOSE_PRESET if state.session.is_matching else NOT_READ


@dataclass(frozen=True)
class AppContext:
    """The parts of the dashboard that features share.

    Attributes:
        app: Textual's notifications, windows, timers, and `call_later`, which any thread may call.
        clock: seconds since the epoch; tests freeze it.
        interval: seconds between reads.
        keep_settings: sets values in the settings file, by their dotted keys; raises UserError if it cannot.
        measure_traffic: measures the PCIe traffic of a GPU, by its uuid; takes its time. None if the source cannot.
        recent_presets: the keys of presets chosen since the start, the latest first.
    """

    app: App[None]
    state: DashboardState
    redraw: RedrawThrottle
    screens: ScreenRouter
    clock: Callable[[], float]
    interval: float
    notices: NoticeLine
    keep_settings: Callable[[Mapping[str, object]], None] | None = None
    measure_traffic: Callable[[str], PcieTraffic | Absence] | None = None
    recent_presets: list[str] = field(default_factory=list)

    def used(self, preset: str) -> None:
        """Put a chosen preset first among the recent ones."""
        self.recent_presets[:] = [preset, *(key for key in self.recent_presets if key != preset)][:MOST_RECENT]

    def keep(self, values: Mapping[str, object]) -> None:
        """Save these in the settings file, with a notice; None removes a key."""
        if self.keep_settings is None:
            self.app.notify("Applies until you quit.", timeout=3, markup=False)
            return
        try:
            self.keep_settings(values)
        except UserError as error:
            self.app.notify(f"Applies until you quit. {error}", severity="error", markup=False)
        else:
            self.app.notify("Saved in settings (vramtui doctor --settings).", timeout=3, markup=False)
