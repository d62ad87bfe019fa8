"""Going from one whole screen to another."""

from vramtui.app.screen_registry import FIRST, make_screen
from vramtui.app.state import View
from vramtui.app.terminal.app_base import TerminalApp
from vramtui.app.ui.view_screen import ViewScreen


class ScreenRouter(TerminalApp):
    """A painted app with places. What each of them shows is put together in `complete`."""

    @property
    def place(self) -> ViewScreen | None:
        """The whole screen that is shown, whatever window lies on top of it."""
        return next((screen for screen in reversed(self.screen_stack) if isinstance(screen, ViewScreen)), None)

    def action_show(self, name: str) -> None:
        """Show the place called `name`. Watch stays below whatever else is shown, so it is there at once."""
        place = self.place
        if place is None or name == place.PLACE or self.screen is not place:
            return
        if place.PLACE != FIRST:
            self.pop_screen()
        if name != FIRST:
            self.push_screen(make_screen(name))
        self.draw()

    def complete(self, view: View, place: str) -> View:
        """`view` with what only the screen called `place` shows. Who adds a screen adds its part here."""
        del place
        return view
