"""The driver's side of a run: what NVML says of its processes while it goes on, and the recording of it."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.cli.record.fast_sampler import FastTargets
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation.history import History, Peak, Track
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.observation.source import Source

if TYPE_CHECKING:
    from vramtui.cli.run.recorded_predictions import RunRecorded
    from vramtui.records.recording.writer import RecordingWriter

PATIENCE = 2.0  # seconds for a last read that hangs in the driver


class GpuWatch:
    """Reads a source again and again on a thread of its own, for as long as the job runs.

    The job's own processes are looked at ten times a second in between, so that their peaks are not missed.

    Args:
        source: what to read.
        interval: seconds between reads.
        record: a file to write every sample to.

    Attributes:
        beside: knows what is recorded beside each sample; set before `start`.

    Raises:
        UserError: there is such a file already, or it cannot be written.
        SourceFailed: it has to be recorded, and the source says nothing.
    """

    def __init__(self, source: Source, interval: float, record: Path | None = None) -> None:
        self._source = source
        self._interval = interval
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._peaks: dict[tuple[str, int], int] = {}
        self._history = History()
        self._closely = FastTargets(source, "auto")
        self.last: Sample | None = None
        self.problem = ""
        self.beside: RunRecorded | None = None
        self._writer = None if record is None else self._recording(record)
        self._thread = threading.Thread(target=self._watch, name="vramtui-run", daemon=True)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def close(self) -> None:
        """Read no more; end the recording."""
        self._over.set()
        self._closely.close()
        if self._thread.ident is not None:
            self._thread.join(timeout=PATIENCE)
        if self.last is not None and not self._thread.is_alive():
            self._note(self._closely.take_rest(self.last))
        if self._writer is not None and not self._thread.is_alive():
            try:
                self._writer.close()
            except UserError as error:
                self.problem = str(error)

    def peak(self, uuid: str, pid: int) -> int | None:
        """The most bytes that the driver showed for a process on a GPU."""
        with self._lock:
            return self._peaks.get((uuid, pid))

    def track(self, uuid: str, pid: int) -> Track | None:
        """The memory over time of the process that was this pid last."""
        with self._lock:
            found = [track for key, track in self._history.tracks.items() if (key.gpu_uuid, key.pid) == (uuid, pid)]
        return max(found, key=lambda track: track.last_seen, default=None)

    def gpu(self, uuid: str | None, index: int) -> Gpu | None:
        """The card that a job calls `index` and the driver calls `uuid`, as it was seen last."""
        gpus = () if self.last is None else self.last.gpus
        if uuid is not None:
            return next((gpu for gpu in gpus if gpu.uuid.endswith(uuid)), None)
        return next((gpu for gpu in gpus if gpu.index == index), None)

    def others(self, uuid: str, pids: frozenset[int]) -> tuple[Process, ...]:
        """Who else was on that card in the last sample, the largest first."""
        gpu = self.gpu(uuid, -1)
        found = [] if gpu is None else [process for process in gpu.processes if process.pid not in pids]
        return tuple(sorted(found, key=lambda process: process.used_memory or 0, reverse=True))

    def _recording(self, path: Path) -> "RecordingWriter":
        from vramtui.cli.common.versions import versions  # noqa: PLC0415 - only where something is recorded
        from vramtui.records.recording.writer import RecordingHeader, RecordingWriter  # noqa: PLC0415 - as above

        first = self._source.read()
        self._keep(first)
        return RecordingWriter(
            path, RecordingHeader(started_at=first.taken_at, interval=self._interval, versions=versions(first))
        )

    def _watch(self) -> None:
        while True:
            try:
                sample = self._source.read()
                self._keep(sample)
                self._look_closely(sample)
            except SourceFailed as error:
                self.problem = error.message
            except UserError as error:
                # The disk is full, or the like: the job goes on, and its report says it.
                self.problem, self._writer = str(error), None
            if self._over.wait(self._interval):
                return

    def _look_closely(self, sample: Sample) -> None:
        """Between samples at what tells of itself; and record, where that is wanted."""
        if self._writer is None:
            jobs = () if self.beside is None else self.beside.jobs()
            self._note(self._closely.take(sample, jobs, ()))
            return
        jobs, predictions = ((), {}) if self.beside is None else self.beside.of(sample)
        peaks = self._closely.take(sample, jobs, predictions)
        self._note(peaks)
        self._writer.write(sample, jobs, predictions, peaks)

    def _note(self, peaks: Mapping[ProcessKey, Peak]) -> None:
        with self._lock:
            for key, peak in peaks.items():
                place = key.gpu_uuid, key.pid
                self._peaks[place] = max(peak.bytes, self._peaks.get(place, 0))

    def _keep(self, sample: Sample) -> None:
        with self._lock:
            self.last = sample
            self._history.add(sample)
            for gpu in sample.gpus:
                for process in gpu.processes:
                    key = (gpu.uuid, process.pid)
                    seen = max(process.used_memory or 0, process.peak_memory or 0)
                    if seen:
                        self._peaks[key] = max(seen, self._peaks.get(key, 0))
                for pid, peak in gpu.final_peaks.items():
                    self._peaks[gpu.uuid, pid] = max(peak, self._peaks.get((gpu.uuid, pid), 0))
