"""`vramtui snapshot`: the moment as files, without opening the dashboard."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.cli.common.exit_codes import NO_SOURCE, say
from vramtui.cli.common.open_source import ProbeClient, open_hosts, open_source, snapshots_of
from vramtui.cli.common.option_groups import SourceOptions
from vramtui.cli.common.settings import folder_of, settings_in_force, versions
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.schema.settings import FORMATS

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import Snapshot
    from vramtui.monitor.jobs import Jobs

HOST_INTERVAL = 2.0  # seconds between the samples of another host; the first is written


@command_of
def snapshot(
    *, file: Path | None = None, formats: list[str] | None = None, folder: Path | None = None, source: SourceOptions
) -> None:
    """Write what is seen and predicted to new files, for each host its own."""
    settings = settings_in_force().snapshot
    chosen: list[str] = list(formats or settings.formats)
    where = folder or folder_of(settings)
    if file is not None:
        if formats or folder or file.suffix[1:] not in FORMATS:
            names = ", ".join(f".{name}" for name in FORMATS)
            raise UserError(f"snapshot FILE takes a new file's name in {names}, without --format and --folder")
        chosen = [file.suffix[1:]]
    hosts = open_hosts(source.hosts, HOST_INTERVAL, source.demo or source.replay)
    if hosts and file is not None:
        raise UserError("each host has files of its own: --folder instead of a file's name")
    if not hosts:
        opened = open_source(demo=source.demo, replay=source.replay)
        with closing(ProbeClient("snapshot")) as probes:
            if opened.is_real:
                opened = msgspec.structs.replace(opened, jobs=probes.jobs)
                probes.wait()
            with closing(snapshots_of(opened)) as snapshots:
                seen = next(snapshots)
        _write(seen, chosen, file or where, jobs=opened.jobs or tuple, banner=opened.banner)
        return
    from vramtui.cli.ps import FIRST, watches_of, why_not

    failures, watches = [], watches_of(hosts, HOST_INTERVAL)
    try:
        for name, watch in watches.items():
            answer = watch.answer(FIRST)
            if isinstance(answer, SourceFailed):
                failures.append(why_not(name, answer))
            else:
                _write(answer, chosen, where, jobs=watch.jobs, banner=None)
    finally:
        for watch in watches.values():
            watch.source.close()
    for sentence in failures:
        say(sentence)
    if failures:
        raise SystemExit(NO_SOURCE)


def _write(seen: "Snapshot", formats: list[str], target: Path, *, jobs: "Jobs", banner: str | None) -> None:
    """Write the files into the folder `target`, or the one file that it is, and print their paths."""
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
        print(target)
    else:
        print(*save_snapshot(taken, target, formats, shown), sep="\n")
