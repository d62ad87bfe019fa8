"""Runs a job on a simulated GPU with PyTorch's own CUDA build, and reads what it came to."""

import contextlib
import math
import os
import re
import secrets
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import DRIVER_REPORT
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.observation.probe_messages import MemoryCounters, ObservedJob, OutOfMemory
from vramtui.dryrun import result as results
from vramtui.dryrun.child import probed_environment, run_supervised
from vramtui.dryrun.cuda import environment as cards
from vramtui.dryrun.cuda.build import build
from vramtui.dryrun.cuda.environment import CardInUse, DriverReport, EmulatedCard
from vramtui.dryrun.job_command import DryRunJob, RunTools
from vramtui.dryrun.reads import HEALTHY, NUMBERS, ConvolutionRun, ReadPlace, leads_on, read_places
from vramtui.dryrun.shield import GRACE, REFUSED, supervised
from vramtui.estimators.analytic.sizes.partition import communicator_bytes, nccl_spread
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context, loaded_context_spread
from vramtui.estimators.torch_facts.convolutions import is_without_device, workspace_on_card
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.guards import loop_lines
from vramtui.probe.peak import GARBAGE_NOTE, MOST_EVENTS
from vramtui.probe.reads import MOST_TURNS, WORKSPACES
from vramtui.probe.servers import LISTENS
from vramtui.probe.socket_dir import OTHER_NUMBERS, OTHER_WAY, REST, SERVED, STEPS, UNTIL

WITHOUT_CUDA = "the job never used CUDA, so there is nothing to measure"
NOT_STARTED = "not started because NVIDIA's runtime inside needs NVIDIA's driver: "
OWN_RUNTIME = "cuGetExportTable"  # NVIDIA's runtime asks for it first, if a library brings its own
DEVICE_ENGINES = "cuDNN's engines that need a device"  # c/cudnn.c, at the first convolution
WITHOUT_DEVICE_NOTE = "bounded: cuDNN chose how to convolve without a device; small nets took up to 2.6 times as much"
TRIED_NOTE = (
    "; torch.backends.cudnn.benchmark tries all kernels of a new convolution that fit, for a moment, and none that an "
    "H100 tried for 1,518 convolutions takes more than that"
)
SETTLED = 2, 3  # steps done, of at most so many asked for: none of 40 recorded runs allocates more in its third
ON_CARD_NOTE = (
    "each convolution has the workspace that an H100 took for it, or for the nearest one that was measured; as cuDNN "
    "chooses without a device it is {} allocated and {} reserved"
)
UNRUN, UNSEEN = "the other way did not end in time", "a size or an index may be made of it"
MOST_PLACES = 5
COMPILED = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"
ABORTS = frozenset({128 + signal.SIGABRT, 128 + signal.SIGSEGV})
ABORTED = "a signal ended the job in its own exit, after all was done"
ALL_TAKEN = "PyTorch ran out of memory after every place of a computed mask was taken, and on a GPU only some hold"
# Folders that a loader can take, which divides LD_PRELOAD at spaces and colons (ld.so(8)), with room for names in them.
LOADABLE = re.compile(r"[^\s:;$]{1,300}")


class ProcessOnGpu(msgspec.Struct, frozen=True, kw_only=True):
    """One process on one GPU; bytes. `allocated` and `reserved` are None for a program without PyTorch."""

    job: ObservedJob
    index: int
    counters: MemoryCounters
    process: int
    context: int
    other: int

    @property
    def fatal_oom(self) -> OutOfMemory | None:
        """The out-of-memory error that the process may have died of."""
        mine = [oom for oom in self.job.ooms if oom.device == self.index]
        return mine[-1] if mine and (self.job.end is None or self.job.end.out_of_memory) else None


class CudaRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job's end on GPUs of one kind: everything that is known of it; `without_device` is where cuDNN chose how."""

    device: Device
    gpus: int
    code: int
    jobs: tuple[ObservedJob, ...]
    reports: tuple[DriverReport, ...]
    places: tuple[ReadPlace, ...] = ()
    convolutions: tuple[ConvolutionRun, ...] = ()
    other_ways: dict[ReadPlace, results.DryRun] = {}
    without_device: results.DryRun | None = None
    empty: results.DryRun | None = None
    peaks: dict[tuple[int, int], dict[str, Any]] = {}
    steps: int | None = None
    ended_after: float | None = None
    notes: tuple[str, ...] = ()
    serves: bool = False
    rest: bool = False

    @property
    def steps_done(self) -> int:
        """Steps that the optimizers took, in the process that took the most."""
        return max((job.beat.step for job in self.jobs if job.beat is not None), default=0)

    @property
    def requests(self) -> Counter[str]:
        """How often the allocators were asked for each number of bytes."""
        return sum((Counter[str](known.get("requests", {})) for known in self.peaks.values()), Counter[str]())

    @property
    def cut_short(self) -> bool:
        return self.steps is not None and self.steps_done >= self.steps


