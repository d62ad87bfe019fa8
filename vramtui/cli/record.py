"""`vramtui record`: write what the GPUs do into a file, or to standard output."""

import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.common.exit_codes import RECORDER_ROOM, on_end_signals, require_open_files, say, show_progress
from vramtui.cli.common.open_source import OpenedSource, ProbeClient, open_hosts, open_source
from vramtui.cli.common.option_groups import HostOptions
from vramtui.cli.common.settings import versions
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import FastTargets, ReadQueue, ReadResult, fast_sampler_for

if TYPE_CHECKING:
    from vramtui.presets import PresetLibrary

STANDARD_OUTPUT = Path("-")
LOOK_EVERY = 1.0
END_LIMIT = 5.0  # seconds in which a recording is ended
OVERDUE = "the driver does not answer; still waiting"


@command_of
def record(
    file: Path,
    interval: float = 1.0,
    duration: float | None = None,
    close: str = "auto",
    *,
    demo: bool = False,
    hosts: HostOptions,
    feed: str | None = None,
) -> None:
    """Record the GPUs to a file until Ctrl-C; play it with `vramtui --replay FILE`.

    The recording includes reports of probes, predictions of presets and the peak of every process.

    With - it goes to standard output until the reader closes the pipe: `ssh gpu01 vramtui record - | vramtui --feed -`.
    A slow reader misses samples but no peaks.
    """
    require_open_files(RECORDER_ROOM)
    targets = fast_targets(close)
    streams = file == STANDARD_OUTPUT
    if streams and (sys.stdout is None or sys.stdout.isatty()):
        raise UserError("record - is for a program that reads it, and this is a terminal; see `vramtui ps --watch`")
    lasting = float("inf") if duration is None else duration
    opened_hosts = open_hosts(hosts, interval, demo or feed)
    if len(opened_hosts) > 1 and streams:
        raise UserError("record - takes one host")
    if len(opened_hosts) > 1:
        _record_hosts(opened_hosts, file, interval, lasting)
        return
    opened = opened_hosts.popitem()[1] if opened_hosts else open_source(demo=demo, feed=feed)
    recording = _Recording(opened, interval, targets, None if streams else file)
    with closing(recording.reads), closing(recording.probes):
        if streams:

            def end() -> None:
                # A full pipe would block a gentler end; readers ignore a line that is cut off.
                recording.probes.vanish()
                os._exit(0)

            on_end_signals(end)
        first = recording.reads.sample(lambda: recording.trouble(OVERDUE))
        if not streams:
            on_end_signals(recording.end)  # so that the last line is whole
        recording.record(first, time.monotonic() + lasting)
    if not streams:
        sys.stderr.write(f"{recording.summary()}: vramtui --replay {file}\n")


def fast_targets(choice: str) -> FastTargets:
    """Parse `--close`: `auto`, `none` or pids."""
    words: dict[str, FastTargets] = {"auto": "auto", "none": "none"}
    if choice in words:
        return words[choice]
    pids = [part.strip() for part in choice.split(",")]
    if not all(pid.isascii() and pid.isdigit() and len(pid) < 10 for pid in pids):
        raise UserError(f"--close takes auto, none, or pids with commas between them; not {choice!r}")
    return frozenset(map(int, pids))


