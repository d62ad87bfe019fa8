"""`vramtui snapshot`: the moment as files, without opening the dashboard."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from vramtui.cli.common.exit_codes import NO_SOURCE, exit_on_user_error
from vramtui.cli.common.open_source import ProbeClient, open_hosts, open_source, say_overdue, session_of
from vramtui.cli.common.settings import folder_of, settings_in_force, versions
from vramtui.cli.options import THIS_MACHINE, SourceOptions, beginning, command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.schema.settings import FORMATS

if TYPE_CHECKING:
    from vramtui.cli.common.open_source import OpenedSource
    from vramtui.core.observation.snapshot import Snapshot
    from vramtui.monitor.jobs import Jobs

HOST_INTERVAL = 2.0  # seconds between the samples of another host; the first is written


@dataclass(frozen=True, kw_only=True)
class SnapshotOptions:
    file: Annotated[Path | None, typer.Argument(metavar="[FILE]", help="One new file: .md, .html, .json or .csv.")] = (
        None
    )
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            "-f",
            help="The files to write (json, csv, md, html); by default md and html, or the settings'.",
            autocompletion=beginning(FORMATS),
        ),
    ] = None
    folder: Annotated[
        Path | None, typer.Option(help="Where to write them; by default from the settings, or else here.")
    ] = None
    source: SourceOptions = THIS_MACHINE


@command_of(SnapshotOptions)
def snapshot(options: SnapshotOptions) -> None:
    """Write what is seen and predicted to new files, for each host its own."""
    with exit_on_user_error():
        settings = settings_in_force().snapshot
        chosen: list[str] = list(options.formats or settings.formats)
        where = options.folder or folder_of(settings)
        source, file = options.source, options.file
        if file is not None:
            if options.formats or options.folder or file.suffix[1:] not in FORMATS:
                names = ", ".join(f".{name}" for name in FORMATS)
                raise UserError(f"snapshot FILE takes a new file's name in {names}, without --format and --folder")
            chosen = [file.suffix[1:]]
        hosts = open_hosts(source.hosts.elsewhere, HOST_INTERVAL, source.demo or source.replay)
        if hosts and file is not None:
            raise UserError("each host has files of its own: --folder instead of a file's name")
        if hosts:
            _save_hosts(hosts, chosen, where)
            return
        for path in _save(chosen, file or where, demo=source.demo, replay=source.replay):
            typer.echo(path)


def _save_hosts(hosts: "dict[str, OpenedSource]", formats: list[str], folder: Path) -> None:
    """Write what each host shows; one that does not answer is said to, after the others."""
    from vramtui.cli.ps import FIRST, watches_of, why_not

    failures, watches = [], watches_of(hosts, HOST_INTERVAL)
    try:
        for name, watch in watches.items():
            answer = watch.answer(FIRST)
            if isinstance(answer, SourceFailed):
                failures.append(why_not(name, answer))
                continue
            for path in _write(answer, formats, folder, jobs=watch.jobs, banner=None):
                typer.echo(path)
    finally:
        for watch in watches.values():
            watch.source.close()
    for sentence in failures:
        typer.echo(f"vramtui: {sentence}", err=True)
    if failures:
        raise SystemExit(NO_SOURCE)


def _save(formats: list[str], target: Path, *, demo: bool, replay: Path | None) -> list[Path]:
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.poller import ReadQueue

    opened = open_source(demo=demo, replay=replay)
    with closing(ProbeClient("snapshot")) as probes:
        if opened.is_real:
            opened = msgspec.structs.replace(opened, jobs=probes.jobs)
            probes.wait()
        session = session_of(opened, derived=DerivedPresets(wait=True) if opened.is_real else None)
        with closing(ReadQueue(opened.source, 1.0)) as reads:
            session.ingest(reads.sample(lambda: say_overdue(opened.source)))
        seen = session.snapshot()
    return _write(seen, formats, target, jobs=opened.jobs or tuple, banner=opened.banner)


def _write(seen: "Snapshot", formats: list[str], target: Path, *, jobs: "Jobs", banner: str | None) -> list[Path]:
    """Write the files into the folder `target`, or the one file that it is."""
    from vramtui.records.export.files import file_text, save_snapshot, write_file

    taken = msgspec.structs.replace(seen, versions=versions(seen.sample))
    shown = ""
    if "html" in formats:
        from vramtui.app.export.portable_svg import portable
        from vramtui.app.screenshot import picture
        from vramtui.app.services import Services
        from vramtui.presets import PresetLibrary

        shown = portable(picture([taken.sample], PresetLibrary(), banner=banner, services=Services(jobs=jobs)))
    if [target.suffix[1:]] == formats:
        write_file(target, file_text(formats[0], taken, shown))
        return [target]
    return save_snapshot(taken, target, formats, shown)
