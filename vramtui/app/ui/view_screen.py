"""The base of every whole screen: panels that each draw their part of one View, and a banner above everything else."""

from typing import Any, ClassVar, Protocol, runtime_checkable

from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from vramtui.app.state.view import View
from vramtui.app.terminal.textual_private import CurrentSize
from vramtui.app.themes import Palette
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import Lines, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration


class Banner(Lines[View]):
    """Sentences above a screen: the demo, a driver that does not answer, a source that failed."""

    def sentences(self, view: View) -> list[tuple[str, str]]:
        lines = []
        if view.failure:
            lines.append((view.failure, "error"))
        elif view.stale is not None:
            age = format_duration(view.stale)
            lines.append((f"no answer from {view.asked} for {age}; showing data that old", "error"))
        if view.banner:
            lines.append((view.banner, "accent"))
        if view.hint:
            lines.append((view.hint, "primary"))
        return lines

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        lines = []
        for sentence, colour in self.sentences(view):
            style = palette.ink(colour, "bar")
            lines += [strip([(f" {line}", style)], width, style) for line in wrap(printable(sentence), width - 2)]
        return lines[:height]

    def lines_for(self, view: View, width: int) -> int:
        return sum(len(wrap(printable(sentence), width - 2)) for sentence, _ in self.sentences(view))


FRAME = (Header, Banner, KeyBar)  # around the panels of every screen, drawn from the shared View


@runtime_checkable
class Taker(Protocol):
    """A panel that draws part of a view."""

    def take(self, view: Any, palette: Palette) -> None: ...  # noqa: ANN401 - each screen has its own


class ViewScreen(CurrentSize, Screen[None]):
    """A screen whose `view` is set once a tick. Its frame draws that; its panels draw the result of `panels_view`.

    Attributes:
        PLACE: its name among the screens.
        PAGES: parts that a narrow terminal shows one at a time; the class `page-NAME` is that of the present one.
        FIRST_FOCUS: selector of the first focus.
        TYPES: letters and digits are typed there, whatever has the focus.
    """

    PLACE: ClassVar[str]
    PAGES: ClassVar[tuple[str, ...]] = ()
    FIRST_FOCUS: ClassVar[str] = ""
    TYPES: ClassVar[bool] = False

    view: reactive[View] = reactive(View(), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(id=self.PLACE)
        if self.PAGES:
            self.add_class(f"page-{self.PAGES[0]}")
        self.palette: Palette | None = None
        self.frame: list[Taker] = []
        self._panels: list[Taker] = []

    def on_mount(self) -> None:
        """Show the present data, and focus the first panel."""
        widgets: list[Widget] = list(self.children)
        while widgets:  # the parts of a panel are its own
            widget = widgets.pop(0)
            if isinstance(widget, FRAME):
                self.frame.append(widget)
            elif isinstance(widget, Taker):
                self._panels.append(widget)
            else:
                widgets[:0] = widget.children
        self.watch_view(self.view)
        if self.FIRST_FOCUS:
            self.query(self.FIRST_FOCUS).first().focus()

    def take(self, view: View, palette: Palette) -> None:
        self.palette, self.view = palette, view  # in this order: a new view is drawn at once

    def watch_view(self, view: View) -> None:
        """Draw the view once the panels are mounted, and as long as they are."""
        if self.palette is not None and self.frame and self.is_attached:
            self.show(view, self.palette)

    def panels_view(self, view: View) -> object:
        """Return what the panels draw: `view` itself, or the screen's own."""
        return view

    def show(self, view: View, palette: Palette) -> None:
        own = self.panels_view(view)
        for part in self.frame:
            part.take(view, palette)
        for part in self._panels:
            part.take(own, palette)

    def put_away(self) -> None:
        """Prepare for another whole screen to be shown."""

    def on_resize(self) -> None:
        self.call_after_refresh(self.watch_view, self.view)

    def action_page(self) -> None:
        at = next(i for i, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        self.remove_class(f"page-{self.PAGES[at]}")
        self.add_class(f"page-{self.PAGES[(at + 1) % len(self.PAGES)]}")
        self.call_after_refresh(self.watch_view, self.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys for pages only if not everything fits."""
        del parameters
        return action != "page" or (bool(self.PAGES) and self.has_class("-narrow"))
