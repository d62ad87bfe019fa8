"""Samples: the readings of one source at one moment, and sources. Their JSON is the recording and export format."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.schema.models import ModuleLoading, Runtime

SCHEMA = 1


class Absence(str, Enum):
    """Why a value is unknown. A value that is known has no entry in its owner's `absent`."""

    NOT_SUPPORTED = "not_supported"
    NO_PERMISSION = "no_permission"
    LOST = "lost"
    DRIVER_TOO_OLD = "driver_too_old"
    NO_ANSWER = "no_answer"
    FIRST_LOOK = "first_look"  # a rate is known from the second on
    NOT_ASKED = "not_asked"  # the source does not ask for it here; whether the device would tell is open
    FAILED = "failed"


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """Base of everything read: a field that is None is unknown, and `absent[field]` says why."""

    absent: dict[str, Absence] = {}


# Recordings and other hosts may say anything: what no machine has is refused as it is read.
Bytes = Annotated[int, msgspec.Meta(gt=-(1 << 60), lt=1 << 60)]
Count = Annotated[int, msgspec.Meta(gt=-(1 << 60), lt=1 << 60)]
Time = Annotated[float, msgspec.Meta(ge=-6e10, le=253_402_300_799.0)]  # the years 68 to 9999


class Memory(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One device's memory in bytes, as NVML's memory v2 tells it apart: total = used + reserved + free.

    `reserved` is what the driver and firmware keep; on drivers without memory v2 it is None and part of `used`.
    `unified` marks parts that share the host's memory (GB10, Jetson): `used` is then what their processes hold, `free`
    what the host could still give, and the total is unknown.
    """

    total: Bytes | None = None
    used: Bytes | None = None
    reserved: Bytes | None = None
    free: Bytes | None = None
    unified: bool = False


ProcessType = Literal["C", "G", "C+G", "M+C"]
ProcessState = Literal["running", "exited", "zombie", "unseen", "unknown"]
# What stands before the command of a process in one of these.
STATE_MARKS: dict[ProcessState, str] = {
    "exited": "(exited, memory still held) ",
    "zombie": "(zombie) ",
    "unseen": "(pid of another namespace) ",
}


class JobRank(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process's place in a job of several: `rank` of `size`. `job` is the same for all its ranks, on whatever host,
    and untrusted text; `launcher` is what has started it (torchrun, srun, mpirun, torch.distributed).
    """

    job: str
    rank: Count
    size: Count
    launcher: str = ""


class Ancestors(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The processes above one in its tree, the nearest first, and the command of the last of them, which started the
    others: untrusted text. No `pids` where the process is the first of its tree itself.
    """

    pids: tuple[Count, ...] = ()
    command: str = ""


_WORKER = r"(?:TP|PP|DP|EP)\d+"
_runtime_of = lru_cache(Runtime)  # thousands of processes share few
PROGRAM = "app:"  # how the name of a process begins whose program is known by its folder, or whose notebook is known


class Process(Reading, frozen=True, kw_only=True, gc=False):  # thousands a second, none of them in a cycle
    """One process on one GPU, or in its place a pod without a known process: its `pid` is then below 0, and stays.

    `used_memory` in bytes; `started_at` in seconds since the epoch.

    `state`: running; exited (the driver still lists it, the system does not); zombie; unseen (a pid outside this
    process namespace); unknown. `name` is the executable's, `command` the whole line: both are untrusted text.
    `peak_memory` is the most it ever held in bytes, where the driver itself keeps that (NVML's accounting mode).
    `rank` where its environment may be read and says that it is one of several. `sm_percent` is the share of time in
    which it had kernels on the GPU, by the driver's last samples; `container` is what it runs in, a container or a
    Slurm step: `docker 3f2a9c0d1e2f`, `slurm 4711.0`. `ancestors` are those that it had when it was first seen; None
    where they are not known. `module_loading` is what its environment has CUDA do with kernels, where that may be read
    and says so: load them when first used, or all at the start. `torch` is the release of PyTorch that it has loaded,
    `alloc_conf` what its environment sets of PyTorch's allocator, as it stands there.
    """

    pid: Count
    type: ProcessType
    used_memory: Bytes | None = None
    peak_memory: Bytes | None = None
    user: str | None = None
    name: str | None = None
    command: str | None = None
    started_at: Time | None = None
    cpu_percent: float | None = None
    host_memory: Bytes | None = None
    rank: JobRank | None = None
    state: ProcessState = "unknown"
    sm_percent: Count | None = None
    container: str | None = None
    ancestors: Ancestors | None = None
    module_loading: ModuleLoading | None = None
    torch: str | None = None
    alloc_conf: str | None = None

    @property
    def runtime(self) -> Runtime:
        """Settings of its runtime that affect its memory."""
        rank = self.rank
        ranks = None if rank is None else (rank.size, rank.launcher)
        return _runtime_of(self.module_loading, self.torch, self.alloc_conf, ranks)

    @property
    def job(self) -> str | None:
        """The job that it is a rank of, or else the container or Slurm job that it runs in: untrusted text."""
        return self.container if self.rank is None else self.rank.job.partition(" on ")[0]

    @property
    def label(self) -> str:
        """Words for before its command: its place in its job, `rank 0/4` or `TP0`, or its program or notebook."""
        if self.rank is not None:
            return f"rank {self.rank.rank}/{self.rank.size}"
        name = self.name or ""
        if "::" in name and name != self.command:  # the title of an engine's worker
            return " ".join(re.findall(_WORKER, name))
        return name[len(PROGRAM) :] if name.startswith(PROGRAM) else ""

    @property
    def command_or_name(self) -> str | None:
        """The command, or else the name: untrusted text; None if neither could be read."""
        return self.command or self.name


class ProcessColumns(Sequence[Process]):  # noqa: PLW1641 - no reading has a hash
    """The processes of one device, in columns: of thousands that change every second few rows are ever looked at, and
    each is made then. `facts` are their rows without bytes and SM %, the same on each device where they can be, `sizes`
    those bytes, and `busy` the SM % by pid (0 of a missing one), None if unknown.
    """

    __slots__ = ("busy", "facts", "sizes")

    def __init__(self, facts: Sequence[Process], sizes: Sequence[int | None], busy: Mapping[int, int] | None) -> None:
        self.facts, self.sizes, self.busy = facts, sizes, busy

    def __len__(self) -> int:
        return len(self.facts)

    def __getitem__(self, index: int | slice) -> Any:  # noqa: ANN401 - a row, or those of a slice
        if isinstance(index, slice):
            return tuple(map(self.__getitem__, range(len(self))[index]))
        one = self.facts[index]
        share = None if self.busy is None else self.busy.get(one.pid, 0)
        return msgspec.structs.replace(one, used_memory=self.sizes[index], sm_percent=share)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | ProcessColumns) and tuple(self) == tuple(other)


if TYPE_CHECKING:
    Processes = tuple[Process, ...] | ProcessColumns
else:
    Processes = tuple[Process, ...]  # what is decoded


class XidError(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An error that NVIDIA's driver reported of a GPU: its number (`core.observation.xids`) and when it was seen, in
    seconds since the epoch.
    """

    at: Time
    code: Count


GpuState = Literal["ok", "lost", "failed"]
NVIDIA = "NVIDIA"  # the vendor, if none is given


class Gpu(Reading, frozen=True, kw_only=True, dict=True):  # a place for what is added up once
    """One device, or one MIG instance (`mig_parent` is then its card's uuid and `mig_profile` its size's name).

    Percentages are 0–100, clocks MHz, power watts, temperature °C, what goes over NVLink and PCIe bytes a second on
    average since the look before. `xid_errors` are those since this program began to look, the latest last.
    `memory_repairs` are the rows of memory that were remapped, on cards before Ampere the pages that were retired;
    `repair_pending` says that more will be when the GPU is reset. `reason` is the sentence behind a state that is
    not ok. `processes_trusted` is False when the driver's process list is known to be scrambled, and
    `absent["processes.graphics"]` says why graphics clients are missing in it. `mig_used` is what the card's MIG
    instances hold in bytes; they are rows of their own, and their processes are listed there only. `final_peaks` has,
    by pid, the driver's own peaks in bytes of processes that have gone since the sample before.
    """

    index: Count
    uuid: str
    name: str
    state: GpuState = "ok"
    reason: str = ""
    memory: Memory = Memory()
    processes: Processes = ()
    processes_trusted: bool = True
    compute_capability: tuple[int, int] | None = None
    utilization: Count | None = None
    memory_utilization: Count | None = None
    power_watts: float | None = None
    power_limit_watts: float | None = None
    temperature_celsius: Count | None = None
    sm_clock_mhz: Count | None = None
    memory_clock_mhz: Count | None = None
    fan_percent: Count | None = None
    pcie_generation: Count | None = None
    pcie_width: Count | None = None
    ecc_errors: Count | None = None
    throttle_reasons: tuple[str, ...] | None = None
    encoder_utilization: Count | None = None
    decoder_utilization: Count | None = None
    nvlink_sent: Bytes | None = None
    nvlink_received: Bytes | None = None
    pcie_sent: Bytes | None = None
    pcie_received: Bytes | None = None
    memory_repairs: Count | None = None
    repair_pending: bool | None = None
    xid_errors: tuple[XidError, ...] | None = None
    pci_bus_id: str | None = None
    vendor: str = NVIDIA
    mig_parent: str | None = None
    mig_profile: str | None = None
    mig_used: Bytes | None = None
    final_peaks: dict[Count, Bytes] = {}

    @property
    def facts(self) -> Sequence[Process]:
        """Rows of its processes, perhaps without bytes and SM %."""
        return self.processes.facts if isinstance(self.processes, ProcessColumns) else self.processes

    @property
    def sizes(self) -> Sequence[int | None]:
        """Bytes of each of its processes."""
        if isinstance(self.processes, ProcessColumns):
            return self.processes.sizes
        return [row.used_memory for row in self.processes]

    @cached_property
    def held_by_user(self) -> dict[str | None, int]:
        """Bytes held by each user's processes, of those whose memory is known; None is an unknown user."""
        sizes: dict[str | None, int] = {}
        for facts, size in zip(self.facts, self.sizes, strict=True):
            if size:
                sizes[facts.user] = sizes.get(facts.user, 0) + size
        return {user: size for user, size in sizes.items() if size}

    @property
    def attributed(self) -> int:
        """Bytes held by the processes whose memory is known and, on a card cut into MIG instances, by the instances."""
        return (self.mig_used or 0) + sum(self.held_by_user.values())

    @property
    def unattributed(self) -> int | None:
        """Bytes in use without an owner; negative when a process grew between the two readings."""
        return None if self.memory.used is None else self.memory.used - self.attributed


_BARE = Gpu(index=0, uuid="", name="")
METRICS = tuple(f for f in Gpu.__struct_fields__ if getattr(_BARE, f) is None and not f.startswith("mig_"))
"""Metrics that a source reports for each GPU, or gives the reason in its `absent`."""


def usable_gpus(gpus: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """Those that a process can be put on: MIG instances, and cards that are not cut into any. Whatever is counted or
    added up over GPUs goes by these: a card's memory would else be there twice.
    """
    gpus = tuple(gpus)
    divided = {gpu.mig_parent for gpu in gpus if gpu.mig_parent is not None}
    return tuple(gpu for gpu in gpus if gpu.uuid not in divided)


def instance_names(gpus: Sequence[Gpu]) -> dict[str, str]:
    """The names of MIG instances by uuid, where a card has several of one size: `0:1` is the second instance of GPU 0,
    in the driver's order.
    """
    if not any(gpu.mig_profile for gpu in gpus):
        return {}
    sizes = Counter((gpu.mig_parent, gpu.mig_profile) for gpu in gpus if gpu.mig_profile)
    places: Counter[str | None] = Counter()
    names = {}
    for gpu in gpus:
        if gpu.mig_profile:
            if sizes[gpu.mig_parent, gpu.mig_profile] > 1:
                names[gpu.uuid] = f"{gpu.index}:{places[gpu.mig_parent]}"
            places[gpu.mig_parent] += 1
    return names


def gpu_name(gpu: Gpu, instances: Mapping[str, str]) -> str:
    """The GPU's index; a MIG instance has its card's index and its own size, `0/3g`, or its name in `instances` where
    several have one size.
    """
    size = f"/{printable(gpu.mig_profile).partition('.')[0]}" if gpu.mig_profile else ""
    return instances.get(gpu.uuid) or f"{gpu.index}{size}"


class Host(msgspec.Struct, frozen=True, kw_only=True):
    """The machine the devices are in; memory in bytes. `load` is how many tasks wanted a processor on average in the
    last 1, 5 and 15 minutes.

    `private_pids` says that this program runs in a pid namespace of its own, as in a container: processes outside of
    it may use the GPUs and not be seen.
    """

    name: str
    driver_version: str | None = None
    cuda_version: str | None = None
    cpu_percent: float | None = None
    memory_total: Bytes | None = None
    memory_available: Bytes | None = None
    swap_total: Bytes | None = None
    swap_free: Bytes | None = None
    load: tuple[float, float, float] | None = None
    private_pids: bool = False


_MPS_SERVER = "nvidia-cuda-mps"  # as much of its name as the kernel keeps


def causes(gpu: Gpu, host: Host | None) -> tuple[str, ...]:
    """Possible owners of a GPU's unattributed bytes, each a phrase, as far as the readings show them.

    Only what the readings show is named. Empty where they show nothing: then it is the driver's own, managed memory
    on the device, or memory that a process left when it ended, which cannot be told apart.
    """
    reasons = []
    if "processes" in gpu.absent:
        reasons.append("every process, because the list is unavailable")
    silent = list(gpu.sizes).count(None)
    if silent:
        reasons.append(f"{silent} process{'es' if silent > 1 else ''} listed without a size")
    if "processes.graphics" in gpu.absent:
        reasons.append("graphics clients, as they are not reported")
    if host is not None and host.private_pids and "unseen" not in [one.state for one in gpu.facts]:
        reasons.append("processes outside this container")
    names = {one.name or one.command for one in gpu.facts}
    if any(name is not None and _MPS_SERVER in name for name in names):
        reasons.append("clients of its MPS server")
    if gpu.mig_used is not None:
        reasons.append("what MIG keeps for itself")
    if gpu.absent.get("memory.reserved") is Absence.DRIVER_TOO_OLD:
        reasons.append("the driver itself, which is too old to tell that apart")
    return tuple(reasons)


def overlap(gpu: Gpu, grown: int | None) -> str:
    """Why the processes of a GPU hold more than is in use on it, as far as that can be known: a phrase.

    The driver is asked for a card's bytes and for its processes' one after the other. What a process grew in between
    is not more than what it grew since the look before; what goes beyond that is counted for several at once.

    Args:
        gpu: as it was read, with fewer than no unattributed bytes.
        grown: bytes by which its processes grew since the look before; None if there was none.
    """
    if grown is None:
        return "counted more than once: processes share it, or one grew between two readings"
    if grown + (gpu.unattributed or 0) >= 0:
        return "a process grew between two readings"
    return "counted more than once: processes share it"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something a source could not do: `where` names the call or device, `hint` the next step (or is empty)."""

    where: str
    message: str
    hint: str = ""


_RECORDED = ("pid", "type", "user", "name", "command", "started_at", "used_memory", "peak_memory", "cpu_percent")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The readings of one source at one moment (`taken_at`, seconds since the epoch) on one host."""

    schema: int = SCHEMA
    taken_at: float
    source: str
    host: Host
    gpus: tuple[Gpu, ...] = ()
    problems: tuple[Problem, ...] = ()

    def in_rows(self) -> "Sample":
        """Return it with every row of a process made, as others know it."""
        gpus = tuple(msgspec.structs.replace(gpu, processes=tuple(gpu.processes)) for gpu in self.gpus)
        return msgspec.structs.replace(self, gpus=gpus)

    def to_records(self) -> list[dict[str, object]]:
        """A row of plain values for each process on each GPU, for a table: bytes, and None for what is not known. A
        GPU without processes has a row of its own, whose `pid` is None; a card that is cut into MIG instances has none,
        as its instances have theirs.
        """
        usable = {gpu.uuid for gpu in usable_gpus(self.gpus)}
        return [
            {
                "taken_at": self.taken_at,
                "host": self.host.name,
                "gpu_index": gpu.index,
                "gpu_uuid": gpu.uuid,
                "gpu_name": gpu.name,
                "gpu_total": gpu.memory.total,
                "gpu_used": gpu.memory.used,
                "gpu_utilization": gpu.utilization,
                **{name: getattr(process, name, None) for name in _RECORDED},
            }
            for gpu in self.gpus
            if gpu.processes or gpu.uuid in usable
            for process in (gpu.processes or (None,))
        ]


# Seconds. Start times come from the system's uptime in one program and from a clock in another.
CLOCKS_APART = 2.0


class ProcessKey(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """The identity of a process: a reused pid has another start time."""

    host: str
    gpu_uuid: str
    pid: int
    started_at: float | None


def process_key(host: str, gpu: Gpu, process: Process) -> ProcessKey:
    return ProcessKey(host, gpu.uuid, process.pid, process.started_at)


@lru_cache(1)  # making it takes a millisecond, and most programs decode no sample
def _decoder() -> msgspec.json.Decoder[Sample]:
    return msgspec.json.Decoder(Sample)


def encode_sample(sample: Sample) -> bytes:
    """A Sample as one line of JSON, without a newline."""
    return msgspec.json.encode(sample.in_rows())


def decode_sample(line: bytes | str) -> Sample:
    """The Sample that `encode_sample` wrote.

    Raises:
        msgspec.DecodeError: not JSON, or not the shape of a Sample (the message names the path).
    """
    return _decoder().decode(line)


SILENT_INTERVALS = 3  # without a sample, after which whoever sends them is taken for dead
LEAST_SILENCE = 3.0  # seconds without one that are never too long: a busy network, a crowded host


def silence_limit(interval: float) -> float:
    """Seconds without a sample after which a sender that has one each `interval` seconds is taken for dead."""
    return max(LEAST_SILENCE, SILENT_INTERVALS * interval)


class Source(Protocol):
    """NVML, nvidia-smi, a recording, the demo: the program cannot tell them apart."""

    name: str

    def read(self) -> Sample:
        """The current sample. May block for as long as the driver does; called from one thread only.

        A device or metric that fails is part of the Sample (a state, an absence, a problem). Raises SourceFailed if
        nothing at all can be said.
        """

    def close(self) -> None:
        """Let go of what the source holds. Never blocks."""


DRIVER, EMULATED = "the driver", "emulated"  # who is asked; the source of a simulated GPU


def answerer(source: Source) -> str:
    """Who does not answer where a read takes long: another host by its name, or the driver."""
    return str(getattr(source, "host", "")) or DRIVER


@runtime_checkable
class ScreenSource(Source, Protocol):
    """A source that can tell less the first time, for a screen that waits for it."""

    def shorten_first_read(self) -> None:
        """Let the first `read` name few of many processes, those that hold most; the next ones name the rest."""


@runtime_checkable
class FastSource(Source, Protocol):
    """A source that can also look at the processes of only one device, often and at little cost."""

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Bytes by pid on that device; empty if there is nothing to say. Never raises.

        May block for as long as the driver does; called from one thread only, which need not be that of `read`.
        """


class PcieTraffic(NamedTuple):
    """Bytes a second that a GPU sends and receives over PCIe."""

    sent: int
    received: int


def with_traffic(gpu: Gpu, traffic: PcieTraffic | Absence) -> Gpu:
    """`gpu` with what was measured, or with the reason why nothing was, unless its next sample will have it."""
    if isinstance(traffic, Absence):
        asked = [name for name in ("pcie_sent", "pcie_received") if gpu.absent.get(name) is not Absence.FIRST_LOOK]
        return msgspec.structs.replace(gpu, absent={**gpu.absent, **dict.fromkeys(asked, traffic)})
    absent = {name: reason for name, reason in gpu.absent.items() if name not in {"pcie_sent", "pcie_received"}}
    return msgspec.structs.replace(gpu, pcie_sent=traffic.sent, pcie_received=traffic.received, absent=absent)


@runtime_checkable
class TrafficSource(Source, Protocol):
    """A source that can measure what goes over PCIe, for a GPU whose samples do not tell it."""

    def measure_traffic(self, gpu_uuid: str) -> PcieTraffic | Absence:
        """The traffic over PCIe now, or why it is unknown. Never raises.

        Takes some hundredths of a second, in which the driver measures, or as long as the driver hangs: nothing to be
        called by the screen's thread, or for every GPU.
        """
