"""What every whole screen is: panels that each draw their part of one View, and sentences above everything else: the
demo, a driver that does not answer, a source that failed.
"""

from collections.abc import Iterator
from typing import Any, ClassVar, Protocol, runtime_checkable

from textual.reactive import reactive
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget

from vramtui.app.state.view import View
from vramtui.app.terminal.screen_size import CurrentSize
from vramtui.app.themes import Palette
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import Lines, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration


class Banner(Lines[View]):
    """The sentences above a screen, a line each where they fit; nothing when there is nothing to say."""

    DEFAULT_CSS = "Banner { height: auto; max-height: 3; }"

    def sentences(self, view: View) -> list[tuple[str, str]]:
        """What is to be said, and the colour to say it in."""
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
        """How many lines the sentences take in `width` columns."""
        return sum(len(wrap(printable(sentence), width - 2)) for sentence, _ in self.sentences(view))


# What stands around the panels of every screen, and is drawn of what the screens share.
FRAME = (Header, Banner, KeyBar)


@runtime_checkable
class Taker(Protocol):
    """A panel that draws part of a view."""

    def take(self, view: Any, palette: Palette) -> None:  # noqa: ANN401 - its screen knows what it is drawn of
        """Draw this panel's part of `view`."""
        ...


class ViewScreen(CurrentSize, Screen[None]):
    """A screen whose `view` is set once a tick. Its frame draws that; its panels draw what `panels_view` makes of it.

    Attributes:
        PLACE: its name among the screens.
        PAGES: what a narrow terminal shows one at a time; the screen has the class `page-NAME` of the present one.
        FIRST_FOCUS: a selector of what has the keys at first.
        TYPES: whether letters and digits are typed there, wherever the keys are.
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
        """Show the data there is, and focus the first panel."""
        for panel in _panels_in(self):
            (self.frame if isinstance(panel, FRAME) else self._panels).append(panel)
        self.watch_view(self.view)
        if self.FIRST_FOCUS:
            self.query(self.FIRST_FOCUS).first().focus()

    def take(self, view: View, palette: Palette) -> None:
        self.palette, self.view = palette, view  # in this order: a new view is drawn at once

    def watch_view(self, view: View) -> None:
        """Draw it, as soon as there are panels and as long as they are there."""
        if self.palette is not None and self.frame and self.is_attached:
            self.show(view, self.palette)

    def panels_view(self, view: View) -> object:
        """What the panels draw: `view` itself, or what the screen makes of its own."""
        return view

    def show(self, view: View, palette: Palette) -> None:
        own = self.panels_view(view)
        for part in self.frame:
            part.take(view, palette)
        for part in self._panels:
            part.take(own, palette)

    def put_away(self) -> None:
        """Another whole screen is shown now."""

    def on_resize(self) -> None:
        """Other sizes, other panels."""
        self.call_after_refresh(self.watch_view, self.view)

    def action_page(self) -> None:
        at = next(i for i, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        self.remove_class(f"page-{self.PAGES[at]}")
        self.add_class(f"page-{self.PAGES[(at + 1) % len(self.PAGES)]}")
        self.call_after_refresh(self.watch_view, self.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer the keys for pages only where not everything fits."""
        del parameters
        return action != "page" or (bool(self.PAGES) and self.has_class("-narrow"))


def _panels_in(widget: Widget) -> Iterator[Taker]:
    """The panels in a widget; what a panel is made of is the panel's own."""
    for child in widget.children:
        if isinstance(child, Taker):
            yield child
        else:
            yield from _panels_in(child)
