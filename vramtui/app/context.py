"""Shared by the dashboard and its features: messages, the state of the source, when to draw, and a feature's base."""

import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from textual.app import App
from textual.message import Message
from textual.screen import ModalScreen

from vramtui.app.keys import FIRST
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.terminal.textual_private import call_after
from vramtui.app.ui.lines import ListModel, RowChosen, SortChosen
from vramtui.app.ui.view_screen import NoticeLine, ViewScreen
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.readings import Absence, PcieTraffic, Sample
from vramtui.monitor.jobs import Presets
from vramtui.monitor.poller import ReadResult

GRACE = 0.1  # seconds: reads take some time, and not always the same


Result = TypeVar("Result")


def ask(app: App[Any], window: ModalScreen[Result], then: Callable[[Result], object]) -> None:

    def take(answer: Result | None) -> None:
        if answer is not None:
            then(answer)

    app.push_screen(window, take)


@dataclass
class SampleTaken(Message):
    """The source answered."""

    sample: Sample


@dataclass
class SourceStuck(Message):
    """The source has not answered within its deadline."""


@dataclass
class ReadFailed(Message):
    message: str
    hint: str = ""


@dataclass
class PresetsRead(Message):
    """The preset files are listed; `problems` has a sentence for each of a person's own that cannot be read."""

    library: Presets
    problems: tuple[str, ...] = ()


@dataclass
class FieldStepped(Message):
    """A field of the run is to go up (1) or down (-1)."""

    field: str
    direction: int


@dataclass
class GpuChosen(Message):
    uuid: str


@dataclass
class CellMoved(Message):
    """The cursor of Plan's map is to move by columns and rows."""

    across: int
    down: int


@dataclass
class CellChosen(Message):
    x: int
    y: int


def message_of(result: ReadResult) -> Message:
    if isinstance(result, Sample):
        return SampleTaken(result)
    return ReadFailed(result.message, result.hint) if isinstance(result, SourceFailed) else SourceStuck()


class FeedStatus:
    """The state of the source for header and banner: `asked` is the driver or host that should answer, `failure` the
    source's own sentence until it answers, `failed` without advice, `stuck` that a read is past its deadline.
    """

    __slots__ = ("_answered_at", "_clock", "asked", "banner", "failed", "failure", "interval", "notes", "stuck")

    def __init__(self, interval: float, banner: str, clock: Callable[[], float], asked: str = "the driver") -> None:
        self.interval, self.banner, self.asked = interval, banner, asked
        self.failure = self.failed = ""
        self.stuck = False
        self.notes: tuple[str, ...] = ()
        self._clock = clock
        self._answered_at: float | None = None

    def answer(self) -> None:
        self._answered_at = self._clock()
        self.stuck = False
        self.failure = self.failed = ""

    def begin_again(self, asked: str) -> None:
        self.answer()
        self.asked, self._answered_at = asked, None

    def stall(self) -> None:
        if self._answered_at is None:
            self.failure = f"waiting for {self.asked} to answer"
        self.stuck = True

    def fail(self, message: str, hint: str) -> None:
        self.failure = " ".join(filter(None, (message, hint)))
        self.failed = message

    @property
    def late(self) -> float | None:
        """The present time, in seconds since the epoch, if an answer is overdue; else None."""
        now = self._clock()
        return None if self._answered_at is None or now - self._answered_at < self.interval + GRACE else now

    @property
    def until_late(self) -> float:
        """Seconds until the next answer is overdue; 0 if it is, or none has come yet."""
        if self._answered_at is None:
            return 0.0
        return max(0.0, self._answered_at + self.interval + GRACE - self._clock())

    @property
    def age(self) -> float | None:
        """Seconds since the last answer, if the source has stopped answering."""
        if not (self.stuck or self.failed) or self._answered_at is None:
            return None
        return max(0.0, self._clock() - self._answered_at)


LEAST_BETWEEN_DRAWINGS = 0.5
LEAST_DETACHED = 5.0  # in a detached multiplexer
LEAST_UNFOCUSED = 2.0  # in a terminal that reports the loss of the focus
# A key that is held down comes 30 times a second: drawing every third looks as smooth and costs a third.
LEAST_BETWEEN_KEYS = 0.1
LOOK_EVERY = 0.2  # seconds until a late answer is noticed; Textual's own timers may be skipped
LOOK_AT_LEAST = 60.0  # a clock may be set


