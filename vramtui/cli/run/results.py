"""A run's figures: the driver's side while it runs, and each process's result at its end."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.observation.history import Track
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.probe_messages import MemoryCounters, ObservedJob, OutOfMemory, ProbeDevice
from vramtui.core.observation.readings import Gpu, Process, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.observation.source import Source
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.traces import Traces
from vramtui.monitor.fast_sampler import fast_sampler_for
from vramtui.monitor.job_reports import Jobs, memory_by_pid, no_jobs, oom_report
from vramtui.monitor.poller import DEADLINE, Poller, ReadResult
from vramtui.monitor.predictor import LazyDefault, Predictor
from vramtui.monitor.session import JobMatcher, MonitorSession

if TYPE_CHECKING:
    from vramtui.records.recording.writer import RecordingWriter


class GpuWatch:
    """Reads a source again and again on a thread of its own while the job runs.

    The job's own processes are read ten times a second in between, so that their peaks are not missed.

    Args:
        source: the GPUs.
        interval: seconds between reads.
        record: a file to write every sample to.
        jobs: the reports of the job's processes; these are read more often.
        preset: the job's preset in the recording, or None.

    Attributes:
        problem: the last error of the driver or the disk, or empty.

    Raises:
        UserError: the file exists already, or cannot be written.
        SourceFailed: it has to be recorded, and the source fails.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        record: Path | None = None,
        jobs: Jobs = no_jobs,
        preset: PresetFile | None = None,
    ) -> None:
        self._lock = threading.Lock()
        self._final_peaks: dict[tuple[str, int], int] = {}
        self._session = MonitorSession(jobs=jobs, sampler=fast_sampler_for(source, "auto"))
        self._session.match_by(JobMatcher(jobs, preset))
        self._poller = Poller(source, interval, self._take)
        self.problem = ""
        self._writer: RecordingWriter | None = None
        if record is not None:
            from vramtui.cli.common.versions import versions
            from vramtui.records.recording import decoder, writer

            first = source.read()
            self._session.ingest(first)
            header = decoder.RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
            self._writer = writer.RecordingWriter(record, header)

    @property
    def last(self) -> Sample | None:
        """The latest sample; None before the first."""
        return self._session.sample

    def start(self) -> None:
        """Begin to read."""
        self._poller.start()

    def close(self) -> None:
        """Read no more, but wait for a read under way until its deadline; end the recording."""
        self._session.close()
        if self._poller.ident is not None:
            self._poller.stop(deliver_last=True)
            self._poller.join(DEADLINE)
        if self._poller.is_alive():
            self.problem = self.problem or "the driver does not answer"
            return
        self._session.take_fast_samples()
        if self._writer is not None:
            try:
                self._writer.close()
            except UserError as error:
                self.problem = str(error)

    def peak(self, uuid: str, pid: int) -> int | None:
        """The most bytes that the driver showed for a process on a GPU."""
        with self._lock:
            peaks = [track.peak.bytes for track in self._tracks(uuid, pid) if track.peak is not None]
            final = self._final_peaks.get((uuid, pid), 0)
        return max(*peaks, final, 0) or None

    def track(self, uuid: str, pid: int) -> Track | None:
        """The memory over time of the process that had this pid last."""
        with self._lock:
            return max(self._tracks(uuid, pid), key=lambda track: track.last_seen, default=None)

    def gpu(self, uuid: str | None, index: int, pid: int | None = None) -> Gpu | None:
        """The GPU that a job calls `index` and the driver calls `uuid`, as it was seen last; if the driver knows no GPU
        with that name, the one that showed `pid`.
        """
        gpus = () if self.last is None else self.last.gpus
        if uuid is not None:
            match = next((gpu for gpu in gpus if gpu.uuid.endswith(uuid)), None)
            if match is not None or pid is None:
                return match
        shown = [gpu for gpu in gpus if pid is not None and self._tracks(gpu.uuid, pid)]
        if len(shown) == 1:
            return shown[0]
        return next((gpu for gpu in shown or gpus if gpu.index == index), None)

    def others(self, uuid: str, pids: frozenset[int]) -> tuple[Process, ...]:
        """The other processes on that GPU in the last sample, the largest first."""
        gpu = self.gpu(uuid, -1)
        processes = [] if gpu is None else [process for process in gpu.processes if process.pid not in pids]
        return tuple(sorted(processes, key=lambda process: process.used_memory or 0, reverse=True))

    def _tracks(self, uuid: str, pid: int) -> list[Track]:
        tracks = self._session.history.tracks.items()
        return [track for key, track in tracks if (key.gpu_uuid, key.pid) == (uuid, pid)]

    def _take(self, result: ReadResult) -> None:
        """Take a read's result, on the poller's thread. The job has its report, whatever goes wrong here."""
        try:
            if isinstance(result, SourceFailed):
                self.problem = result.message
            elif isinstance(result, Sample):
                with self._lock:
                    self._session.ingest(result)
                    for gpu in result.gpus:
                        for pid, peak in gpu.final_peaks.items():
                            self._final_peaks[gpu.uuid, pid] = max(peak, self._final_peaks.get((gpu.uuid, pid), 0))
                    tick = None if self._writer is None else self._session.recorded_tick()
                if self._writer is not None and tick is not None:
                    try:
                        self._writer.write(tick)
                    except UserError as error:  # the disk is full, or the like: the job goes on
                        self.problem, self._writer = str(error), None
        except Exception as error:  # noqa: BLE001 - as the docstring says
            self.problem = f"a reading cannot be used: {error}"


class CompletedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A command that ended: its exit code as a shell gives it, times in seconds since the epoch, and its processes.

    `preset` is what it is compared with, and `traces` has its estimate if that is the command's own dry run.
    """

    command: tuple[str, ...]
    code: int
    started_at: float
    ended_at: float
    jobs: tuple[ObservedJob, ...]
    preset: PresetFile | None = None
    traces: Traces | None = None


class RankResult(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU: the device as job and driver name it, PyTorch's peaks, and the two sides compared."""

    job: ObservedJob
    counters: MemoryCounters
    reported: ProbeDevice | None = None
    gpu: Gpu | None = None
    ledger: Ledger
    device: Device
    estimate: Estimate | None = None

    @property
    def title(self) -> str:
        """The process and its GPU, in words."""
        hello = self.job.hello
        rank = "" if hello is None or hello.rank is None else f"rank {hello.rank}, "
        number = self.counters.index if self.gpu is None else self.gpu.index
        name = "" if self.reported is None else f" {self.reported.name}"
        return f"{rank}pid {self.job.pid} on GPU {number}{name}"

    @property
    def peak(self) -> tuple[str, int] | None:
        """The phase and step of the peak of allocated; None if unknown."""
        known = [end for end in self.job.moments if end.device == self.counters.index and end.peak_allocated]
        highest = max(known, key=lambda end: end.peak_allocated or 0, default=None)
        if highest is None or highest.peak_allocated != self.counters.allocated_peak:
            return None
        return highest.phase, highest.step

    @property
    def out_of_memory(self) -> OutOfMemory | None:
        """The last time that the allocator gave up, if the process may have died of it."""
        died = self.job.end is None or self.job.end.out_of_memory
        mine = [oom for oom in self.job.ooms if oom.device == self.counters.index]
        return mine[-1] if mine and died else None

    def fatal_oom(self, others: tuple[Process, ...] = ()) -> OomReport | None:
        """The out-of-memory error that the process died of, by the probe or else by the exception that ended it.

        Args:
            others: other processes there, as the driver lists them.
        """
        total = self.device.total_memory
        if self.out_of_memory is not None:
            return oom_report(self.out_of_memory, total, others)
        end = self.job.end
        if end is None or not end.out_of_memory:
            return None
        if f"GPU {self.counters.index} " not in end.message and len(self.job.peaks) > 1:
            return None
        try:
            report = read_oom(end.message)
        except UserError:
            report = OomReport()
        return msgspec.structs.replace(report, total=total, others=memory_by_pid(others) or report.others)


def seen_in(finished: CompletedRun, watch: GpuWatch | None) -> tuple[RankResult, ...]:
    """Every process that used CUDA through PyTorch, by rank."""
    rows = []
    for job in finished.jobs:
        hello = job.hello
        rank = 1 << 30 if hello is None or hello.rank is None else hello.rank
        for counters in job.peaks.values():
            if not counters.reserved_peak:
                continue
            reported = next((one for one in (hello.devices if hello else ()) if one.index == counters.index), None)
            uuid = None if reported is None else reported.uuid
            gpu = None if watch is None else watch.gpu(uuid, counters.index, job.pid)
            process = None if watch is None or gpu is None else watch.peak(gpu.uuid, job.pid)
            if reported is not None:
                size = reported.total_memory
                device = Device(name=reported.name, capability=reported.capability, total_memory=size)
            else:
                device = CARDS[DEFAULT_CARD] if gpu is None else device_of(gpu)
            estimate = None
            if finished.preset is not None:
                estimate = Predictor(LazyDefault(), finished.traces).of_preset(finished.preset, device)
            result = RankResult(
                job=job,
                counters=counters,
                reported=reported,
                gpu=gpu,
                ledger=job.ledger_beside(counters.index, process),
                device=device,
                estimate=estimate,
            )
            rows.append(((rank, job.pid, counters.index), result))
    return tuple(result for _, result in sorted(rows, key=lambda row: row[0]))
