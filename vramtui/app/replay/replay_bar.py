"""Where in a recording the screen is: the line that says it and takes clicks, and the one in which another place is
typed.
"""

import time
from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.strip import Strip
from textual.widgets import Input

from vramtui.app.state.view import ReplayPosition
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, strip
from vramtui.core.base.units import format_duration
from vramtui.monitor.replay_position import clock

DATED, TOLD, SHORT = 100, 120, 60  # columns from which the date and the prediction's origin are shown; and all but bare
LEAST = 8


class SeekBar(Input):
    """Enter goes there, Escape stays.

    Args:
        seek: goes to what was typed; returns the sentence that says why it cannot, or nothing.
    """

    DEFAULT_CSS = """
    SeekBar { border: none; height: 1; padding: 0 1; background: $panel; }
    SeekBar:focus { border: none; }
    """
    BINDINGS = [
        Binding("escape", "give_up", "stay", id="seek.give_up", tooltip="Cancel"),
        Binding("enter", "go", "go", id="seek.go", tooltip="Go to this time"),
    ]

    def __init__(self, seek: Callable[[str], str]) -> None:
        super().__init__(placeholder="go to: 12:03:20, +90, -1m30s or 50%")
        self.cursor_blink = False
        self._seek = seek

    def on_mount(self) -> None:
        """Take the keys."""
        self.focus()

    def action_go(self) -> None:
        """Go there, or say why not and let the text be mended."""
        problem = self._seek(self.value) if self.value.strip() else ""
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.action_give_up()

    def action_give_up(self) -> None:
        """Give the keys back."""
        self.screen.focus_next()
        self.remove()


class ReplayBar(Lines[ReplayPosition]):
    """▶ or ‖, the time, a bar to click, the end, the speed, how far.

    Args:
        seek: goes to a place that was clicked, as a fraction of the whole recording.
        toggle: the sign of playing was clicked.

    Attributes:
        bar: the first column of the bar and the one after its last.
    """

    DEFAULT_CSS = "ReplayBar { height: 1; }"

    def __init__(self, seek: Callable[[float], None], toggle: Callable[[], None]) -> None:
        super().__init__()
        self._seek = seek
        self._toggle = toggle
        self.bar = (0, 0)

    def build(self, view: ReplayPosition, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line."""
        del height
        replay = view
        text, dim = palette.ink("foreground", "bar"), palette.ink("muted", "bar")
        before = _before(replay, palette, width)
        after = _after(replay, width)
        room = width - sum(len(piece) for piece, _ in before) - len(after) - 2
        self.bar = (0, 0)
        line: list[Piece] = list(before)
        if room >= LEAST:
            begin = sum(len(piece) for piece, _ in before) + 1
            self.bar = (begin, begin + room)
            done = round(room * replay.fraction)
            line += [
                (" ", text),
                ("━" * done, palette.ink("accent", "bar", bold=True)),
                ("─" * (room - done), dim),
                (" ", text),
            ]
        return [strip([*line, (after, dim)], width, text)]

    def on_click(self, event: events.Click) -> None:
        """Go to the place clicked; left of the bar: play or hold."""
        begin, stop = self.bar
        if event.x < begin:
            self._toggle()
        elif event.x < stop:
            self._seek((event.x - begin) / max(1, stop - begin - 1))


def _before(replay: ReplayPosition, palette: Palette, width: int) -> list[Piece]:
    sign = "▶" if replay.playing else "‖"
    date = time.strftime("%Y-%m-%d ", time.localtime(replay.at)) if width >= DATED else ""
    return [
        (f" {sign} ", palette.ink("background", "accent", bold=True)),
        (f" {date}{clock(replay.at)}", palette.ink("foreground", "bar", bold=True)),
    ]


def _after(replay: ReplayPosition, width: int) -> str:
    if replay.seeking is not None:
        return f"seeking: {replay.seeking:.0%} "
    speed = f"{replay.speed:g}x"
    if replay.reading is not None:
        speed = f"reading: {replay.reading:.0%} · {speed}"
    if width < SHORT:
        return f"{speed} "
    length = replay.ended - replay.started
    parts = [
        clock(replay.ended),
        speed,
        f"{format_duration(replay.at - replay.started)} of {format_duration(length)}",
        f"{replay.fraction:.0%}",
    ]
    if width >= TOLD and replay.prediction:
        parts.append(f"estimate {replay.prediction}")
    return " · ".join(parts) + " "
