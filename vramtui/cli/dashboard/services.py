"""The dashboard's services: writers of settings, recordings and snapshots, past runs, dry runs, signals."""

import re
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.app.services import Services
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.common.paths import config_dir, data_dir, run_history
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.common.settings import folder_of
from vramtui.cli.dashboard.past_runs import past_runs
from vramtui.cli.dashboard.tracer import DashboardDryRuns
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import CONFIG, Settings, SnapshotSettings
from vramtui.models.named_files import path_named
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.predictor import LazyDefault, Refiner
from vramtui.monitor.writers import HistoryRunWriter

if TYPE_CHECKING:
    from vramtui.core.observation.signals import Signaller
    from vramtui.monitor.fleet import Fleet
    from vramtui.records.recording.writer import RecordingWriter

TRIES = 100  # names that may be taken already


def begin_recording(folder: Path, first: Sample, interval: float) -> "RecordingWriter":
    """Begin a recording `vramtui-HOST-YYYYmmdd-HHMMSS.jsonl.gz` in a folder, which is made if it does not exist."""
    from vramtui.cli.common.versions import versions
    from vramtui.records.recording.decoder import RecordingHeader
    from vramtui.records.recording.writer import RecordingWriter

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        place = printable(str(folder))
        raise UserError(f"the folder for recordings, {place}, cannot be used: {os_reason(error)}") from None
    host = re.sub(r"[^A-Za-z0-9._-]+", "-", first.host.name).strip(".-")[:64] or "host"
    stem = f"vramtui-{host}-{time.strftime('%Y%m%d-%H%M%S', time.localtime(first.taken_at))}"
    names = (stem, *(f"{stem}-{number}" for number in range(2, TRIES)))
    free = (path for name in names if not (path := folder / f"{name}.jsonl.gz").exists())
    header = RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
    return RecordingWriter(next(free, folder / f"{stem}.jsonl.gz"), header)


class SnapshotSaver:
    """Writes snapshots as the settings say, and takes other settings.

    Args:
        settings: what holds at first.
        config: the settings file, in which choices are kept.
    """

    def __init__(self, settings: SnapshotSettings, config: Path) -> None:
        self.settings = settings
        self._config = config

    def __call__(self, snapshot: Snapshot, picture: str) -> list[str]:
        """Write a snapshot and its picture; the paths of what was written."""
        from vramtui.cli.common.versions import versions
        from vramtui.records.export.files import save_snapshot

        whole = msgspec.structs.replace(snapshot, versions=versions(snapshot.sample))
        return [str(path) for path in save_snapshot(whole, folder_of(self.settings), self.settings.formats, picture)]

    def keep(self, values: Mapping[str, object]) -> None:
        """Set values in the settings file by their dotted keys; None takes a key away."""
        from vramtui.presets.settings import write_settings

        write_settings(self._config, values)

    def choose(self, settings: SnapshotSettings) -> None:
        """Save like this from now on, also in later starts."""
        self.settings = settings
        self.keep({"snapshot.folder": settings.folder, "snapshot.formats": settings.formats})


FEED = "feed"  # whoever writes one keeps its runs
HINT = (
    "New here? p chooses a preset to predict, x explains it, 1 to 4 are the screens, ? lists all keys; Esc hides this."
)


def whole_services(
    opened: OpenedSource, settings: Settings, fleet: "Fleet | None", *, demo: bool, no_signals: bool
) -> Services:
    """The dashboard's services. Nothing is kept of a recording and of the demo, and only the runs of other hosts."""
    saver = SnapshotSaver(settings.snapshot, config_dir() / CONFIG)
    folder = path_named(settings.recording.folder) if settings.recording.folder else data_dir() / "recordings"
    is_real = opened.is_real
    probes = ProbeClient("dashboard")
    signaller, refusal = signaller_for(
        opened, no_signals=no_signals or settings.dashboard.no_signals, from_command_line=no_signals
    )
    return Services(
        tracer=DashboardDryRuns(),
        card_runner=DashboardDryRuns(),
        save=saver,
        snapshots=saver,
        keep_settings=saver.keep,
        signaller=signaller,
        no_signals=refusal,
        runs=past_runs(saver, demo=demo, made_up=opened.recording is None and bool(opened.banner)),
        recorder=partial(begin_recording, folder) if opened.recording is None else None,
        run_writer=HistoryRunWriter(run_history)
        if is_real or (opened.elsewhere and opened.source.name != FEED)
        else None,
        jobs=probes.jobs if is_real else opened.jobs,
        leave=probes.vanish,
        derived=DerivedPresets() if is_real else None,
        peaks=opened.peaks,
        refiner=Refiner(LazyDefault),
        fleet=fleet,
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
    """The sender of signals, or None and the sentence that says why there is none."""
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
