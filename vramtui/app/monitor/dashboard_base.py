"""The dashboard: takes what the poller posts, lets the desk make a View of it, and hands that to the screen."""

import time
from collections.abc import Callable

import msgspec
from textual.screen import Screen

from vramtui.app import messages
from vramtui.app.monitor.presets import Presets
from vramtui.app.redraw import RedrawThrottle
from vramtui.app.timeline.trace_jobs import TraceJobs
from vramtui.app.timeline.tracer import Tracer
from vramtui.app.ui.background import Save, read_aside, save_aside
from vramtui.app.watch.alerts import say
from vramtui.app.watch.dashboard_state import DashboardState
from vramtui.app.watch.screen import Watch
from vramtui.core.base.errors import SourceFailed
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.observation.alerts import Alerts
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import Source
from vramtui.core.schema.settings import Settings
from vramtui.monitor.poller import Poller, ReadResult
from vramtui.monitor.predictor import Predictor

# Waiting this long for the first answer is quicker than to draw an empty screen and then another one.
HEAD_START = 0.12


class DashboardBase(RedrawThrottle):
    """A dashboard without keys: everything that happens by itself.

    Args:
        source: what is watched.
        presets: where presets come from; they are read after the first paint, on a thread of their own.
        interval: seconds between reads.
        banner: a sentence shown above everything.
        preset: the preset in the estimate panel from the beginning.
        save: writes a snapshot and its picture (SVG) to files and returns their paths; raises UserError.
        now: seconds that only staleness and drawing look at; tests freeze it.
        estimator: what predicts; the analytic one by default.
        tracer: what traces a preset where a person asks for it.
        settings: the person's; theme, keys and alerts are taken from them.

    Raises:
        UserError: there is no such preset.
    """

    def __init__(
        self,
        source: Source,
        presets: Presets,
        *,
        interval: float = 1.0,
        banner: str | None = None,
        preset: str | None = None,
        save: Save | None = None,
        now: Callable[[], float] = time.time,
        estimator: Estimator | None = None,
        settings: Settings | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        super().__init__(settings or Settings(), now)
        self.traces = TraceJobs(tracer, self.post_message)
        self.desk = DashboardState(Predictor(estimator, traced=self.traces.estimate))
        self.leave: Callable[[int], None] | None = None
        self._source = source
        self._library = presets
        self._interval = interval
        self._banner = banner or ""
        self._save = save
        self._alerts = Alerts(self.settings.alerts)
        self._failure = self._failed = ""
        self._notes: tuple[str, ...] = ()
        self._answered_at: float | None = None
        self._stuck = False
        self._reading_presets = False
        self.poller = Poller(source, interval, self.post_read)
        if preset is not None:
            found = presets.get(preset)
            self.desk.add_preset(found)
            self.desk.panel_key = found.key

    # --- life ----------------------------------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        """Watch is the first screen there is."""
        return Watch()

    def on_load(self) -> None:
        """Ask the source while the screen is being put together."""
        self.start_reading()

    def on_mount(self) -> None:
        """Follow the theme, look at the clock now and then, and draw what the source has said by now."""
        self.follow_theme()
        self.set_keymap(self.settings.keys)
        self.set_interval(1.0, self._look_at_clock)
        first = self.poller.first_answer(HEAD_START) if self.poller.is_alive() else None
        if isinstance(first, Sample):
            self.desk.take(first)
        self.draw()

    def start_reading(self) -> None:
        """Let the poller run."""
        self.poller.start()

    def stop_reading(self) -> None:
        """Stop the poller without waiting for it."""
        self.poller.stop()

    @property
    def is_busy(self) -> bool:
        """Whether work runs in the background that the screen waits for."""
        return False

    @property
    def watch_screen(self) -> Watch | None:
        """The Watch screen, whatever lies on top of it."""
        return next((screen for screen in self.screen_stack if isinstance(screen, Watch)), None)

    def post_read(self, result: ReadResult) -> None:
        """Post what came of a read; from any thread."""
        if isinstance(result, Sample):
            self.post_message(messages.SampleTaken(result))
        elif isinstance(result, SourceFailed):
            self.post_message(messages.ReadFailed(result.message, result.hint))
        else:
            self.post_message(messages.SourceStuck(result.asked_at))

    # --- from the threads ----------------------------------------------------------------------------------------

    def on_sample_taken(self, message: messages.SampleTaken) -> None:
        """The history takes every sample; the screen at most two a second."""
        try:
            self.desk.take(message.sample)
            alerts = self._alerts.update(message.sample, self.desk.history, self.desk.predictions())
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            # The next one may be in order again; until then what is shown is as old as the one before.
            self.on_read_failed(messages.ReadFailed(f"a reading cannot be used: {error}"))
            return
        say(self, alerts, self.settings.alerts)
        self._answered_at = self._now()
        self._stuck = False
        self._failure = self._failed = ""
        self.draw_soon()
        if not self._reading_presets:
            self._reading_presets = True
            self.call_after_refresh(read_aside, self._library, self.post_message)

    def on_source_stuck(self, message: messages.SourceStuck) -> None:
        """Show the data's age; everything else continues."""
        del message
        if self._answered_at is None:
            self._failure = "waiting for the driver to answer"
        self._stuck = True
        self._grow_old()

    def on_read_failed(self, message: messages.ReadFailed) -> None:
        """Show the source's own sentence."""
        self._failure = " ".join(filter(None, (message.message, message.hint)))
        self._failed = message.message
        self._grow_old()

    def _grow_old(self) -> None:
        """Nothing new is known: everything that is shown says how old it is."""
        self.desk.age(self._now(), self._failed or "no answer")
        self.draw()

    def on_presets_read(self, message: messages.PresetsRead) -> None:
        """From now on processes are matched."""
        self.desk.take_presets(message.presets)
        self._notes = message.problems
        self.draw()

    def on_snapshot_saved(self, message: messages.SnapshotSaved) -> None:
        """Say where it is."""
        if message.problem:
            self.notify(message.problem, title="Snapshot", severity="error", markup=False)
        else:
            self.notify("\n".join(message.paths), title="Snapshot written", markup=False)

    def save_snapshot(self) -> None:
        """Save a snapshot to files."""
        snapshot = self.desk.snapshot()
        if self._save is None or snapshot is None:
            self.notify("Nothing to save yet." if self._save else "Saving is not available here.", markup=False)
            return
        save_aside(self._save, snapshot, self.picture(), self.post_message)

    def picture(self) -> str:
        """The screen as SVG."""
        host = self.desk.sample.host.name if self.desk.sample is not None else ""
        return self.export_screenshot(title=f"vramtui · {host}" if host else "vramtui")

    # --- drawing -------------------------------------------------------------------------------------------------

    def _look_at_clock(self) -> None:
        self.poller.check()
        if self._failed:
            self._grow_old()

    def draw(self) -> None:
        """Make a View of everything known and show it."""
        self._drawing_due = self._key_due = False
        screen = self.place
        if screen is None or self.palette is None:
            return
        view = msgspec.structs.replace(
            self.desk.view(),
            banner=self._banner,
            failure=self._failure,
            notes=self._notes,
            alerts=self._alerts.standing,
            interval=self._interval,
            stale=self._age(),
        )
        with self.together():
            screen.take(self.complete(view, screen.PLACE), self.palette)
        if view.sample is not None:
            self._drawn_at = self._now()

    def _age(self) -> float | None:
        if not (self._stuck or self._failed) or self._answered_at is None:
            return None
        return max(0.0, self._now() - self._answered_at)