def run_cuda(job: DryRunJob, device: Device, gpus: int, tools: RunTools, output: IO[bytes] | None) -> CudaRun:
    """Run the job on so many GPUs of a kind.

    Raises:
        UserError: the driver cannot be compiled, or the program cannot be started.
        CancelledError: `tools.cancel` was set.
    """
    libraries = build(tools.cache)
    emulated = EmulatedCard(
        device=device,
        multiprocessors=card_limits(device).multiprocessors,
        context=cuda_context(device.capability).bytes,
        devices=gpus,
        communicators=communicator_bytes(device.capability),
    )
    mark = secrets.token_hex(8)
    with contextlib.ExitStack() as at_end:
        place = ""  # the first for temporary files that is writable and can stand in a loader's variables
        with contextlib.suppress(OSError):  # there is none at all
            usual = (tempfile.gettempdir(), "/tmp", "/dev/shm")  # noqa: S108 - as tempfile does
            place = next((one for one in usual if LOADABLE.fullmatch(one) and os.access(one, os.W_OK | os.X_OK)), "")
        if not place:
            raise UserError("there is no folder for temporary files: set TMPDIR to a path without spaces and colons")
        folder, scratch = (
            at_end.enter_context(tempfile.TemporaryDirectory(prefix=use, dir=place, ignore_cleanup_errors=True))
            for use in ("vramtui-on-", "vramtui-scratch-")
        )
        drivers = Path(folder, "driver")
        drivers.symlink_to(libraries)
        environment = cards.emulating(job.environment, emulated, drivers, Path(folder))
        cards.lay_out(Path(folder), libraries)
        if job.workspaces:
            Path(folder, WORKSPACES).write_text("".join(f"{size} {key}\n" for key, size in job.workspaces.items()))
        if job.steps:
            environment |= {STEPS: str(job.steps)} | ({REST: "1"} if job.rest else {})
        if job.other_way:
            environment[OTHER_WAY] = job.other_way
        if job.other_numbers:
            environment[OTHER_NUMBERS] = ":".join((job.other_numbers, *HEALTHY))
        until = math.inf if job.timeout is None else time.monotonic() + job.timeout
        if job.timeout is not None:
            environment[UNTIL] = str(int(until) + 1)
        if (listener := tools.listen(mark)) is not None:
            at_end.callback(listener.close)
            environment = probed_environment(environment, str(listener.path), mark)
        at_end.enter_context(cards.announced(CardInUse(card=emulated.text, reports=folder, libraries=str(libraries))))
        if job.shared and not job.keep_files:  # what one run compiled, the next ones need not
            environment = dict.fromkeys(COMPILED, job.shared) | environment
            for chosen in Path(job.shared).rglob("*.best_config"):  # but they try the same kernels, which takes memory
                chosen.unlink()
        command = supervised(
            job.words, (folder, scratch), scratch="" if job.keep_files else scratch, reports=folder, shared=job.shared
        )
        code = run_supervised(job, command, environment, output, tools.cancel, lambda: time.monotonic() > until + GRACE)
        is_ended = time.monotonic() >= until
        reports, (places, convolutions) = cards.read_reports(Path(folder)), read_places(Path(folder))
        peaks: dict[tuple[int, int], dict[str, Any]] = {}
        for path in islice(Path(folder).glob("*.peak"), DRIVER_REPORT.count):
            pid, _, index = path.stem.partition("-")
            with contextlib.suppress(UserError, ValueError, msgspec.DecodeError):
                peaks[int(pid), int(index)] = msgspec.json.decode(read_plain(path, DRIVER_REPORT))
        serves, refused = Path(folder, SERVED).exists(), ""
        with contextlib.suppress(UserError):  # there is no such file where all is shielded
            refused = read_plain(Path(folder, REFUSED), DRIVER_REPORT).decode(errors="replace")[:2000]
    return CudaRun(
        device=device,
        gpus=gpus,
        code=code,
        jobs=() if listener is None else listener.jobs(),
        reports=reports,
        places=places,
        convolutions=convolutions,
        peaks=peaks,
        steps=job.steps or None,
        ended_after=job.timeout if is_ended else None,
        notes=tuple(refused.splitlines()),
        serves=serves,
        rest=job.rest,
    )