class RedrawThrottle:
    """Draws for samples up to twice a second (every two seconds without the focus, every five if detached), and for
    keys up to ten times. `draw` calls `begins` and `is_drawn`; `now` is a clock in seconds, which tests freeze.
    """

    __slots__ = ("_app", "_clock", "_drawn_at", "_due", "_key_drawn_at", "_key_due", "now")

    def __init__(self, app: App[Any], draw: Callable[[], None], now: Callable[[], float]) -> None:
        self._app, self.now, self._clock = app, draw, now
        self._drawn_at = self._key_drawn_at = float("-inf")
        self._due = self._key_due = False

    def soon(self) -> None:
        """Draw now, or once enough time has passed since the last drawing."""
        least = LEAST_BETWEEN_DRAWINGS if self._app.app_focus else LEAST_UNFOCUSED
        if is_detached(os.environ.get("TMUX", "")):
            least = LEAST_DETACHED
        wait = self._drawn_at + least - self._clock()
        if wait <= 0:
            self.now()
        elif not self._due:
            self._due = True
            call_after(self._app, min(wait, least), self.now)

    def watch_clock(self, late: Callable[[], object], until_late: Callable[[], float]) -> None:
        """Draw at the beginning of each second while `late`, which cannot be true for `until_late` seconds."""

        def look() -> None:
            if not self._app.is_running:
                return
            if late() and int(self._clock()) != int(max(self._drawn_at, 0.0)):
                self.now()
            call_after(self._app, min(max(until_late(), LOOK_EVERY), LOOK_AT_LEAST), look)

        look()

    def for_key(self) -> None:
        """Draw now; while keys come fast, once it is time again."""
        past = self._clock() - self._key_drawn_at
        if not 0 < past < LEAST_BETWEEN_KEYS:
            self._key_drawn_at = self._clock()
            self.now()
        elif not self._key_due:
            self._key_due = True

            def last_key() -> None:
                if self._key_due:
                    self._key_drawn_at = self._clock()
                    self.now()

            call_after(self._app, LEAST_BETWEEN_KEYS - past, last_key)

    def begins(self) -> None:
        """Note that everything is drawn now, so nothing is due."""
        self._due = self._key_due = False

    def is_drawn(self) -> None:
        """Note that a sample is on the screen now."""
        self._drawn_at = self._clock()


def is_detached(multiplexer: str) -> bool:
    """Return whether no client is attached to tmux; `multiplexer` is the value of TMUX: socket, pid and session, with
    commas between them.
    """
    path = multiplexer.rsplit(",", 2)[0]
    try:
        # Without a client the server's socket is not executable: server_update_socket() in server.c of tmux 3.3.
        return bool(path) and not Path(path).stat().st_mode & stat.S_IXUSR
    except OSError:
        return False


class Feature(Protocol):
    """A part of the dashboard, which calls its features in one order."""

    def on_sample(self, sample: Sample) -> None:
        del sample

    @property
    def busy(self) -> bool:
        """Work in the background that the screen waits for goes on."""
        return False

    def close(self) -> None:
        """End at once, or within a second."""
        return


class ScreenRouter:
    """Shows one whole screen after another; `makers` makes them by name. Watch stays below them, so that it is there at
    once.
    """

    __slots__ = ("_app", "_draw", "_drawn", "makers")

    def __init__(self, app: App[None], draw: Callable[[], None]) -> None:
        self._app, self._draw = app, draw
        self.makers: Mapping[str, Callable[[], ViewScreen]] = {}
        self._drawn: ViewScreen | None = None

    @property
    def current(self) -> ViewScreen | None:
        return next((screen for screen in reversed(self._app.screen_stack) if isinstance(screen, ViewScreen)), None)

    @property
    def first(self) -> ViewScreen | None:
        shown = (screen for screen in self._app.screen_stack if isinstance(screen, ViewScreen))
        return next((screen for screen in shown if screen.PLACE == FIRST), None)

    def to_draw(self) -> ViewScreen | None:
        """Return the current screen; put the last one away if it is another."""
        current = self.current
        if self._drawn is not None and self._drawn is not current:
            self._drawn.put_away()
        self._drawn = current
        return current

    def show(self, name: str) -> None:
        """Show the screen called `name`, unless a window is open."""
        current = self.current
        if current is None or name == current.PLACE or self._app.screen is not current:
            return
        if current.PLACE != FIRST:
            self._app.pop_screen()
        if name != FIRST:
            self._app.push_screen(self.makers[name]())
        self._draw()


