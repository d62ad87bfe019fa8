"""The whole screens, one line each: header, keys and `show` follow from this list."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from vramtui.app.ui.view_screen import ViewScreen


class ScreenEntry(NamedTuple):
    """A whole screen: its key, its name in the code, its title in the header, where its class is, and what it shows."""

    key: str
    name: str
    title: str
    where: str
    what: str


SCREENS = (
    ScreenEntry("1", "watch", "Watch", "vramtui.app.watch.screen:Watch", "Watch: what uses the GPUs' memory now"),
    ScreenEntry("2", "plan", "Plan", "vramtui.app.plan.screen:PlanScreen", "Plan: what fits where, before it runs"),
    ScreenEntry(
        "3",
        "timeline",
        "Timeline",
        "vramtui.app.timeline.screen:TimelineScreen",
        "Timeline: the preset phase by phase",
    ),
    ScreenEntry(
        "4",
        "history",
        "History",
        "vramtui.app.history.screen:HistoryScreen",
        "History: past runs and their prediction errors",
    ),
)
FIRST = SCREENS[0].name


def make_screen(name: str) -> "ViewScreen":
    """A new screen of the place called `name`; its module is loaded for it."""
    place = next(place for place in SCREENS if place.name == name)
    module, _, kind = place.where.partition(":")
    made: ViewScreen = getattr(import_module(module), kind)()
    return made
