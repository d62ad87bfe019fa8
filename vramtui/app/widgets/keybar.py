"""The last line: the keys that matter most, each of which can also be clicked."""

from rich.cells import cell_len
from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.widgets.lines import Lines, Piece, strip


class KeyBar(Lines):
    """Draws the bindings that ask to be shown, as many as fit; the last one stands at the right edge."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._spots: list[tuple[int, int, str]] = []

    def bindings_shown(self) -> list[Binding]:
        """The screen's and the app's bindings with `show`, in the order they are declared."""
        found = [active.binding for active in self.screen.active_bindings.values() if active.binding.show]
        return [binding for binding in found if not binding.system]

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line."""
        del view, height
        key_style = palette.ink("primary", "bar", bold=True)
        word_style = palette.ink("muted", "bar")
        pieces: list[Piece] = []
        self._spots = []
        x = 1
        bindings = self.bindings_shown()
        # Help and quit are the last two; they are never left out.
        kept = sum(self._length(binding) for binding in bindings[-2:])
        former = ""
        for binding in bindings:
            key = self.app.get_key_display(binding)
            length = self._length(binding, former)
            last = binding in bindings[-2:]
            if x + length + (0 if last else kept) > width + 2:
                continue
            joined = binding.description == former and pieces
            if joined:
                pieces[-1] = (pieces[-1][0][:-1], word_style)
                x -= 1
            pieces += [(key, key_style), ("  " if joined else f" {binding.description}  ", word_style)]
            former = binding.description
            self._spots.append((x, x + length - 2, binding.action))
            x += length
        return [strip([(" ", word_style), *pieces], width, word_style)]

    def _length(self, binding: Binding, former: str = "") -> int:
        word = cell_len(binding.description) + 1 if binding.description != former else 0
        return cell_len(self.app.get_key_display(binding)) + word + 2

    async def on_click(self, event: events.Click) -> None:
        """Do what the key under the pointer does."""
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)
