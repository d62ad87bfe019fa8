"""`vramtui record --host …` for several hosts: a file for each, at once."""

import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from pathlib import Path

from vramtui.cli.common.exit_codes import on_end_signals
from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.record.command import open_writer
from vramtui.cli.record.follow import TickSink, preset_matchers
from vramtui.cli.record.host_follower import HostFollower
from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Sample

END_LIMIT = 5.0  # seconds in which a recording is ended


def file_of(file: Path, host: str) -> Path:
    """`day.jsonl.gz` of gpu01 is `day.gpu01.jsonl.gz`."""
    name = host.replace("/", "_")
    first, dot, rest = file.name.partition(".")
    return file.with_name(f"{first}.{name}{dot}{rest}")


class HostReport:
    """Says how it goes with one host, and counts its samples."""

    def __init__(self, host: str, file: Path) -> None:
        self.file = file
        self.samples = 0
        self.said = ""
        self._host = host

    def took(self) -> None:
        """Count a sample."""
        self.samples += 1
        if self.said:
            self.said = ""
            sys.stderr.write(f"vramtui: {self._host} is answering again\n")

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last; a wait that grows is said once."""
        if self.said.split(" for ", maxsplit=1)[0] != sentence.split(" for ", maxsplit=1)[0]:
            sys.stderr.write(f"vramtui: {sentence}\n")
        self.said = sentence


def record_hosts(hosts: Mapping[str, OpenedSource], file: Path, interval: float, duration: float) -> None:
    """Record all of them until the time is over or a signal comes.

    Raises:
        UserError: some host could not be recorded.
    """
    reports = {host: HostReport(host, file_of(file, host)) for host in hosts}
    taken = next((one.file for one in reports.values() if one.file.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists already; a recording never overwrites")
    presets = preset_matchers()
    followers = {
        host: HostFollower(
            opened, interval, _opens(reports[host].file, interval), reports[host], presets, duration=duration
        )
        for host, opened in hosts.items()
    }

    def end() -> None:
        for one in followers.values():
            one.finish()

    on_end_signals(end)
    for one in followers.values():
        one.start()
    for one in followers.values():
        while one.is_alive():
            one.join(END_LIMIT)
    for opened in hosts.values():
        opened.source.close()
    _say_result(reports, {host: one.problem for host, one in followers.items()})


def _opens(file: Path, interval: float) -> Callable[[Sample], AbstractContextManager[TickSink]]:
    return lambda first: closing(open_writer(file, interval, first))


def _say_result(reports: Mapping[str, HostReport], problems: Mapping[str, str]) -> None:
    failed = []
    for host, report in reports.items():
        problem = problems[host] or ("" if report.samples else report.said or "it has sent nothing")
        if problem:
            failed.append(f"{host}: {problem.removeprefix(f'{host}: ')}")
        else:
            sys.stderr.write(f"{host}: {report.samples} samples: vramtui --replay {report.file}\n")
    if failed:
        raise UserError("\n".join(failed))
