"""The dashboard's services: writers of settings, recordings and snapshots, past runs, dry runs, signals."""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.app.services import Services
from vramtui.cli.common.open_source import OpenedSource, ProbeClient
from vramtui.cli.common.settings import cache_dir, data_dir, folder_of, run_history, still_running, versions
from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import CONFIG, Settings, SnapshotSettings
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.traces import FinishedTrace
from vramtui.models.named_files import path_named
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.predictor import LazyDefault, Refiner
from vramtui.monitor.writers import HistoryRunWriter
from vramtui.presets import config_dir

if TYPE_CHECKING:
    from vramtui.app.plan.dialogs import CardRun
    from vramtui.core.observation.signals import Signaller
    from vramtui.core.runs.run import StoredRun
    from vramtui.dryrun.job_command import RunTools
    from vramtui.dryrun.result import JobCommand, Progress
    from vramtui.dryrun.traces import FinishedTrace, JobTrace
    from vramtui.monitor.fleet import Fleet
    from vramtui.records.recording.files import RecordingWriter
    from vramtui.records.run_history import RunHistory


TRIES = 100  # names that may be taken already


def begin_recording(folder: Path, first: Sample, interval: float) -> "RecordingWriter":
    """Begin a recording `vramtui-HOST-YYYYmmdd-HHMMSS.jsonl.gz` in a folder, which is made if it does not exist."""
    from vramtui.records.export.files import file_stem
    from vramtui.records.recording.files import RecordingHeader, RecordingWriter

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        place = printable(str(folder))
        raise UserError(f"the folder for recordings, {place}, cannot be used: {os_reason(error)}") from None
    stem = file_stem(first.host.name, first.taken_at)
    names = (stem, *(f"{stem}-{number}" for number in range(2, TRIES)))
    free = (path for name in names if not (path := folder / f"{name}.jsonl.gz").exists())
    header = RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
    return RecordingWriter(next(free, folder / f"{stem}.jsonl.gz"), header)


class SnapshotSaver:
    """Writes snapshots as the settings say, and keeps other settings in the file `config`."""

    def __init__(self, settings: SnapshotSettings, config: Path) -> None:
        self.settings = settings
        self._config = config

    def __call__(self, snapshot: Snapshot, picture: str) -> list[str]:
        """Write a snapshot and its picture; the paths of what was written."""
        from vramtui.records.export.files import save_snapshot

        whole = msgspec.structs.replace(snapshot, versions=versions(snapshot.sample))
        return [str(path) for path in save_snapshot(whole, folder_of(self.settings), self.settings.formats, picture)]

    def report(self, stored: "StoredRun") -> list[str]:
        """Write a past run where snapshots are written; the paths of its files."""
        from vramtui.records.export.files import save_run

        return [str(path) for path in save_run(stored, folder_of(self.settings), self.settings.formats)]

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
    if is_real:
        from vramtui.sources.host.processes import environment_of
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
        environment=environment_of if is_real else None,
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
        return ""  # it would be said again at every start
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


MOST = 10_000
DEMO_HOST = "demo-gpu01"


def past_runs(saver: SnapshotSaver, *, demo: bool, made_up: bool) -> "PastRuns | DemoPast":
    """The history's, or those that the demo makes up."""
    if demo or (made_up and not run_history().path.exists()):
        return DemoPast(time.time(), saver)
    return PastRuns(run_history, saver)


def _file_stamp(path: Path) -> tuple[int, int] | None:
    """The time of a file's last write, and its size; None without a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


class PastRuns:
    """Finished runs, read from the history file; the `saver` of snapshots writes their reports."""

    note = ""

    def __init__(self, open_history: "Callable[[], RunHistory]", saver: SnapshotSaver) -> None:
        self._open_history = open_history
        self.report = saver.report

    def stamp(self) -> object:
        """Size and time of the database's files; they change with every write."""
        path = self._open_history().path
        return [_file_stamp(path), _file_stamp(path.with_name(f"{path.name}-wal"))]

    def runs(self) -> "tuple[StoredRun, ...]":
        return still_running(self._open_history().runs(limit=MOST))

    def forget(self, number: int) -> None:
        if not self._open_history().forget(number):
            raise UserError(f"run {number} is not in the history any more")