class _Recording(threading.Thread):
    """Records one host; with others on a thread of its own. A terminal shows the progress, and each problem once.

    Without a file it is written to standard output, which gets the newest of samples that had to wait, with the peaks
    of the others. Several hosts share the presets of a `library`.

    Attributes:
        samples: how many are written.
        problem: the error that ended a thread, which has then `failed`, or the last one that was shown; else empty.
    """

    def __init__(
        self,
        opened: OpenedSource,
        interval: float,
        targets: FastTargets,
        file: Path | None,
        *,
        host: str = "",
        until: float = 0.0,
        library: "PresetLibrary | None" = None,
    ) -> None:
        super().__init__(name="record host", daemon=True)
        self.file, self.samples, self.problem, self.failed = file, 0, "", False
        self.reads, self.probes = ReadQueue(opened.source, interval), ProbeClient("record")
        self._opened, self._interval, self._targets = opened, interval, targets
        self._host, self._until, self._library = host, until, library
        self._began, self._is_over = time.monotonic(), False
        self._live = file is not None and not host and sys.stderr.isatty()

    def run(self) -> None:
        """Record one of several hosts from its first sample on."""
        try:
            while not self._is_over and time.monotonic() < self._until:
                result = self.reads.next(LOOK_EVERY)
                if isinstance(result, Sample):
                    self.record(result, self._until)
                elif isinstance(result, SourceFailed):
                    self.trouble(result.sentence)
        except UserError as error:
            self.problem, self.failed = str(error), True

    def record(self, first: Sample, until: float) -> None:
        """Write the first sample and those that follow, until the monotonic clock says `until` or `end` is called."""
        from vramtui.monitor.jobs import matcher_of_library
        from vramtui.monitor.session import MonitorSession
        from vramtui.presets import PresetLibrary
        from vramtui.records.recording.files import RecordingHeader, RecordingWriter

        opened = self._opened
        sampler = fast_sampler_for(opened.source, self._targets)
        if isinstance(self._targets, frozenset) and sampler is None:
            say(f"no fast sampling: {opened.source.name} cannot sample single processes")
        session = MonitorSession(jobs=opened.jobs or self.probes.jobs, sampler=sampler)
        session.recorded_peaks = opened.peaks
        if opened.jobs is None:  # this machine's, whose probes are listened to
            self.probes.listen()
        if self.probes.problem:
            say(f"recording without probes: {self.probes.problem}")
        session.match_by(matcher_of_library(self._library or PresetLibrary()).match)
        header = RecordingHeader(started_at=first.taken_at, interval=self._interval, versions=versions(first))
        result: ReadResult | None = first
        with closing(RecordingWriter(self.file, header)) as sink:
            try:
                while True:
                    if isinstance(result, Sample):
                        session.ingest(result)
                        while self.file is None and isinstance(more := self.reads.next(0.0), Sample):
                            session.ingest(more)
                        sink.write(session.recorded_tick())
                        self.samples += 1
                        if self.problem:
                            self.problem = ""
                            self._say(f"vramtui: {self._host or 'driver'} is answering again\n")
                        if self._live:
                            show_progress(f"● {self.summary()}   Ctrl-C stops")
                    elif isinstance(result, SourceFailed):
                        self.trouble(result.sentence)
                    elif result is not None:
                        session.pause_sampling()
                        self.trouble(OVERDUE)
                    if self._is_over or (left := until - time.monotonic()) <= 0:
                        return
                    result = self.reads.next(min(LOOK_EVERY, left))
            finally:
                self._is_over = True
                self._clear()
                session.close()

    def end(self) -> None:
        self._is_over = True
        self.reads.wake()

    def trouble(self, sentence: str) -> None:
        """Show a problem, unless it is the last one, perhaps with a longer wait."""
        if self.problem.split(" for ", maxsplit=1)[0] != sentence.split(" for ", maxsplit=1)[0]:
            self._say(f"vramtui: {sentence}\n")
        self.problem = sentence

    def summary(self) -> str:
        count = f"{self.samples} sample{'s' if self.samples != 1 else ''}"
        size = format_bytes(self.file.stat().st_size, 1) if self.file is not None else ""
        return f"{count} in {format_duration(time.monotonic() - self._began)}, {size}"

    def _clear(self) -> None:
        if self._live:
            show_progress()

    def _say(self, text: str) -> None:
        self._clear()
        sys.stderr.write(text)
        sys.stderr.flush()


def _record_hosts(hosts: Mapping[str, OpenedSource], file: Path, interval: float, duration: float) -> None:
    """Record each host into a file of its own: `day.jsonl.gz` of gpu01 is `day.gpu01.jsonl.gz`."""
    from vramtui.presets import PresetLibrary

    first, dot, rest = file.name.partition(".")
    files = {host: file.with_name(f"{first}.{host.replace('/', '_')}{dot}{rest}") for host in hosts}
    taken = next((path for path in files.values() if path.exists()), None)
    if taken is not None:
        raise UserError(f"{taken} exists already; a recording never overwrites")
    library, until = PresetLibrary(), time.monotonic() + duration
    recordings = {
        host: _Recording(opened, interval, "none", files[host], host=host, until=until, library=library)
        for host, opened in hosts.items()
    }

    def end() -> None:
        for recording in recordings.values():
            recording.end()

    on_end_signals(end)
    for recording in recordings.values():
        recording.start()
    for recording in recordings.values():
        while recording.is_alive():
            recording.join(END_LIMIT)
    failed = []
    for host, recording in recordings.items():
        hosts[host].source.close()
        if recording.samples and not recording.failed:
            sys.stderr.write(f"{host}: {recording.samples} samples: vramtui --replay {recording.file}\n")
        else:
            problem = recording.problem or "it has sent no sample"
            failed.append(f"{host}: {problem.removeprefix(f'{host}: ')}")
    if failed:
        raise UserError("\n".join(failed))
