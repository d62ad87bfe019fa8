"""Drawings of the command line: stacked bars of memory by category, with letters and colours, and plotext figures."""

import os
import shutil
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vramtui.core.base.colours import DARK
from vramtui.core.base.units import unit_of
from vramtui.core.estimate.estimate import CATEGORIES, LETTERS, TITLES

HEIGHT = 16  # rows of a drawing


def drawing(title: str, width: int, height: int, *, colour: bool) -> Any:  # noqa: ANN401 - plotext has no types
    """An empty plotext figure of `width` columns and `height` rows under `title`, however low the terminal is."""
    import plotext  # 0.4 s to load, so only where something is drawn

    plotext.terminal.limit(width=False, height=False)
    figure = plotext.figure
    figure.clear()
    figure.theme("default" if colour else "colorless")
    figure.plot_size(width, height)
    figure.title(title)
    return figure


def finished(figure: Any, *, colour: bool) -> str:  # noqa: ANN401 - as above
    """The figure as text, without a line's trailing spaces."""
    import plotext

    text = str(figure.build().string())
    plain = text if colour else str(plotext.uncolorize(text))
    return "\n".join(line.rstrip() for line in plain.splitlines())


def memory_curve(title: str, places: Sequence[float], sizes: Sequence[int], room: int, marker: str = "braille") -> str:
    """Bytes at each place, and a dotted line at the memory of a card if that is near."""
    colour, (unit, name) = colour_wanted(), unit_of(max(sizes))
    figure = drawing(f"{title}, {name}", shutil.get_terminal_size().columns, HEIGHT, colour=colour)
    if room <= 2 * max(sizes):
        figure.draw(figure.signal([places[0], places[-1]], [room / unit] * 2, marker="·").lines())
    figure.draw(figure.signal([*places], [size / unit for size in sizes], marker=marker).lines())
    return finished(figure, colour=colour)


# Master weights are the optimizer's own tensors to whoever looks at a job, traces and probes alike.
_SEEN = [category for category in CATEGORIES if category != "master_weights"]
MARKS: dict[str, str] = {category: LETTERS[category] for category in _SEEN}
NAMES: dict[str, str] = {category: TITLES[category] for category in _SEEN}
REST = "·"
_OFF = "\x1b[0m"


def colour_wanted() -> bool:
    """Return whether the output is a terminal with colours, and NO_COLOR is not set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Bars:
    def __init__(self, *, colour: bool | None = None) -> None:
        self.colour = colour_wanted() if colour is None else colour

    def bar(self, categories: Mapping[str, int], peak: int, top: int, width: int) -> str:
        """Bytes by category in letters, dots to the phase's peak; `width` columns show `top` bytes.

        Each boundary is rounded by itself, so that a bar's length is that of its sum.
        """
        text, drawn, total = "", 0, 0
        for category, letter in MARKS.items():
            total += categories.get(category, 0)
            cells = round(total * width / top) - drawn
            drawn += cells
            text += self._painted(category, letter * cells) if cells else ""
        return text + REST * (round(max(peak, total) * width / top) - drawn)

    def mark(self, category: str) -> str:
        return self._painted(category, MARKS[category])

    def legend(self, categories: Collection[str], width: int, *, peaks: bool = True) -> str:
        """The meaning of the letters, in lines of up to `width` columns."""
        known = [(f"{letter} {NAMES[name]}", name) for name, letter in MARKS.items() if name in categories]
        lines, room = [""], width
        for text, name in [*known, *([(f"{REST} up to the phase's peak", "")] if peaks else [])]:
            if len(text) > room:
                lines.append("")
                room = width
            shown = f"{self.mark(name)}{text[1:]}" if name else text
            lines[-1] += f"{shown}  "
            room -= len(text) + 2
        return "\n".join(line.rstrip() for line in lines)

    def strong(self, text: str) -> str:
        return f"\x1b[1m{text}{_OFF}" if self.colour else text

    def _painted(self, category: str, text: str) -> str:
        if not self.colour:
            return text
        red, green, blue = bytes.fromhex(DARK[category.replace("_", "-")].removeprefix("#"))
        return f"\x1b[38;2;0;0;0;48;2;{red};{green};{blue}m{text}{_OFF}"
