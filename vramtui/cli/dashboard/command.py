"""`vramtui` without a command: open the dashboard."""

import gc
import os
import sys
import time
from typing import TextIO

from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error, fail, require_open_files
from vramtui.cli.common.open_source import STANDARD_INPUT, OpenedSource, give_keys, open_hosts, open_source, with_gpus
from vramtui.cli.common.option_groups import DashboardOptions
from vramtui.cli.common.settings import settings_in_force, welcome_marker
from vramtui.cli.dashboard.first_frame import FirstFrame
from vramtui.core.base.errors import UserError
from vramtui.core.base.late import defer, end_deferring, leave_docstrings_out, prune_nvml
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.settings import CONFIG
from vramtui.monitor.poller import Poller
from vramtui.presets import config_dir

# For those who develop with Textual: a module to load, a file to write, a name that is not looked for first.
TEXTUALS_OWN = "TEXTUAL"
WEB_DRIVER = "textual.drivers.web_driver:WebDriver"  # set by `textual serve`, which reads standard output
# The driver answers sooner; where it does not, Textual is loaded meanwhile and the first frame is Textual's own. A host
# whose processors are busy has not a hanging driver: while the reader gets on it is waited for, for a second.
HEAD_START, MOST_HEAD_START = 0.1, 1.0
GETS_ON = 0.001  # seconds of the processor in each HEAD_START


@exit_on_user_error()
def open_dashboard(options: DashboardOptions) -> None:
    """Open the dashboard on this machine's GPUs, the demo or a recording; never returns."""
    if options.replay is not None and not options.replay.exists():
        raise UserError(f"the recording {printable(str(options.replay))} cannot be read: no such file or directory")
    in_browser = os.environ.get("TEXTUAL_DRIVER") == WEB_DRIVER
    if in_browser:
        options = options._replace(view_only=True)
        require_open_files()
    else:
        _check_terminal(options.feed)
        for name in ("COLUMNS", "LINES"):
            # If a shell or a build tool left these, they would outrank the terminal's own size and its changes.
            os.environ.pop(name, None)
    gc.disable()  # Objects loaded before the first paint stay; scanning them again and again takes 15 ms.
    settings = settings_in_force(
        {
            "interval": options.interval,
            "preset": options.preset,
            "no_signals": options.no_signals or None,
            "monitor": options.monitor or None,
        }
    )
    preset, pace = settings.dashboard.preset, settings.dashboard.interval
    demo, replay, feed, fleet = options.demo, options.replay, options.feed, None
    hosts = open_hosts(options.hosts, pace, demo or replay or feed)
    chosen = {name: with_gpus(one, options.only) for name, one in hosts.items()}
    if not chosen:
        opened = with_gpus(open_source(demo=demo, replay=replay, feed=feed, fall_back=True, at_once=True), options.only)
    elif len(chosen) == 1:
        opened = chosen.popitem()[1]
    else:
        from vramtui.monitor.fleet import Fleet, RemoteHost

        remote = [RemoteHost(name, one.source, one.jobs or tuple, one.peaks, one.past) for name, one in chosen.items()]
        fleet = Fleet(remote, pace)
        banner = next((one.banner for one in chosen.values() if one.banner), None)
        opened = OpenedSource(fleet, banner, elsewhere=True)
    if not in_browser:
        give_keys(options.feed)
    with FirstFrame(settings.dashboard.theme) as frame:
        poller = None
        if fleet is None and opened.recording is None:  # a recording is read by its replay
            poller = Poller(opened.source, pace)
            poller.start()
            until = time.monotonic() + MOST_HEAD_START
            while True:
                worked = time.process_time()
                first = poller.first_answer(HEAD_START)
                if first is not None or time.monotonic() > until or time.process_time() - worked < GETS_ON:
                    break
            if isinstance(first, Sample):
                frame.show(first, opened.banner)
            del first
        # What follows is loaded while the first frame stands.
        prune_nvml()
        defer()
        leave_docstrings_out()
        from vramtui.app.app import Dashboard  # Textual takes 150 ms to load
        from vramtui.app.keys import NOTICE
        from vramtui.app.services import Services, StartOptions
        from vramtui.app.shutdown import run_dashboard
        from vramtui.cli.dashboard.services import first_time_hint, whole_services
        from vramtui.monitor.jobs import from_library
        from vramtui.presets import PresetLibrary

        end_deferring()
        sys.path_importer_cache.clear()  # the names in each folder of packages
        shown = from_library(preset) if preset is not None else None
        if settings.keys:
            from vramtui.app.help.dialog import check_keys

            try:
                check_keys(settings.keys)
            except UserError as error:
                raise UserError(f"{config_dir() / CONFIG}: {error}") from None
        services = (
            Services(jobs=opened.jobs, peaks=opened.peaks, no_signals=NOTICE, view_only=True, fleet=fleet)
            if options.view_only
            else whole_services(opened, settings, fleet, demo=options.demo, no_signals=options.no_signals)
        )
        app = Dashboard(
            source=opened.source,
            presets=PresetLibrary(),
            poller=poller,
            interval=pace,
            services=services,
            start=StartOptions(
                banner=opened.banner,
                preset=shown,
                settings=settings,
                hint="" if options.view_only or settings.dashboard.monitor else first_time_hint(welcome_marker()),
            ),
        )
        if settings.dashboard.monitor:
            app.state.is_monitor = True
        if opened.past is not None:
            app.session.backfill(opened.past)
        if opened.recording is not None:
            app.play(opened.recording)
    gc.freeze()
    gc.enable()
    frame.hand_over()
    sys.exit(run_dashboard(app, in_alternate_screen=frame.is_shown))


def _check_terminal(feed: str | None) -> None:
    """See that a dashboard can be drawn and its files opened."""
    if not ((_is_terminal(sys.stdin) or feed == STANDARD_INPUT) and _is_terminal(sys.stdout)):
        fail(BAD_INPUT, "the dashboard needs a terminal; for a pipe or a script there is `vramtui ps --json`")
    if os.environ.get("TERM", "") in {"dumb", "unknown"}:
        fail(BAD_INPUT, "the dashboard needs a terminal with a cursor, and TERM names one without; see `vramtui ps`")
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
    """Return whether this is a terminal; a stream that the shell closed is None."""
    return stream is not None and stream.isatty()
