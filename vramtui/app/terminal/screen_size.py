"""Screens of which each lays itself out for one size only: the terminal's present one.

A screen that is laid out for a size posts that size to itself. Where a terminal is resized twice before a screen has
come to the first, both sizes are on their way, each layout sends the other one off again, and Textual 8.2 lays the
screen out for ever: the process uses a whole core, and neither keys nor `q` are looked at (`Screen._on_resize`,
`Screen._refresh_layout`).
"""

from typing import TYPE_CHECKING

from textual import events

if TYPE_CHECKING:
    from textual.app import App


class CurrentSize:
    """A screen's first base, which passes over sizes that are not the terminal's any more.

    The size that is has been posted as well, by whatever changed it.
    """

    if TYPE_CHECKING:
        app: App[object]

    async def _on_resize(self, event: events.Resize) -> None:
        if event.size != self.app.size:
            event.prevent_default()  # keeps Textual's own handler from a layout for another size
