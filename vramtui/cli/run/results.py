"""A run's figures: the driver's side while it runs, each process's result at its end, the report and the history."""

import shlex
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui import __version__
from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import for_terminal
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_duration, format_percent, unit_of
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device, card
from vramtui.core.estimate.estimate import CUDA, PHASE_TITLES, Estimate, Ledger, Line, Phase, title_of
from vramtui.core.observation.history import Track
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.read import read_oom
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.probe_messages import FIRST_STEPS, MemoryCounters, ObservedJob, OutOfMemory, ProbeDevice
from vramtui.core.observation.readings import Gpu, Process, Sample, Source
from vramtui.core.observation.snapshot import device_of
from vramtui.core.runs.run import DRY_RUN, Ending, Run, run_key
from vramtui.core.runs.run_tracker import thinned, versions_of
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.child import FROM_SIGNAL
from vramtui.dryrun.traces import Traces
from vramtui.monitor.jobs import Jobs, memory_by_pid, no_jobs, oom_report
from vramtui.monitor.poller import DEADLINE, Poller, ReadResult, fast_sampler_for
from vramtui.monitor.predictor import LazyDefault, Predictor
from vramtui.monitor.session import MonitorSession, job_matcher

if TYPE_CHECKING:
    from vramtui.records.recording.files import RecordingWriter


