"""What the dashboard is handed of this machine: past runs, traces, signals, files; loaded behind the first frame."""

from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.app.services import Services
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.common.paths import config_dir, data_dir, run_history, trace_cache
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.dashboard.past_runs import past_runs, viewed_runs
from vramtui.cli.dashboard.tracer import ChildTracer
from vramtui.cli.dashboard.writers import FileRecorder, SnapshotSaver
from vramtui.core.schema.settings import CONFIG, Settings
from vramtui.models.named_files import path_named
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.predictor import LazyDefault
from vramtui.monitor.refiner import Refiner
from vramtui.monitor.run_writer import HistoryRunWriter

if TYPE_CHECKING:
    from vramtui.core.observation.signals import Signaller
    from vramtui.sources.feed.served import ServedFeed

FEED = "feed"  # whoever writes one keeps its runs
HINT = (
    "New here? p chooses a preset to predict, x explains it, 1 to 4 are the screens, ? lists all keys; Esc hides this."
)


def viewed_services(opened: OpenedSource, settings: Settings, feed: "ServedFeed | None") -> Services:
    """What a dashboard is handed that is only looked at: of this machine the past runs of those hosts alone."""
    from vramtui.app.view_only import NOTICE  # only where it is only looked at

    saver = SnapshotSaver(settings.snapshot, config_dir() / CONFIG)
    runs = viewed_runs(saver, feed.run_hosts) if feed is not None and feed.header.runs_of else None
    return Services(jobs=opened.jobs, peaks=opened.peaks, no_signals=NOTICE, view_only=True, runs=runs)


def whole_services(opened: OpenedSource, settings: Settings, *, demo: bool, no_signals: bool) -> Services:
    """What the dashboard is handed of this machine; of a recording and of the demo nothing is kept,
    of other hosts the runs.
    """
    saver = SnapshotSaver(settings.snapshot, config_dir() / CONFIG)
    folder = path_named(settings.recording.folder) if settings.recording.folder else data_dir() / "recordings"
    is_real = opened.is_real
    probes = ProbeClient("dashboard")
    signaller, refusal = signaller_for(
        opened, no_signals=no_signals or settings.dashboard.no_signals, from_command_line=no_signals
    )
    return Services(
        tracer=ChildTracer(trace_cache()),
        save=saver,
        snapshots=saver,
        keep_settings=saver.keep,
        signaller=signaller,
        no_signals=refusal,
        runs=past_runs(saver, demo=demo, made_up=opened.recording is None and bool(opened.banner)),
        recorder=FileRecorder(folder) if opened.recording is None else None,
        run_writer=HistoryRunWriter(run_history)
        if is_real or (opened.elsewhere and opened.source.name != FEED)
        else None,
        jobs=probes.jobs if is_real else opened.jobs,
        leave=probes.vanish,
        derived=DerivedPresets() if is_real else None,
        peaks=opened.peaks,
        refiner=Refiner(LazyDefault),
    )


def first_time_hint(marker: Path) -> str:
    """The hint for somebody who opens the dashboard for the first time; `marker` is the file that remembers it."""
    if marker.exists():
        return ""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError:
        # It would be said again at every start.
        return ""
    return HINT


def signaller_for(opened: OpenedSource, *, no_signals: bool, from_command_line: bool) -> "tuple[Signaller | None, str]":
    """What sends signals, or None and the sentence that says why nothing does.

    Args:
        opened: what the dashboard shows.
        no_signals: no signal is ever sent to a process.
        from_command_line: that was said on the command line, not in the settings.
    """
    if opened.recording is not None:
        return None, "No signals in a replay: its pids may belong to other processes now."
    if opened.banner:
        return None, "No signals from the demo: its processes are not real."
    if opened.elsewhere:
        return None, "No signals to another host: its pids are not those of this machine."
    if no_signals:
        where = "started with --no-signals" if from_command_line else "dashboard.no_signals is set in the settings"
        return None, f"Signals are off: {where}."
    from vramtui.sources.host.signals import Signals  # not where nothing is sent

    return Signals(), ""
