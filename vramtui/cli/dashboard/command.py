"""`vramtui` alone: the dashboard, and whether it may send signals."""

import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error, fail, require_open_files
from vramtui.cli.common.feed import STANDARD_INPUT, give_keys
from vramtui.cli.common.open_source import OpenedSource, open_source, with_gpus
from vramtui.cli.common.paths import config_dir, data_dir, run_history, trace_cache, welcome_marker
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.common.settings import settings_in_force
from vramtui.cli.dashboard.first_frame import FirstFrame
from vramtui.cli.dashboard.past_runs import past_runs, viewed_runs
from vramtui.cli.dashboard.tracer import ChildTracer
from vramtui.cli.dashboard.writers import FileRecorder, SnapshotSaver
from vramtui.cli.remote.hosts import OtherHosts, open_hosts
from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import CONFIG, Settings
from vramtui.models.named_files import path_named
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.job_presets import from_library
from vramtui.monitor.poller import Poller
from vramtui.monitor.predictor import LazyDefault
from vramtui.monitor.refiner import Refiner
from vramtui.monitor.run_writer import HistoryRunWriter

if TYPE_CHECKING:
    from vramtui.app.services import Services
    from vramtui.core.observation.signals import Signaller
    from vramtui.monitor.fleet import Fleet
    from vramtui.sources.feed.served import ServedFeed


# For those who develop with Textual: a module to load, a file to write, a name that is not looked for first.
TEXTUALS_OWN = "TEXTUAL"
FEED = "feed"  # whoever writes one keeps its runs
# The driver answers sooner; where it does not, Textual is loaded meanwhile and the first frame is Textual's own.
HEAD_START = 0.1
HINT = (
    "New here? p chooses a preset to predict, x explains it, 1 to 4 are the screens, ? lists all keys; Esc hides this."
)


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
    from vramtui.sources.host.signals import Signals

    return Signals(), ""


@dataclass(frozen=True, kw_only=True)
class DashboardOptions:
    """What the dashboard is opened on, and how.

    Attributes:
        remote: other machines.
        interval: seconds between samples; what the settings say where it is None.
        preset: the one to show first.
        only: some of the GPUs.
        served: the descriptor that a server's tab reads.
        monitor: only what is seen.
    """

    demo: bool = False
    replay: Path | None = None
    feed: str | None = None
    remote: OtherHosts | None = None
    interval: float | None = None
    preset: str | None = None
    no_signals: bool = False
    view_only: bool = False
    monitor: bool = False
    only: str | None = None
    served: int | None = None


def open_dashboard(options: DashboardOptions) -> None:
    """Open the dashboard on this machine's GPUs, the demo or a recording; never returns."""
    with exit_on_user_error():
        _open(options)


def _open(options: DashboardOptions) -> None:
    _check_terminal(options.feed)
    _prepare_process()
    settings = settings_in_force(
        {
            "interval": options.interval,
            "preset": options.preset,
            "no_signals": options.no_signals or None,
            "monitor": options.monitor or None,
        }
    )
    preset, pace = settings.dashboard.preset, settings.dashboard.interval
    opened, fleet, hosts_feed = _opened(options, pace)
    pace = pace if hosts_feed is None else hosts_feed.header.interval
    give_keys(options.feed)
    from vramtui.presets import PresetLibrary

    library = PresetLibrary()
    shown = from_library(preset) if preset is not None else None
    with FirstFrame(settings.dashboard.theme) as frame:
        poller = None if fleet is not None else _begun_poller(opened, pace, frame)
        with _without_ssl():
            from vramtui.app import Dashboard, run_dashboard  # Textual takes 150 ms to load

        _check_keys(settings)
        services = (
            _view_only_services(opened, settings, hosts_feed)
            if options.view_only
            else _services(opened, settings, demo=options.demo, no_signals=options.no_signals)
        )
        app = Dashboard(
            source=opened.source,
            presets=library,
            poller=poller,
            interval=pace,
            banner=opened.banner,
            preset=shown,
            settings=settings,
            services=replace(services, fleet=fleet),
            hint="" if options.view_only or settings.dashboard.monitor else first_time_hint(welcome_marker()),
        )
        if settings.dashboard.monitor:
            app.state.toggle_monitor()
        if opened.past is not None:
            app.session.backfill(opened.past)
        if opened.recording is not None:
            app.play(opened.recording)
    gc.freeze()
    gc.enable()
    frame.hand_over()
    sys.exit(run_dashboard(app, in_alternate_screen=frame.is_shown))


def _opened(options: DashboardOptions, pace: float) -> "tuple[OpenedSource, Fleet | None, ServedFeed | None]":
    """What is watched: a server's tab, other hosts, or a source of this machine's."""
    if options.served is not None:
        return _served(options.served)
    demo, replay, feed = options.demo, options.replay, options.feed
    if hosts := open_hosts(options.remote or OtherHosts(), pace, demo or replay or feed):
        return *_source_of({name: with_gpus(one, options.only) for name, one in hosts.items()}, pace), None
    opened = open_source(demo=demo, replay=replay, feed=feed, fall_back=True, at_once=True)
    return with_gpus(opened, options.only), None, None