class GpuWatch:
    """Reads a source again and again on a thread of its own while the job runs.

    The job's own processes are read ten times a second in between, so that their peaks are not missed.

    `record` is a file for every sample, `problem` the last error of the driver or the disk.

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
        self._session.match_by(job_matcher(jobs, preset))
        self._poller = Poller(source, interval, self._take)
        self.problem = ""
        self._writer: RecordingWriter | None = None
        if record is not None:
            from vramtui.cli.common.settings import versions
            from vramtui.records.recording import files

            first = source.read()
            self._session.ingest(first)
            header = files.RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first))
            self._writer = files.RecordingWriter(record, header)

    @property
    def last(self) -> Sample | None:
        return self._session.sample

    def start(self) -> None:
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
            return max(*peaks, self._final_peaks.get((uuid, pid), 0), 0) or None

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
        return shown[0] if len(shown) == 1 else next((gpu for gpu in shown or gpus if gpu.index == index), None)

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
        """The out-of-memory error that the process died of, by the probe or else by the exception that ended it."""
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


def completed_runs(
    finished: CompletedRun,
    seen: tuple[RankResult, ...],
    host: str,
    watch: GpuWatch | None = None,
    former: Sequence[Run] = (),
) -> Iterator[Run]:
    """The entries of a command that ended. Without a preset the prediction is a dry run of the same command on a GPU of
    the same name, among the `former` runs, the latest first.
    """
    preset, command = finished.preset, shlex.join(finished.command)
    workload: dict[str, Any] = {} if preset is None else msgspec.to_builtins(preset.preset.workload)
    host_seen = None if watch is None or watch.last is None else watch.last.host
    for rank in seen:
        if rank.gpu is not None:
            uuid = rank.gpu.uuid
        else:  # spelt as the driver does: PyTorch leaves out its beginning
            uuid = (None if rank.reported is None else rank.reported.uuid) or f"cuda:{rank.counters.index}"
            uuid = uuid if uuid.startswith(("GPU-", "MIG-", "cuda:")) else f"GPU-{uuid}"
        track = None if watch is None else watch.track(uuid, rank.job.pid)
        started_at = finished.started_at if track is None else (track.key.started_at or finished.started_at)
        times, values = ([], []) if track is None else thinned(track.times, track.values)
        predicted, method, peak_phase = Ledger(), "", ""
        if rank.estimate is not None:
            predicted, method = rank.estimate.ledger, rank.estimate.method
            peak_phase = rank.estimate.peak_phase
        else:
            try:
                wanted = (DRY_RUN, command, card(rank.device.name).name)
            except UserError:
                wanted = None
            dry = next((run for run in former if (run.source, run.command, run.gpu_name) == wanted), None)
            if dry is not None:
                predicted, method, peak_phase = dry.predicted, DRY_RUN, dry.peak_phase
        ending: Ending = "killed" if finished.code > FROM_SIGNAL else "failed" if finished.code else "exited"
        yield Run(
            key=run_key(host, uuid, rank.job.pid, started_at),
            source="run",
            host=host,
            gpu_uuid=uuid,
            gpu_name=rank.device.name if rank.gpu is None else rank.gpu.name,
            pid=rank.job.pid,
            command=command,
            started_at=started_at,
            ended_at=finished.ended_at,
            ending="out_of_memory" if finished.code and rank.fatal_oom() is not None else ending,
            exit_code=finished.code,
            preset="" if preset is None else preset.key,
            model_kind=str(workload.get("model", {}).get("kind", "")),
            run_kind=str(workload.get("run", {}).get("kind", "")),
            workload=workload,
            method=method,
            peak_phase=peak_phase,
            predicted=predicted,
            observed=rank.ledger,
            peak_how="probe",
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions={"vramtui": __version__, **versions_of(host_seen, rank.job.hello)},
        )


PHASES: tuple[Phase, ...] = ("build", "input", "forward", "backward", "step")
STATES: tuple[tuple[str, tuple[Line, ...]], ...] = (
    ("weights", ("weights",)),
    ("gradients", ("gradients",)),
    ("optimizer", ("optimizer", "master_weights")),
)
TOTALS: tuple[Line, ...] = ("allocated", "reserved", "context", "other", "process")
PHASE_COLUMNS = ("STEP", "END PREDICTED", "END OBSERVED", "Δ", "PEAK PREDICTED", "PEAK OBSERVED", "Δ")
NOTHING = "the job never used CUDA through PyTorch, so there is nothing to report"
MOST_OTHERS = 5


def print_report(finished: CompletedRun, seen: tuple[RankResult, ...], watch: GpuWatch | None) -> None:
    with redirect_stdout(sys.stderr):
        command = printable(shlex.join(finished.command))
        lasted = format_duration(finished.ended_at - finished.started_at)
        ending = f"{command if len(command) <= 80 else command[:79] + '…'} ended with {finished.code} after {lasted}"
        beats = [job.beat for job in finished.jobs if job.beat is not None and job.beat.step]
        if beats:
            most = max(beats, key=lambda beat: beat.step)
            pace = "" if most.step_seconds is None else f" of {1e3 * most.step_seconds:,.1f} ms"
            ending += f", {most.step:,} step{'s' if most.step > 1 else ''}{pace}"
        print(f"\n{for_terminal(f'vramtui: {ending}')}")
        if not seen:
            dry = printable(shlex.join(["vramtui", "dry-run", "--gpu", "4090", *finished.command]))
            hint = "" if watch is not None else f"; without a GPU, `{dry}` shows it"
            print(for_terminal(f"vramtui: {NOTHING}{hint}"))
        if len(seen) > 1:
            rows = [
                (
                    printable(one.title),
                    *map(format_bytes, (one.ledger.allocated, one.ledger.reserved, one.ledger.process)),
                    UNKNOWN if one.peak is None else _where(one.peak),
                )
                for one in seen
            ]
            _print_known(("PROCESS", "ALLOCATED", "RESERVED", "PROCESS PEAK", "PEAKED IN"), rows, (1, 2, 3))
        # Ranks of one job are much alike: the largest is shown in full.
        shown = max(seen, key=lambda one: one.counters.reserved_peak or 0, default=None)
        if shown is not None:
            _print_one(shown, finished)
        # The host memory of that process's DataLoaders; of any process if none used CUDA.
        waiting = [job.beat for job in ([shown.job] if shown else finished.jobs) if job.beat is not None]
        for batches in max((beat.loaders for beat in waiting), key=len, default=()):
            print_wrapped(f"{batches.sentence}. None of it is on the card", text_width())
        for rank in seen:
            for line in _oom_lines(rank, finished, watch):
                print(for_terminal(line))
        if watch is not None and watch.problem and seen:
            print(f"note: {printable(watch.problem)}")


def _where(peak: tuple[str, int]) -> str:
    return f"{PHASE_TITLES.get(peak[0], peak[0])} of step {peak[1]}"  # type: ignore[call-overload]  # a probe's phases are among them


def _print_known(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], spare: Sequence[int] = ()
) -> None:
    """Print a table without the columns in which nothing is known, and if it is narrow without those in `spare`."""
    known = [at for at in range(len(headings)) if any(row[at] != UNKNOWN for row in rows)]
    numbers, left_out = ([known.index(at) for at in columns if at in known] for columns in (right, spare))
    shown = [[row[at] for at in known] for row in rows]
    print_table([headings[at] for at in known], shown, right=numbers, spare=left_out)


def _print_one(rank: RankResult, finished: CompletedRun) -> None:
    observed, estimate = rank.ledger, rank.estimate
    against = f" against {printable(finished.preset.key)}" if finished.preset is not None else ""
    print(f"\n{printable(rank.title)}{against}")
    sizes = (observed.process, observed.reserved, observed.allocated, None if estimate is None else estimate.process)
    unit, name = unit_of(next((size for size in sizes if size), 0))

    def compared(predicted: int | None, seen: int | None) -> tuple[str, str, str]:
        off = UNKNOWN if not predicted or seen is None else format_percent(seen / predicted - 1)
        return format_column(predicted, unit), format_column(seen, unit), off

    # Each part at its own largest; the rest is the peak of allocated beyond them, on both sides.
    rows = []
    predicted_states = observed_states = 0
    for title, lines in STATES:
        predicted = None if estimate is None else sum(part.bytes for part in estimate.parts if part.line in lines)
        seen = observed.bytes_of(lines[0])
        predicted_states += predicted or 0
        observed_states += seen or 0
        rows.append((title, *compared(predicted, seen)))
    rest = None if estimate is None else max(0, estimate.allocated - predicted_states)
    is_known = observed.allocated is not None and observed.weights is not None
    seen_rest = max(0, (observed.allocated or 0) - observed_states) if is_known else None
    rows.append(("activations and the rest", *compared(rest, seen_rest)))
    vendor = CUDA if rank.gpu is None else rank.gpu.vendor
    for line in TOTALS:
        predicted = None if estimate is None else estimate.ledger.bytes_of(line)
        if line != "other" or predicted or observed.other:
            rows.append((title_of(line, vendor), *compared(predicted, observed.bytes_of(line))))
    _print_known((f"PEAK IN {name}", "PREDICTED", "OBSERVED", "Δ"), rows, (1, 2, 3))

    timeline = {} if estimate is None else {(moment.phase, moment.step): moment for moment in estimate.timeline}
    phases: list[tuple[str, ...]] = []
    for step in range(FIRST_STEPS):
        ends = rank.job.phase_ends(rank.counters.index, step)
        for phase in PHASES:
            end, expected = ends.get(phase), timeline.get((phase, step))
            if end is not None:
                allocated, peak = (None, None) if expected is None else (expected.allocated, expected.peak_allocated)
                sizes_of = (*compared(allocated, end.allocated), *compared(peak, end.peak_allocated))
                phases.append((PHASE_TITLES[phase], str(step), *sizes_of))
    if phases:
        _print_known((f"PHASE IN {name}", *PHASE_COLUMNS), phases, range(1, 8), spare=(4, 2, 3))
    peaked = "allocated peaked" if rank.peak is None else f"allocated peaked in {_where(rank.peak)}"
    peaked += f" at {format_bytes(observed.allocated, 2)}"
    if estimate is not None:
        of_step = "" if estimate.peak_step is None else f" of step {estimate.peak_step}"
        peaked += (
            f"; predicted in {PHASE_TITLES[estimate.peak_phase]}{of_step} at {format_bytes(estimate.allocated, 2)}"
        )
    print_wrapped(peaked, text_width())
    if finished.preset is not None and estimate is None:
        print(f"note: {printable(finished.preset.key)} cannot be estimated for this card")
    times = rank.counters.num_alloc_retries
    if times:
        print(f"note: the cache had to be emptied for room {f'{times:,} times' if times > 1 else 'once'}")


def _oom_lines(rank: RankResult, finished: CompletedRun, watch: GpuWatch | None) -> Iterator[str]:
    """The out-of-memory error that the process died of, and the change of the preset that would have fitted."""
    pids = frozenset(job.pid for job in finished.jobs)
    others = () if watch is None or rank.gpu is None else watch.others(rank.gpu.uuid, pids)
    report = rank.fatal_oom(others)
    if report is None:
        return
    oom = rank.out_of_memory
    phase = "" if oom is None or oom.phase is None else f"{PHASE_TITLES[oom.phase]} of "
    yield f"\n{printable(rank.title)} ran out of memory{'' if oom is None else f' in {phase}step {oom.step}'}"
    yield from (f"  {sentence}" for sentence in sentences_of(report))
    yield f"  asked for                  {format_bytes(report.asked, 2)}"
    yield f"  free on the card           {format_bytes(report.free, 2)}"
    yield f"  allocated                  {format_bytes(report.allocated, 2)}"
    yield f"  cached but unusable        {format_bytes(report.unallocated, 2)}"
    for other in others[:MOST_OTHERS]:
        name = f"pid {other.pid} {printable(other.user or '?')} {printable(other.command_or_name or '?')[:60]}"
        yield f"  also on the card           {format_bytes(other.used_memory, 2)}  {name}"
    if len(others) > MOST_OTHERS:
        yield f"                             and {len(others) - MOST_OTHERS} more"
    if finished.preset is None:
        yield "  with --preset NAME this report names the change that would have fitted"
        return
    from vramtui.cli.oom import advice_lines, plan_within  # only if a job ran out of memory

    name, taken = printable(finished.preset.key), sum(process.used_memory or 0 for process in others)
    try:
        plan = plan_within(finished.preset, rank.device, rank.device.total_memory - taken)
    except UserError as error:
        yield f"  {name} cannot be planned: {printable(str(error))}"
        return
    yield from (f"  {line}" for line in advice_lines(name, plan))
