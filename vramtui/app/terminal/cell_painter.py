"""Drawing lines of widgets past Textual's compositor, and sending only those cells that differ."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from rich.console import Console, ConsoleOptions
from rich.segment import Segment
from textual.app import App
from textual.filter import ANSIToTruecolor, LineFilter
from textual.geometry import Offset, Region, Size
from textual.widget import Widget

from vramtui.app.terminal.cell_diff import Frame, Piece, Pieces, Ready
from vramtui.app.terminal.colours import Colours
from vramtui.app.terminal.textual_private import CompositorUpdate

RESTING = Offset(0, 0)  # Textual's own, until a field for text has the focus
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


class _Alone:
    """Text for the terminal, to which Textual adds nothing."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        del console, options
        yield Segment(self._text)


class CellPainter:
    """What knows which cells the terminal shows.

    Args:
        app: whose screen it is. It hands every update of the compositor to `reduced` before that is sent.
        colours: what it is drawn in.
    """

    __slots__ = ("_app", "_colours", "_pieces", "_spots", "_visible", "frame")

    def __init__(self, app: App[None], colours: Colours) -> None:
        self._app = app
        self._colours = colours
        self.frame = Frame()
        self._pieces: list[Piece] | None = None
        self._visible: Visible | None = None
        self._spots: dict[Widget, Spot | None] = {}

    def reduced(self, renderable: object) -> object:
        """Reduce an update to the cells that differ from what the terminal shows; return anything else unchanged."""
        app = self._app
        is_sent = app._running and not app._closed and not app.is_headless and not app._batch_count  # noqa: SLF001 - there is no other way
        if is_sent and app._driver is not None and isinstance(renderable, CompositorUpdate):  # noqa: SLF001 - as above
            update = self.frame.update(renderable, (app.size.width, app.size.height), app.console)
            # The cursor is not seen: where it is matters to an input method alone, and there is none where it rests.
            return _Alone(update.text) if isinstance(update, Ready) and app.cursor_position == RESTING else update
        return renderable

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is painted in the block is sent at its end, all at once."""
        self._pieces = []
        try:
            yield
        finally:
            pieces, self._pieces = self._pieces, None
            if pieces:
                self._send(Pieces(pieces))

    def paint(self, widget: Widget, lines: Sequence[int]) -> bool:
        """Draw these lines of a widget's content, given in their order, without Textual's compositor: that would go
        through all the widgets between the first change on the screen and the last. What `render_line` gives has to be
        finished; nothing of the widget's own style is laid over it. Lines before the first and after the last are those
        of the frame.

        False, and nothing is done, where something lies in front of the widget or the screen is about to change.
        """
        spot = self.spot(widget)
        if self._app._batch_count or spot is None or not spot.is_free:  # noqa: SLF001 - as below
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
            self._send(Pieces(pieces))
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
        screen = self._app.screen
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
        palette = self._colours.palette
        is_true = palette is not None and palette.is_true
        wanted = [one for one in self._app._filters if one.enabled]  # noqa: SLF001 - as above
        return [one for one in wanted if not (is_true and isinstance(one, ANSIToTruecolor))]

    def forget_frame(self) -> None:
        """Send everything again with the next update."""
        self.frame.forget()

    def _send(self, renderable: object) -> None:
        self._app._display(self._app.screen, renderable)  # type: ignore[arg-type]  # noqa: SLF001 - rich's renderable


def _spot(widget: Widget, visible: Visible) -> Spot | None:
    if widget not in visible:
        return None
    whole = visible[widget][0]
    place = whole.shrink(widget.scrollbar_gutter)
    inside = place.shrink(widget.styles.gutter)  # of `widget.gutter` the scroll bars are a part
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
