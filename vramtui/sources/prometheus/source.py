"""One Prometheus server, asked once for all hosts; each host is a source of its own."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.units import format_duration
from vramtui.core.observation.readings import Sample
from vramtui.sources.prometheus.client import PrometheusClient
from vramtui.sources.prometheus.dcgm import AGES, NOW, PAST, host_of, past_samples, present, samples_of

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob

PAST_SECONDS, PAST_STEP = 900.0, 15.0
SILENT = 90.0  # seconds since a scrape after which a host is down: three of the longest usual interval
LEAST = 5.0  # seconds between two questions: nobody scrapes much more often
NO_GPUS = "It scrapes no dcgm-exporter: there is no series DCGM_FI_DEV_FB_USED."


class PrometheusFleet:
    """Asks for every host at once, on a thread of its own.

    Args:
        client: the server.
        interval: seconds between queries.
        clock: seconds since the epoch, which the server's are compared with.
    """

    def __init__(self, client: PrometheusClient, interval: float, clock: Callable[[], float] = time.time) -> None:
        self._client = client
        self._interval = interval
        self._clock = clock
        self._changed = threading.Condition()
        self._latest: dict[str, Sample] = {}
        self._failure: SourceFailed | None = None
        self._over = threading.Event()
        self._past: dict[str, list[Sample]] = {}

    def begin(self) -> tuple[str, ...]:
        """The hosts that there are, whose past is known from here on; begin to ask again and again.

        Raises:
            SourceFailed: the server does not answer, or knows no GPU.
        """
        self._latest = self._ask()
        if not self._latest:
            raise SourceFailed(f"{self._client.title}: no GPU.", NO_GPUS)
        now = self._clock()
        self._past = past_samples(self._client.query_range(PAST, now - PAST_SECONDS, now, PAST_STEP))
        threading.Thread(target=self._keep_asking, name="ask prometheus", daemon=True).start()
        return tuple(sorted(self._latest))

    def next(self, host: str, after: float) -> Sample:
        """The host's sample that was scraped after a time; where none comes for an interval, the latest again.

        Raises:
            SourceFailed: the server does not answer, or has not scraped this host of late.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._failure or self._is_newer(host, after), self._interval)
            if self._failure is not None:
                raise SourceFailed(self._failure.message, self._failure.hint)
            sample = self._latest.get(host)
            if sample is None:
                raise SourceFailed(f"{host}: Prometheus does not scrape it any more.")
            age = self._clock() - sample.taken_at
            if age >= SILENT:
                raise SourceFailed(f"{host}: Prometheus scraped it last {format_duration(age)} ago.")
            return sample

    def _is_newer(self, host: str, after: float) -> bool:
        sample = self._latest.get(host)
        return sample is not None and sample.taken_at > after

    def past(self, host: str) -> "PrometheusPast":
        """What the server knows of the time before."""
        return PrometheusPast(self._past.get(host, []))

    def close(self) -> None:
        """Ask no more."""
        self._over.set()

    def _ask(self) -> dict[str, Sample]:
        scraped: dict[str, float] = {}
        for labels, at in present(self._client.query(AGES)):
            host = host_of(labels)
            scraped[host] = max(at, scraped.get(host, 0.0))
        return samples_of(present(self._client.query(NOW)), scraped)

    def _keep_asking(self) -> None:
        while not self._over.is_set():
            begun = time.monotonic()
            try:
                latest, failure = self._ask(), None
            except SourceFailed as error:
                latest, failure = self._latest, error
            with self._changed:
                self._latest, self._failure = latest, failure
                self._changed.notify_all()
            # Woken for a change of ours as well, it does not ask sooner.
            self._over.wait(max(0.0, begun + max(LEAST, self._interval) - time.monotonic()))


class PrometheusPast:
    """The samples of a host before it was watched."""

    def __init__(self, samples: list[Sample]) -> None:
        self._samples = samples

    def samples(self) -> Iterator[Sample]:
        """The oldest first."""
        return iter(self._samples)

    def jobs(self) -> "Iterator[tuple[float, tuple[ObservedJob, ...]]]":
        """None: it knows of no probes."""
        return iter(())


class PrometheusSource:
    """One host."""

    name = "prometheus"

    def __init__(self, fleet: PrometheusFleet, host: str) -> None:
        self._fleet = fleet
        self._host = host
        self._last = 0.0

    def read(self) -> Sample:
        """What was scraped since the sample before.

        Raises:
            SourceFailed: the server does not answer, or has not scraped this host of late.
        """
        sample = self._fleet.next(self._host, self._last)
        self._last = sample.taken_at
        return sample

    def close(self) -> None:
        """Ask for no host any more."""
        self._fleet.close()
