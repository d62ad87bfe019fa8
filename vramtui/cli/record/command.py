"""`vramtui record`: what this machine's GPUs do, into a file, without a screen."""

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, exit_on_user_error, on_end_signals, require_open_files
from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.options.command_options import command_of
from vramtui.cli.options.hosts import open_hosts
from vramtui.cli.options.shared_options import NO_HOSTS, Demo, HostOptions
from vramtui.cli.record.follow import (
    OVERDUE,
    Follower,
    FollowOptions,
    HostFollower,
    TickSink,
    fast_targets,
    preset_matchers,
    recording_session,
)
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import ReadQueue

if TYPE_CHECKING:
    from vramtui.monitor.fast_sampler import FastTargets
    from vramtui.records.recording.writer import RecordingWriter


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
        self.latest_trouble = ""
        self._host = host

    def took(self) -> None:
        """Count a sample."""
        self.samples += 1
        if self.latest_trouble:
            self.latest_trouble = ""
            sys.stderr.write(f"vramtui: {self._host} is answering again\n")

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last; a wait that grows is said once."""
        if self.latest_trouble.split(" for ", maxsplit=1)[0] != sentence.split(" for ", maxsplit=1)[0]:
            sys.stderr.write(f"vramtui: {sentence}\n")
        self.latest_trouble = sentence


def record_hosts(hosts: Mapping[str, OpenedSource], file: Path, interval: float, duration: float) -> None:
    """Record all of them until the time is over or a signal comes.

    Raises:
        UserError: some host could not be recorded.
    """
    reports = {host: HostReport(host, file_of(file, host)) for host in hosts}
    taken = next((follower.file for follower in reports.values() if follower.file.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists already; a recording never overwrites")
    presets, options = preset_matchers(), FollowOptions(duration=duration)
    followers = {
        host: HostFollower(opened, interval, _opens(reports[host].file, interval), reports[host], presets, options)
        for host, opened in hosts.items()
    }

    def end() -> None:
        for follower in followers.values():
            follower.finish()

    on_end_signals(end)
    for follower in followers.values():
        follower.start()
    for follower in followers.values():
        while follower.is_alive():
            follower.join(END_LIMIT)
    for opened in hosts.values():
        opened.source.close()
    _say_result(reports, {host: follower.problem for host, follower in followers.items()})


def _opens(file: Path, interval: float) -> Callable[[Sample], AbstractContextManager[TickSink]]:
    return lambda first: closing(open_writer(file, interval, first))


def _say_result(reports: Mapping[str, HostReport], problems: Mapping[str, str]) -> None:
    failed = []
    for host, report in reports.items():
        problem = problems[host] or ("" if report.samples else report.latest_trouble or "it has sent nothing")
        if problem:
            failed.append(f"{host}: {problem.removeprefix(f'{host}: ')}")
        else:
            sys.stderr.write(f"{host}: {report.samples} samples: vramtui --replay {report.file}\n")
    if failed:
        raise UserError("\n".join(failed))


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """What `vramtui record` takes."""

    file: Annotated[Path, typer.Argument(help="Output file; compressed when the name ends in .gz.")]
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between samples of the GPUs.")] = 1.0
    duration: Annotated[float | None, typer.Option(min=0, help="Stop after this many seconds.")] = None
    close: Annotated[
        str,
        typer.Option(
            metavar="auto|none|PID,…",
            help="Sample ten times a second, so that peaks between two samples are recorded: jobs that match a "
            "preset or have a probe (auto), nothing, or the processes with these pids.",
        ),
    ] = "auto"
    demo: Demo = False
    hosts: HostOptions = NO_HOSTS
    feed: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="Record what `vramtui stream` sends; - is standard input.")
    ] = None


@command_of(RecordOptions)
def record(options: RecordOptions) -> None:
    """Record until Ctrl-C (or for --duration seconds); play it back with `vramtui --replay FILE`.

    What jobs with a probe tell, what presets predict for processes, and every process's peak is recorded with it.
    """
    with exit_on_user_error():
        require_open_files(RECORDER_ROOM)
        targets = fast_targets(options.close)
        seconds = float("inf") if options.duration is None else options.duration
        hosts = open_hosts(
            options.hosts.elsewhere,
            options.interval,
            options.demo or options.feed,
        )
        if len(hosts) > 1:
            record_hosts(hosts, options.file, options.interval, seconds)
            return
        opened = hosts.popitem()[1] if hosts else open_source(demo=options.demo, replay=None, feed=options.feed)
        _record(opened, targets, options.file, options.interval, seconds)


def _record(opened: OpenedSource, targets: "FastTargets", file: Path, interval: float, duration: float) -> None:
    progress = _Progress(file)
    with closing(ReadQueue(opened.source, interval)) as reads, closing(ProbeClient("record")) as probes:
        first = reads.sample(lambda: progress.trouble(OVERDUE))
        session = recording_session(opened, targets, probes)
        writer = open_writer(file, interval, first)
        follower = Follower(reads, session, writer, progress)
        on_end_signals(follower.end)  # nothing is broken off: a line that is being written is written whole
        try:
            follower.follow(first, duration)
        finally:
            writer.close()
            progress.clear()
            session.close()
    sys.stderr.write(f"{progress.summary()}: vramtui --replay {file}\n")


def open_writer(file: Path, interval: float, first: Sample) -> "RecordingWriter":
    """A recording that begins with `first`.

    Raises:
        UserError: it cannot be written.
    """
    from vramtui.cli.common.versions import versions
    from vramtui.records.recording.writer import RecordingHeader, RecordingWriter

    return RecordingWriter(
        file, RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
    )


class _Progress:
    """A line on a terminal that says how far it has come; troubles are said once each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()
        self._samples = 0
        self._trouble = ""
        self._live = sys.stderr.isatty()

    def took(self) -> None:
        """Count a sample."""
        self._samples += 1
        if self._trouble:
            self._trouble = ""
            self._write("vramtui: driver is answering again\n")
        if self._live:
            sys.stderr.write(f"\r\x1b[K● {self.summary()}   Ctrl-C stops")
            sys.stderr.flush()

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last."""
        if sentence != self._trouble:
            self._trouble = sentence
            self._write(f"vramtui: {sentence}\n")

    def summary(self) -> str:
        """What there is so far."""
        count = f"{self._samples} sample{'s' if self._samples != 1 else ''}"
        passed = format_duration(time.monotonic() - self._began)
        return f"{count} in {passed}, {format_bytes(self._file.stat().st_size, 1)}"

    def clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.clear()
        sys.stderr.write(text)
        sys.stderr.flush()
