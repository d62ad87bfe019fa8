"""Sentences above everything else: the demo, a driver that does not answer, a source that failed."""

from textual.strip import Strip

from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration


class Banner(Lines[View]):
    """As many lines as its sentences take; none when there is nothing to say."""

    DEFAULT_CSS = "Banner { height: auto; max-height: 3; }"

    def sentences(self, view: View) -> list[tuple[str, str]]:
        """What is to be said, and the colour to say it in."""
        said = []
        if view.failure:
            said.append((view.failure, "error"))
        elif view.stale is not None:
            age = format_duration(view.stale)
            said.append((f"no answer from the driver for {age}; showing data that old", "error"))
        if view.banner:
            said.append((view.banner, "accent"))
        if view.hint:
            said.append((view.hint, "primary"))
        return said

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Wrapped sentences."""
        lines = []
        for sentence, colour in self.sentences(view):
            style = palette.ink(colour, "bar")
            lines += [strip([(f" {line}", style)], width, style) for line in wrap(printable(sentence), width - 2)]
        return lines[:height]

    def lines_for(self, view: View, width: int) -> int:
        """How many lines the sentences take in `width` columns."""
        return sum(len(wrap(printable(sentence), width - 2)) for sentence, _ in self.sentences(view))
