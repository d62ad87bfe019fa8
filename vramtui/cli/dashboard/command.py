"""`vramtui` alone: the dashboard."""

import gc
import os
import sys
from pathlib import Path

from vramtui.cli.common.exit_codes import BAD_INPUT, exit_on_user_error, fail
from vramtui.cli.common.open_source import open_source
from vramtui.cli.common.paths import config_dir, data_dir, run_history
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.dashboard.past_runs import past_runs
from vramtui.cli.dashboard.recorder import FileRecorder
from vramtui.cli.dashboard.signals import let_act
from vramtui.cli.dashboard.snapshot_writer import SnapshotSaver
from vramtui.cli.dashboard.tracer import ChildTracer
from vramtui.core.base.errors import UserError
from vramtui.core.schema.settings import CONFIG, Settings
from vramtui.monitor.run_writer import HistoryRunWriter

WELCOMED = "welcomed"
HINT = (
    "New here? p chooses a preset to predict, x explains it, 1 to 4 are the screens, ? lists all keys; Esc hides this."
)


def open_dashboard(
    *,
    demo: bool = False,
    replay: Path | None = None,
    interval: float | None = None,
    preset: str | None = None,
    read_only: bool = False,
) -> None:
    """Open the dashboard on this machine's GPUs, the demo or a recording; never returns."""
    with exit_on_user_error():
        _open(demo=demo, replay=replay, interval=interval, preset=preset, read_only=read_only)


def _open(*, demo: bool, replay: Path | None, interval: float | None, preset: str | None, read_only: bool) -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        fail(BAD_INPUT, "the dashboard needs a terminal; for a pipe or a script there is `vramtui ps --json`")
    gc.disable()  # What is loaded until the first paint is there to stay: going through it again and again takes 15 ms.
    for name in ("COLUMNS", "LINES"):
        # Left over from a shell or a build tool they would outrank the terminal's own size and its changes.
        os.environ.pop(name, None)
    settings = _settings()
    preset = preset or settings.dashboard.preset
    opened = open_source(demo=demo, replay=replay, fall_back=True, at_once=True)
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - as above

    library = PresetLibrary()
    if preset is not None:
        library.get(preset)
    from vramtui.app import Dashboard, run_dashboard  # noqa: PLC0415 - Textual takes 150 ms to load

    try:
        Dashboard.check_keys(settings.keys)
    except UserError as error:
        raise UserError(f"{config_dir() / CONFIG}: {error}") from None
    saver = SnapshotSaver(settings.snapshot, config_dir() / CONFIG)
    app = Dashboard(
        source=opened.source,
        presets=library,
        interval=interval or settings.dashboard.interval,
        banner=opened.banner,
        preset=preset,
        save=saver,
        settings=settings,
        tracer=ChildTracer(data_dir() / "traces"),
    )
    if opened.recording is not None:
        app.play(opened.recording)
    else:
        folder = settings.recording.folder
        app.recorder = FileRecorder(Path(folder).expanduser() if folder else data_dir() / "recordings")
    if opened.jobs is not None:
        app.desk.jobs = opened.jobs
    if not opened.banner:
        app.desk.jobs = ProbeClient("dashboard").jobs
        app.keeper = HistoryRunWriter(run_history)
    let_act(app, opened, read_only=read_only or settings.dashboard.read_only, told=read_only)
    app.save_choice = saver
    app.past = past_runs(saver, demo=demo, made_up=opened.recording is None and bool(opened.banner))
    app.hint = first_time_hint(data_dir() / WELCOMED)
    gc.freeze()
    gc.enable()
    sys.exit(run_dashboard(app))


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


def _settings() -> Settings:
    path = config_dir() / CONFIG
    if not path.exists():
        return Settings()
    from vramtui.presets.settings import read_settings  # noqa: PLC0415 - only where there is something to read

    return read_settings(path)
