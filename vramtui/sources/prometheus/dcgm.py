"""dcgm-exporter's series as samples, one for each host.

Names, labels and units are those of dcgm-exporter 3 and 4 (`etc/default-counters.csv`): frame buffer memory in MiB. In
Kubernetes it adds which pod a GPU is given to: `namespace`, `pod` and `container`, or `exported_…` where Prometheus
keeps its own labels before a target's.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB
from vramtui.core.observation.bounded_samples import bounded
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Host, Memory, Process, Sample
from vramtui.sources.prometheus.client import PrometheusSeries

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
        found = hosts.setdefault(host, {}).setdefault(device, _Found(labels))
        found.figures[field] = figure
        pod = _pod(labels)
        if pod[1]:
            found.pods[pod] = None
    return {
        host: bounded(
            Sample(
                taken_at=taken_at[host],
                source="prometheus",
                host=Host(name=host),
                gpus=tuple(sorted((_gpu(device, found) for device, found in devices.items()), key=_place)),
            )
        )
        for host, devices in hosts.items()
    }


def present(series: Iterable[PrometheusSeries]) -> Iterator[tuple[Mapping[str, str], float]]:
    """Labels and figure of each series of an instant query."""
    for one in series:
        if one.value is not None:
            yield one.metric, _figure(one.value[1])


def past_samples(series: Iterable[PrometheusSeries]) -> dict[str, list[Sample]]:
    """For each host the samples of a range query, the oldest first."""
    moments: dict[float, list[tuple[Mapping[str, str], float]]] = {}
    for one in series:
        for at, figure in one.values:
            moments.setdefault(at, []).append((one.metric, _figure(figure)))
    found: dict[str, list[Sample]] = {}
    for at in sorted(moments):
        times = {host_of(labels): at for labels, _ in moments[at]}
        for host, sample in samples_of(moments[at], times).items():
            found.setdefault(host, []).append(sample)
    return found


def _gpu(device: Device, found: _Found) -> Gpu:
    labels, figures = found.labels, found.figures
    used, free, reserved = (_bytes(figures.get(name)) for name in _MEMORY)
    total = None if used is None or free is None else used + free + (reserved or 0)
    whole = {name: figures[name] for name in figures if name not in _MEMORY}
    metrics: dict[str, float | int] = {
        name: figure if name == "power_watts" else round(figure) for name, figure in whole.items()
    }
    uuid, instance = device
    processes = tuple(_process(pod, used if len(found.pods) == 1 else None) for pod in found.pods)
    absent = dict.fromkeys((name for name in METRICS if name not in metrics), Absence.NOT_SUPPORTED)
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
