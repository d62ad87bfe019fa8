"""`vramtui record`: write what the GPUs do into a file, or to standard output."""

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, exit_on_user_error, on_end_signals, require_open_files
from vramtui.cli.common.open_source import OpenedSource, ProbeClient, open_hosts, open_source
from vramtui.cli.options import NO_HOSTS, Demo, Feed, HostOptions, command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import FastTargets, ReadQueue, fast_sampler_for

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import RecordedTick
    from vramtui.monitor.session import MonitorSession
    from vramtui.records.recording.decoder import RecordingHeader
    from vramtui.records.recording.writer import RecordingWriter

STANDARD_OUTPUT = Path("-")
LOOK_EVERY = 1.0
END_LIMIT = 5.0  # seconds in which a recording is ended
OVERDUE = "the driver does not answer; still waiting"


@dataclass(frozen=True, kw_only=True)
class RecordOptions:
    """The options of `vramtui record`."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|-",
            help="Output file, compressed if its name ends in .gz; - is standard output, for a program that reads it.",
        ),
    ]
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between samples of the GPUs.")] = 1.0
    duration: Annotated[float | None, typer.Option(min=0, help="Stop after this many seconds.")] = None
    close: Annotated[
        str,
        typer.Option(
            metavar="auto|none|PID,…",
            help="Processes to sample ten times a second, for short peaks: jobs with a preset or a probe (auto), "
            "none, or the given pids.",
        ),
    ] = "auto"
    demo: Demo = False
    hosts: HostOptions = NO_HOSTS
    feed: Feed = None


@command_of(RecordOptions)
def record(options: RecordOptions) -> None:
    """Record the GPUs to a file until Ctrl-C; play it with `vramtui --replay FILE`.

    The recording includes reports of probes, predictions of presets and the peak of every process.

    With - it goes to standard output until the reader closes the pipe: `ssh gpu01 vramtui record - | vramtui --feed -`.
    A slow reader misses samples but no peaks.
    """
    with exit_on_user_error():
        from vramtui.records.recording.writer import RecordingWriter

        require_open_files(RECORDER_ROOM)
        targets = fast_targets(options.close)
        streams = options.file == STANDARD_OUTPUT
        if streams and (sys.stdout is None or sys.stdout.isatty()):
            raise UserError("record - is for a program that reads it, and this is a terminal; see `vramtui ps --watch`")
        duration = float("inf") if options.duration is None else options.duration
        hosts = open_hosts(options.hosts.elsewhere, options.interval, options.demo or options.feed)
        if len(hosts) > 1 and streams:
            raise UserError("record - takes one host")
        if len(hosts) > 1:
            _record_hosts(hosts, options.file, options.interval, duration)
            return
        opened = hosts.popitem()[1] if hosts else open_source(demo=options.demo, feed=options.feed)
        progress = _Report(None if streams else options.file)
        with closing(ReadQueue(opened.source, options.interval)) as reads, closing(ProbeClient("record")) as probes:
            if streams:

                def end() -> None:
                    # A full pipe would block a gentler end; readers ignore a line that is cut off.
                    probes.vanish()
                    os._exit(0)

                on_end_signals(end)
            first = reads.sample(lambda: progress.trouble(OVERDUE))
            session = _recording_session(opened, targets, probes)
            sink = _StandardOutput(_header(first, options.interval)) if streams else None
            with closing(sink or RecordingWriter(options.file, _header(first, options.interval))) as written:
                follower = _Follower(reads, session, written, progress, newest=streams)
                if not streams:
                    on_end_signals(follower.end)  # so that the last line is whole
                try:
                    follower.follow(first, duration)
                finally:
                    progress.clear()
                    session.close()
        if not streams:
            sys.stderr.write(f"{progress.summary()}: vramtui --replay {options.file}\n")


def fast_targets(choice: str) -> FastTargets:
    """Parse `--close`: `auto`, `none` or pids."""
    words: dict[str, FastTargets] = {"auto": "auto", "none": "none"}
    if choice in words:
        return words[choice]
    pids = [part.strip() for part in choice.split(",")]
    if not all(pid.isascii() and pid.isdigit() and len(pid) < 10 for pid in pids):
        raise UserError(f"--close takes auto, none, or pids with commas between them; not {choice!r}")
    return frozenset(map(int, pids))


def _recording_session(opened: OpenedSource, targets: FastTargets, probes: ProbeClient) -> "MonitorSession":
    """Session of the recorded host; on this machine it listens to the user's probes."""
    from vramtui.monitor.session import MonitorSession

    sampler = fast_sampler_for(opened.source, targets)
    if isinstance(targets, frozenset) and sampler is None:
        sys.stderr.write(f"vramtui: no fast sampling: {opened.source.name} cannot sample single processes\n")
    session = MonitorSession(jobs=opened.jobs or probes.jobs, sampler=sampler)
    session.recorded_peaks = opened.peaks
    if opened.jobs is None:
        probes.listen()
    if probes.problem:
        sys.stderr.write(f"vramtui: recording without probes: {probes.problem}\n")
    return session


