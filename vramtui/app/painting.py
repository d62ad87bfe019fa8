"""How the dashboard meets the terminal: themes, ASCII, and only those cells that differ."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from textual._compositor import CompositorUpdate
from textual.app import App
from textual.driver import Driver
from textual.geometry import Region
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget

from vramtui.app.ascii import AsciiFilter, ascii_wanted
from vramtui.app.frame import Frame, Piece, Pieces
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
        self._pieces: list[Piece] | None = None
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

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is painted in the block is sent at its end, all at once."""
        self._pieces = []
        try:
            yield
        finally:
            pieces, self._pieces = self._pieces, None
            if pieces:
                self._display(self.screen, Pieces(pieces))

    def paint(self, widget: Widget, lines: Sequence[int]) -> bool:
        """Draw these lines of a widget, given in their order, without Textual's compositor: that would go through all
        the widgets between the first change on the screen and the last. A widget's lines are those of its frame too,
        scroll bars are not.

        False, and nothing is done, where something lies in front of the widget or the screen is about to change.
        """
        place = widget.region.shrink(widget.scrollbar_gutter)
        if self._batch_count or not place or not self._is_in_front(widget, place):
            return False
        first, count = lines[0], lines[-1] - lines[0] + 1
        cache = widget._styles_cache  # noqa: SLF001 - Widget.refresh, which is public, would call the compositor
        cache.set_dirty(*(Region(0, y, 1, 1) for y in lines))
        strips = widget.render_lines(Region(0, first, place.width, count))
        pieces = [(place.y + y, place.x, strips[y - first]) for y in lines]
        if self._pieces is None:
            self._display(self.screen, Pieces(pieces))
        else:
            self._pieces += pieces
        return True

    def _is_in_front(self, widget: Widget, place: Region) -> bool:
        """Whether the widget is where the terminal shows it, and nothing hides a part of it."""
        screen = self.screen
        if screen._layout_required or screen._scroll_required or widget.screen is not screen:  # noqa: SLF001 - no other way
            return False
        # In the order in which they are drawn, the foremost first.
        for other, (region, clip) in screen._compositor.visible_widgets.items():  # noqa: SLF001 - as above
            if other is widget:
                return clip.contains_region(place)
            if region.overlaps(place) and clip.overlaps(place):
                return False
        return False

    def forget_frame(self) -> None:
        """Send everything again with the next update."""
        self._frame.forget()
