"""The way from one whole screen to another."""

from collections.abc import Callable, Mapping

from textual.app import App

from vramtui.app.keys import FIRST
from vramtui.app.ui.view_screen import ViewScreen


class ScreenRouter:
    """Shows one whole screen after another. Watch stays below whatever else is shown, so it is there at once.

    Args:
        app: whose stack of screens this is.
        draw: fills the new screen.

    Attributes:
        makers: what makes each screen but the first, by its name.
    """

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