def _header(first: Sample, interval: float) -> "RecordingHeader":
    from vramtui.cli.common.settings import versions
    from vramtui.records.recording.decoder import RecordingHeader

    return RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))


class _StandardOutput:
    """Writes a recording to standard output, each moment in one piece; waits while the pipe is full."""

    def __init__(self, header: "RecordingHeader") -> None:
        from vramtui.records.recording.writer import RecordingEncoder

        self._encoder = RecordingEncoder()
        self._write(self._encoder.header(header))

    def write(self, tick: "RecordedTick") -> None:
        self._write(self._encoder.lines(tick))

    def close(self) -> None:
        """Do nothing: standard output stays open."""

    def _write(self, text: bytes) -> None:
        sys.stdout.buffer.write(text)
        sys.stdout.buffer.flush()


class _Follower:
    """Writes samples until the time is over or `end` is called.

    Args:
        newest: of samples that had to wait write only the newest, with the peaks of the others.
        presets: makes a matcher at once; None reads presets on a thread.
    """

    def __init__(
        self,
        reads: ReadQueue,
        session: "MonitorSession",
        sink: "RecordingWriter | _StandardOutput",
        report: "_Report",
        *,
        newest: bool = False,
        presets: Callable[[], Matcher] | None = None,
    ) -> None:
        self._reads = reads
        self._session = session
        self._sink = sink
        self._report = report
        self._newest = newest
        self._is_over = False
        self._matchers: queue.SimpleQueue[Matcher] = queue.SimpleQueue()
        if presets is not None:
            self._matchers.put(presets())
        else:
            threading.Thread(target=self._read_presets, name="read presets", daemon=True).start()

    def _read_presets(self) -> None:
        from vramtui.monitor.jobs import matcher_of  # loaded on a thread of its own
        from vramtui.presets import PresetLibrary

        self._matchers.put(matcher_of(PresetLibrary().all()))

    def follow(self, first: Sample, duration: float) -> None:
        """Write the first sample and those of the next `duration` seconds."""
        until = time.monotonic() + duration
        self._take(first)
        while (now := time.monotonic()) < until and not self._is_over:
            result = self._reads.next(min(LOOK_EVERY, until - now))
            if isinstance(result, Sample):
                self._take(result)
            elif isinstance(result, SourceFailed):
                self._report.trouble(result.sentence)
            elif result is not None:
                self._session.pause_sampling()
                self._report.trouble(OVERDUE)

    def end(self) -> None:
        self._is_over = True
        self._reads.wake()

    def _take(self, sample: Sample) -> None:
        if not self._matchers.empty():
            self._session.match_by(self._matchers.get())
        self._session.ingest(sample)
        while self._newest and isinstance(more := self._reads.next(0.0), Sample):
            self._session.ingest(more)
        self._sink.write(self._session.recorded_tick())
        self._report.took()


