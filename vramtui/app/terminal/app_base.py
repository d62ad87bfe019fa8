"""How the dashboard meets the terminal: themes, ASCII, and only those cells that differ."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from textual import events
from textual._compositor import CompositorUpdate
from textual.app import App
from textual.command import CommandPalette
from textual.driver import Driver
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.theme import Theme
from textual.widget import Widget

from vramtui.app.terminal.ascii import AsciiFilter, ascii_wanted
from vramtui.app.terminal.cell_diff import Frame, Piece, Pieces
from vramtui.app.terminal.screen_size import SizedCommandPalette
from vramtui.app.themes import THEMES, Palette, palette_variables, theme_for
from vramtui.core.schema.settings import Settings

Visible = Mapping[Widget, tuple[Region, Region]]


class Spot(NamedTuple):
    """Where a widget is: its content's first column and row on the screen, the content's columns and rows, and the
    place of all of it but the scroll bars. It `is_free` where nothing hides any of that.
    """

    x: int
    y: int
    size: Size
    place: Region
    is_free: bool


class TerminalApp(App[None]):
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
        self._visible: Visible | None = None
        self._spots: dict[Widget, Spot | None] = {}
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

    def on_resize(self, event: events.Resize) -> None:
        """Take nothing of the terminal for granted any more: it may have cut, moved or wiped what it showed.

        Of a terminal that has its old size again by the time that it is asked, Textual takes no notice.
        """
        self._frame.forget()
        if self._size == event.size and self.screen_stack:
            self.screen.refresh()

    def action_command_palette(self) -> None:
        """Textual's palette, as a screen of this program."""
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(SizedCommandPalette(id="--command-palette"))

    def _display(self, screen: Screen[object], renderable: object) -> None:
        """Send only the cells that differ from what the terminal shows."""
        is_sent = self._running and not self._closed and not self.is_headless and not self._batch_count
        if is_sent and self._driver is not None and isinstance(renderable, CompositorUpdate):
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
        """Draw these lines of a widget's content, given in their order, without Textual's compositor: that would go
        through all the widgets between the first change on the screen and the last. What `render_line` gives has to be
        finished; nothing of the widget's own style is laid over it. Lines before the first and after the last are those
        of the frame.

        False, and nothing is done, where something lies in front of the widget or the screen is about to change.
        """
        spot = self.spot(widget)
        if self._batch_count or spot is None or not spot.is_free:
            return False
        first, count = spot.y - spot.place.y + lines[0], lines[-1] - lines[0] + 1
        # The compositor will have to draw them too, when its turn comes; Widget.refresh would call it now.
        widget._styles_cache.set_dirty(Region(0, first, 1, count))  # noqa: SLF001 - there is no other way
        if lines[0] >= 0 and lines[-1] < spot.size.height:
            pieces = self._content(widget, lines, spot)
        else:
            strips = widget.render_lines(Region(0, first, spot.place.width, count))
            pieces = [(spot.y + y, spot.place.x, strips[y - lines[0]]) for y in lines]
        if self._pieces is None:
            self._display(self.screen, Pieces(pieces))
        else:
            self._pieces += pieces
        return True

    def _content(self, widget: Widget, lines: Sequence[int], spot: Spot) -> list[Piece]:
        """Lines of a widget's content, past what Textual does to lines that are not finished."""
        strips = [widget.render_line(y) for y in lines]
        for line_filter in self._filters_needed():
            background = widget.background_colors[1]
            strips = [strip.apply_filter(line_filter, background) for strip in strips]
        width = spot.size.width
        return [(spot.y + y, spot.x, strip.adjust_cell_length(width)) for y, strip in zip(lines, strips, strict=True)]

    def spot(self, widget: Widget) -> Spot | None:
        """Where the widget's content is on the screen; None where it is not, or not any more."""
        screen = self.screen
        if screen._layout_required or screen._scroll_required:  # noqa: SLF001 - no other way
            return None
        # In the order in which they are drawn, the foremost first; another mapping whenever anything moves.
        visible = screen._compositor.visible_widgets  # noqa: SLF001 - as above
        if visible is not self._visible:
            self._visible, self._spots = visible, {}
        if widget not in self._spots:
            self._spots[widget] = _spot(widget, visible)
        return self._spots[widget]

    def forget_spots(self) -> None:
        """Release the widgets of the last screen."""
        self._visible, self._spots = None, {}

    def _filters_needed(self) -> list[LineFilter]:
        """What still has to be done to finished lines; where all colours are true there is nothing to make true."""
        is_true = self.palette is not None and self.palette.is_true
        return [one for one in self._filters if one.enabled and not (is_true and isinstance(one, ANSIToTruecolor))]

    def forget_frame(self) -> None:
        """Send everything again with the next update."""
        self._frame.forget()


def _spot(widget: Widget, visible: Visible) -> Spot | None:
    if widget not in visible:
        return None
    whole = visible[widget][0]
    place = whole.shrink(widget.scrollbar_gutter)
    inside = whole.shrink(widget.gutter).shrink(widget.scrollbar_gutter)
    if not inside:
        return None
    is_free = _is_free(widget, place, visible)
    return Spot(inside.x, inside.y, inside.size, place, is_free)


def _is_free(widget: Widget, place: Region, visible: Visible) -> bool:
    """Whether all of `place` is where the terminal shows it."""
    for other, (region, clip) in visible.items():
        if other is widget:
            return clip.contains_region(place)
        if region.overlaps(place) and clip.overlaps(place):
            return False
    return False
