"""Playing a recording in the dashboard: pause, step, seek, speed, and the line with the position."""

import gc
import time
from collections.abc import Callable

from textual import events
from textual.binding import Binding
from textual.strip import Strip
from textual.widgets import Input

from vramtui.app.context import AppContext, Feature, SampleTaken
from vramtui.app.state.view import ReplayPosition
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, strip
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Sample
from vramtui.monitor.replay import Recorded, ReplayFeed, clock

DATED, TOLD, SHORT = 100, 120, 60  # columns from which date, the estimate's origin, and times are shown
LEAST = 8


class SeekBar(Input):
    """Enter goes to the typed place, Escape stays. `seek` returns the problem, or nothing."""

    BINDINGS = [
        Binding("escape", "give_up", "stay", id="seek.give_up", tooltip="Cancel"),
        Binding("enter", "go", "go", id="seek.go", tooltip="Go to this time"),
    ]

    def __init__(self, seek: Callable[[str], str]) -> None:
        super().__init__(placeholder="go to: 12:03:20, +90, -1m30s or 50%")
        self.cursor_blink = False
        self._seek = seek

    def on_mount(self) -> None:
        self.focus()

    def action_go(self) -> None:
        problem = self._seek(self.value) if self.value.strip() else ""
        if problem:
            self.app.notify(problem, severity="warning")
        else:
            self.action_give_up()

    def action_give_up(self) -> None:
        self.screen.focus_next()
        self.remove()


class ReplayBar(Lines[ReplayPosition]):
    """▶ or ‖, the time, a bar to click, the end, the speed, the progress. `seek` goes to a fraction of the recording;
    `bar` is the first column of the bar and the one after its last.
    """

    def __init__(self, seek: Callable[[float], None], toggle: Callable[[], None]) -> None:
        super().__init__()
        self._seek, self._toggle = seek, toggle
        self.bar = (0, 0)

    def build(self, view: ReplayPosition, palette: Palette, width: int, height: int) -> list[Strip]:
        text, dim = palette.ink("foreground", "bar"), palette.ink("muted", "bar")
        date = time.strftime("%Y-%m-%d ", time.localtime(view.at)) if width >= DATED else ""
        line: list[Piece] = [
            (" ▶ " if view.playing else " ‖ ", palette.ink("background", "accent", bold=True)),
            (f" {date}{clock(view.at)}", palette.ink("foreground", "bar", bold=True)),
        ]
        if view.seeking is not None:
            after = f"seeking: {view.seeking:.0%} "
        else:
            speed = f"{view.speed:g}x"
            if view.reading is not None:
                speed = f"reading: {view.reading:.0%} · {speed}"
            parts = [speed]
            if width >= SHORT:
                passed, length = format_duration(view.at - view.started), format_duration(view.ended - view.started)
                parts = [clock(view.ended), speed, f"{passed} of {length}", f"{view.fraction:.0%}"]
                if width >= TOLD and view.prediction:
                    parts.append(f"estimate {view.prediction}")
            after = " · ".join(parts) + " "
        begin = sum(len(piece) for piece, _ in line) + 1
        room = width - begin - len(after) - 1
        self.bar = (0, 0)
        if room >= LEAST:
            self.bar = (begin, begin + room)
            done = round(room * view.fraction)
            accent = palette.ink("accent", "bar", bold=True)
            line += [(" ", text), ("━" * done, accent), ("─" * (room - done), dim), (" ", text)]
        return [strip([*line, (after, dim)], width, text)]

    def on_click(self, event: events.Click) -> None:
        """Go to the place clicked; left of the bar, play or pause."""
        begin, stop = self.bar
        if event.x < begin:
            self._toggle()
        elif event.x < stop:
            self._seek((event.x - begin) / max(1, stop - begin - 1))


TICK = 0.25
BETWEEN = 0.001  # seconds for keys and screen between two slices of a long way
WORD_EVERY = 0.2  # seconds between two reports of progress
FREEZE_EVERY = 2.0  # seconds