def _prepare_process() -> None:
    gc.disable()  # What is loaded until the first paint is there to stay: going through it again and again takes 15 ms.
    for name in ("COLUMNS", "LINES"):
        # Left over from a shell or a build tool they would outrank the terminal's own size and its changes.
        os.environ.pop(name, None)


@contextmanager
def _without_ssl() -> Iterator[None]:
    """Keep asyncio from loading OpenSSL, 4.5 MB that no dashboard on this machine's GPUs has a use for; asyncio does
    without it where there is none. Whoever needs it later (Prometheus over https) loads it as ever.
    """
    if "ssl" in sys.modules:
        yield
        return
    sys.modules["ssl"] = None  # type: ignore[assignment]  # how Python is told that there is none
    try:
        yield
    finally:
        del sys.modules["ssl"]


def _begun_poller(opened: OpenedSource, interval: float, frame: FirstFrame) -> Poller | None:
    """Begin to read what is live, and show what comes at once; a recording is read by its replay."""
    if opened.recording is not None:
        return None
    poller = Poller(opened.source, interval)
    poller.start()
    first = poller.first_answer(HEAD_START)
    if isinstance(first, Sample):
        frame.show(first, opened.banner)
    return poller


def _check_terminal(feed: str | None) -> None:
    """See that a dashboard can be drawn and its files opened."""
    if not ((_is_terminal(sys.stdin) or feed == STANDARD_INPUT) and _is_terminal(sys.stdout)):
        fail(BAD_INPUT, "the dashboard needs a terminal; for a pipe or a script there is `vramtui ps --json`")
    if os.environ.get("TERM", "") in {"dumb", "unknown"}:
        fail(
            BAD_INPUT,
            "the dashboard needs a terminal with a cursor, and TERM names one without; see `vramtui ps`",
        )
    if not _is_terminal(sys.stderr):
        # Textual draws there, and with `2>/dev/null` would draw nothing.
        os.dup2(sys.stdout.fileno(), 2)
        if sys.__stderr__ is None:
            stream = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - until the end
            sys.stderr = sys.__stderr__ = stream  # type: ignore[misc]  # the shell closed it
    for name in [name for name in os.environ if name.partition("_")[0] == TEXTUALS_OWN]:
        del os.environ[name]
    require_open_files()


def _is_terminal(stream: TextIO | None) -> bool:
    """Whether this is one; a stream that the shell closed is none at all."""
    return stream is not None and stream.isatty()


def _check_keys(settings: Settings) -> None:
    if not settings.keys:
        return
    from vramtui.app.help.sections import check_keys

    try:
        check_keys(settings.keys)
    except UserError as error:
        raise UserError(f"{config_dir() / CONFIG}: {error}") from None


def _source_of(hosts: dict[str, OpenedSource], interval: float) -> "tuple[OpenedSource, Fleet | None]":
    """The source of the one host, or of all of them, whose current one is watched."""
    if len(hosts) == 1:
        return hosts.popitem()[1], None
    from vramtui.monitor.fleet import Fleet, RemoteHost

    remote = [RemoteHost(name, one.source, one.jobs or tuple, one.peaks, one.past) for name, one in hosts.items()]
    fleet = Fleet(remote, interval)
    banner = next((one.banner for one in hosts.values() if one.banner), None)
    return OpenedSource(fleet, banner, elsewhere=True), fleet


def _served(descriptor: int) -> "tuple[OpenedSource, Fleet | None, ServedFeed]":
    """What a server's tab shows: the one host, or all that there are."""
    from vramtui.records.recording.live import LiveRecording
    from vramtui.sources.feed.served import ServedFeed

    feed = ServedFeed(descriptor, LiveRecording)
    header = feed.header
    hosts = {
        name: OpenedSource(one, header.banner, jobs=one.jobs, peaks=one.peaks, elsewhere=True, past=one.past)
        for name, one in zip(header.hosts, feed.hosts, strict=True)
    }
    opened, fleet = _source_of(hosts, header.interval)
    return opened, fleet, feed


def _view_only_services(opened: OpenedSource, settings: Settings, feed: "ServedFeed | None") -> "Services":
    """What a dashboard is handed that is only looked at: of this machine the past runs of those hosts alone."""
    from vramtui.app.services import Services
    from vramtui.app.view_only import NOTICE

    saver = SnapshotSaver(settings.snapshot, config_dir() / CONFIG)
    runs = viewed_runs(saver, feed.run_hosts) if feed is not None and feed.header.runs_of else None
    return Services(jobs=opened.jobs, peaks=opened.peaks, no_signals=NOTICE, view_only=True, runs=runs)


def _services(opened: OpenedSource, settings: Settings, *, demo: bool, no_signals: bool) -> "Services":
    """What the dashboard is handed of this machine; of a recording and of the demo nothing is kept,
    of other hosts the runs.
    """
    from vramtui.app.services import Services

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