def processes_of(run: CudaRun) -> tuple[ProcessOnGpu, ...]:
    """Every process on every GPU that it used: as PyTorch and the driver have it, or only the driver."""
    reports = {report.pid: report for report in run.reports}
    entries = [(job, index, counters) for job in run.jobs for index, counters in job.peaks.items()]
    # Who runs out of memory at the first request has held none.
    entries += [(job, oom.device, MemoryCounters(index=oom.device)) for job in run.jobs for oom in job.ooms[-1:]]
    entries = [one for one in entries if one[2].reserved_peak or one[0].ooms] or [
        (ObservedJob(pid=report.pid), index, MemoryCounters(index=index))
        for report in run.reports
        for index, process in enumerate(report.peaks)
        if process > report.contexts[index] or any(report.refused[index : index + 1])
    ]
    processes: dict[tuple[int, int], ProcessOnGpu] = {}
    for job, index, counters in entries:
        own = counters.reserved_peak or 0
        report = reports.get(job.pid)
        process = context = own
        if report is not None and index < len(report.peaks):
            process, context = max(report.peaks[index], own), report.contexts[index]
        context, other = min(context, process - own), max(0, process - own - context)
        one = ProcessOnGpu(job=job, index=index, counters=counters, process=process, context=context, other=other)
        processes.setdefault((job.pid, index), one)
    return tuple(processes.values())


