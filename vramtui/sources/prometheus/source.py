"""One Prometheus server, asked once for all hosts; each host is a source of its own."""

import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from math import isfinite
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB, format_duration
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Host, Memory, Process, Sample
from vramtui.sources.prometheus.client import PrometheusClient, PrometheusSeries

if TYPE_CHECKING:
    from vramtui.core.observation.probe_messages import ObservedJob


FIELDS = {
    "DCGM_FI_DEV_FB_USED": "used",
    "DCGM_FI_DEV_FB_FREE": "free",
    "DCGM_FI_DEV_FB_RESERVED": "reserved",
    "DCGM_FI_DEV_GPU_UTIL": "utilization",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "memory_utilization",
    "DCGM_FI_DEV_GPU_TEMP": "temperature_celsius",
    "DCGM_FI_DEV_POWER_USAGE": "power_watts",
    "DCGM_FI_DEV_SM_CLOCK": "sm_clock_mhz",
    "DCGM_FI_DEV_MEM_CLOCK": "memory_clock_mhz",
}
NOW = f'{{__name__=~"{"|".join(FIELDS)}"}}'
"""The query for all of them."""
AGES = "timestamp(DCGM_FI_DEV_FB_USED)"
"""When each was scraped last: an instant query shows a value for five minutes after its target has gone."""
PAST = '{__name__=~"DCGM_FI_DEV_FB_USED|DCGM_FI_DEV_FB_FREE|DCGM_FI_DEV_FB_RESERVED|DCGM_FI_DEV_GPU_UTIL"}'
_MEMORY = ("used", "free", "reserved")
_MOST = 1 << 30  # MiB, per cent, watts: more than any card has
_POD = ("namespace", "pod", "container")
Device = tuple[str, str]  # uuid, and the MIG instance's number or nothing


class _Found:
    """What the series say of one device; of several pods on one card each has the card's figures."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.figures: dict[str, float] = {}
        self.pods: dict[tuple[str, str, str], None] = {}


def host_of(labels: Mapping[str, str]) -> str:
    """The machine that a series is of."""
    return printable(labels.get("Hostname") or labels.get("instance", "").rpartition(":")[0] or "unknown")


def samples_of(series: Iterable[tuple[Mapping[str, str], float]], taken_at: Mapping[str, float]) -> dict[str, Sample]:
    """A sample for each host in `taken_at` (seconds since the epoch), of series that are labels and a figure."""
    hosts: dict[str, dict[Device, _Found]] = {}
    for labels, figure in series:
        host, field = host_of(labels), FIELDS.get(labels.get("__name__", ""))
        if field is None or host not in taken_at or not isfinite(figure) or not 0 <= figure < _MOST:
            continue
        device = (labels.get("UUID", ""), labels.get("GPU_I_ID", ""))
        labelled = hosts.setdefault(host, {}).setdefault(device, _Found(labels))
        labelled.figures[field] = figure
        pod = _pod(labels)
        if pod[1]:
            labelled.pods[pod] = None
    return {
        host: bounded(
            Sample(
                taken_at=taken_at[host],
                source="prometheus",
                host=Host(name=host),
                gpus=tuple(sorted((_gpu(device, labelled) for device, labelled in devices.items()), key=_place)),
            )
        )
        for host, devices in hosts.items()
    }


def present(series: Iterable[PrometheusSeries]) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and figure of each series of an instant query."""
    for row in series:
        if row.value is not None:
            yield row.metric, _figure(row.value[1])


def past_samples(series: Iterable[PrometheusSeries]) -> dict[str, list[Sample]]:
    """The samples of a range query for each host, the oldest first."""
    moments: dict[float, list[tuple[Mapping[str, str], float]]] = {}
    for row in series:
        for at, figure in row.values:
            moments.setdefault(at, []).append((row.metric, _figure(figure)))
    samples: dict[str, list[Sample]] = {}
    for at in sorted(moments):
        times = {host_of(labels): at for labels, _ in moments[at]}
        for host, sample in samples_of(moments[at], times).items():
            samples.setdefault(host, []).append(sample)
    return samples


def _gpu(device: Device, series: _Found) -> Gpu:
    labels, figures = series.labels, series.figures
    used, free, reserved = (_bytes(figures.get(name)) for name in _MEMORY)
    total = None if used is None or free is None else used + free + (reserved or 0)
    whole = {name: figures[name] for name in figures if name not in _MEMORY}
    metrics: dict[str, float | int] = {
        name: figure if name == "power_watts" else round(figure) for name, figure in whole.items()
    }
    uuid, instance = device
    processes = tuple(_process(pod, used if len(series.pods) == 1 else None) for pod in series.pods)
    absent = {name: _why_absent(name) for name in METRICS if name not in metrics}
    if not processes:
        absent["processes"] = Absence.NOT_SUPPORTED
    if used is None:
        absent["memory"] = Absence.NOT_SUPPORTED
    gpu = Gpu(
        index=_number(labels.get("gpu", "")),
        uuid=f"{uuid}/{instance}" if instance else uuid,
        name=printable(labels.get("modelName") or "GPU"),
        memory=Memory(total=total, used=used, reserved=reserved, free=free),
        processes=processes,
        mig_parent=uuid if instance else None,
        mig_profile=printable(labels.get("GPU_I_PROFILE", "")) or None if instance else None,
        absent=absent,
    )
    return msgspec.structs.replace(gpu, **metrics)


def _why_absent(name: str) -> Absence:
    """What NOW asks for the server has no series of; nothing else is asked for."""
    return Absence.NOT_SUPPORTED if name in FIELDS.values() else Absence.NOT_ASKED


def _process(pod: tuple[str, str, str], used: int | None) -> Process:
    """The pod that has a GPU, in a process's place: a number below 0 that stays the same stands for its pids."""
    namespace, name, container = (printable(word) for word in pod)
    command = f"{namespace}/{name}" + (f" container {container}" if container else "")
    hidden = dict.fromkeys(("started_at",), Absence.NOT_SUPPORTED)
    if used is None:
        hidden["used_memory"] = Absence.NOT_SUPPORTED  # several share the card, and DCGM knows the card's alone
    pid = -1 - zlib.crc32(command.encode(errors="replace"))
    return Process(
        pid=pid, type="C", used_memory=used, user=namespace or None, name=name, command=command, absent=hidden
    )


def _pod(labels: Mapping[str, str]) -> tuple[str, str, str]:
    # Where a label of the target's own name was there already, Prometheus has renamed the exporter's.
    prefix = "exported_" if labels.get("exported_pod") else ""
    namespace, pod, container = (labels.get(prefix + name, "") for name in _POD)
    return namespace, pod, container


def _place(gpu: Gpu) -> tuple[int, str]:
    return (gpu.index, gpu.uuid)


def _bytes(figure: float | None) -> int | None:
    return None if figure is None else round(figure * MIB)


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0


def _figure(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


PAST_SECONDS, PAST_STEP = 900.0, 15.0
SILENT = 90.0  # seconds since a scrape after which a host is down: three of the longest usual interval
LEAST = 5.0  # seconds between two questions: nobody scrapes much more often
NO_GPUS = "There is no series DCGM_FI_DEV_FB_USED: it scrapes no dcgm-exporter, nor `vramtui export` without --no-dcgm."


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
        """An empty result: Prometheus knows of no probes."""
        return iter(())


class PrometheusSource:
    """One host of Prometheus's targets as a source."""

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
