"""The dashboard's access to the outside world, passed in at the start."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vramtui.core.observation.readings import Source
from vramtui.core.schema.settings import Settings
from vramtui.dryrun.traces import Traces
from vramtui.monitor.jobs import no_jobs
from vramtui.monitor.poller import fast_sampler_for
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession

if TYPE_CHECKING:
    from vramtui.app.export.controller import Save, SnapshotWriter
    from vramtui.app.history.screen import RunStore
    from vramtui.app.plan.dialogs import CardRunner
    from vramtui.app.timeline.trace_jobs import Tracer
    from vramtui.core.estimate.estimate import Estimator
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.signals import Signaller
    from vramtui.core.schema.preset import PresetFile
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.fleet import Fleet
    from vramtui.monitor.poller import FastSampler
    from vramtui.monitor.predictor import Refiner
    from vramtui.monitor.session import RecordedPeaks
    from vramtui.monitor.writers import HistoryRunWriter, RecordingFactory


@dataclass(frozen=True)
class Services:
    """Each may be missing: then the dashboard says so when the user asks for it.

    Attributes:
        save: writes a snapshot and its picture (SVG) to files and returns their paths; raises UserError.
        sampler: samples processes between samples, instead of one for the source.
        leave: removes what this process has made for others; takes no time.
        fleet: several hosts, with the source as the current one; None for one host.
        view_only: nothing may be signalled, traced, edited or written, whatever else is set.
        keep_settings: sets values in the settings file, by their dotted keys; raises UserError if it cannot.
        peaks: another host's peaks by time that no sample shows.
        environment: reads the environment of a process of this user, by pid and start; empty for others'.
        refiner: simulates the cached memory of the selected job in the background.
    """

    tracer: "Tracer | None" = None
    card_runner: "CardRunner | None" = None
    save: "Save | None" = None
    snapshots: "SnapshotWriter | None" = None
    signaller: "Signaller | None" = None
    no_signals: str = "Signals are not available here."
    runs: "RunStore | None" = None
    recorder: "RecordingFactory | None" = None
    run_writer: "HistoryRunWriter | None" = None
    sampler: "FastSampler | None" = None
    leave: Callable[[], None] | None = None
    jobs: "Callable[[], Sequence[ObservedJob]] | None" = None
    derived: "DerivedPresets | None" = None
    peaks: "RecordedPeaks | None" = None
    fleet: "Fleet | None" = None
    view_only: bool = False
    keep_settings: Callable[[Mapping[str, object]], None] | None = None
    refiner: "Refiner | None" = None
    environment: Callable[[int, float | None], Mapping[str, str]] | None = None

    def predictor(
        self, estimator: "Estimator | None", traces: Traces, tell: Callable[[], object]
    ) -> Callable[[], Predictor]:
        """Return the maker of one host's predictor; `tell` is called on a thread after each nearer answer."""
        if self.refiner is not None:
            self.refiner.tell = tell
        return lambda: Predictor(estimator, traces=traces, refiner=self.refiner)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """A sentence above everything, the panel's first preset, a clock in seconds (for tests), a line for new users."""

    banner: str | None = None
    preset: "PresetFile | None" = None
    now: Callable[[], float] = time.time
    estimator: "Estimator | None" = None
    settings: Settings = field(default_factory=Settings)
    hint: str = ""


def session_of(
    source: Source, services: Services, predictor: Callable[[], Predictor], settings: Settings, interval: float
) -> MonitorSession:
    """Return the session of the host that `source` shows; of several, that of the current one."""
    if services.fleet is not None:
        shared = replace(services, fleet=None)
        return services.fleet.begin(
            lambda host: session_of(
                host.source, replace(shared, jobs=host.jobs, peaks=host.peaks), predictor, settings, interval
            )
        )
    session = MonitorSession(
        predictor=predictor(),
        jobs=services.jobs or no_jobs,
        sampler=services.sampler or fast_sampler_for(source, "matched", interval),
        alert_rules=settings.alerts,
        run_writer=services.run_writer,
        derived=services.derived,
    )
    session.recorded_peaks = services.peaks
    return session
