"""`vramtui record`: what this machine's GPUs do, into a file, without a screen."""

import queue
import signal
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.observation.matching import Matcher
from vramtui.core.observation.readings import Sample

if TYPE_CHECKING:
    from vramtui.cli.common.probe_client import ProbeClient
    from vramtui.monitor.fast_sampler import FastTargets
    from vramtui.monitor.poller import ReadQueue
    from vramtui.monitor.session import MonitorSession
    from vramtui.records.recording.writer import RecordingWriter

SAY_EVERY = 1.0
OVERDUE = "the driver does not answer; still waiting"


def record(
    file: Annotated[Path, typer.Argument(help="Output file; compressed when the name ends in .gz.")],
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between samples of the GPUs.")] = 1.0,
    duration: Annotated[float | None, typer.Option(min=0, help="Stop after this many seconds.")] = None,
    close: Annotated[
        str,
        typer.Option(
            metavar="auto|none|PID,…",
            help="Sample ten times a second, so that peaks between two samples are recorded: jobs that match a "
            "preset or have a probe (auto), nothing, or the processes with these pids.",
        ),
    ] = "auto",
    demo: Annotated[bool, typer.Option("--demo", help="The built-in demo host.")] = False,
) -> None:
    """Record until Ctrl-C (or for --duration seconds); play it back with `vramtui --replay FILE`.

    What jobs with a probe tell, what presets predict for processes, and every process's peak is recorded with it.
    """
    with exit_on_user_error():
        targets = fast_targets(close)
        opened = open_source(demo=demo, replay=None)
        _record(opened, targets, file, interval, float("inf") if duration is None else duration)


def fast_targets(said: str) -> "FastTargets":
    """What `--close` says: `auto`, `none` or pids.

    Raises:
        UserError: it is none of those.
    """
    words: dict[str, FastTargets] = {"auto": "auto", "none": "none"}
    if said in words:
        return words[said]
    pids = [part.strip() for part in said.split(",")]
    if not all(pid.isascii() and pid.isdigit() and len(pid) < 10 for pid in pids):
        raise UserError(f"--close takes auto, none, or pids with commas between them; not {said!r}")
    return frozenset(map(int, pids))


def _record(opened: OpenedSource, targets: "FastTargets", file: Path, interval: float, duration: float) -> None:
    from vramtui.cli.common.probe_client import ProbeClient  # noqa: PLC0415 - only where something is recorded
    from vramtui.monitor.poller import ReadQueue  # noqa: PLC0415 - as above

    progress = _Progress(file)
    with closing(ReadQueue(opened.source, interval)) as reads, closing(ProbeClient("record")) as probes:
        first = reads.sample(lambda: progress.trouble(OVERDUE))
        session = _session(opened, targets, probes)
        writer = _open(file, interval, first)
        following = _Following(reads, session, writer, progress)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Nothing is broken off: a line that is being written is written whole.
            signal.signal(number, following.end)
        try:
            following.follow(first, duration)
        finally:
            writer.close()
            progress.clear()
            session.close()
    sys.stderr.write(f"{progress.summary()}: vramtui --replay {file}\n")


def _session(opened: OpenedSource, targets: "FastTargets", probes: "ProbeClient") -> "MonitorSession":
    from vramtui.monitor.fast_sampler import fast_sampler_for  # noqa: PLC0415 - only where something is recorded
    from vramtui.monitor.session import MonitorSession  # noqa: PLC0415 - as above

    sampler = fast_sampler_for(opened.source, targets)
    if isinstance(targets, frozenset) and sampler is None:
        sys.stderr.write(f"vramtui: no fast sampling: {opened.source.name} cannot sample single processes\n")
    session = MonitorSession(jobs=opened.jobs or probes.jobs, sampler=sampler, targets=targets)
    if opened.jobs is None:
        probes.listen()
    if probes.problem:
        sys.stderr.write(f"vramtui: recording without probes: {probes.problem}\n")
    return session


def _read_presets(matchers: "queue.SimpleQueue[Matcher]") -> None:
    """Put in one that knows every preset."""
    from vramtui.monitor.session import of_command  # noqa: PLC0415 - on a thread, which nobody waits for
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - as above

    matchers.put(Matcher(PresetLibrary().all(), of_command))


def _open(file: Path, interval: float, first: Sample) -> "RecordingWriter":
    from vramtui.cli.common.versions import versions  # noqa: PLC0415 - only where something is recorded
    from vramtui.records.recording.writer import RecordingHeader, RecordingWriter  # noqa: PLC0415 - as above

    return RecordingWriter(
        file, RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
    )


class _Following:
    """Writes sample after sample until the time is over or a signal comes."""

    def __init__(
        self, reads: "ReadQueue", session: "MonitorSession", writer: "RecordingWriter", progress: "_Progress"
    ) -> None:
        self._reads = reads
        self._session = session
        self._writer = writer
        self._progress = progress
        self._is_over = False
        self._matchers: queue.SimpleQueue[Matcher] = queue.SimpleQueue()

    def follow(self, first: Sample, duration: float) -> None:
        """Write the first sample and those of the next `duration` seconds."""
        until = time.monotonic() + duration
        threading.Thread(target=_read_presets, args=(self._matchers,), name="read presets", daemon=True).start()
        self._write(first)
        while (now := time.monotonic()) < until and not self._is_over:
            result = self._reads.next(min(SAY_EVERY, until - now))
            if isinstance(result, Sample):
                self._write(result)
            elif isinstance(result, SourceFailed):
                self._progress.trouble(" ".join(filter(None, (result.message, result.hint))))
            elif result is not None:
                self._session.rest()
                self._progress.trouble(OVERDUE)

    def end(self, number: int, frame: FrameType | None) -> None:
        """A signal asked for the end: whoever waits for what comes next waits no more."""
        del number, frame
        self._is_over = True
        self._reads.wake()

    def _write(self, sample: Sample) -> None:
        if not self._matchers.empty():
            self._session.match_by(self._matchers.get())
        self._session.ingest(sample)
        self._writer.write(*self._session.recorded_tick())
        self._progress.took()


class _Progress:
    """A line on a terminal that says how far it has come; troubles are said once each."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._began = time.monotonic()
        self._samples = 0
        self._said = ""
        self._live = sys.stderr.isatty()

    def took(self) -> None:
        """Count a sample."""
        self._samples += 1
        if self._said:
            self._said = ""
            self._write("vramtui: driver is answering again\n")
        if self._live:
            sys.stderr.write(f"\r\x1b[K● {self.summary()}   Ctrl-C stops")
            sys.stderr.flush()

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last."""
        if sentence != self._said:
            self._said = sentence
            self._write(f"vramtui: {sentence}\n")

    def summary(self) -> str:
        """What there is so far."""
        count = f"{self._samples} sample{'s' if self._samples != 1 else ''}"
        passed = format_duration(time.monotonic() - self._began)
        return f"{count} in {passed}, {format_bytes(self._file.stat().st_size, 1)}"

    def clear(self) -> None:
        """Take the line away."""
        if self._live:
            sys.stderr.write("\r\x1b[K")

    def _write(self, text: str) -> None:
        self.clear()
        sys.stderr.write(text)
        sys.stderr.flush()