MOST_RECENT = 5
CHOOSE_PRESET, NOT_READ = "Choose a preset first: p", "The presets are still being read: try again in a moment."
ONLY_MONITOR = "Only the monitor is shown: M on Watch shows predictions as well."


def why_no_preset(state: DashboardState) -> str:
    """Return why there is nothing to do with a preset: none is chosen, none is read yet, or predictions are off."""
    return ONLY_MONITOR if state.is_monitor else CHOOSE_PRESET if state.session.is_matching else NOT_READ


@dataclass(frozen=True)
class AppContext:
    """The parts of the dashboard that features share.

    Attributes:
        app: Textual's notifications, windows, timers, and `call_later`, which any thread may call.
        clock: seconds since the epoch; tests freeze it.
        interval: seconds between reads.
        keep_settings: sets values in the settings file, by their dotted keys; raises UserError if it cannot.
        measure_traffic: measures the PCIe traffic of a GPU, by its uuid; takes its time. None if the source cannot.
        environment: reads the environment of a process, by pid and start; None if they are of another host.
        recent_presets: the keys of presets chosen since the start, the latest first.
    """

    app: App[None]
    state: DashboardState
    redraw: RedrawThrottle
    screens: ScreenRouter
    clock: Callable[[], float]
    interval: float
    notices: NoticeLine
    keep_settings: Callable[[Mapping[str, object]], None] | None = None
    measure_traffic: Callable[[str], PcieTraffic | Absence] | None = None
    environment: Callable[[int, float | None], Mapping[str, str]] | None = None
    recent_presets: list[str] = field(default_factory=list)

    def used(self, preset: str) -> None:
        """Put a chosen preset first among the recent ones."""
        self.recent_presets[:] = [preset, *(key for key in self.recent_presets if key != preset)][:MOST_RECENT]

    def keep(self, values: Mapping[str, object]) -> None:
        """Save these in the settings file, with a notice; None removes a key."""
        if self.keep_settings is None:
            self.app.notify("Applies until you quit.", timeout=3)
            return
        try:
            self.keep_settings(values)
        except UserError as error:
            self.app.notify(f"Applies until you quit. {error}", severity="error")
        else:
            self.app.notify("Saved in settings (vramtui doctor --settings).", timeout=3)


class ListScreen(ViewScreen):
    """A screen with a list that is sorted by columns, and filtered by words like those of `FILTER`."""

    FILTER: ClassVar[str]

    def __init__(self, shared: AppContext, model: ListModel[Any, Any] | DashboardState) -> None:
        super().__init__()
        self._shared = shared
        self._model: Any = model

    @property
    def present_list(self) -> tuple[Any, str]:
        """The list that is shown now, and the selector of its rows."""
        return self._model, self.FIRST_FOCUS

    def on_row_chosen(self, message: RowChosen[Any]) -> None:
        self.present_list[0].choose(message.row)
        self._shared.redraw.for_key()

    def on_sort_chosen(self, message: SortChosen[Any]) -> None:
        self.present_list[0].sort_by(message.column)
        self._shared.redraw.now()

    def action_sort_list(self, direction: int) -> None:
        self.present_list[0].sort_next(direction)
        self._shared.redraw.now()

    def action_reverse_list(self) -> None:
        self.present_list[0].sort_by(self.present_list[0].sort)
        self._shared.redraw.now()

    def action_filter_list(self) -> None:
        from vramtui.app.ui.chooser import FilterBar  # loads Input

        if not self.query(FilterBar):
            bar = FilterBar(
                self._model.filter, placeholder=self.FILTER, rows=self.present_list[1], typed=self.set_filter
            )
            self.mount(bar, before="KeyBar")

    def set_filter(self, text: str) -> None:
        self._model.set_filter(text)
        self._shared.redraw.now()

    def action_leave_list(self) -> None:
        """Clear the filter, else leave the screen."""
        if self._model.filter:
            self.set_filter("")
        else:
            self._shared.screens.show(FIRST)
