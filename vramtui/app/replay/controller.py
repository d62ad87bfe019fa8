"""Playing a recording in the dashboard: hold, step, seek, faster. What is shown is always as it was at that time."""

import time
from functools import partial

import msgspec
from textual.binding import BindingsMap

from vramtui.app import messages
from vramtui.app.keys import REPLAY_BINDINGS
from vramtui.app.monitor.memory import SampleHistory
from vramtui.app.replay.loader import ReplayLoader
from vramtui.app.replay.position import PlaybackPosition
from vramtui.app.replay.recorded_data import Recorded
from vramtui.app.replay.replay_bar import ReplayBar
from vramtui.app.state import ReplayPosition, View
from vramtui.app.watch.alerts import say
from vramtui.core.observation.alerts import Alerts

KEYS = "space play · , . step · g go to · ( ) speed"
TICK = 0.25
SLICE = 0.02  # seconds at a time that samples are gone through without a look at keys and screen
WORD_EVERY = 0.2  # seconds between two words on how far a long way is gone
QUIET = 120  # samples gone through at once from which alerts on the way are not said any more


class ReplayController(ReplayLoader):
    """A dashboard that can be given a recording with `play`; without one it watches."""

    _fed = 0
    _seeking: float | None = None
    _next_word = 0.0

    def play(self, recorded: Recorded) -> None:
        """Show this recording in place of the source, from its start; before the app runs."""
        self.recall(recorded)
        self.playback = PlaybackPosition(recorded.times)
        self._banner = " · ".join(filter(None, (self._banner, KEYS)))
        self._bindings = BindingsMap.merge([BindingsMap(REPLAY_BINDINGS), self._bindings])
        # What was alarming then calls nobody now.
        rules = msgspec.structs.replace(self.settings.alerts, bell=False, notification=False, command=None)
        self.settings = msgspec.structs.replace(self.settings, alerts=rules)

    # --- going on ------------------------------------------------------------------------------------------------

    def start_reading(self) -> None:
        """Play, where there is something to play."""
        if self._recorded is None:
            super().start_reading()
            return
        first = self._recorded.samples[0]
        self._fed = 1
        self.desk.take(first)
        self.remember(self.desk.history, first.taken_at)
        self.post_message(messages.SampleTaken(first))
        self.set_interval(min(TICK, self._interval), self._tick)

    def _tick(self) -> None:
        if self.playback is None or self._recorded is None:
            return
        played, more = self.playback.playing, self.read_on()
        self.playback.advance()
        self._follow()
        if played or more:
            self.draw_soon()

    def _follow(self) -> None:
        """Bring the desk to where the playing is."""
        if self.playback is None or self._seeking is not None:
            return
        wanted = self.playback.count
        if wanted < self._fed:
            self._go_through(SampleHistory(), 0, wanted, quiet=True)
        elif wanted > self._fed:
            self._go_through(self.desk.history, self._fed, wanted, quiet=wanted - self._fed > QUIET)

    def _go_through(self, memory: SampleHistory, place: int, wanted: int, *, quiet: bool) -> None:
        """Let `memory` have the samples from `place` up to before the wanted one, a slice at a time."""
        if self._recorded is None:
            return
        samples = self._recorded.samples
        until = time.monotonic() + SLICE
        while place < wanted - 1:
            memory.add(samples[place])
            self.remember(memory, samples[place].taken_at)
            place += 1
            if time.monotonic() > until and place < wanted - 1:
                first, self._seeking = self._seeking is None, place / wanted
                if first or until > self._next_word:
                    self._next_word = until + WORD_EVERY
                    self.draw()
                self.set_timer(0.001, partial(self._go_through, memory, place, wanted, quiet=quiet))
                return
        self._seeking = None
        self._arrive(memory, wanted, quiet=quiet)

    def _arrive(self, memory: SampleHistory, wanted: int, *, quiet: bool) -> None:
        if self._recorded is None:
            return
        sample = self._recorded.samples[wanted - 1]
        self._fed = wanted
        self.desk.history = memory
        self.expect(sample.taken_at)
        self.desk.take(sample)
        self.remember(memory, sample.taken_at)
        if quiet:
            self._alerts = Alerts(self.settings.alerts)
        alerts = self._alerts.update(sample, self.desk.history, self.desk.predictions())
        if not quiet:
            say(self, alerts, self.settings.alerts)
        self.draw_soon()
        self._follow()

    # --- what is shown -------------------------------------------------------------------------------------------

    def complete(self, view: View, place: str) -> View:
        """With the replay's own line."""
        view = super().complete(view, place)
        return self._with_replay(view)

    def _with_replay(self, view: View) -> View:
        playback = self.playback
        if playback is None:
            return view
        return msgspec.structs.replace(
            view,
            replay=ReplayPosition(
                started=playback.start,
                ended=playback.end,
                at=playback.position,
                speed=playback.speed,
                playing=playback.playing,
                seeking=self._seeking,
                reading=self.reading,
                prediction=self.origin(view),
            ),
        )

    def draw(self) -> None:
        """Everything, with the replay's line above the keys; on the way to another place only that line."""
        screen = self.place
        if self._seeking is None or screen is None or screen.view.sample is None:
            super().draw()
        if self.playback is None or screen is None or self.palette is None:
            return
        bar = next(iter(screen.query(ReplayBar)), None)
        if bar is None and screen.query("KeyBar"):
            bar = ReplayBar()
            screen.mount(bar, before="KeyBar")
        if bar is not None:
            view = screen.view
            bar.take(view if self._seeking is None else self._with_replay(view), self.palette)

    # --- keys and mouse ------------------------------------------------------------------------------------------

    def action_replay_toggle(self) -> None:
        """Play or hold."""
        if self.playback is not None:
            self.playback.toggle()
            self.moved()

    def action_replay_step(self, samples: int) -> None:
        """Hold, so many samples on or back."""
        if self.playback is not None:
            self.playback.step(samples)
            self.moved()

    def action_replay_skip(self, seconds: int) -> None:
        """So many seconds on or back."""
        if self.playback is not None:
            self.playback.seek(self.playback.position + seconds)
            self.moved()

    def action_replay_speed(self, direction: int) -> None:
        """Faster or slower."""
        if self.playback is not None:
            self.playback.faster(direction)
            self.draw()

    async def action_replay_seek(self) -> None:
        """Ask where to go."""
        from vramtui.app.replay.seek_bar import SeekBar  # noqa: PLC0415 - loads Input, not needed for the first paint

        screen = self.place
        if self.playback is not None and screen is not None and not screen.query(SeekBar):
            bar = SeekBar(self.seek)
            # Waited for, so that what is typed at once arrives there.
            await screen.mount(bar, before="ReplayBar")
            screen.set_focus(bar)

    def on_replay_bar_sought(self, message: ReplayBar.Sought) -> None:
        """The bar was clicked."""
        if self.playback is not None:
            length = self.playback.end - self.playback.start
            self.playback.seek(self.playback.start + length * message.fraction)
            self.moved()

    def on_replay_bar_toggled(self) -> None:
        """The sign of playing was clicked."""
        self.action_replay_toggle()

    def moved(self) -> None:
        """The playing is somewhere else."""
        self._follow()
        self.draw()
