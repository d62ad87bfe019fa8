"""What the dashboard and its features give one another: its shared parts, the way from one whole screen to another, and
what each feature does for it.
"""

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
    """Owned by the dashboard, which asks its features in one order, written in one place.

    Who derives from it says only what it does: the rest is as it is here.
    """

    def on_sample(self, sample: Sample) -> None:
        """Take a sample that the state has taken already."""
        del sample

    @property
    def busy(self) -> bool:
        """Whether work runs in the background that the screen waits for."""
        return False

    def close(self) -> None:
        """The dashboard ends: leave everything at once, or within a second."""
        return


class ScreenRouter:
    """Shows one whole screen after another. Watch stays below whatever else is shown, so it is there at once.

    Args:
        app: whose stack of screens this is.
        draw: fills the new screen.

    Attributes:
        makers: what makes each screen but the first, by its name.
    """

    __slots__ = ("_app", "_draw", "_drawn", "makers")

    def __init__(self, app: App[None], draw: Callable[[], None]) -> None:
        self._app = app
        self.makers: Mapping[str, Callable[[], ViewScreen]] = {}
        self._drawn: ViewScreen | None = None
        self._draw = draw

    @property
    def current(self) -> ViewScreen | None:
        """The whole screen that is shown, whatever window lies on top of it."""
        return next((screen for screen in reversed(self._app.screen_stack) if isinstance(screen, ViewScreen)), None)

    @property
    def first(self) -> ViewScreen | None:
        """The Watch screen, whatever lies on top of it."""
        shown = (screen for screen in self._app.screen_stack if isinstance(screen, ViewScreen))
        return next((screen for screen in shown if screen.PLACE == FIRST), None)

    def to_draw(self) -> ViewScreen | None:
        """The current one; the one that was drawn before is put away where that is another."""
        current = self.current
        if self._drawn is not None and self._drawn is not current:
            self._drawn.put_away()
        self._drawn = current
        return current

    def show(self, name: str) -> None:
        """Show the screen called `name`; what lies on top of the present one is to be answered first."""
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
    """Why nothing can be done with a preset now; at the start they have not been read yet, and for the monitor alone
    they never are.
    """
    if state.is_monitor:
        return ONLY_MONITOR
    return CHOOSE_PRESET if state.session.is_matching else NOT_READ


@dataclass(frozen=True)
class AppContext:
    """The parts of the dashboard that features share.

    Attributes:
        app: Textual's own side of it: notifications, windows, timers, and `call_later`, which any thread may call.
        state: what was seen and what a person chose.
        redraw: draws it, at once or soon.
        screens: the whole screens.
        clock: seconds since the epoch; tests freeze it.
        interval: seconds between reads.
        notices: what was said lately.
        recent_presets: the keys of those that were chosen since the start, the latest first.
        keep_settings: sets values in the settings file, by their dotted keys; raises UserError where it cannot.
        measure_traffic: of a GPU by its uuid; takes its time. None where the source cannot.
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
        """A preset was chosen: it is the first of the recent ones now."""
        self.recent_presets[:] = [preset, *(key for key in self.recent_presets if key != preset)][:MOST_RECENT]

    def keep(self, values: Mapping[str, object]) -> None:
        """Keep these in the settings file, and say so; None takes a key away."""
        if self.keep_settings is None:
            self.app.notify("Applies until you quit.", timeout=3, markup=False)
            return
        try:
            self.keep_settings(values)
        except UserError as error:
            self.app.notify(f"Applies until you quit. {error}", severity="error", markup=False)
        else:
            self.app.notify("Saved in settings (vramtui doctor --settings).", timeout=3, markup=False)