class ReplayController(Feature):
    """Posts the samples of a recording like those of a source, and runs its keys; `feed` plays it from its start."""

    __slots__ = ("_is_waiting", "_next_freeze", "_next_word", "_shared", "feed")

    def __init__(self, shared: AppContext, recording: Recorded, clock: Callable[[], float]) -> None:
        def deliver(sample: Sample) -> None:
            if shared.state.sample is None:
                shared.state.take(sample)
            shared.app.post_message(SampleTaken(sample))

        self._shared = shared
        self.feed = ReplayFeed(recording, shared.state.session, deliver, clock)
        self._next_word = self._next_freeze = 0.0
        self._is_waiting = False

    def begin(self) -> None:
        self.feed.start()
        self._shared.app.set_interval(min(TICK, self._shared.interval), self.tick)

    def tick(self) -> None:
        is_new = self.feed.advance()
        if self.feed.reading is not None and time.monotonic() > self._next_freeze:
            # The samples read stay: searching millions of them for garbage takes seconds.
            self._next_freeze = time.monotonic() + FREEZE_EVERY
            gc.freeze()
        for warning in self.feed.new_warnings():
            self._shared.app.notify(printable(warning), title="Recording", severity="warning")
        problem = self.feed.retry()
        if problem:
            self._shared.app.notify(problem, severity="warning")
        self._follow_up()
        if is_new:
            self._shared.redraw.soon()

    def on_sample(self, sample: Sample) -> None:
        self.feed.arrived(sample)
        self._follow_up()

    def _follow_up(self) -> None:
        """Report progress now and then on a long seek, and go on in a moment."""

        def go_on() -> None:
            self._is_waiting = False
            self.feed.go_on()
            self._follow_up()

        if self.feed.seeking is None:
            self._next_word = 0.0
        elif not self._is_waiting:
            self._is_waiting = True
            if time.monotonic() > self._next_word:
                self._next_word = time.monotonic() + WORD_EVERY
                self._shared.redraw.now()
            call_after(self._shared.app, BETWEEN, go_on)

    def draw_bar(self, screen: ViewScreen, palette: Palette) -> None:
        bar, playback, panel = next(iter(screen.query(ReplayBar)), None), self.feed.playback, screen.view.panel
        if bar is None and screen.frame:  # before that is known, the bar would count as a panel of the screen
            bar = ReplayBar(self._seek_fraction, self.toggle)
            screen.mount(bar, before="KeyBar")
        if bar is None:
            return
        origin = ""
        if panel is not None:
            origin = "as recorded" if self.feed.knows(panel.workload, panel.device) else "made now"
        position = ReplayPosition(
            started=playback.start,
            ended=playback.end,
            at=playback.position,
            speed=playback.speed,
            playing=playback.playing,
            seeking=self.feed.seeking,
            reading=self.feed.reading,
            prediction=origin,
        )
        bar.take(position, palette)

    def toggle(self) -> None:
        self.feed.playback.toggle()
        self._moved()

    def move(self, name: str, by: int) -> None:
        """Pause and `step` by samples, `skip` seconds, or play `faster`, as keys name them."""
        playback = self.feed.playback
        if name == "faster":
            playback.faster(by)
            self._shared.redraw.now()
            return
        if name == "step":
            playback.step(by)
        else:
            playback.seek(playback.position + by)
        self._moved()

    def seek(self, text: str) -> str:
        """Go to the place that the user typed; return the problem, or nothing."""
        problem = self.feed.seek(text)
        if not problem:
            self._moved()
        return problem

    async def ask_where(self) -> None:
        screen = self._shared.screens.current
        if screen is not None and not screen.query(SeekBar):
            bar = SeekBar(self.seek)
            await screen.mount(bar, before="ReplayBar")  # awaited, so that keys typed at once arrive there
            screen.set_focus(bar)

    def _seek_fraction(self, fraction: float) -> None:
        playback = self.feed.playback
        playback.seek(playback.start + (playback.end - playback.start) * fraction)
        self._moved()

    def _moved(self) -> None:
        self.feed.follow()
        self._follow_up()
        self._shared.redraw.now()
