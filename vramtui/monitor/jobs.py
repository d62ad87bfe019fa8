"""A job as its probe and its command line describe it: its preset, its observed memory, and its failures."""

import os
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.estimate import Ledger, Moment
from vramtui.core.observation.history import Curve
from vramtui.core.observation.matcher import Candidate, Matcher
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.observation.snapshot import observed_ledger
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.core.observation.alerts import Alert
    from vramtui.core.observation.oom.report import OomReport
    from vramtui.core.observation.probe_messages import ObservedJob, OutOfMemory
    from vramtui.dryrun.traces import Traces
    from vramtui.presets import PresetLibrary


TRACE_SUFFIX = ".trace"  # of the file that a run hands on; it is there once the dry run has ended
MOST_AT_ONCE = 4  # presets to look for at one sample: an unknown name takes up to 0.1 s
MOST_FOUND = 1024  # a feed or another host could report another one each second


def from_library(name: str) -> PresetFile:
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - not needed for the first paint
    from vramtui.presets.named_presets import preset_named  # noqa: PLC0415 - not needed for the first paint

    return preset_named(name, PresetLibrary())


class Presets(Protocol):
    """A library of presets by key; of its `problems` each is a sentence about a file that cannot be read."""

    @property
    def problems(self) -> tuple[str, ...]: ...

    def keys(self) -> Iterable[str]: ...

    def find(self, key: str) -> PresetFile | None: ...

    def candidates(self) -> tuple[Candidate, ...]: ...


