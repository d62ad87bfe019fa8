"""The driver's side of a run: what NVML says of its processes while it runs, and the recording of it."""

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.readings import Gpu, Process, Sample
from vramtui.core.observation.source import Source
from vramtui.core.observation.track import Track
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.fast_sampler import fast_sampler_for
from vramtui.monitor.job_reports import Jobs, no_jobs
from vramtui.monitor.poller import DEADLINE, Poller, ReadResult
from vramtui.monitor.session import JobMatcher, MonitorSession

if TYPE_CHECKING:
    from vramtui.core.observation.snapshot import RecordedTick
    from vramtui.records.recording.writer import RecordingWriter


class GpuWatch:
    """Reads a source again and again on a thread of its own, for as long as the job runs.

    The job's own processes are looked at ten times a second in between, so that their peaks are not missed.

    Args:
        source: what to read.
        interval: seconds between reads.
        record: a file to write every sample to.
        jobs: what the job's processes report; they are those to look at closely.
        preset: what they are predicted by in the recording; None where nobody said so.

    Attributes:
        last: the latest sample; None before the first.
        problem: what the driver or the disk said last; empty where all is well.

    Raises:
        UserError: there is such a file already, or it cannot be written.
        SourceFailed: it has to be recorded, and the source says nothing.
    """

    def __init__(
        self,
        source: Source,
        interval: float,
        record: Path | None = None,
        jobs: Jobs = no_jobs,
        preset: PresetFile | None = None,
    ) -> None:
        self._interval = interval
        self._lock = threading.Lock()
        self._final_peaks: dict[tuple[str, int], int] = {}
        self._session = MonitorSession(jobs=jobs, sampler=fast_sampler_for(source, "auto"))
        self._session.match_by(JobMatcher(jobs, preset))
        self._poller = Poller(source, interval, self._take)
        self.problem = ""
        self._writer: RecordingWriter | None = None
        if record is not None:
            first = source.read()
            self._session.ingest(first)
            self._writer = self._recording(record, first)

    @property
    def last(self) -> Sample | None:
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
        """The memory over time of the process that was this pid last."""
        with self._lock:
            return max(self._tracks(uuid, pid), key=lambda track: track.last_seen, default=None)

    def gpu(self, uuid: str | None, index: int, pid: int | None = None) -> Gpu | None:
        """The card that a job calls `index` and the driver calls `uuid`, as it was seen last; where the driver knows no
        such card, the one that showed `pid`.
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
        """Who else was on that card in the last sample, the largest first."""
        gpu = self.gpu(uuid, -1)
        processes = [] if gpu is None else [process for process in gpu.processes if process.pid not in pids]
        return tuple(sorted(processes, key=lambda process: process.used_memory or 0, reverse=True))

    def _tracks(self, uuid: str, pid: int) -> list[Track]:
        tracks = self._session.history.tracks.items()
        return [track for key, track in tracks if (key.gpu_uuid, key.pid) == (uuid, pid)]

    def _recording(self, path: Path, first: Sample) -> "RecordingWriter":
        from vramtui.cli.common.versions import versions
        from vramtui.records.recording.decoder import RecordingHeader
        from vramtui.records.recording.writer import RecordingWriter

        return RecordingWriter(
            path, RecordingHeader(started_at=first.taken_at, interval=self._interval, versions=versions(first))
        )

    def _take(self, result: ReadResult) -> None:
        """What came of a read, on the poller's thread. The job has its report, whatever is read beside it."""
        try:
            self._take_result(result)
        except Exception as error:  # noqa: BLE001 - as the docstring says
            self.problem = f"a reading cannot be used: {error}"

    def _take_result(self, result: ReadResult) -> None:
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
                self._write(self._writer, tick)

    def _write(self, writer: "RecordingWriter", tick: "RecordedTick") -> None:
        try:
            writer.write(tick)
        except UserError as error:
            # The disk is full, or the like: the job goes on, and its report says it.
            self.problem, self._writer = str(error), None
