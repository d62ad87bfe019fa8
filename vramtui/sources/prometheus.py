"""GPUs as a Prometheus server knows them from dcgm-exporter: one query for all hosts; each host is a source.

It uses Prometheus' HTTP query API (stable since 2.0), with a token only over https or to this machine.
"""

import http.client
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from ipaddress import ip_address
from math import isfinite
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB, format_duration
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Host, Memory, Process, Sample

if TYPE_CHECKING:
    pass

TIMEOUT = 10.0  # seconds of each read
PATIENCE = {"query": 10.0, "query_range": 30.0}  # seconds of a whole exchange
LARGEST = 256 << 20  # bytes of an answer: a past of 15 minutes of 10,000 GPUs is 100 MiB
# Each series has two objects, and each of its values is a list: these 10,000 GPUs have 90,000 series, and their past
# 40,000 with 60 values each.
MOST_OBJECTS, MOST_LISTS = 1 << 19, 3_000_000
LONGEST_TOKEN = 16384


class PrometheusSeries(msgspec.Struct, frozen=True):
    """One series: its labels, and its values as (seconds since the epoch, figure as text)."""

    metric: dict[str, str]
    value: tuple[float, str] | None = None
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct, frozen=True):
    result: tuple[PrometheusSeries, ...] = ()


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: a token is only for the server that was named."""

    def redirect_request(self, *_: object, **__: object) -> None:
        """Return no new request."""


class PrometheusClient:
    """Asks one server.

    Args:
        url: `https://prometheus.example`, or with a path before `/api/v1`.
        token_file: holds a bearer token; it is read for each request, as it may be renewed, and never shown.

    Raises:
        UserError: not an address, or a token would go over a network unencrypted.
    """

    def __init__(self, url: str, token_file: Path | None = None) -> None:
        parts = urllib.parse.urlsplit("")
        with suppress(ValueError):  # a bracket without the other
            parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise UserError(f"--prometheus takes an address like http://localhost:9090, not {printable(url)!r}")
        if parts.username or parts.password or parts.query:
            raise UserError("--prometheus: a password or query does not belong into the address; see --token-file")
        if token_file is not None and parts.scheme == "http" and not is_loopback(parts.hostname):
            raise UserError("--token-file: a token goes over https or to this machine only, and this is http")
        self.title = parts.netloc
        self._base = url.rstrip("/")
        self._token_file = token_file
        self._reading: threading.Thread | None = None
        # Over http no certificate is checked: loading them takes a tenth of a second of a slow host.
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if parts.scheme == "http" else ssl.create_default_context()
        self._opener = urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=context))

    def query(self, expression: str) -> tuple[PrometheusSeries, ...]:
        """Return the present value of every series; raises SourceFailed without an answer, or for an error."""
        return self._ask("query", {"query": expression})

    def query_range(self, expression: str, start: float, end: float, step: float) -> tuple[PrometheusSeries, ...]:
        """Return the values of every series from `start` to `end`, seconds since the epoch, each `step` seconds. Raises
        SourceFailed without an answer, or for an error.
        """
        span = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression, **span})

    def _ask(self, what: str, fields: dict[str, str]) -> tuple[PrometheusSeries, ...]:
        headers = {}
        if (path := self._token_file) is not None:
            try:
                token = path.read_text(encoding="ascii")[:LONGEST_TOKEN].strip()
            except (OSError, UnicodeDecodeError) as error:
                why = getattr(error, "strerror", None) or "not a text file"
                raise SourceFailed(f"{path} cannot be read: {why.lower()}.") from None
            if not token or not token.isprintable() or " " in token:
                raise SourceFailed(f"{path} holds no token.")
            headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(  # noqa: S310 - http or https, as __init__ has checked
            f"{self._base}/api/v1/{what}", data=urllib.parse.urlencode(fields).encode(), headers=headers
        )
        text = self._whole(request, PATIENCE[what])
        if len(text) > LARGEST:
            raise SourceFailed(f"{self.title}: the answer is larger than {LARGEST >> 20} MiB.")
        if text.count(b"{") > MOST_OBJECTS or text.count(b"[") > MOST_LISTS:
            raise SourceFailed(f"{self.title}: the answer has more series than {MOST_OBJECTS // 20:,} GPUs have.")
        try:
            read = msgspec.json.decode(text, type=_Answer)
        except (msgspec.DecodeError, RecursionError):
            raise SourceFailed(f"{self.title}: the answer is not Prometheus'.", "Is the address right?") from None
        if read.status != "success" or read.data is None:
            raise SourceFailed(f"{self.title}: {printable(read.error)[:200] or 'the query failed'}.")
        return read.data.result

    def _whole(self, request: urllib.request.Request, patience: float) -> bytes:
        """Return the whole answer within `patience` seconds. A thread reads it, as headers and bytes may drip for ever,
        each of them in time.
        """
        if self._reading is not None and self._reading.is_alive():
            raise SourceFailed(f"{self.title}: its answer before this one still goes on.")
        until = time.monotonic() + patience
        answers: SimpleQueue[bytes | SourceFailed] = SimpleQueue()
        self._reading = threading.Thread(
            target=lambda: answers.put(self._read(request, until, patience)), name="read prometheus", daemon=True
        )
        self._reading.start()
        try:
            answer = answers.get(timeout=patience)
        except Empty:
            raise self._late(patience) from None
        self._reading = None  # it has answered, and ends
        if isinstance(answer, SourceFailed):
            raise answer
        return answer

    def _late(self, patience: float) -> SourceFailed:
        return SourceFailed(f"{self.title}: no whole answer within {patience:.0f} s.")

    def _read(self, request: urllib.request.Request, until: float, patience: float) -> bytes | SourceFailed:
        chunks, size = [], 0
        try:
            with self._opener.open(request, timeout=TIMEOUT) as answer:
                while size <= LARGEST and (piece := answer.read1(1 << 20)):
                    if time.monotonic() >= until:
                        return self._late(patience)
                    chunks.append(piece)
                    size += len(piece)
        except urllib.error.HTTPError as error:
            with error:
                body = error.read(1 << 16)
            if error.code in (401, 403):
                return SourceFailed(f"{self.title} needs a token (status {error.code}).", "See --token-file.")
            try:
                reason = msgspec.json.decode(body, type=_Answer).error
            except (msgspec.DecodeError, RecursionError):
                reason = ""
            shown = printable(reason)[:200] or f"status {error.code}"
            return SourceFailed(f"{self.title}: {shown}.", "Is the address right?")
        except (OSError, http.client.HTTPException, ValueError) as error:
            cause = getattr(error, "reason", error)
            why = getattr(cause, "strerror", None) or str(cause)
            return SourceFailed(f"{self.title}: no answer: {printable(why).lower()[:200]}.")
        return b"".join(chunks)


def is_loopback(name: str) -> bool:
    """Return whether a name or address is this machine's own."""
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


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
PAST_SECONDS, PAST_STEP = 900.0, 15.0
SILENT = 90.0  # seconds since a scrape after which a host is down: three of the longest usual interval
LEAST = 5.0  # seconds between two questions: scrapes are seldom more frequent
NO_GPUS = "There is no series DCGM_FI_DEV_FB_USED: it scrapes no dcgm-exporter, nor `vramtui export` without --no-dcgm."
_MEMORY = ("used", "free", "reserved")
_MOST = 1 << 30  # MiB, per cent, watts: more than any card has
Device = tuple[str, str]  # uuid, and the MIG instance's number or nothing


