"""Handing on sample after sample, with what follows from them: what `record` and `stream` both do."""

import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.fast_sampler import FastTargets, fast_sampler_for
from vramtui.monitor.poller import ReadQueue

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import RecordedTick
    from vramtui.monitor.session import MonitorSession

LOOK_EVERY = 1.0
OVERDUE = "the driver does not answer; still waiting"


class TickSink(Protocol):
    """Where a recording goes."""

    def write(self, tick: "RecordedTick") -> None:
        """Take one moment; may wait for whoever reads."""
        ...


class TroubleReport(Protocol):
    """Where it is said how it goes."""

    def took(self) -> None:
        """A sample is written."""
        ...

    def trouble(self, sentence: str) -> None:
        """Something is wrong; the same may be said again and again."""
        ...


def fast_targets(choice: str) -> FastTargets:
    """What `--close` says: `auto`, `none` or pids.

    Raises:
        UserError: it is none of those.
    """
    words: dict[str, FastTargets] = {"auto": "auto", "none": "none"}
    if choice in words:
        return words[choice]
    pids = [part.strip() for part in choice.split(",")]
    if not all(pid.isascii() and pid.isdigit() and len(pid) < 10 for pid in pids):
        raise UserError(f"--close takes auto, none, or pids with commas between them; not {choice!r}")
    return frozenset(map(int, pids))


def recording_session(opened: OpenedSource, targets: FastTargets, probes: ProbeClient) -> "MonitorSession":
    """What is known of the host that is recorded; this user's probes are heard where it is this machine."""
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


def preset_matchers() -> Callable[[], Matcher]:
    """Reads every preset, and gives one matcher after another that knows them."""
    from vramtui.monitor.job_presets import matcher_of  # on a thread, which nobody waits for
    from vramtui.presets import PresetLibrary

    presets = PresetLibrary().all()
    return lambda: matcher_of(presets)


def _read_presets(matchers: queue.SimpleQueue[Matcher]) -> None:
    """Put in one that knows every preset."""
    matchers.put(preset_matchers()())


class Follower:
    """Writes sample after sample until the time is over or a signal comes.

    Args:
        reads: where samples come from.
        session: takes each of them.
        sink: where they go.
        report: is told how it goes.
        newest: write only the newest of samples that had to wait; peaks of the others go with it.
        presets: gives what matches processes, at once; None: presets are read beside the recording.
    """

    def __init__(
        self,
        reads: ReadQueue,
        session: "MonitorSession",
        sink: TickSink,
        report: TroubleReport,
        *,
        newest: bool = False,
        presets: Callable[[], Matcher] | None = None,
    ) -> None:
        self._reads = reads
        self._session = session
        self._sink = sink
        self._report = report
        self._newest = newest
        self._presets = presets
        self._is_over = False
        self._matchers: queue.SimpleQueue[Matcher] = queue.SimpleQueue()

    def follow(self, first: Sample, duration: float) -> None:
        """Write the first sample and those of the next `duration` seconds."""
        until = time.monotonic() + duration
        if self._presets is not None:
            self._matchers.put(self._presets())
        else:
            threading.Thread(target=_read_presets, args=(self._matchers,), name="read presets", daemon=True).start()
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
        """Take no more: whoever waits for what comes next waits no longer."""
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


LONG = 10**9  # seconds: until it is ended


@dataclass(frozen=True, kw_only=True)
class FollowOptions:
    """How a host is followed.

    Attributes:
        duration: seconds.
        newest: hand on only the newest of samples that had to wait.
        targets: which processes are looked at between samples.
        probes: hears this machine's jobs, where it is this machine that is followed.
    """

    duration: float = LONG
    newest: bool = False
    targets: FastTargets = "none"
    probes: ProbeClient | None = None


class HostFollower(threading.Thread):
    """Hands on what a host shows until the time is over, or `finish`.

    Args:
        opened: its source.
        interval: seconds between samples.
        open_sink: opens what the samples go to, when the first has come.
        report: is told how it goes.
        presets: gives what matches its processes. It is read once for all hosts, on one thread.
        options: how.

    Attributes:
        problem: what ended it before its time; empty while nothing has.
    """

    def __init__(
        self,
        opened: OpenedSource,
        interval: float,
        open_sink: Callable[[Sample], AbstractContextManager[TickSink]],
        report: TroubleReport,
        presets: Callable[[], Matcher],
        options: FollowOptions,
    ) -> None:
        super().__init__(name="follow host", daemon=True)
        self.problem = ""
        self._opened = opened
        self._open_sink = open_sink
        self._report = report
        self._presets = presets
        self._options = options
        self._probes = options.probes or ProbeClient("record")
        self._until = time.monotonic() + options.duration
        self._reads = ReadQueue(opened.source, interval)
        self._follower: Follower | None = None
        self._is_over = False

    def run(self) -> None:
        """Until the time is over, or `finish`."""
        try:
            first = self._first()
            if first is None:
                return
            session = recording_session(self._opened, self._options.targets, self._probes)
            with self._open_sink(first) as sink:
                self._follower = Follower(
                    self._reads, session, sink, self._report, newest=self._options.newest, presets=self._presets
                )
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