class _Report:
    """Shows the progress of a recording on a terminal, and reports each problem once.

    Args:
        file: where it is written; None for standard output, which has no progress line.
        host: whose recording it is if there are several, which have no progress line either.
    """

    def __init__(self, file: Path | None, host: str = "") -> None:
        self.file, self.samples, self.latest_trouble = file, 0, ""
        self._host, self._began = host, time.monotonic()
        self._live = file is not None and not host and sys.stderr.isatty()

    def took(self) -> None:
        """Count a sample."""
        self.samples += 1
        if self.latest_trouble:
            self.latest_trouble = ""
            self._write(f"vramtui: {self._host or 'driver'} is answering again\n")
        if self._live:
            sys.stderr.write(f"\r\x1b[K● {self.summary()}   Ctrl-C stops")
            sys.stderr.flush()

    def trouble(self, sentence: str) -> None:
        """Report a problem, unless it is the last one, perhaps with a longer wait."""
        if self.latest_trouble.split(" for ", maxsplit=1)[0] != sentence.split(" for ", maxsplit=1)[0]:
            self._write(f"vramtui: {sentence}\n")
        self.latest_trouble = sentence

    def summary(self) -> str:
        count = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        size = format_bytes(self.file.stat().st_size, 1) if self.file is not None else ""
        return f"{count} in {format_duration(time.monotonic() - self._began)}, {size}"

    def clear(self) -> None:
        if self._live:
            sys.stderr.write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.clear()
        sys.stderr.write(text)
        sys.stderr.flush()


class _HostFollower(threading.Thread):
    """Records one of several hosts.

    Attributes:
        problem: the error that ended it; empty if there is none.
    """

    def __init__(
        self, opened: OpenedSource, interval: float, duration: float, report: _Report, presets: Callable[[], Matcher]
    ) -> None:
        super().__init__(name="record host", daemon=True)
        self.problem = ""
        self._opened = opened
        self._interval = interval
        self._report = report
        self._presets = presets
        self._until = time.monotonic() + duration
        self._reads = ReadQueue(opened.source, interval)
        self._follower: _Follower | None = None
        self._is_over = False

    def run(self) -> None:
        from vramtui.records.recording.writer import RecordingWriter

        try:
            first = self._first()
            if first is None:
                return
            session = _recording_session(self._opened, "none", ProbeClient("record"))
            assert self._report.file is not None
            with closing(RecordingWriter(self._report.file, _header(first, self._interval))) as sink:
                self._follower = _Follower(self._reads, session, sink, self._report, presets=self._presets)
                if not self._is_over:
                    self._follower.follow(first, self._until - time.monotonic())
            session.close()
        except UserError as error:
            self.problem = str(error)

    def finish(self) -> None:
        self._is_over = True
        if self._follower is not None:
            self._follower.end()
        self._reads.wake()

    def _first(self) -> Sample | None:
        while not self._is_over and time.monotonic() < self._until:
            result = self._reads.next(1.0)
            if isinstance(result, Sample):
                return result
            if isinstance(result, SourceFailed):
                self._report.trouble(result.sentence)
        return None


def _record_hosts(hosts: Mapping[str, OpenedSource], file: Path, interval: float, duration: float) -> None:
    """Record each host into a file of its own: `day.jsonl.gz` of gpu01 is `day.gpu01.jsonl.gz`."""
    first, dot, rest = file.name.partition(".")
    reports = {host: _Report(file.with_name(f"{first}.{host.replace('/', '_')}{dot}{rest}"), host) for host in hosts}
    taken = next((report.file for report in reports.values() if report.file is not None and report.file.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists already; a recording never overwrites")
    from vramtui.monitor.jobs import matcher_of
    from vramtui.presets import PresetLibrary

    known = PresetLibrary().all()
    followers = {
        host: _HostFollower(opened, interval, duration, reports[host], lambda: matcher_of(known))
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
    failed = []
    for host, report in reports.items():
        hosts[host].source.close()
        problem = followers[host].problem or (
            "" if report.samples else report.latest_trouble or "it has sent no sample"
        )
        if problem:
            failed.append(f"{host}: {problem.removeprefix(f'{host}: ')}")
        else:
            sys.stderr.write(f"{host}: {report.samples} samples: vramtui --replay {report.file}\n")
    if failed:
        raise UserError("\n".join(failed))
