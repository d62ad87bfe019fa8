"""Drawing lines of widgets past Textual's compositor, and sending only those cells that differ."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from textual.app import App
from textual.filter import ANSIToTruecolor
from textual.geometry import Offset, Region, Size
from textual.widget import Widget

from vramtui.app.terminal.cell_diff import Frame, Piece, Pieces, Ready
from vramtui.app.terminal.colours import Colours
from vramtui.app.terminal.textual_private import CompositorUpdate

RESTING = Offset(0, 0)  # Textual's own, until a field for text has the focus
Visible = Mapping[Widget, tuple[Region, Region]]


class Spot(NamedTuple):
    """The place of a widget's content on the screen, and the `place` of all of it but the scroll bars; `is_free` if
    nothing covers any of that.
    """

    x: int
    y: int
    size: Size
    place: Region
    is_free: bool


class _Alone:
    """Output to which Textual adds nothing."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        del console, options
        yield Segment(self._text)


class CellPainter:
    """Sends only the cells that differ. The app passes every update of the compositor through `reduced`."""

    __slots__ = ("_app", "_colours", "_pieces", "_spots", "_visible", "frame")

    def __init__(self, app: App[None], colours: Colours) -> None:
        self._app, self._colours = app, colours
        self.frame = Frame()
        self._pieces: list[Piece] | None = None
        self._visible: Visible | None = None
        self._spots: dict[Widget, Spot | None] = {}

    def reduced(self, renderable: object) -> object:
        """Reduce an update to the cells that differ from those on the terminal; return anything else unchanged."""
        app = self._app
        is_sent = app._running and not app._closed and not app.is_headless and not app._batch_count  # noqa: SLF001 - Textual has no other way
        if is_sent and app._driver is not None and isinstance(renderable, CompositorUpdate):  # noqa: SLF001 - as above
            update = self.frame.update(renderable, (app.size.width, app.size.height), app.console)
            # The cursor is hidden: its place matters only to an input method, and there is none at its rest.
            return _Alone(update.text) if isinstance(update, Ready) and app.cursor_position == RESTING else update
        return renderable

    @contextmanager
    def together(self) -> Iterator[None]:
        """Send everything painted in the block at once, at its end."""
        self._pieces = []
        try:
            yield
        finally:
            pieces, self._pieces = self._pieces, None
            if pieces:
                self._send(Pieces(pieces))

    def paint(self, widget: Widget, lines: Sequence[int]) -> bool:
        """Draw these lines of a widget's content, in order, without Textual's compositor, which would go through all
        widgets between the first change on the screen and the last.

        The lines of `render_line` must be finished, because the widget's own style is not applied. Lines outside the
        content are those of the frame. Return False, and draw nothing, if something covers the widget or the screen is
        about to change.
        """
        spot = self.spot(widget)
        if self._app._batch_count or spot is None or not spot.is_free:  # noqa: SLF001 - as below
            return False
        first, count = spot.y - spot.place.y + lines[0], lines[-1] - lines[0] + 1
        # The compositor will have to draw them too, when its turn comes; Widget.refresh would call it now.
        widget._styles_cache.set_dirty(Region(0, first, 1, count))  # noqa: SLF001 - Textual has no other way
        if lines[0] >= 0 and lines[-1] < spot.size.height:
            strips, width = [widget.render_line(y) for y in lines], spot.size.width
            palette = self._colours.palette
            is_true = palette is not None and palette.is_true  # no colour is left to make true
            for one in self._app._filters:  # noqa: SLF001 - as above
                if one.enabled and not (is_true and isinstance(one, ANSIToTruecolor)):
                    strips = [strip.apply_filter(one, widget.background_colors[1]) for strip in strips]
            pieces: list[Piece] = [
                (spot.y + y, spot.x, strip.adjust_cell_length(width)) for y, strip in zip(lines, strips, strict=True)
            ]
        else:
            strips = widget.render_lines(Region(0, first, spot.place.width, count))
            pieces = [(spot.y + y, spot.place.x, strips[y - lines[0]]) for y in lines]
        if self._pieces is None:
            self._send(Pieces(pieces))
        else:
            self._pieces += pieces
        return True

    def spot(self, widget: Widget) -> Spot | None:
        """Return the place of the widget's content on the screen; None if it is not shown, or is about to move."""
        screen = self._app.screen
        if screen._layout_required or screen._scroll_required:  # noqa: SLF001 - no other way
            return None
        # The foremost first; a new mapping whenever anything moves.
        visible = screen._compositor.visible_widgets  # noqa: SLF001 - as above
        if visible is not self._visible:
            self._visible, self._spots = visible, {}
        if widget not in self._spots:
            self._spots[widget] = _spot(widget, visible)
        return self._spots[widget]

    def forget_spots(self) -> None:
        self._visible, self._spots = None, {}

    def forget_frame(self) -> None:
        self.frame.forget()

    def _send(self, renderable: object) -> None:
        self._app._display(self._app.screen, renderable)  # type: ignore[arg-type]  # noqa: SLF001 - rich's renderable


def _spot(widget: Widget, visible: Visible) -> Spot | None:
    if widget not in visible:
        return None
    whole = visible[widget][0]
    place = whole.shrink(widget.scrollbar_gutter)
    inside = place.shrink(widget.styles.gutter)  # `widget.gutter` includes the scroll bars
    if not inside:
        return None
    is_free = False
    for other, (region, clip) in visible.items():
        if other is widget:
            is_free = clip.contains_region(place)
            break
        if region.overlaps(place) and clip.overlaps(place):
            break
    return Spot(inside.x, inside.y, inside.size, place, is_free)