def result_of(run: CudaRun) -> results.DryRun:
    """The job's result, in the form of both engines.

    Raises:
        UserError: it used no CUDA, or ended for another reason than memory.
    """
    processes = processes_of(run)
    calls = tuple(dict.fromkeys(call for report in run.reports for call in report.unmodelled))
    largest = max(processes, key=lambda one: one.process, default=None)
    own = sorted({caller for name, caller in calls if name == OWN_RUNTIME})
    not_started = (f"; {NOT_STARTED}{', '.join(own)}" if own else "") + "".join(f"; {note}" for note in run.notes)
    if largest is None:
        ended = f"{WITHOUT_CUDA}: {LISTENS}" if run.serves else WITHOUT_CUDA
        if run.ended_after is not None:
            ended = f"the job was ended after {run.ended_after:g} s, before it used CUDA"
        elif run.code:
            ended = f"the job ended with {run.code} before it used CUDA"
        raise UserError(ended + not_started)
    full = next((one for one in processes if one.fatal_oom is not None), None)
    died = next((one for one in processes if one.job.end is not None and one.job.end.out_of_memory), None)
    allocators = {job.pid for job in run.jobs if job.ooms or any(one.num_ooms for one in job.peaks.values())}
    # The largest request that the driver refused and that PyTorch's allocator has not reported.
    refused = max(
        (size for report in run.reports if report.pid not in allocators for size in report.refused), default=0
    )
    fails_refused = bool(run.code) and refused > 0
    # As PyTorch 2.14 does at times in its own exit.
    is_done = (
        run.code in ABORTS and bool(run.jobs) and all(job.end is not None and job.end.error is None for job in run.jobs)
    )
    if run.code and not (full or died or fails_refused or is_done or run.cut_short or run.ended_after is not None):
        raise UserError(
            f"the job ended with {run.code}, so it is unknown whether it fits {run.device.name}{not_started}"
        )
    shown = full or died or largest
    oom = None if full is None else full.fatal_oom
    text = None
    if oom is not None:
        text = f"out of memory in {oom.phase or 'step'} of step {oom.step}: asked for {format_bytes(oom.asked, 2)}"
    elif died is not None and died.job.end is not None:
        text = died.job.end.message.partition("\n")[0] or "out of memory"
    elif fails_refused:
        text = f"there was no room for {format_bytes(refused)} more; the job ended with {run.code}"
    known = run.peaks.get((shown.job.pid, shown.index), {})
    summaries = {(row["phase"], row["step"]): row for row in known.get("rows", ())}
    rows = []
    for end in shown.job.moments:
        if end.device == shown.index:
            row, in_use = summaries.get((end.phase, end.step), {}), end.allocated or 0
            rows.append(
                results.TraceRow(
                    phase=end.phase,
                    step=end.step if end.phase != "build" else -1,
                    allocated=in_use,
                    reserved=end.reserved or 0,
                    peak_allocated=end.peak_allocated or max(in_use, int(row.get("peak", 0))),
                    peak_reserved=end.peak_reserved or end.reserved or 0,
                    categories=_summing_to(in_use, row.get("categories", {})),
                )
            )
    allocated, reserved = shown.counters.allocated_peak or 0, shown.counters.reserved_peak or 0
    peak_row = max(rows, key=lambda row: row.peak_allocated, default=None)
    deciding = [place for place in run.places if place.decides and not run.rest]
    doubts, notes = [], list(run.notes) + ([ABORTED] if is_done else [])
    bounds = {
        f"{place.path}:{place.line}": (min(allocated, other.peak_allocated), max(allocated, other.peak_allocated))
        for place, other in run.other_ways.items()
        if place in deciding
    }
    unplaced = max(0, sum(report.reads for report in run.reports) - sum(place.times for place in run.places))
    torch = "" if shown.job.hello is None else shown.job.hello.torch
    convolved = ""
    if any(name == DEVICE_ENGINES for name, _ in calls):
        # The least and the most that the peak may be: workspaces are added to what was in use when convolutions ran.
        how = card_limits(run.device), release_of(torch)
        room = run.device.total_memory - cuda_context(run.device.capability).bytes
        beyond = allocated - known.get("peak", allocated)  # parts of blocks that no tensor has
        low, high, at_peak, highest = known.get("steady", 0) + beyond, allocated, (0, ""), ""
        for one in run.convolutions:
            less, more = workspace_on_card(one.call, one.direction, one.mode, *how)
            if one.mode in ("chosen", "limited") and is_without_device():
                less = more = one.taken
            low = max(low, one.in_use + less)
            most = room if more is None else min(one.in_use + more, room)
            high, highest = max((high, highest), (most, one.line))
            at_peak = max(at_peak, (one.in_use + one.taken, one.line))
        low = min(low, allocated)
        line = at_peak[1] if allocated - low > high - allocated else highest
        convolved = "" if run.convolutions else WITHOUT_DEVICE_NOTE
        note = results.range_note(low, allocated, high, f"by what convolutions may take on a GPU, the most at {line}")
        if run.convolutions and note.startswith(results.BOUNDED):
            bounds[line] = low, high
            convolved = note + TRIED_NOTE * any(one.mode == "trial" for one in run.convolutions)
        elif run.convolutions:
            notes.append(note)
    cyclic, freed = known.get("garbage", (0, 0))
    why = GARBAGE_NOTE.format(format_bytes(max(cyclic, freed)))
    notes.append(results.range_note(allocated - cyclic, allocated, allocated + freed, f"as {why}"))
    not_modelled = [(name, caller) for name, caller in calls if name != DEVICE_ENGINES]
    is_settled = run.steps_done >= SETTLED[0] and 0 < (run.steps or 0) <= SETTLED[1]
    passes = known.get("passes", {})
    repeats = passes.get("repeat", False) and not passes["awaits_step"]
    is_early = run.ended_after is not None and not is_settled and not repeats
    if run.serves:
        notes.append(f"bounded: {LISTENS}")
    if run.without_device is not None:
        peaks = map(format_bytes, (run.without_device.peak_allocated, run.without_device.peak_reserved))
        notes.append(ON_CARD_NOTE.format(*peaks))
    has_ended = not (run.cut_short or run.code or run.serves or run.ended_after is not None)
    is_whole = run.steps is not None and has_ended
    unknown = ALL_TAKEN * (text is not None and any(place.takes_all for place in deciding))
    if repeats and (passes["is_end"] or run.ended_after is not None):
        notes.append(results.repeated(passes, "there" if passes["is_end"] else f"after {run.ended_after:g} s"))
    elif run.ended_after is not None:
        doubts.append(f"it was ended after {run.ended_after:g} s")
        if text is None and torch and passes.get("awaits_step", True) and not (run.serves or run.steps_done):
            unknown = f"{doubts[0]}, before its first step; --timeout gives it more"
        unseen = "later ones may take any more" if is_early else "what follows them was not seen"
        notes.append(f"{'bounded: ' * is_early}{doubts[0]}, with {run.steps_done} steps done; {unseen}")
    elif run.code and run.cut_short:
        doubts.append(f"one process was ended after {run.steps} steps, and the job with {run.code}")
    elif is_whole:
        notes.append(f"its optimizers took {run.steps_done} of the {run.steps} steps after which it was to end")
    if is_whole and text is None:
        lost = "" if passes.get("is_end") else "a signal"  # which ends what a process that ends itself has started
        users = {report.pid for report in run.reports} | {one.job.pid for one in processes}
        ends = [(job.pid, job.end.error if job.end else lost) for job in run.jobs if job.hello and job.pid in users]
        failed = [f"process {pid} ended with {how}, although the job ended with 0" for pid, how in ends if how]
        unknown = "".join(failed[:1])
    if text is None:
        asked = max((oom.asked for job in run.jobs for oom in job.ooms), default=refused)
        if asked or sum(one.counters.num_ooms or 0 for one in processes):
            size = f" of {format_bytes(asked)}" if asked else ""
            doubts.append(f"a request{size} that failed was caught by the code")
        doubts += [
            f"if {place.words} {'goes the other way' if place.is_condition else 'reads other numbers'}, it does not fit"
            for place, other in run.other_ways.items()
            if other.fits is False
        ]
    if not_modelled:
        doubts.append("it called functions that are not modelled, and may have gone on without")
    if convolved:
        doubts.append("cuDNN chose how to convolve without a device")
    if own:
        notes.append(f"{NOT_STARTED}{', '.join(own)}")
    if beyond := [f"{name} (called by {caller})" for name, caller in not_modelled if name != OWN_RUNTIME]:
        notes.append(
            f"not modelled: {', '.join(beyond)}; the figures are without what these take, which "
            "only NVIDIA's libraries on a GPU tell"
        )
    if deciding or (unplaced and not run.rest):
        lines = []
        for place in deciding[:MOST_PLACES]:
            other, ways = run.other_ways.get(place), ""
            if other is not None:
                then = "out of memory" if other.out_of_memory else format_bytes(other.peak_allocated, 1)
                by = "the other way" if place.is_condition else "with other numbers"
                by = "with empty masks" if other is run.empty else by
                if other.peak_allocated > allocated and loop_lines(place.path).get(place.line):
                    by = f"in up to {MOST_TURNS} turns"
                ways = f" ({format_bytes(allocated, 1)}, {by} {then})"
            elif not place.takes_all:  # else it is the most
                ways = f" (no other figure: {UNRUN if place.is_condition else UNSEEN})"
            lines.append(f"  {place.words}{ways}")
        rest = unplaced + sum(place.times for place in deciding[MOST_PLACES:])
        lines += [f"  {rest:,} reads elsewhere"] if rest else []
        notes.append("\n".join([f"{results.MAY_DEPEND} computed values, which read as zeros:", *lines]))
    notes += [convolved, *results.differing_batches([row for row in rows if row.step > 0 and not has_ended])]
    ended_by = next((f": {job.end.error}: {job.end.message}" for job in run.jobs if job.end and job.end.error), "")
    if run.cut_short and not run.rest:
        notes += results.later_steps(rows, run.steps_done if passes.get("awaits_step") and (run.steps or 0) > 1 else 0)
    return results.DryRun(
        engine="cuda",
        torch=torch,
        device=run.device.name,
        gpus=run.gpus,
        capability=run.device.capability,
        total_memory=run.device.total_memory,
        timeline=tuple(rows),
        peak_allocated=allocated,
        peak_reserved=reserved,
        peak_phase="" if peak_row is None else peak_row.phase,
        peak_step=-1 if peak_row is None else peak_row.step,
        process=shown.process,
        context=shown.context,
        other=shown.other,
        needs=max([one.process for one in processes] + [size for one in run.reports for size in one.totals]),
        spread=loaded_context_spread(run.device.capability)
        + (nccl_spread(run.device.capability) if shown.other and shown.counters.reserved_peak is not None else 0),
        exit_code=run.code,
        steps=run.steps_done,
        ended_after=run.ended_after,
        unknown=unknown,
        doubts=tuple(doubts),
        peak_categories=_summing_to(allocated, known.get("categories", {})),
        largest=tuple(msgspec.convert(known.get("largest", []), list[results.LiveAllocation])),
        warnings=tuple(filter(None, notes)),
        bounded=bool(unknown or not_modelled) or any(one.startswith(results.BOUNDED) for one in notes),
        bounds=bounds,
        cut_short=run.cut_short,
        after=ended_by.partition("\n")[0][:200] * run.rest,
        epoch=None if not passes.get("epoch") else msgspec.convert(passes["epoch"], results.SeenEpoch),
        out_of_memory=text,
        asked=oom.asked if oom is not None else refused or None,
        missing=None if oom is None or oom.free is None else max(0, oom.asked - oom.free),
        series=(),
        events=int(known.get("events", 0)),
    )


