"""`vramtui record`: what this machine's GPUs do, into a file, without a screen."""

import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.open_source import OpenedSource, open_source
from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.units import format_bytes, format_duration
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.source import Source

if TYPE_CHECKING:
    from vramtui.cli.record.fast_sampler import Wanted
    from vramtui.records.recording.writer import RecordingWriter

SAY_EVERY = 1.0
PATIENCE = 10.0  # seconds without an answer before that is said


def record(
    file: Annotated[Path, typer.Argument(help="Where to; compressed when the name ends in .gz.")],
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between looks at the GPUs.")] = 1.0,
    duration: Annotated[float | None, typer.Option(min=0, help="Seconds after which to end by itself.")] = None,
    close: Annotated[
        str,
        typer.Option(
            metavar="auto|none|PID,…",
            help="What to look at ten times a second, so that peaks between two looks are recorded: jobs that match a "
            "preset or have a probe (auto), nothing, or the processes with these pids.",
        ),
    ] = "auto",
    demo: Annotated[bool, typer.Option("--demo", help="The built-in demo host.")] = False,
) -> None:
    """Record until Ctrl-C (or for --duration seconds); play it back with `vramtui --replay FILE`.

    What jobs with a probe tell, what presets predict for processes, and every process's peak is recorded with it.
    """
    from vramtui.cli.record.fast_sampler import wanted  # noqa: PLC0415 - only where something is recorded

    with exit_on_user_error():
        closely = wanted(close)
        opened = open_source(demo=demo, replay=None)
        source = opened.source
        first = source.read()
        beside = _Beside(opened, closely)
        writer = _open(file, interval, first)
        feed = _Feed(source, interval)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            # Nothing is broken off: a line that is being written is written whole.
            signal.signal(number, feed.end)
        progress = _Progress(file)
        try:
            _follow(partial(beside.write, writer), first, feed, duration, progress, beside.rest)
        finally:
            writer.close()
            progress.clear()
            beside.close()
        sys.stderr.write(f"{progress.summary()}: vramtui --replay {file}\n")


def _open(file: Path, interval: float, first: Sample) -> "RecordingWriter":
    from vramtui.cli.common.versions import versions  # noqa: PLC0415 - only where something is recorded
    from vramtui.records.recording.writer import RecordingHeader, RecordingWriter  # noqa: PLC0415 - as above

    return RecordingWriter(
        file, RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
    )


class _Beside:
    """What is written with each sample: what probes told by then, predictions, and peaks."""

    def __init__(self, opened: OpenedSource, wanted: "Wanted") -> None:
        from vramtui.cli.common.probe_client import ProbeClient  # noqa: PLC0415 - as below
        from vramtui.cli.record.fast_sampler import FastTargets  # noqa: PLC0415 - as above
        from vramtui.cli.record.recorded_predictions import Predictions  # noqa: PLC0415 - only where something is recorded

        self._closely = FastTargets(opened.source, wanted)
        if isinstance(wanted, frozenset) and not self._closely.able:
            sys.stderr.write(f"vramtui: no close looks: {opened.source.name} cannot look at single processes\n")
        self._predictions = Predictions()
        self._predictions.start()
        self._probes = ProbeClient("record")
        self._jobs = opened.jobs or self._probes.jobs
        if opened.jobs is None:
            self._probes.listen()
        if self._probes.problem:
            sys.stderr.write(f"vramtui: recording without probes: {self._probes.problem}\n")

    def write(self, writer: "RecordingWriter", sample: Sample) -> None:
        """Add `sample` and what belongs to it."""
        jobs = self._jobs()
        predictions = self._predictions.of(sample)
        writer.write(sample, jobs, predictions, self._closely.take(sample, jobs, predictions))

    def rest(self) -> None:
        """The driver does not answer: ask it nothing more until it does."""
        self._closely.rest()

    def close(self) -> None:
        """Hear no more, look no more."""
        self._closely.close()
        self._probes.close()


def _follow(
    write: Callable[[Sample], None],
    first: Sample,
    feed: "_Feed",
    duration: float | None,
    progress: "_Progress",
    rest: Callable[[], None],
) -> None:
    until = float("inf") if duration is None else time.monotonic() + duration
    write(first)
    progress.took()
    feed.start()
    answered = time.monotonic()
    while (now := time.monotonic()) < until and not feed.over:
        taken = feed.next(min(SAY_EVERY, until - now))
        if isinstance(taken, Sample):
            answered = time.monotonic()
            write(taken)
            progress.took()
        elif isinstance(taken, SourceFailed):
            progress.trouble(" ".join(filter(None, (taken.message, taken.hint))))
        elif now - answered > max(PATIENCE, 2 * feed.interval):
            rest()
            progress.trouble("the driver does not answer; still waiting")


class _Feed(threading.Thread):
    """Takes samples on a thread of its own, so that a driver that hangs does not keep the program from ending."""

    def __init__(self, source: Source, interval: float) -> None:
        super().__init__(daemon=True)
        self.interval = interval
        self._source = source
        self._taken: queue.SimpleQueue[Sample | SourceFailed | None] = queue.SimpleQueue()
        self.over = False

    def run(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + self.interval, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                self._taken.put(self._source.read())
            except SourceFailed as error:
                self._taken.put(error)

    def end(self, number: int, frame: FrameType | None) -> None:
        """A signal asked for the end: whoever waits for what comes next waits no more."""
        del number, frame
        self.over = True
        self._taken.put(None)  # a SimpleQueue may be put into wherever the signal came

    def next(self, timeout: float) -> Sample | SourceFailed | None:
        """What was taken next; None when that takes more than `timeout` seconds, or the end was asked for."""
        try:
            return self._taken.get(timeout=max(0.0, timeout))
        except queue.Empty:
            return None


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
            self._write("vramtui: it goes on\n")
        if self._live:
            sys.stderr.write(f"\r\x1b[K● {self.summary()}   Ctrl-C ends it")
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
