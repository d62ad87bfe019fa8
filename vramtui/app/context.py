"""What the dashboard hands to each of its features."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from textual.app import App

from vramtui.app.redraw import RedrawThrottle
from vramtui.app.screens import ScreenRouter
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.ui.notice_line import NoticeLine
from vramtui.core.base.errors import UserError
from vramtui.core.observation.source import PcieTraffic

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
    measure_traffic: Callable[[str], PcieTraffic | None] | None = None
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
            self.app.notify("Saved in settings (vramtui config show).", timeout=3, markup=False)