def by_numbers(run: CudaRun, own: results.DryRun, varied: list[tuple[CudaRun, results.DryRun]]) -> tuple[CudaRun, bool]:
    """The run, and whether it is proven that no number that it read decides but by a condition: by runs of the same job
    that read other numbers and asked for the same memory. Where none of a kind ends well, each that is not only shown
    may. `own` is the result of the run, and each of the others has its own.
    """

    def where(decides: Callable[[ReadPlace], bool]) -> CudaRun:
        return replace(run, places=tuple(replace(place, decides=decides(place)) for place in run.places))

    if len(varied) < len(NUMBERS):
        return where(lambda one: one.decides or (one.is_open and leads_on(f"{one.path}:{one.line}"))), False
    others = [one for one, _ in varied]
    fixed = {(place.path, place.line) for one in (run, *others) for place in one.places if place.is_fixed}
    conditions = [place for place in run.places if place.is_condition and not place.takes_all]

    def is_same(one: CudaRun, result: results.DryRun) -> bool:
        is_like = own.events > 0 and one.ended_after is None and results.is_alike(own, result)
        is_whole = is_like and own.events < MOST_EVENTS
        if is_whole and one is not others[0] and any(place.is_condition and place.takes_all for place in run.places):
            return True  # with numbers that fall each mask has one place
        if is_whole and (conditions or one.steps_done != run.steps_done):  # the same may be done more or less often
            return one.requests.keys() in [other.requests.keys() for other in (run, *others) if other is not one]
        return is_like and one.requests in [other.requests for other in (run, *others) if other is not one]

    differing = [result for one, result in varied if not is_same(one, result)]
    if not differing:
        return where(lambda one: one.decides and (one in conditions or (one.path, one.line) in fixed)), True
    peak = own.peak_allocated
    most = max(differing, key=lambda one: (one.peak_allocated > peak, abs(one.peak_allocated - peak)))
    is_explained = any(place.decides for place in run.places)
    bounded = where(lambda one: one.decides or (one.is_open and not is_explained))
    return replace(bounded, other_ways={one: most for one in bounded.places if one.decides}), False


