"""Following one of several hosts on a thread of its own; one that is down is waited for."""

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from vramtui.cli.common.open_source import OpenedSource
from vramtui.cli.common.probe_client import ProbeClient
from vramtui.cli.record.follow import Follower, TickSink, TroubleReport, recording_session
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.fast_sampler import FastTargets
from vramtui.monitor.poller import ReadQueue

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
        """End it."""
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
