"""The features of the dashboard, and the order in which they take samples."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vramtui.app.context import AppContext, Feature, FeedStatus
from vramtui.app.editor.controller import EditorController
from vramtui.app.export.controller import ExportController
from vramtui.app.help.controller import HelpController
from vramtui.app.history.controller import HistoryController
from vramtui.app.keys import FLEET
from vramtui.app.live import AlertFeature, PresetReader, RecordingFeature, without_predicted
from vramtui.app.plan.controller import PlanController
from vramtui.app.services import Services
from vramtui.app.state.dashboard_state import reported_alone
from vramtui.app.state.view import View
from vramtui.app.timeline.trace_jobs import ProcessTracer, TraceJobs
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.app.watch.estimate_panel import MaxBatchTurns, PanelController
from vramtui.app.watch.screen import WatchQuestions
from vramtui.app.watch.signals import SignalController
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import Settings
from vramtui.monitor.jobs import Presets

if TYPE_CHECKING:
    from vramtui.app.fleet.screen import FleetController
    from vramtui.app.replay import ReplayController
    from vramtui.monitor.fleet import Fleet
    from vramtui.monitor.replay import Recorded


class Features:
    """All features; those `in_order` take samples and are closed with the dashboard. Each knows another only if it is
    passed in. `forget_frame` lets everything be drawn again.
    """

    __slots__ = (
        "_shared", "_view_only", "alerts", "editor", "export", "fleet", "help", "history", "in_order", "max_batch",
        "panel", "plan", "presets", "recording", "replay", "signals", "traces", "watch_questions",
    )  # fmt: skip

    def __init__(
        self,
        shared: AppContext,
        services: Services,
        traces: TraceJobs,
        *,
        settings: Settings,
        presets: Presets,
        forget_frame: Callable[[], None],
    ) -> None:
        self._shared = shared
        self.replay: ReplayController | None = None
        self.fleet: FleetController | None = None
        self.traces = traces
        self._view_only = services.view_only
        self.presets = PresetReader(shared, presets)
        self.alerts = AlertFeature(shared, settings.alerts)
        if services.view_only:
            self.alerts.mute()  # the program that collects the samples reports them
        self.recording = RecordingFeature(shared, services.recorder)
        self.max_batch = MaxBatchTurns(shared)
        self.panel = PanelController(shared)
        self.plan = PlanController(shared, services.card_runner)
        self.history = HistoryController(shared, services.runs)
        self.help = HelpController(shared)
        self.signals = SignalController(shared, services.signaller, services.no_signals)
        self.export = ExportController(shared, services.save, services.snapshots)
        self.watch_questions = WatchQuestions(self.export.choose, ProcessTracer(shared, traces).ask)
        self.editor = EditorController(shared, presets, forget_frame)
        # Alerts come before anything is written. Our own threads end first; writes to a disk, which may take a second,
        # end last.
        first: tuple[Feature, ...] = (self.plan, self.history, self.traces, self.max_batch)
        self.in_order = (*first, self.alerts, self.presets, self.recording)

    @property
    def screens(self) -> Mapping[str, Callable[[], ViewScreen]]:

        def timeline() -> ViewScreen:
            from vramtui.app.timeline.screen import TimelineScreen

            return TimelineScreen(self._shared, self.traces)

        fleet = {} if self.fleet is None else {FLEET.name: self.fleet.screen}
        return {"plan": self.plan.screen, "timeline": timeline, "history": self.history.screen, **fleet}

    def play(self, recording: "Recorded", clock: Callable[[], float]) -> "ReplayController":
        from vramtui.app.replay import ReplayController  # only where a recording is played

        self.alerts.mute()
        self.replay = ReplayController(self._shared, recording, clock)
        # The next sample may come once all the others have taken this one.
        self.in_order = (*self.in_order, self.replay)
        return self.replay

    def watch_fleet(self, fleet: "Fleet", feed: FeedStatus) -> None:
        """Watch several hosts; the source is the current one's."""
        from vramtui.app.fleet.screen import FleetController  # only where there are several hosts

        self.fleet = FleetController(self._shared, fleet, feed)
        self.in_order = (*self.in_order, self.fleet)
        self._shared.screens.makers = self.screens

    def take_library(self, presets: Presets) -> None:
        if self.replay is not None:
            self.replay.feed.take_library(presets)
        if self.fleet is not None:
            self.fleet.take_library(presets)

    def completed(self, view: View, feed: FeedStatus) -> View:
        """Return `view` with the state of the source and of the features, which follow the view."""
        self.max_batch.follow(view.panel)
        session = self._shared.state.session
        if not feed.stuck:
            session.select(self._shared.state.selected_process)
        return msgspec.structs.replace(
            view,
            reported=reported_alone(session.jobs, view.chosen),
            banner=feed.banner,
            asked=feed.asked,
            down=self.fleet.down if self.fleet is not None else (),
            failure=feed.failure,
            notes=feed.notes,
            interval=feed.interval,
            stale=feed.age,
            late=self.late(feed),
            alerts=without_predicted(session.alerts, is_monitor=view.is_monitor),
            recording=self.recording.status(),
            history_error=session.run_writer.problem if session.run_writer else "",
            has_fleet=self.fleet is not None,
            view_only=self._view_only,
        )

    def late(self, feed: FeedStatus) -> float | None:
        """Return the time if an answer is late; None for a recording, or while paused."""
        return None if self.replay is not None or self._shared.state.paused else feed.late

    def on_sample(self, sample: Sample) -> None:
        for feature in self.in_order:
            feature.on_sample(sample)

    @property
    def busy(self) -> bool:
        return any(feature.busy for feature in self.in_order)

    def close(self) -> None:
        """Stop all work; wait only for what is being written to a disk."""
        for feature in self.in_order:
            feature.close()
