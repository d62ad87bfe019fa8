"""A moment as metrics; their number grows with GPUs and users only.

A metric with the meaning of a DCGM field has dcgm-exporter's name, labels and unit (MiB for frame buffer memory); the
others begin with `vramtui_` and are in bytes, ratios and seconds. Unknown values are left out, never 0.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from vramtui import __version__
from vramtui.core.base.units import MIB
from vramtui.core.estimate.estimate import LEAVES
from vramtui.core.observation.readings import Gpu, ProcessKey, usable_gpus
from vramtui.core.observation.snapshot import Snapshot

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
    *(name for name, _, _ in _DCGM), "vramtui_up", "vramtui_gpu_up", "vramtui_gpu_memory_bytes",
    "vramtui_gpu_memory_total_bytes", "vramtui_processes", "vramtui_process_memory_bytes",
    "vramtui_process_memory_peak_bytes", "vramtui_predicted_memory_total_bytes", "vramtui_prediction_error_ratio",
    "vramtui_predicted_memory_bytes", "vramtui_build_info", "vramtui_sample_timestamp_seconds",
)  # fmt: skip
"""Every metric there is."""


# Of processes with the same labels: how many, `used` and `peak` bytes, what is `predicted` in all and by line, and the
# peaks that are `compared` with a `prediction`.
Sums = Counter[str]
Group = tuple[tuple[str, ...], Sums]


def up_metric(*, up: bool) -> MetricFamily:
    """The source answers; if it does not, this is the only metric."""
    return MetricFamily("vramtui_up", "1 while the driver answers, else 0.", (), (((), float(up)),))


def metrics_of(
    snapshot: Snapshot, kinds: Mapping[ProcessKey, str], *, per_process: bool = False, with_dcgm: bool = True
) -> tuple[MetricFamily, ...]:
    """Everything known at one moment. `kinds` are `train`, `infer` or `serve` of each process that runs a preset.

    `per_process` adds labels for the pid of processes and for their pod with its namespace, or else their container or
    Slurm job; series then come and go with them. With dcgm-exporter on the same host, do without `with_dcgm`.
    """
    host, gpus = snapshot.sample.host.name, snapshot.sample.gpus
    own = {gpu.uuid: (str(gpu.index), gpu.uuid, host) for gpu in gpus}
    cards = [
        ((str(gpu.index), gpu.uuid, f"nvidia{gpu.index}", gpu.name, host, gpu.pci_bus_id or ""), gpu)
        for gpu in gpus
        if gpu.mig_parent is None
    ]
    families = [
        MetricFamily(name, text, DCGM_LABELS, _values((labels, value(gpu)) for labels, gpu in cards))
        for name, text, value in (_DCGM if with_dcgm else ())
    ]

    def add(
        name: str, text: str, labels: tuple[str, ...], rows: Iterable[tuple[tuple[str, ...], float | None]]
    ) -> None:
        families.append(MetricFamily(name, text, labels, _values(rows)))

    text = "1 while the GPU answers, 0 if it is lost or fails."
    add("vramtui_gpu_up", text, GPU_LABELS, ((own[gpu.uuid], float(gpu.state == "ok")) for gpu in gpus))
    usable = usable_gpus(gpus)
    sizes = (
        ((*own[gpu.uuid], part), size)
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
        " instances if it is divided."
    )
    add("vramtui_gpu_memory_bytes", text, (*GPU_LABELS, "part"), sizes)
    totals = ((own[gpu.uuid], gpu.memory.total) for gpu in usable)
    add("vramtui_gpu_memory_total_bytes", "The sum of the parts.", GPU_LABELS, totals)
    groups = [group for gpu in gpus for group in _groups(snapshot, gpu, own[gpu.uuid], kinds, per_process=per_process)]
    labels = (*PROCESS_LABELS, *SINGLE_LABELS) if per_process else PROCESS_LABELS
    for name, text, key in (
        ("vramtui_processes", "Processes on a GPU.", "processes"),
        ("vramtui_process_memory_bytes", "Memory of processes now, by the driver.", "used"),
        ("vramtui_process_memory_peak_bytes", "Observed peaks of running processes.", "peak"),
        ("vramtui_predicted_memory_total_bytes", "The sum of the predicted parts.", "predicted"),
    ):
        add(name, text, labels, ((group, sums.get(key)) for group, sums in groups))
    errors = ((group, sums["compared"] / sums["prediction"] - 1) for group, sums in groups if sums["prediction"])
    add("vramtui_prediction_error_ratio", "Observed peak over predicted peak, less one.", labels, errors)
    parts = (((*group, line), sums[line]) for group, sums in groups for line in LEAVES if line in sums)
    text = "Peaks of processes as presets predict them, by part."
    add("vramtui_predicted_memory_bytes", text, (*labels, "part"), parts)
    add("vramtui_build_info", "The version of vramtui.", ("version",), [((__version__,), 1.0)])
    text = "When the sample was taken; time() less this is its age."
    add("vramtui_sample_timestamp_seconds", text, (), [((), snapshot.sample.taken_at)])
    return (*families, up_metric(up=True))


def _groups(
    snapshot: Snapshot, gpu: Gpu, own: tuple[str, ...], kinds: Mapping[ProcessKey, str], *, per_process: bool
) -> list[Group]:
    """The processes of a GPU by their labels; the smallest beyond MOST_GROUPS are one."""
    groups: dict[tuple[str, ...], Sums] = {}
    for holding in snapshot.holdings:
        if holding.key.gpu_uuid != gpu.uuid or holding.gone_at is not None:
            continue
        process, estimate = holding.process, holding.estimate
        labels = (*own, process.user or "", holding.preset or "", kinds.get(holding.key, ""))
        if per_process:
            kind, _, name = (process.container or "").partition(" ")
            namespace, _, pod = name.rpartition("/") if kind == "pod" else ("", "", "")
            labels += (str(process.pid), namespace, pod, "" if kind == "pod" else process.container or "")
        sums, peak = groups.setdefault(labels, Counter()), holding.peak.bytes if holding.peak else None
        sums.update(processes=1, used=process.used_memory or 0, peak=peak or 0)
        if estimate is not None:
            parts = ((line, getattr(estimate.ledger, line)) for line in LEAVES)
            sums.update({line: size for line, size in parts if size is not None}, predicted=estimate.process)
            if peak is not None:
                sums.update(compared=peak, prediction=estimate.process)
    in_order = sorted(groups.items(), key=lambda group: -group[1]["used"])
    if len(in_order) > MOST_GROUPS:
        last = (OTHER, OTHER, "", OTHER, "", "", "") if per_process else (OTHER, OTHER, "")
        rest: Sums = Counter()
        for _, sums in in_order[MOST_GROUPS - 1 :]:
            rest.update(sums)
        in_order[MOST_GROUPS - 1 :] = [((*own, *last), rest)]
    return in_order


def _values(rows: Iterable[tuple[tuple[str, ...], float | None]]) -> tuple[tuple[tuple[str, ...], float], ...]:
    return tuple((labels, float(value)) for labels, value in rows if value is not None)


def _mib(size: int | None) -> float | None:
    return None if size is None else size // MIB