def by_empty_masks(run: CudaRun, own: results.DryRun, empty: results.DryRun) -> CudaRun:
    """The run, whose masks decide if the same job, in which no unknown mask holds anywhere, came to other figures."""
    peak, masks = own.peak_allocated, [place for place in run.places if place.takes_all and place.is_open]
    if results.is_alike(own, empty) or (empty.ended_after is not None and empty.peak_allocated < peak):
        return run
    ways = [(place, run.other_ways.get(place, empty)) for place in masks]
    most = max(peak, empty.peak_allocated)
    others = {place: other if other.peak_allocated > most else empty for place, other in ways}
    places = tuple(replace(place, decides=place.decides or place in masks) for place in run.places)
    return replace(run, places=places, other_ways={**run.other_ways, **others}, empty=empty)


def workspaces_on_card(run: CudaRun) -> dict[str, int]:
    """The workspaces that convolutions are known to take on the GPU, by key; empty if cuDNN chose such ones already."""
    card, torch = card_limits(run.device), next((job.hello.torch for job in run.jobs if job.hello is not None), "")
    peak = max((one.allocated_peak or 0 for job in run.jobs for one in job.peaks.values()), default=0)
    known, is_other = dict[str, int](), False
    for one in () if is_without_device() else run.convolutions:
        less, more = workspace_on_card(one.call, one.direction, one.mode, card, release_of(torch))
        if less == more and one.mode == "chosen":
            known[one.key] = less
            is_other |= abs(less - one.taken) > results.SMALL * peak
    return known if is_other else {}


def _summing_to(total: int, parts: dict[str, int]) -> dict[str, int]:
    """The parts with what blocks are larger than their tensors, so that they sum to the allocator's bytes."""
    if not parts or not total:  # the probe was not heard
        return {}
    rest = total - sum(parts.values())
    return {**dict.fromkeys(results.CATEGORIES, 0), **parts, "temporaries": max(0, parts.get("temporaries", 0) + rest)}
