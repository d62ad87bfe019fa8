"""Playing a recording in the dashboard: hold, step, seek, faster. What is shown is always as it was at that time."""

import time
from collections.abc import Callable
from functools import partial

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.app.live.alerts import AlertFeature
from vramtui.app.replay.loader import ReplayLoader
from vramtui.app.replay.position import PlaybackPosition
from vramtui.app.replay.recorded_data import Recorded, RecordedState
from vramtui.app.replay.replay_bar import ReplayBar
from vramtui.app.state.view import Panel, ReplayPosition
from vramtui.app.themes import Palette
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload

TICK = 0.25
SLICE = 0.02  # seconds at a time that samples are gone through without a look at keys and screen
WORD_EVERY = 0.2  # seconds between two words on how far a long way is gone
QUIET = 120  # samples gone through at once from which alerts on the way are not said any more


class ReplayController(Feature):
    """Feeds the dashboard from a recording in place of a source.

    Args:
        shared: the dashboard's own parts.
        recording: what is played, from its start.
        alerts: what was alarming then is said on the screen alone.
        traced: the estimates of traces.

    Attributes:
        position: where the playing is.
        fed: how many samples the state has taken.
        seeking: how much of the way to another place is gone; None when there.
    """

    def __init__(
        self,
        shared: AppContext,
        recording: Recorded,
        alerts: AlertFeature,
        traced: Callable[[tuple[Workload, Device]], Estimate | None],
    ) -> None:
        self._shared = shared
        self._state = shared.state
        self._recording = recording
        self._alerts = alerts
        alerts.mute()
        self._recorded = RecordedState(shared.state, recording, traced)
        self._loader = ReplayLoader(shared.app, recording, self._recorded, PlaybackPosition(recording.times))
        self.fed = 0
        self.seeking: float | None = None
        self._next_word = 0.0

    @property
    def position(self) -> PlaybackPosition:
        """Where the playing is."""
        return self._loader.position

    @position.setter
    def position(self, position: PlaybackPosition) -> None:
        self._loader.position = position

    @property
    def sample(self) -> Sample:
        """What is to be shown at this place."""
        return self._recording.samples[self.position.count - 1]

    # --- going on ------------------------------------------------------------------------------------------------

    def begin(self) -> Sample:
        """Play; the first sample, which the state has taken."""
        first = self._recording.samples[0]
        self.fed = 1
        self._state.take(first)
        self._recorded.remember(self._state.history, first.taken_at)
        self._shared.app.set_interval(min(TICK, self._shared.interval), self.tick)
        return first

    def tick(self) -> None:
        """Go on as far as the clock did."""
        played, more = self.position.playing, self._loader.read_on()
        self.position.advance()
        self._follow()
        if played or more:
            self._shared.redraw.soon()

    def take_presets(self, presets: tuple[PresetFile, ...]) -> None:
        """Today's presets are known."""
        self._recorded.take_presets(presets)

    def _follow(self) -> None:
        """Bring the state to where the playing is."""
        if self.seeking is not None:
            return
        wanted = self.position.count
        if wanted < self.fed:
            self._go_through(History(), 0, wanted, quiet=True)
        elif wanted > self.fed:
            self._go_through(self._state.history, self.fed, wanted, quiet=wanted - self.fed > QUIET)

    def _go_through(self, history: History, place: int, wanted: int, *, quiet: bool) -> None:
        """Let `history` have the samples from `place` up to before the wanted one, a slice at a time."""
        samples = self._recording.samples
        until = time.monotonic() + SLICE
        while place < wanted - 1:
            history.add(samples[place])
            self._recorded.remember(history, samples[place].taken_at)
            place += 1
            if time.monotonic() > until and place < wanted - 1:
                first, self.seeking = self.seeking is None, place / wanted
                if first or until > self._next_word:
                    self._next_word = until + WORD_EVERY
                    self._shared.redraw.now()
                self._shared.app.set_timer(0.001, partial(self._go_through, history, place, wanted, quiet=quiet))
                return
        self.seeking = None
        self._arrive(history, wanted, quiet=quiet)

    def _arrive(self, history: History, wanted: int, *, quiet: bool) -> None:
        sample = self._recording.samples[wanted - 1]
        self.fed = wanted
        self._state.history = history
        self._recorded.expect(sample.taken_at)
        self._state.take(sample)
        self._recorded.remember(history, sample.taken_at)
        if quiet:
            self._alerts.forget()
            self._alerts.find(sample)
        else:
            self._alerts.on_sample(sample)
        self._shared.redraw.soon()
        self._follow()

    # --- the line above the keys ---------------------------------------------------------------------------------

    def draw_bar(self, screen: ViewScreen, palette: Palette) -> None:
        """Say where in the recording the screen is."""
        bar = next(iter(screen.query(ReplayBar)), None)
        if bar is None and screen.query("KeyBar"):
            bar = ReplayBar(self._seek_fraction, self.toggle)
            screen.mount(bar, before="KeyBar")
        if bar is not None:
            bar.take(self._status(screen.view.panel), palette)

    def _status(self, panel: Panel | None) -> ReplayPosition:
        position = self.position
        return ReplayPosition(
            started=position.start,
            ended=position.end,
            at=position.position,
            speed=position.speed,
            playing=position.playing,
            seeking=self.seeking,
            reading=self._loader.reading,
            prediction=self._recorded.origin(panel),
        )

    # --- keys and mouse ------------------------------------------------------------------------------------------

    def toggle(self) -> None:
        """Play or hold."""
        self.position.toggle()
        self.moved()

    def step(self, samples: int) -> None:
        """Hold, so many samples on or back."""
        self.position.step(samples)
        self.moved()

    def skip(self, seconds: int) -> None:
        """So many seconds on or back."""
        self.position.seek(self.position.position + seconds)
        self.moved()

    def faster(self, direction: int) -> None:
        """Faster or slower."""
        self.position.faster(direction)
        self._shared.redraw.now()

    def move(self, name: str, by: int) -> None:
        """One of `step`, `skip` and `faster`, as keys name them."""
        {"step": self.step, "skip": self.skip, "faster": self.faster}[name](by)

    def seek(self, text: str) -> str:
        """Go to what a person typed; returns why that cannot be, or nothing."""
        problem = self._loader.seek(text)
        if not problem:
            self.moved()
        return problem

    async def ask_where(self) -> None:
        """Ask where to go."""
        from vramtui.app.replay.seek_bar import SeekBar  # noqa: PLC0415 - loads Input, not needed for the first paint

        screen = self._shared.screens.current
        if screen is not None and not screen.query(SeekBar):
            bar = SeekBar(self.seek)
            # Waited for, so that what is typed at once arrives there.
            await screen.mount(bar, before="ReplayBar")
            screen.set_focus(bar)

    def _seek_fraction(self, fraction: float) -> None:
        """The bar was clicked."""
        position = self.position
        position.seek(position.start + (position.end - position.start) * fraction)
        self.moved()

    def moved(self) -> None:
        """The playing is somewhere else."""
        self._follow()
        self._shared.redraw.now()
