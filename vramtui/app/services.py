"""What the dashboard uses of the outside world, handed in once by whoever starts it."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vramtui.core.observation.source import Source
from vramtui.core.schema.settings import Settings
from vramtui.dryrun.traces import Traces
from vramtui.monitor.fast_sampler import fast_interval, fast_sampler_for
from vramtui.monitor.job_reports import no_jobs
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession

if TYPE_CHECKING:
    from vramtui.app.export.controller import Save, SnapshotWriter
    from vramtui.app.history.model import RunStore
    from vramtui.app.plan.each_card import CardRunner
    from vramtui.app.timeline.trace_jobs import Tracer
    from vramtui.core.estimate.estimate import Estimator
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.signals import Signaller
    from vramtui.core.schema.preset import PresetFile
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.fast_sampler import FastSampler
    from vramtui.monitor.fleet import Fleet
    from vramtui.monitor.predictor import Refiner
    from vramtui.monitor.session import RecordedPeaks
    from vramtui.monitor.writers import RecordingFactory, RunWriter


@dataclass(frozen=True)
class Services:
    """Each may be missing: then the dashboard says so where somebody asks for it.

    Attributes:
        tracer: traces a preset where a person asks for it.
        card_runner: runs a command on emulated cards where a person asks for it.
        save: writes a snapshot and its picture (SVG) to files and returns their paths; raises UserError.
        snapshots: the choice of formats and folder of snapshots.
        signaller: sends signals; `no_signals` is the sentence that says why there is none.
        runs: past runs.
        recorder: begins recordings.
        run_writer: writes runs into the history.
        sampler: looks at processes between samples, in place of one for the source.
        jobs: what jobs report of themselves now.
        leave: puts away what this process has made for others; takes no time.
        derived: finds presets for processes that none matches.
        fleet: several hosts, of which the source is the current one; None where there is one.
        view_only: nothing may be signalled, traced, edited or written, whatever else is here.
        keep_settings: sets values in the settings file, by their dotted keys; raises UserError where it cannot.
        peaks: peaks up to a time that no sample shows, as another host tells them.
        refiner: simulates the cached memory of what is looked at, beside the screen.
    """

    tracer: "Tracer | None" = None
    card_runner: "CardRunner | None" = None
    save: "Save | None" = None
    snapshots: "SnapshotWriter | None" = None
    signaller: "Signaller | None" = None
    no_signals: str = "Signals are not available here."
    runs: "RunStore | None" = None
    recorder: "RecordingFactory | None" = None
    run_writer: "RunWriter | None" = None
    sampler: "FastSampler | None" = None
    leave: Callable[[], None] | None = None
    jobs: "Callable[[], Sequence[ObservedJob]] | None" = None
    derived: "DerivedPresets | None" = None
    peaks: "RecordedPeaks | None" = None
    fleet: "Fleet | None" = None
    view_only: bool = False
    keep_settings: Callable[[Mapping[str, object]], None] | None = None
    refiner: "Refiner | None" = None

    def predictor(
        self, estimator: "Estimator | None", traces: Traces, tell: Callable[[], object]
    ) -> Callable[[], Predictor]:
        """Makes what answers for one host; `tell` is called on a thread when an answer has become nearer."""
        if self.refiner is not None:
            self.refiner.tell = tell
        return lambda: Predictor(estimator, traces=traces, refiner=self.refiner)


@dataclass(frozen=True, kw_only=True)
class StartOptions:
    """How the dashboard begins.

    Attributes:
        banner: a sentence shown above everything.
        preset: the preset in the estimate panel from the beginning.
        now: seconds that only staleness and drawing look at; tests freeze it.
        estimator: what predicts; the analytic one by default.
        settings: the person's; theme, keys and alerts are taken from them.
        hint: a line for somebody who is here for the first time.
    """

    banner: str | None = None
    preset: "PresetFile | None" = None
    now: Callable[[], float] = time.time
    estimator: "Estimator | None" = None
    settings: Settings = field(default_factory=Settings)
    hint: str = ""


def session_of(
    source: Source, services: Services, predictor: Callable[[], Predictor], settings: Settings, interval: float
) -> MonitorSession:
    """What is known of the host that `source` shows; of several, that of the current one.

    Args:
        source: what is read.
        services: what the dashboard works with.
        predictor: makes what predicts.
        settings: for alerts.
        interval: seconds between samples.
    """
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
        sampler=services.sampler or fast_sampler_for(source, "matched", fast_interval(interval)),
        alert_rules=settings.alerts,
        run_writer=services.run_writer,
        derived=services.derived,
    )
    session.recorded_peaks = services.peaks
    return session