class KnownPresets(MutableMapping[str, PresetFile]):
    """Presets that a session was given, before those of its `library`, which are read when somebody asks for them."""

    def __init__(self, given: Iterable[PresetFile] = ()) -> None:
        self.library: Presets | None = None
        self._given: dict[str, PresetFile | None] = {one.key: one for one in given}

    def matcher(self) -> Matcher:
        listed = () if self.library is None else self.library.candidates()
        others = (one for one in listed if one.key not in self._given)
        return Matcher(filter(None, self._given.values()), _of_command, others, self.get)

    def __getitem__(self, key: str) -> PresetFile:
        preset_file = self._given.get(key)
        if key not in self._given and self.library is not None:
            preset_file = self.library.find(key)
        if preset_file is None:
            raise KeyError(key)
        return preset_file

    def __setitem__(self, key: str, preset_file: PresetFile) -> None:
        self._given[key] = preset_file

    def __delitem__(self, key: str) -> None:
        self._given[key] = None

    def __iter__(self) -> Iterator[str]:
        listed = () if self.library is None else self.library.keys()
        return (key for key in dict.fromkeys((*listed, *self._given)) if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def matcher_of_library(library: "PresetLibrary") -> Matcher:
    """Return a matcher that lists the presets at the first process, and reads those that a process runs."""
    candidates = (one for each in (library,) for one in each.candidates())
    return Matcher((), _of_command, candidates, library.find)


def _of_command(preset_file: PresetFile, command: str, is_chosen: bool) -> PresetFile | None:
    """Return `preset_file` with the values of a job's command line; None for a server it does not cover. A person's
    choice keeps what that line does not state, as a person's own preset does.
    """
    from vramtui.presets.importers.process_offers import is_served, with_command  # noqa: PLC0415 - not for first paint

    if is_chosen:
        adapted = with_command(msgspec.structs.replace(preset_file, bundled=False), command)
        return msgspec.structs.replace(adapted, bundled=preset_file.bundled)
    return None if is_served(preset_file, command) else with_command(preset_file, command)


class JobPresets:
    """Finds each reported preset once; a job whose preset cannot be found counts as one that reported none.

    Attributes:
        presets: by the reported name or path.
    """

    __slots__ = ("_find", "_traces", "presets")

    def __init__(self, traces: "Callable[[], Traces]", find: Callable[[str], PresetFile] = from_library) -> None:
        self._traces, self._find = traces, find
        self.presets: dict[str, PresetFile | None] = {}

    def of(self, sample: Sample, jobs: "Iterable[ObservedJob]") -> dict[ProcessKey, PresetFile]:
        """Return the preset of each process of `sample` whose job reported one, as far as it is known by now."""
        names = {
            job.pid: job.hello.preset for job in jobs if job.hello is not None and job.hello.preset and not job.gone
        }
        if not names:
            return {}
        left, matched = MOST_AT_ONCE, {}
        for gpu in sample.gpus:
            for process in gpu.facts:
                name = names.get(process.pid)
                if name is None:
                    continue
                if name not in self.presets:
                    # Path.exists raises in another user's folder, and for a long name: a feed may report any.
                    is_trace = name.endswith(TRACE_SUFFIX)
                    if is_trace and not os.path.exists(name):  # noqa: PTH110 - as above
                        continue  # the job is still being traced
                    if not left or len(self.presets) >= MOST_FOUND:
                        continue
                    left -= 1
                    try:
                        self.presets[name] = self._traces().take(Path(name)) if is_trace else self._find(name)
                    except (UserError, OSError):
                        self.presets[name] = None
                preset_file = self.presets[name]
                if preset_file is not None:
                    matched[ProcessKey(sample.host.name, gpu.uuid, process.pid, process.started_at)] = preset_file
        return matched


Jobs = Callable[[], Sequence["ObservedJob"]]
PARTS = ("weights", "optimizer", "gradients", "activations", "cached")  # from below; together PyTorch's reserved memory
MOST_CURVES = 1024  # of 56 bytes a change each
STANDS = 60.0  # seconds that an alert lasts: after that the job has gone on, or is gone

# Only for a job that ran out of memory.
alert_of: "Callable[..., Alert]" = late("vramtui.core.observation.alerts:Alert")
report_of: "Callable[..., OomReport]" = late("vramtui.core.observation.oom.report:OomReport")
ways_of = late("vramtui.core.observation.oom.advice:ways_of")


def no_jobs() -> "Sequence[ObservedJob]":
    return ()


def bare_uuid(uuid: str) -> str:
    """Return a GPU's uuid without `GPU-` or `MIG-`, which PyTorch leaves out."""
    return uuid.removeprefix("GPU-").removeprefix("MIG-")


def on_known_cards(jobs: "Sequence[ObservedJob]", sample: Sample | None) -> "Sequence[ObservedJob]":
    """Return the jobs, each device with the uuid of a GPU of `sample`.

    Old versions of PyTorch report no uuid, and MIG instances another one. Their device is the GPU on which the driver
    shows the process, by its index if there are several.
    """
    if not jobs or sample is None:
        return jobs
    known = {bare_uuid(gpu.uuid) for gpu in sample.gpus}
    placed = []
    for job in jobs:
        hello = job.hello
        if hello is not None and any(one.uuid is None or bare_uuid(one.uuid) not in known for one in hello.devices):
            gpus = [gpu for gpu in sample.gpus if any(process.pid == job.pid for process in gpu.facts)]
            only = gpus[0].uuid if len(gpus) == len(hello.devices) == 1 else None
            by_index = {gpu.index: gpu.uuid for gpu in gpus if gpu.mig_parent is None}
            devices = tuple(
                device
                if device.uuid is not None and bare_uuid(device.uuid) in known
                else msgspec.structs.replace(device, uuid=only or by_index.get(device.index))
                for device in hello.devices
            )
            placed.append(msgspec.structs.replace(job, hello=msgspec.structs.replace(hello, devices=devices)))
        else:
            placed.append(job)
    return tuple(placed)


def find_job(jobs: Jobs, pid: int, uuid: str) -> "tuple[ObservedJob, int] | None":
    for job in jobs():
        if job.pid == pid and job.hello is not None:
            for device in job.hello.devices:
                if device.uuid is not None and bare_uuid(device.uuid) == bare_uuid(uuid):
                    return job, device.index
    return None


def observed_beside(jobs: Jobs, gpu: Gpu, process: Process, peak: int | None) -> Ledger:
    """Return a process's observed memory on that GPU: its `peak` from the driver, in bytes, and its own report."""
    owner = find_job(jobs, process.pid, gpu.uuid)
    if owner is None:
        return observed_ledger(peak)
    job, device = owner
    return observed_ledger(peak, job.ledger(device), is_complete=job.is_complete)


def reported_moments(jobs: Jobs, gpu: Gpu, process: Process) -> tuple[Moment, ...]:
    """Return the ends of the phases that a process reported on that GPU."""
    owner = find_job(jobs, process.pid, gpu.uuid)
    if owner is None:
        return ()
    job, device = owner
    return tuple(
        Moment(
            phase=end.phase,
            step=end.step,
            allocated=end.allocated,
            reserved=end.reserved,
            # A phase that stays below an earlier peak reports no peak of its own: it had at least this.
            peak_allocated=end.allocated if end.peak_allocated is None else end.peak_allocated,
            peak_reserved=end.peak_reserved,
        )
        for end in job.moments
        if end.device == device and end.allocated is not None
    )


class EarlierSamples(NamedTuple):
    """Samples from before a source was opened, as the demo has them, and the jobs' reports at some times (seconds since
    the epoch); both the oldest first, and gone through once.
    """

    samples: Iterable[Sample]
    jobs: "Iterable[tuple[float, Sequence[ObservedJob]]]" = ()


class JobMemory:
    """A curve of `PARTS` for each process and device that reports.

    Activations are what is allocated beyond weights, optimizer and gradients, as in `ObservedJob.ledger`. Between two
    samples the largest reported allocation counts, because a step is shorter than a second.
    """

    __slots__ = ("_curves", "_last")

    def __init__(self) -> None:
        self._curves: dict[tuple[int, str], Curve] = {}
        self._last: dict[tuple[int, str], float] = {}

    def take(self, at: float, jobs: "Iterable[ObservedJob]") -> None:
        """Add the reports of `jobs` at the time `at`, in seconds since the epoch."""
        for job in jobs:
            beat = job.beat
            if beat is None or job.hello is None or job.gone:
                continue
            for device in job.hello.devices:
                counters = next((one for one in beat.devices if one.index == device.index), None)
                if device.uuid is None or counters is None or counters.allocated is None:
                    continue
                key = (job.pid, bare_uuid(device.uuid))
                since = self._last.get(key, 0.0)
                ends = (end for end in job.moments if end.device == device.index and end.at > since)
                peaks = [end.allocated if end.peak_allocated is None else end.peak_allocated for end in ends]
                left = allocated = max(counters.allocated, *(size or 0 for size in peaks), 0)
                sizes = []
                for part in ("weights", "optimizer", "gradients"):
                    sizes.append(min(left, job.parts.get(part, {}).get(f"cuda:{device.index}", 0)))
                    left -= sizes[-1]
                point = (*sizes, left, max(0, (counters.reserved or 0) - allocated))
                self._curves.setdefault(key, Curve(len(PARTS))).add(at, point)
                self._last[key] = beat.at
        while len(self._curves) > MOST_CURVES:
            del self._curves[next(iter(self._curves))]

    def of(self, process: Process, gpu: Gpu) -> Curve | None:
        """Return the process's memory on that GPU over time; None if it reported nothing."""
        return self._curves.get((process.pid, bare_uuid(gpu.uuid)))


def oom_alerts(sample: Sample, jobs: "Iterable[ObservedJob]") -> "Iterator[Alert]":
    """Return one alert for each job and GPU with a failed allocation within the last minute."""
    gpus = {bare_uuid(gpu.uuid): gpu for gpu in sample.gpus}
    for job in jobs:
        devices = {} if job.hello is None else {device.index: device for device in job.hello.devices}
        latest = {oom.device: oom for oom in job.ooms if 0 <= sample.taken_at - oom.at < STANDS}
        for index, oom in latest.items():
            device = devices.get(index)
            gpu = None if device is None or device.uuid is None else gpus.get(bare_uuid(device.uuid))
            if device is None or gpu is None:
                continue
            report = oom_report(oom, device.total_memory, (other for other in gpu.processes if other.pid != job.pid))
            ways = "; ".join(way.text for way in ways_of(report)[:1])
            words = f"pid {job.pid}, GPU {gpu.index}. {report.cause_sentence()}." + (f" {ways}." if ways else "")
            started = next((one.started_at for one in gpu.processes if one.pid == job.pid), None)
            key = ProcessKey(sample.host.name, gpu.uuid, job.pid, started)
            yield alert_of(kind="out_of_memory", gpu_uuid=gpu.uuid, gpu_index=gpu.index, process=key, sentence=words)


def oom_report(oom: "OutOfMemory", total: int | None, others: Iterable[Process]) -> "OomReport":
    """Return a failure that the probe reported, in the form that `vramtui oom` reads from a log."""
    unallocated = None
    if oom.reserved is not None and oom.allocated is not None:
        unallocated = max(0, oom.reserved - oom.allocated)
    return report_of(
        asked=oom.asked, total=total, free=oom.free, limit=oom.limit, allocated=oom.allocated,
        unallocated=unallocated, others=memory_by_pid(others),
    )  # fmt: skip


def memory_by_pid(processes: Iterable[Process]) -> dict[int, int | None]:
    return {process.pid: process.used_memory or None for process in processes}
