"""The line that says where in a recording the screen is; a click goes to another place in it."""

import time

from textual import events
from textual.message import Message
from textual.strip import Strip

from vramtui.app.replay.position import clock
from vramtui.app.state import ReplayPosition, View
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, strip
from vramtui.core.base.units import format_duration

DATED, TOLD, SHORT = 100, 120, 60  # columns from which the date and the prediction's origin are shown; and all but bare
LEAST = 8


class ReplayBar(Lines):
    """▶ or ‖, the time, a bar to click, the end, the speed, how far."""

    DEFAULT_CSS = "ReplayBar { height: 1; }"

    class Sought(Message):
        """A place was clicked; `fraction` of the whole recording."""

        def __init__(self, fraction: float) -> None:
            super().__init__()
            self.fraction = fraction

    class Toggled(Message):
        """The sign of playing was clicked."""

    def __init__(self) -> None:
        super().__init__()
        self._bar = (0, 0)

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line."""
        del height
        replay = view.replay
        if replay is None:
            return []
        text, dim = palette.ink("foreground", "bar"), palette.ink("muted", "bar")
        before = _before(replay, palette, width)
        after = _after(replay, width)
        room = width - sum(len(piece) for piece, _ in before) - len(after) - 2
        self._bar = (0, 0)
        line: list[Piece] = list(before)
        if room >= LEAST:
            begin = sum(len(piece) for piece, _ in before) + 1
            self._bar = (begin, begin + room)
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
        begin, stop = self._bar
        if event.x < begin:
            self.post_message(self.Toggled())
        elif event.x < stop:
            self.post_message(self.Sought((event.x - begin) / max(1, stop - begin - 1)))


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
