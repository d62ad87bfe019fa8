"""One look at each of several hosts, all at once: one that does not answer holds up no other."""

import time
from typing import TYPE_CHECKING

from vramtui.cli.common.open_source import OpenedSource
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.matcher import Matcher
from vramtui.core.observation.readings import Sample
from vramtui.monitor.poller import ReadQueue
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.probes import no_jobs
from vramtui.monitor.session import MonitorSession
from vramtui.sources.ssh.failures import TOO_MANY

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import Snapshot

FIRST = 40.0  # seconds for all to connect; who takes longer is said not to answer


class HostWatch:
    """One host: its session, and what comes of its reads, which begin at once.

    Attributes:
        jobs: what its jobs tell of themselves.

    Args:
        opened: its source.
        matcher: finds the presets of its processes.
        interval: seconds between reads.
        predictor: makes estimates, for all hosts.
    """

    def __init__(self, opened: OpenedSource, matcher: Matcher, interval: float, predictor: Predictor) -> None:
        self.jobs = opened.jobs or no_jobs
        self._source = opened.source
        self._session = MonitorSession(jobs=self.jobs, predictor=predictor)
        self._session.recorded_peaks = opened.peaks
        self._session.match_by(matcher)
        self._reads = ReadQueue(opened.source, interval)
        self._reads.begin()

    def answer(self, seconds: float) -> "Snapshot | SourceFailed":
        """What it shows now, for which it waits at most so long."""
        until = time.monotonic() + seconds
        result = self._reads.next(seconds)
        while result is not None and not isinstance(result, Sample) and time.monotonic() < until:
            if isinstance(result, SourceFailed) and TOO_MANY not in result.message:
                break
            # A read is overdue, or a busy server has thrown the connection away: an answer may come yet.
            result = self._reads.next(until - time.monotonic())
        if isinstance(result, Sample):
            self._session.ingest(result)
            return self._session.snapshot()
        return result if isinstance(result, SourceFailed) else SourceFailed("no answer.")

    def close(self) -> None:
        """End the connection."""
        self._source.close()


def why_not(name: str, failure: SourceFailed) -> str:
    """The sentence that says why a host shows nothing."""
    said = failure.sentence
    return said if said.startswith(name) else f"{name}: {said}"
