"""What every whole screen is: panels that each draw their part of one View."""

from collections.abc import Iterator
from typing import ClassVar, Protocol, runtime_checkable

from textual.reactive import reactive
from textual.screen import Screen
from textual.widget import Widget

from vramtui.app.state import View
from vramtui.app.terminal.screen_size import CurrentSize
from vramtui.app.themes import Palette


@runtime_checkable
class Taker(Protocol):
    """A panel."""

    def take(self, view: View, palette: Palette) -> None:
        """Draw this panel's part of `view`."""
        ...


class ViewScreen(CurrentSize, Screen[None]):
    """A screen whose `view` is set once a tick, and handed to every panel that `compose` yields.

    Attributes:
        PLACE: its name among the places.
        PAGES: what a narrow terminal shows one at a time; the screen has the class `page-NAME` of the present one.
        FIRST_FOCUS: a selector of what has the keys at first.
    """

    PLACE: ClassVar[str]
    PAGES: ClassVar[tuple[str, ...]] = ()
    FIRST_FOCUS: ClassVar[str] = ""

    view: reactive[View] = reactive(View(), init=False, repaint=False)

    def __init__(self) -> None:
        super().__init__(id=self.PLACE)
        if self.PAGES:
            self.add_class(f"page-{self.PAGES[0]}")
        self.palette: Palette | None = None
        self._panels: list[Taker] = []

    def on_mount(self) -> None:
        """Show the data there is, and focus the first panel."""
        self._panels = list(_panels_in(self))
        self.watch_view(self.view)
        if self.FIRST_FOCUS:
            self.query(self.FIRST_FOCUS).first().focus()

    def take(self, view: View, palette: Palette) -> None:
        """Show `view` in these colours."""
        self.palette = palette
        self.view = view

    def watch_view(self, view: View) -> None:
        """Hand the view to every panel."""
        if self.palette is not None and self._panels:
            self.show(view, self.palette)

    def show(self, view: View, palette: Palette) -> None:
        """Draw `view` in these colours."""
        for panel in self._panels:
            panel.take(view, palette)

    def on_resize(self) -> None:
        """Other sizes, other panels."""
        self.call_after_refresh(self.watch_view, self.view)

    def action_page(self) -> None:
        """Turn the page."""
        at = next(i for i, page in enumerate(self.PAGES) if self.has_class(f"page-{page}"))
        self.remove_class(f"page-{self.PAGES[at]}")
        self.add_class(f"page-{self.PAGES[(at + 1) % len(self.PAGES)]}")
        self.call_after_refresh(self.watch_view, self.view)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """There are pages only where not everything fits."""
        del parameters
        return action != "page" or (bool(self.PAGES) and self.has_class("-narrow"))


def _panels_in(widget: Widget) -> Iterator[Taker]:
    """The panels in a widget; what a panel is made of is the panel's own."""
    for child in widget.children:
        if isinstance(child, Taker):
            yield child
        else:
            yield from _panels_in(child)