class DemoPast:
    """The demo's runs until `now` (seconds since the epoch): made anew at every start, and never written down."""

    note = "the demo's, not real"

    def __init__(self, now: float, saver: SnapshotSaver) -> None:
        self._now = now
        self.report = saver.report
        self._runs: tuple[StoredRun, ...] | None = None

    def stamp(self) -> object:
        return len(self.runs())

    def runs(self) -> "tuple[StoredRun, ...]":
        """A fortnight of somebody's work."""
        if self._runs is None:
            from vramtui.cli.common.demo_jobs import demo_runs

            self._runs = demo_runs(self._now, DEMO_HOST)
        return self._runs

    def forget(self, number: int) -> None:
        """Remove one until the next start."""
        self._runs = tuple(stored for stored in self.runs() if stored.id != number)


class DashboardDryRuns:
    """Makes dry runs for the dashboard; torch stays in their processes."""

    def __init__(self) -> None:
        self._refusals: dict[Workload, str] = {}

    def refusal(self, workload: Workload) -> str:
        """Why the workload's code cannot run, empty if it can. Timeline asks for each picture; each is tried once."""
        from vramtui.dryrun.estimate import request_of

        if workload not in self._refusals:
            self._refusals[workload] = ""
            try:
                request_of(workload, Device(name="any", capability=(9, 0), total_memory=1))
            except UserError as error:
                self._refusals[workload] = str(error)
        return self._refusals[workload]

    def trace(
        self, workload: Workload, device: Device, progress: "Callable[[Progress], None]", cancel: threading.Event
    ) -> "FinishedTrace | None":
        """Run the code that a preset names on fake tensors, on a GPU that has all the memory one could ask for."""
        from vramtui.dryrun.child import CancelledError
        from vramtui.dryrun.estimate import NO_LIMIT, STEPS, estimate_of, request_of
        from vramtui.dryrun.fake.run import trace

        request = request_of(workload, msgspec.structs.replace(device, total_memory=NO_LIMIT))
        try:
            result = trace(msgspec.structs.replace(request, steps=STEPS), progress=progress, cancel=cancel)
        except CancelledError:
            return None
        return FinishedTrace(estimate_of(result, workload), result)

    def command_of(self, pid: int, command: str) -> "JobCommand":
        from vramtui.dryrun.job_command import command_of_process
        from vramtui.presets.importers.derived import place_of

        if place_of(pid, command) is None:
            raise UserError(f"pid {pid} is another user's, on another host, of the demo, or gone")
        return command_of_process(pid)

    def trace_job(
        self, command: "JobCommand", device: Device, progress: "Callable[[Progress], None]", cancel: threading.Event
    ) -> "JobTrace | None":
        """Make a dry run of a running job's command."""
        from vramtui.dryrun.child import CancelledError
        from vramtui.dryrun.command import dry_run_of

        try:
            return dry_run_of(command, device, _tools(progress, cancel))
        except CancelledError:
            return None

    def run(
        self, words: Sequence[str], job: "JobCommand | None", device: Device, cancel: threading.Event
    ) -> "CardRun | None":
        """Run a command on one GPU for Plan's table."""
        from vramtui.app.plan.dialogs import STEPS, CardRun
        from vramtui.dryrun.child import CancelledError
        from vramtui.dryrun.command import dry_run, engine_of, prepared
        from vramtui.dryrun.job_command import DryRunJob

        asked = prepared(
            DryRunJob(
                words=tuple(words),
                folder=os.getcwd() if job is None else job.folder,  # noqa: PTH109 - as the shell has it
                environment=dict(os.environ if job is None else job.environment),
                steps=STEPS,
            )
        )
        tools = _tools(None, cancel)
        try:
            answer = dry_run(asked, (device, 1), engine_of(asked, tools)[0], tools)
        except CancelledError:
            return None
        result = answer.result
        return CardRun(
            card=device.name,
            allocated=None if result is None else result.peak_allocated,
            reserved=None if result is None else result.peak_reserved,
            process=None if result is None else result.fit.needs,
            memory=device.total_memory,
            verdict=f"failed: {answer.error}" if result is None else answer.verdict,
        )


def _tools(progress: "Callable[[Progress], None] | None", cancel: threading.Event) -> "RunTools":
    from vramtui.cli.run.placement import open_listener
    from vramtui.dryrun.job_command import RunTools

    return RunTools(open_listener, cache_dir(), progress, cancel)
