"""`vramtui stream`: what `record` writes, to standard output, for a program that reads along."""

import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, exit_on_user_error, on_end_signals, require_open_files
from vramtui.cli.common.open_source import open_source
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.options.shared_options import Demo
from vramtui.cli.record.follow import OVERDUE, Follower, fast_targets, recording_session
from vramtui.core.base.errors import UserError
from vramtui.monitor.poller import ReadQueue

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import RecordedTick
    from vramtui.monitor.fast_sampler import FastTargets
    from vramtui.records.recording.recording import RecordingHeader


def stream(
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between samples of the GPUs.")] = 1.0,
    duration: Annotated[float | None, typer.Option(min=0, help="Stop after this many seconds.")] = None,
    close: Annotated[
        str,
        typer.Option(metavar="auto|none|PID,…", help="Which processes to sample ten times a second, as for `record`."),
    ] = "auto",
    demo: Demo = False,
) -> None:
    """Write a recording of this machine to standard output until its reader closes the pipe.

    The reader may be a file, another vramtui (`vramtui --feed -`), or one on another host: `--host` runs this command
    there. A reader that does not keep up misses samples, never peaks.
    """
    with exit_on_user_error():
        require_open_files(RECORDER_ROOM)
        if sys.stdout is None or sys.stdout.isatty():
            raise UserError("a stream is for a program, and this is a terminal; see `vramtui ps --watch`")
        _stream(fast_targets(close), interval, float("inf") if duration is None else duration, demo=demo)


def _stream(targets: "FastTargets", interval: float, duration: float, *, demo: bool) -> None:
    from vramtui.cli.common.versions import versions
    from vramtui.records.recording.recording import RecordingHeader

    opened = open_source(demo=demo, replay=None)
    report = _StandardError()
    with closing(ReadQueue(opened.source, interval)) as reads, closing(ProbeClient("stream")) as probes:

        def end() -> None:
            # A pipe that nobody empties would hold up a gentler end; a reader leaves a cut line out.
            probes.vanish()
            os._exit(0)

        on_end_signals(end)
        first = reads.sample(lambda: report.trouble(OVERDUE))
        session = recording_session(opened, targets, probes)
        header = RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
        try:
            Follower(reads, session, StandardOutput(header), report, newest=True).follow(first, duration)
        finally:
            session.close()


class StandardOutput:
    """Writes a recording to standard output, each moment in one piece.

    Args:
        header: the first line.
    """

    def __init__(self, header: "RecordingHeader") -> None:
        from vramtui.records.recording.writer import RecordingEncoder

        self._encoder = RecordingEncoder()
        self._out = sys.stdout.buffer
        self._write(self._encoder.header(header))

    def write(self, tick: "RecordedTick") -> None:
        """Write one moment; waits while the pipe is full.

        Raises:
            BrokenPipeError: nobody reads any more.
        """
        self._write(self._encoder.lines(tick))

    def _write(self, text: bytes) -> None:
        self._out.write(text)
        self._out.flush()


class _StandardError:
    """Says a trouble once, and that it is over."""

    def __init__(self) -> None:
        self._trouble = ""

    def took(self) -> None:
        """All is well."""
        self._trouble = ""

    def trouble(self, sentence: str) -> None:
        """Say what is wrong, unless it was said last."""
        if sentence != self._trouble:
            self._trouble = sentence
            sys.stderr.write(f"vramtui: {sentence}\n")
            sys.stderr.flush()
