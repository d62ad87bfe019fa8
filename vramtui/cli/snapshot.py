"""`vramtui snapshot`: the moment as files, without opening the dashboard."""

from contextlib import closing
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from vramtui.cli.common.exit_codes import NO_SOURCE, exit_on_user_error
from vramtui.cli.common.hosts import open_hosts
from vramtui.cli.common.open_source import open_source, say_overdue
from vramtui.cli.common.settings import folder_of, snapshot_settings
from vramtui.cli.options import THIS_MACHINE, SourceOptions, command_of
from vramtui.core.base.errors import SourceFailed

if TYPE_CHECKING:
    from vramtui.cli.common.open_source import OpenedSource
    from vramtui.core.observation.snapshot import Snapshot
    from vramtui.monitor.job_reports import Jobs
    from vramtui.presets import PresetLibrary

HOST_INTERVAL = 2.0  # seconds between the samples of another host; the first is written


class Format(str, Enum):
    """Formats of a snapshot."""

    json = "json"
    csv = "csv"
    md = "md"
    html = "html"


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    """Options of `vramtui snapshot`."""

    formats: Annotated[
        list[Format] | None,
        typer.Option("--format", "-f", help="The files to write; by default from the settings, or else all."),
    ] = None
    folder: Annotated[
        Path | None, typer.Option(help="Where to write them; by default from the settings, or else here.")
    ] = None
    source: SourceOptions = THIS_MACHINE


@command_of(SnapshotOptions)
def snapshot(options: SnapshotOptions) -> None:
    """Write what is seen and predicted as JSON, CSV, Markdown and HTML; never overwrites.

    Of several hosts each has files of its own.
    """
    with exit_on_user_error():
        settings = snapshot_settings()
        chosen = [entry.value for entry in options.formats] if options.formats else list(settings.formats)
        where = options.folder or folder_of(settings)
        source = options.source
        hosts = open_hosts(source.hosts.elsewhere, HOST_INTERVAL, source.demo or source.replay)
        if hosts:
            _save_hosts(hosts, chosen, where)
            return
        for path in _save(chosen, where, demo=source.demo, replay=source.replay):
            typer.echo(path)


def _save_hosts(hosts: "dict[str, OpenedSource]", formats: list[str], folder: Path) -> None:
    """Write what each host shows; one that does not answer is said to, after the others.

    Raises:
        SystemExit: some host does not answer.
    """
    from vramtui.cli.ps.hosts import FIRST, HostWatch, why_not
    from vramtui.monitor.job_presets import matcher_of_library
    from vramtui.monitor.predictor import LazyDefault, Predictor
    from vramtui.presets import PresetLibrary

    library, failures = PresetLibrary(), []
    matcher, predictor = matcher_of_library(library), Predictor(LazyDefault())
    watches = {name: HostWatch(opened, matcher, HOST_INTERVAL, predictor) for name, opened in hosts.items()}
    try:
        for name, watch in watches.items():
            answer = watch.answer(FIRST)
            if isinstance(answer, SourceFailed):
                failures.append(why_not(name, answer))
                continue
            for path in _write(answer, formats, folder, library, jobs=watch.jobs, banner=None):
                typer.echo(path)
    finally:
        for watch in watches.values():
            watch.close()
    for sentence in failures:
        typer.echo(f"vramtui: {sentence}", err=True)
    if failures:
        raise SystemExit(NO_SOURCE)


def _save(formats: list[str], folder: Path, *, demo: bool, replay: Path | None) -> list[Path]:
    from vramtui.cli.common.probe_client import ProbeClient
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.job_presets import matcher_of_library
    from vramtui.monitor.job_reports import no_jobs
    from vramtui.monitor.poller import ReadQueue
    from vramtui.monitor.session import MonitorSession
    from vramtui.presets import PresetLibrary

    opened = open_source(demo=demo, replay=replay)
    library = PresetLibrary()
    with closing(ProbeClient("snapshot")) as probes:
        if opened.jobs is not None or opened.recording is not None:
            jobs = opened.jobs or no_jobs
        else:
            jobs = probes.jobs
            probes.wait()
        is_real = not opened.banner and opened.recording is None
        session = MonitorSession(jobs=jobs, derived=DerivedPresets(wait=True) if is_real else None)
        session.match_by(matcher_of_library(library))
        with closing(ReadQueue(opened.source, 1.0)) as reads:
            session.ingest(reads.sample(lambda: say_overdue(opened.source)))
        seen = session.snapshot()
    return _write(seen, formats, folder, library, jobs=jobs, banner=opened.banner)


def _write(
    seen: "Snapshot", formats: list[str], folder: Path, library: "PresetLibrary", *, jobs: "Jobs", banner: str | None
) -> list[Path]:
    from vramtui.cli.common.versions import versions
    from vramtui.records.export.files import save_snapshot

    taken = msgspec.structs.replace(seen, versions=versions(seen.sample))
    shown = ""
    if "html" in formats:
        from vramtui.app.export.portable_svg import portable
        from vramtui.app.screenshot import picture
        from vramtui.app.services import Services

        shown = portable(picture([taken.sample], library, banner=banner, services=Services(jobs=jobs)))
    return save_snapshot(taken, folder, formats, shown)
