"""How the dashboard meets the terminal: themes, ASCII, and only those cells that differ."""

import os

from textual._compositor import CompositorUpdate
from textual.app import App
from textual.driver import Driver
from textual.screen import Screen
from textual.theme import Theme

from vramtui.app.ascii import AsciiFilter, ascii_wanted
from vramtui.app.frame import Frame
from vramtui.app.themes import THEMES, Palette, palette_variables, theme_for
from vramtui.core.settings import Settings


class Painted(App[None]):
    """An app with our themes that sends few bytes; what is drawn is up to `draw`."""

    TITLE = "vramtui"
    ENABLE_COMMAND_PALETTE = True
    CSS = """
    Toast { background: $panel; }
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._plain = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if self._plain else None)
        self.animation_level = "none"
        self._frame = Frame()
        self.palette: Palette | None = None
        for theme in THEMES:
            self.register_theme(theme)
        if ascii_wanted():
            self._filters.append(AsciiFilter())
        self.theme = "vramtui-dark"

    def draw(self) -> None:
        """Show everything as it is now."""
        raise NotImplementedError

    def suit_terminal(self) -> None:
        """Begin with the theme of the settings, or one that this terminal can show."""
        suits = theme_for(self.console.color_system, plain=self._plain)
        self.theme = suits if self._plain else self.settings.dashboard.theme or suits

    def follow_theme(self) -> None:
        """Take the theme's colours, now and whenever it changes."""
        self.theme_changed_signal.subscribe(self, self._on_theme)
        self.palette = Palette(self.theme_variables)

    def get_css_variables(self) -> dict[str, str]:
        """The theme's variables and those that it does not have."""
        self.theme_variables = palette_variables(super().get_css_variables(), dark=self.current_theme.dark)
        return self.theme_variables

    def _on_theme(self, theme: Theme) -> None:
        del theme
        self.palette = Palette(self.theme_variables)
        self.draw()

    @property
    def driver(self) -> Driver | None:
        """What speaks to the terminal."""
        return self._driver

    def _display(self, screen: Screen[object], renderable: object) -> None:
        """Send only the cells that differ from what the terminal shows."""
        if isinstance(renderable, CompositorUpdate) and not self.is_headless and not self._batch_count:
            renderable = self._frame.update(renderable, (self.size.width, self.size.height), self.console)
        super()._display(screen, renderable)  # type: ignore[arg-type]  # Textual's own type is rich's renderable

    def forget_frame(self) -> None:
        """Send everything again with the next update."""
        self._frame.forget()