class _Found:
    """The series of one device; if several pods share a card, each has the card's figures."""

    def __init__(self, labels: Mapping[str, str]) -> None:
        self.labels = labels
        self.figures: dict[str, float] = {}
        self.pods: dict[tuple[str, str, str], None] = {}


def host_of(labels: Mapping[str, str]) -> str:
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
        # If the target has a label of that name, Prometheus renames the exporter's.
        prefix = "exported_" if labels.get("exported_pod") else ""
        if labels.get(f"{prefix}pod"):
            namespace, pod, container = (labels.get(prefix + name, "") for name in ("namespace", "pod", "container"))
            labelled.pods[namespace, pod, container] = None
    return {
        host: bounded(
            Sample(
                taken_at=taken_at[host],
                source="prometheus",
                host=Host(name=host),
                gpus=tuple(
                    sorted(
                        (_gpu(device, labelled) for device, labelled in devices.items()),
                        key=lambda gpu: (gpu.index, gpu.uuid),
                    )
                ),
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


def _figure(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _gpu(device: Device, series: _Found) -> Gpu:
    labels, figures = series.labels, series.figures
    used, free, reserved = (None if figures.get(name) is None else round(figures[name] * MIB) for name in _MEMORY)
    metrics: dict[str, float | int] = {
        name: figure if name == "power_watts" else round(figure)
        for name, figure in figures.items()
        if name not in _MEMORY
    }
    uuid, instance = device
    processes = []
    for pod in series.pods:  # the pod that has a GPU, instead of a process
        namespace, name, container = map(printable, pod)
        command = f"{namespace}/{name}" + (f" container {container}" if container else "")
        hidden, is_alone = dict.fromkeys(("started_at",), Absence.NOT_SUPPORTED), len(series.pods) == 1
        if used is None or not is_alone:
            hidden["used_memory"] = Absence.NOT_SUPPORTED  # several share the card, and DCGM only knows the card's
        processes.append(
            Process(
                pid=-1 - zlib.crc32(command.encode(errors="replace")),  # a constant number below 0 stands for its pids
                type="C",
                used_memory=used if is_alone else None,
                user=namespace or None,
                name=name,
                command=command,
                absent=hidden,
            )
        )
    # NOW asks for FIELDS, and for nothing else.
    absent = {
        name: Absence.NOT_SUPPORTED if name in FIELDS.values() else Absence.NOT_ASKED
        for name in METRICS
        if name not in metrics
    }
    if not processes:
        absent["processes"] = Absence.NOT_SUPPORTED
    if used is None:
        absent["memory"] = Absence.NOT_SUPPORTED
    index = labels.get("gpu", "")
    gpu = Gpu(
        index=int(index) if index.isascii() and index.isdigit() and len(index) < 6 else 0,
        uuid=f"{uuid}/{instance}" if instance else uuid,
        name=printable(labels.get("modelName") or "GPU"),
        memory=Memory(
            total=None if used is None or free is None else used + free + (reserved or 0),
            used=used,
            reserved=reserved,
            free=free,
        ),
        processes=tuple(processes),
        mig_parent=uuid if instance else None,
        mig_profile=printable(labels.get("GPU_I_PROFILE", "")) or None if instance else None,
        absent=absent,
    )
    return msgspec.structs.replace(gpu, **metrics)


class PrometheusFleet:
    """Asks for every host at once, on a thread of its own."""

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
        """Begin to ask again and again; return the hosts that there are, with their past. Raises SourceFailed if the
        server does not answer, or knows no GPU.
        """
        self._latest = self._ask()
        if not self._latest:
            raise SourceFailed(f"{self._client.title}: no GPU.", NO_GPUS)
        now = self._clock()
        self._past = past_samples(self._client.query_range(PAST, now - PAST_SECONDS, now, PAST_STEP))
        threading.Thread(target=self._keep_asking, name="ask prometheus", daemon=True).start()
        return tuple(sorted(self._latest))

    def next(self, host: str, after: float) -> Sample:
        """Wait for the host's sample that was scraped after a time; if none comes for an interval, the latest again.
        Raises SourceFailed if the server does not answer, or has not scraped this host of late.
        """

        def has_come() -> bool:
            sample = self._latest.get(host)
            return self._failure is not None or (sample is not None and sample.taken_at > after)

        with self._changed:
            self._changed.wait_for(has_come, self._interval)
            if self._failure is not None:
                raise SourceFailed(self._failure.message, self._failure.hint)
            sample = self._latest.get(host)
            if sample is None:
                raise SourceFailed(f"{host}: Prometheus does not scrape it any more.")
            age = self._clock() - sample.taken_at
            if age >= SILENT:
                raise SourceFailed(f"{host}: Prometheus scraped it last {format_duration(age)} ago.")
            return sample

    def past(self, host: str) -> list[Sample]:
        """The samples of a host before it was watched, the oldest first."""
        return self._past.get(host, [])

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
            self._over.wait(max(0.0, begun + max(LEAST, self._interval) - time.monotonic()))


class PrometheusSource:
    """One host of Prometheus's targets as a source."""

    name = "prometheus"

    def __init__(self, fleet: PrometheusFleet, host: str) -> None:
        self._fleet = fleet
        self._host = host
        self._last = 0.0

    def read(self) -> Sample:
        """Return what was scraped since the sample before. Raises SourceFailed if the server does not answer, or has
        not scraped this host of late.
        """
        sample = self._fleet.next(self._host, self._last)
        self._last = sample.taken_at
        return sample

    def close(self) -> None:
        """Ask for no host any more."""
        self._fleet.close()
