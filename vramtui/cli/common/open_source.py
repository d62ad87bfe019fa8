"""Which source a command looks through, and what is to be said about the choice."""

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.source import Source, answerer

if TYPE_CHECKING:
    from collections.abc import Callable

    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.monitor.job_memory import EarlierSamples
    from vramtui.monitor.session import RecordedPeaks
    from vramtui.records.recording.growing_recording import GrowingRecording
    from vramtui.records.recording.writer import Recording

M_ARENA_MAX = -8  # of glibc's malloc.h
DEMO = "This is the built-in demo, its GPUs are not real"


class OpenedSource(msgspec.Struct, frozen=True):
    """A source, the sentence to show above it, the recording that it plays, what its jobs tell, the peaks that its
    samples do not show, and what is known of the time before it was opened (each or None). `elsewhere` where its
    processes are not this machine's.
    """

    source: Source
    banner: str | None = None
    recording: "Recording | GrowingRecording | None" = None
    jobs: "Callable[[], tuple[ObservedJob, ...]] | None" = None
    peaks: "RecordedPeaks | None" = None
    elsewhere: bool = False
    past: "EarlierSamples | None" = None

    @property
    def is_real(self) -> bool:
        """Whether it is this machine as it is now."""
        return not self.banner and self.recording is None and not self.elsewhere


def use_one_heap() -> None:
    """Let all threads allocate from one heap, as far as the C library knows how (glibc; to be called before there are
    threads).

    By itself glibc gives each thread a heap of its own, and what a thread's reads leave in pieces there is no other's:
    over nine minutes of churn the dashboard's resident memory rose from 88 to 95 MB, beside 76 to 79 MB with one heap
    (`benchmarks/soak.py`). Python's own lock lets one thread allocate at a time anyway.
    """
    import ctypes

    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library, or none to be called
        ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1)


def open_source(
    *, demo: bool, replay: Path | None, feed: str | None = None, fall_back: bool = False, at_once: bool = False
) -> OpenedSource:
    """The source the options ask for; this machine's GPUs by default.

    Args:
        demo: the built-in host.
        replay: a recording.
        feed: a recording that is still being written: a pipe, a file, or `-` for standard input.
        fall_back: show the demo, and say why, where this machine's GPUs cannot be read.
        at_once: take a long recording as soon as its beginning is read; the rest is then read when somebody asks.

    Raises:
        UserError: more than one was asked for, or the recording cannot be read.
        SourceFailed: this machine's GPUs cannot be read and there is no falling back.
    """
    asked = [name for name, wanted in (("--demo", demo), ("--replay", replay), ("--feed", feed)) if wanted]
    use_one_heap()
    if len(asked) > 1:
        raise UserError(f"{' and '.join(asked)} show different things; give one of them")
    if feed is not None:
        return _open_feed(feed)
    if replay is not None:
        return _open_growing(replay) if at_once else _open_recording(replay)
    if demo:
        return _demo(f"{DEMO}.")
    from vramtui.sources.pick import pick_source  # loads pynvml, which the demo does not need

    try:
        return OpenedSource(pick_source())
    except SourceFailed as error:
        if not fall_back:
            raise
        return _demo(f"{DEMO}: {error.sentence}")


def with_gpus(opened: OpenedSource, only: str | None) -> OpenedSource:
    """Only these of its GPUs: indices, beginnings of uuids, or `visible`; all where it is None.

    Raises:
        UserError: that names no GPU, or a recording is played.
    """
    if only is None:
        return opened
    from vramtui.sources.some_gpus import SomeGpus, gpu_names

    if opened.recording is not None:
        raise UserError("a recording has the GPUs that it has: filter its rows (/ gpu:0) in place of choosing GPUs")
    return msgspec.structs.replace(opened, source=SomeGpus(opened.source, gpu_names(only)))


def say_overdue(source: Source) -> None:
    """Say that a read takes longer than it should; it is waited for all the same."""
    say_waiting(answerer(source))


def say_waiting(name: str) -> None:
    """Say on standard error whose answer is overdue."""
    sys.stderr.write(f"vramtui: {printable(name)} does not answer; still waiting\n")


def _demo(banner: str) -> OpenedSource:
    from vramtui.cli.common.demo_history import DemoHistory
    from vramtui.sources.demo import DemoSource

    demo = DemoSource()

    def jobs() -> "tuple[ObservedJob, ...]":
        from vramtui.cli.common.demo_probe import demo_jobs

        return demo_jobs(demo)

    return OpenedSource(demo, banner, jobs=jobs, past=DemoHistory(demo))


def _open_feed(feed: str) -> OpenedSource:
    from vramtui.cli.common.feed import open_descriptor
    from vramtui.records.recording.live import LiveRecording
    from vramtui.sources.feed.pipe import PipeSource

    live = LiveRecording()
    title = "standard input" if feed == "-" else feed
    source = PipeSource(open_descriptor(feed), title, live)
    return OpenedSource(source, jobs=live.jobs, peaks=live.peaks, elsewhere=True)


def _open_growing(path: Path) -> OpenedSource:
    from vramtui.records.recording.growing_recording import open_recording

    return _replayed(path, open_recording(path))


def _open_recording(path: Path) -> OpenedSource:
    from vramtui.cli.common.progress import ReadingProgress
    from vramtui.records.recording.writer import read_recording

    progress = ReadingProgress(path)
    try:
        recording = read_recording(path, progress)
    finally:
        progress.clear()
    return _replayed(path, recording)


def _replayed(path: Path, recording: "Recording | GrowingRecording") -> OpenedSource:
    from vramtui.sources.replay import ReplaySource

    notes = "; ".join((f"replay of {printable(path.name)}", *recording.warnings))
    return OpenedSource(ReplaySource(recording.samples, times=recording.times), notes, recording)
