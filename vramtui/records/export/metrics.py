"""A moment as metrics: families of samples with labels, of which there are never many more than GPUs and users.

What means the same as a field of DCGM has dcgm-exporter's name, labels and unit (MiB for frame buffer memory); all else
begins with `vramtui_` and is in bytes, ratios and seconds. A value that is not known is left out, never 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from vramtui import __version__
from vramtui.core.base.units import MIB
from vramtui.core.estimate.ledger import LEAVES
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, usable_gpus
from vramtui.core.observation.snapshot import Holding, Snapshot

MOST_GROUPS = 64  # of processes on one GPU; the smallest beyond that are added up
OTHER = "other"
DCGM_LABELS = ("gpu", "UUID", "device", "modelName", "Hostname", "pci_bus_id")
GPU_LABELS = ("gpu", "uuid", "Hostname")
PROCESS_LABELS = (*GPU_LABELS, "user", "preset", "kind")
SINGLE_LABELS = ("pid", "namespace", "pod", "container")  # the last three as dcgm-exporter has them in Kubernetes


class MetricFamily(msgspec.Struct, frozen=True):
    """One metric: its samples are values by the labels' values, in the labels' order."""

    name: str
    text: str
    labels: tuple[str, ...]
    samples: tuple[tuple[tuple[str, ...], float], ...]


_DCGM = (
    ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", lambda gpu: gpu.utilization),
    ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", lambda gpu: gpu.memory_utilization),
    ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", lambda gpu: _mib(gpu.memory.free)),
    ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", lambda gpu: _mib(gpu.memory.used)),
    ("DCGM_FI_DEV_FB_RESERVED", "Framebuffer memory reserved (in MiB).", lambda gpu: _mib(gpu.memory.reserved)),
    ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", lambda gpu: gpu.temperature_celsius),
    ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", lambda gpu: gpu.power_watts),
    ("DCGM_FI_DEV_SM_CLOCK", "SM clock frequency (in MHz).", lambda gpu: gpu.sm_clock_mhz),
    ("DCGM_FI_DEV_MEM_CLOCK", "Memory clock frequency (in MHz).", lambda gpu: gpu.memory_clock_mhz),
)
NAMES = (
    *(name for name, _, _ in _DCGM),
    "vramtui_up",
    "vramtui_gpu_up",
    "vramtui_gpu_memory_bytes",
    "vramtui_gpu_memory_total_bytes",
    "vramtui_processes",
    "vramtui_process_memory_bytes",
    "vramtui_process_memory_peak_bytes",
    "vramtui_predicted_memory_bytes",
    "vramtui_predicted_memory_total_bytes",
    "vramtui_prediction_error_ratio",
    "vramtui_build_info",
    "vramtui_sample_timestamp_seconds",
)
"""Every metric there is."""


class _Group(msgspec.Struct, kw_only=True):
    """Processes with the same labels."""

    labels: tuple[str, ...]
    count: int = 0
    used: int = 0
    peak: int = 0
    predicted: dict[str, int] = {}
    predicted_total: int | None = None
    compared: int = 0
    compared_predicted: int = 0

    def add(self, other: "_Group") -> None:
        self.count += other.count
        self.used += other.used
        self.peak += other.peak
        self.compared += other.compared
        self.compared_predicted += other.compared_predicted
        if other.predicted_total is not None:
            self.predicted_total = (self.predicted_total or 0) + other.predicted_total
        for part, size in other.predicted.items():
            self.predicted[part] = self.predicted.get(part, 0) + size


def up_metric(*, up: bool) -> MetricFamily:
    """Whether the source answers: where it does not, this is all that is said."""
    return MetricFamily("vramtui_up", "1 while the driver answers, else 0.", (), (((), float(up)),))


def build_metric() -> MetricFamily:
    """Which version tells all this, as a label of 1."""
    return MetricFamily("vramtui_build_info", "The version of vramtui.", ("version",), (((__version__,), 1.0),))


def _taken_at(taken_at: float) -> MetricFamily:
    text = "When the sample was taken; time() less this is its age."
    return MetricFamily("vramtui_sample_timestamp_seconds", text, (), (((), taken_at),))


def metrics_of(
    snapshot: Snapshot, kinds: Mapping[ProcessKey, str], *, per_process: bool = False, with_dcgm: bool = True
) -> tuple[MetricFamily, ...]:
    """Everything known at one moment.

    Args:
        snapshot: the moment.
        kinds: `train`, `infer` or `serve` of each process that runs a preset.
        per_process: labels for the pid of processes and for their pod with its namespace, or else their container or
            Slurm job; series then come and go with them.
        with_dcgm: also what dcgm-exporter tells; not where one runs on the same host.
    """
    host = snapshot.sample.host.name
    gpus = snapshot.sample.gpus
    cards = [gpu for gpu in gpus if gpu.mig_parent is None]
    dcgm = (
        MetricFamily(name, text, DCGM_LABELS, _values((_dcgm_labels(gpu, host), value(gpu)) for gpu in cards))
        for name, text, value in (_DCGM if with_dcgm else ())
    )
    groups = [group for gpu in gpus for group in _groups(snapshot, gpu, kinds, per_process=per_process)]
    labels = (*PROCESS_LABELS, *SINGLE_LABELS) if per_process else PROCESS_LABELS
    own = (build_metric(), _taken_at(snapshot.sample.taken_at), up_metric(up=True))
    return (*dcgm, *_gpu_metrics(gpus, host), *_process_metrics(groups, labels), *own)


def _gpu_metrics(gpus: Sequence[Gpu], host: str) -> Iterator[MetricFamily]:
    ok = _values((_gpu_labels(gpu, host), float(gpu.state == "ok")) for gpu in gpus)
    yield MetricFamily("vramtui_gpu_up", "1 while the GPU answers, 0 where it is lost or fails.", GPU_LABELS, ok)
    usable = usable_gpus(gpus)
    sizes = (
        ((*_gpu_labels(gpu, host), part), size)
        for gpu in usable
        for part, size in (
            ("processes", gpu.attributed if gpu.state == "ok" and gpu.memory.used is not None else None),
            ("reserved", gpu.memory.reserved),
            ("free", gpu.memory.free),
            ("unattributed", None if gpu.state != "ok" else gpu.unattributed),
        )
    )
    text = (
        "Memory by part: processes, unattributed (of no known process), reserved and free; of each GPU, or of its MIG"
        " instances where it is cut into any."
    )
    yield MetricFamily("vramtui_gpu_memory_bytes", text, (*GPU_LABELS, "part"), _values(sizes))
    totals = _values((_gpu_labels(gpu, host), gpu.memory.total) for gpu in usable)
    yield MetricFamily("vramtui_gpu_memory_total_bytes", "All of it: what the parts add up to.", GPU_LABELS, totals)


def _process_metrics(groups: Sequence[_Group], labels: tuple[str, ...]) -> Iterator[MetricFamily]:
    def family(name: str, text: str, values: Iterable[tuple[tuple[str, ...], float | None]]) -> MetricFamily:
        return MetricFamily(name, text, labels, _values(values))

    yield family("vramtui_processes", "Processes on a GPU.", ((group.labels, group.count) for group in groups))
    yield family(
        "vramtui_process_memory_bytes",
        "What processes hold now, as the driver says.",
        ((group.labels, group.used) for group in groups),
    )
    yield family(
        "vramtui_process_memory_peak_bytes",
        "The most that processes that run now were seen to hold.",
        ((group.labels, group.peak) for group in groups),
    )
    yield MetricFamily(
        "vramtui_predicted_memory_bytes",
        "What presets predict for processes at their peak, by part.",
        (*labels, "part"),
        _values(((*group.labels, part), size) for group in groups for part, size in group.predicted.items()),
    )
    yield family(
        "vramtui_predicted_memory_total_bytes",
        "All of it: what the parts add up to.",
        ((group.labels, group.predicted_total) for group in groups),
    )
    yield family(
        "vramtui_prediction_error_ratio",
        "Observed peak over predicted peak, less one.",
        (
            (group.labels, group.compared / group.compared_predicted - 1 if group.compared_predicted else None)
            for group in groups
        ),
    )


def _groups(snapshot: Snapshot, gpu: Gpu, kinds: Mapping[ProcessKey, str], *, per_process: bool) -> Iterator[_Group]:
    """The processes of a GPU by their labels; the smallest beyond MOST_GROUPS are one."""
    groups: dict[tuple[str, ...], _Group] = {}
    for holding in snapshot.holdings:
        if holding.key.gpu_uuid != gpu.uuid or holding.gone_at is not None:
            continue
        own = (holding.process.user or "", holding.preset or "", kinds.get(holding.key, ""))
        labels = (*_gpu_labels(gpu, snapshot.sample.host.name), *own)
        group = _group(holding, (*labels, *_single(holding.process)) if per_process else labels)
        if group.labels in groups:
            groups[group.labels].add(group)
        else:
            groups[group.labels] = group
    in_order = sorted(groups.values(), key=lambda group: -group.used)
    if len(in_order) > MOST_GROUPS:
        last = (OTHER, OTHER, "", OTHER, "", "", "") if per_process else (OTHER, OTHER, "")
        rest = _Group(labels=(*_gpu_labels(gpu, snapshot.sample.host.name), *last))
        for group in in_order[MOST_GROUPS - 1 :]:
            rest.add(group)
        in_order[MOST_GROUPS - 1 :] = [rest]
    yield from in_order


def _single(process: Process) -> tuple[str, str, str, str]:
    """The values of SINGLE_LABELS for a process."""
    container = process.container or ""
    kind, _, name = container.partition(" ")
    if kind != "pod":
        return str(process.pid), "", "", container
    namespace, _, pod = name.rpartition("/")
    return str(process.pid), namespace, pod, ""


def _group(holding: Holding, labels: tuple[str, ...]) -> _Group:
    estimate, peak = holding.estimate, holding.peak.bytes if holding.peak else None
    parts = {} if estimate is None else {line: getattr(estimate.ledger, line) for line in LEAVES}
    known: dict[str, int] = {line: size for line, size in parts.items() if size is not None}
    is_compared = estimate is not None and peak is not None
    return _Group(
        labels=labels,
        count=1,
        used=holding.process.used_memory or 0,
        peak=peak or 0,
        predicted=known,
        predicted_total=None if estimate is None else estimate.process,
        compared=(peak or 0) if is_compared else 0,
        compared_predicted=estimate.process if is_compared and estimate is not None else 0,
    )


def _gpu_labels(gpu: Gpu, host: str) -> tuple[str, ...]:
    return (str(gpu.index), gpu.uuid, host)


def _dcgm_labels(gpu: Gpu, host: str) -> tuple[str, ...]:
    return (str(gpu.index), gpu.uuid, f"nvidia{gpu.index}", gpu.name, host, gpu.pci_bus_id or "")


def _mib(size: int | None) -> float | None:
    return None if size is None else size // MIB


def _values(
    rows: Iterable[tuple[tuple[str, ...], float | None]],
) -> tuple[tuple[tuple[str, ...], float], ...]:
    return tuple((labels, float(value)) for labels, value in rows if value is not None)
