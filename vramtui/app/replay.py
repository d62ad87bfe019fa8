"""Playing a recording in the dashboard: hold, step, seek, faster, and the line that says where it is. What is shown is
always as it was at that time.
"""

import gc
import time
from collections.abc import Callable, Sequence

from textual import events
from textual.binding import Binding
from textual.strip import Strip
from textual.widgets import Input

from vramtui.app.context import AppContext, Feature
from vramtui.app.messages import SampleTaken
from vramtui.app.state.view import Panel, ReplayPosition
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, strip
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.replay import Recorded, ReplayFeed, clock

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
        self.focus()

    def action_go(self) -> None:
        """Go there, or say why not and let the text be mended."""
        problem = self._seek(self.value) if self.value.strip() else ""
        if problem:
            self.app.notify(problem, severity="warning", markup=False)
        else:
            self.action_give_up()

    def action_give_up(self) -> None:
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


TICK = 0.25
BETWEEN = 0.001  # seconds for keys and screen between two slices of a long way
WORD_EVERY = 0.2  # seconds between two words on how far a long way is gone
FREEZE_EVERY = 2.0  # seconds


class ReplayController(Feature):
    """Posts the samples of a recording as a source's would be, and does what its keys ask for.

    Args:
        shared: the dashboard's own parts.
        recording: what is played, from its start.
        clock: seconds, of which only differences matter.

    Attributes:
        feed: plays it.
    """

    __slots__ = ("_is_waiting", "_next_freeze", "_next_word", "_shared", "feed")

    def __init__(self, shared: AppContext, recording: Recorded, clock: Callable[[], float]) -> None:
        self._shared = shared
        self.feed = ReplayFeed(recording, shared.state.session, self._deliver, clock)
        self._next_word = 0.0
        self._next_freeze = 0.0
        self._is_waiting = False

    # --- going on ------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Play; the first sample is known before anything is drawn."""
        self.feed.start()
        self._shared.app.set_interval(min(TICK, self._shared.interval), self.tick)

    def tick(self) -> None:
        """Go on as far as the clock did."""
        is_new = self.feed.advance()
        if self.feed.reading is not None and time.monotonic() > self._next_freeze:
            # What was read stays: going through millions of it in search of garbage takes seconds.
            self._next_freeze = time.monotonic() + FREEZE_EVERY
            gc.freeze()
        for warning in self.feed.new_warnings():
            self._shared.app.notify(printable(warning), title="Recording", severity="warning", markup=False)
        problem = self.feed.retry()
        if problem:
            self._shared.app.notify(problem, severity="warning", markup=False)
        self._follow_up()
        if is_new:
            self._shared.redraw.soon()

    def on_sample(self, sample: Sample) -> None:
        """The session is where the playing was."""
        self.feed.arrived(sample)
        self._follow_up()

    def take_presets(self, presets: Sequence[PresetFile]) -> None:
        self.feed.take_library(presets)

    @property
    def seeking(self) -> float | None:
        """How much of the way to another place is gone; None when there."""
        return self.feed.seeking

    def _deliver(self, sample: Sample) -> None:
        if self._shared.state.sample is None:
            self._shared.state.take(sample)
        self._shared.app.post_message(SampleTaken(sample))

    def _follow_up(self) -> None:
        """Report progress now and then on a long seek, and go on in a moment."""
        if self.feed.seeking is None:
            self._next_word = 0.0
        elif not self._is_waiting:
            self._is_waiting = True
            if time.monotonic() > self._next_word:
                self._next_word = time.monotonic() + WORD_EVERY
                self._shared.redraw.now()
            call_after(self._shared.app, BETWEEN, self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self.feed.go_on()
        self._follow_up()

    # --- the line above the keys ---------------------------------------------------------------------------------

    def draw_bar(self, screen: ViewScreen, palette: Palette) -> None:
        """Say where in the recording the screen is."""
        bar = next(iter(screen.query(ReplayBar)), None)
        if bar is None and screen.frame:  # before that is known, the bar would be taken for a panel of the screen's own
            bar = ReplayBar(self._seek_fraction, self.toggle)
            screen.mount(bar, before="KeyBar")
        if bar is not None:
            bar.take(self._status(screen.view.panel), palette)

    def _status(self, panel: Panel | None) -> ReplayPosition:
        playback = self.feed.playback
        return ReplayPosition(
            started=playback.start,
            ended=playback.end,
            at=playback.position,
            speed=playback.speed,
            playing=playback.playing,
            seeking=self.feed.seeking,
            reading=self.feed.reading,
            prediction=self._origin(panel),
        )

    def _origin(self, panel: Panel | None) -> str:
        """Return `as recorded` or `made now` for the panel's estimate; empty without a panel."""
        if panel is None:
            return ""
        return "as recorded" if self.feed.knows(panel.workload, panel.device) else "made now"

    # --- keys and mouse ------------------------------------------------------------------------------------------

    def toggle(self) -> None:
        self.feed.playback.toggle()
        self._moved()

    def step(self, samples: int) -> None:
        """Hold, so many samples on or back."""
        self.feed.playback.step(samples)
        self._moved()

    def skip(self, seconds: int) -> None:
        """So many seconds on or back."""
        self.feed.playback.seek(self.feed.playback.position + seconds)
        self._moved()

    def faster(self, direction: int) -> None:
        self.feed.playback.faster(direction)
        self._shared.redraw.now()

    def move(self, name: str, by: int) -> None:
        """One of `step`, `skip` and `faster`, as keys name them."""
        {"step": self.step, "skip": self.skip, "faster": self.faster}[name](by)

    def seek(self, text: str) -> str:
        """Go to what a person typed; returns why that cannot be, or nothing."""
        problem = self.feed.seek(text)
        if not problem:
            self._moved()
        return problem

    async def ask_where(self) -> None:
        screen = self._shared.screens.current
        if screen is not None and not screen.query(SeekBar):
            bar = SeekBar(self.seek)
            # Waited for, so that what is typed at once arrives there.
            await screen.mount(bar, before="ReplayBar")
            screen.set_focus(bar)

    def _seek_fraction(self, fraction: float) -> None:
        playback = self.feed.playback
        playback.seek(playback.start + (playback.end - playback.start) * fraction)
        self._moved()

    def _moved(self) -> None:
        self.feed.follow()
        self._follow_up()
        self._shared.redraw.now()
