"""What a job came to on an emulated card, in words, as a row of a table and as a document."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from typing import Literal

import msgspec

from vramtui.cli.common.console import print_table
from vramtui.cli.common.exit_codes import BAD_INPUT, fail, for_terminal
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.fits import SIGNS, Fit, FitVerdict
from vramtui.core.estimate.ledger import Line
from vramtui.core.observation.probe_messages import OutOfMemory
from vramtui.driver.environment import DriverReport, unmodelled_calls
from vramtui.driver.reads import ReadPlace
from vramtui.estimators.analytic.sizes.nccl import SPREAD as NCCL_SPREAD
from vramtui.estimators.torch_facts.cards import loaded_context_spread

WITHOUT_CUDA = (
    "no process of it used CUDA: --on needs a job that does, in an environment with PyTorch's CUDA build or another's"
)
PARTS: tuple[Line, ...] = ("weights", "gradients", "optimizer", "activations")
MOST_PLACES = 5
Values = Literal["zeros", "ones"]
OWN_RUNTIME = "cuGetExportTable"  # what NVIDIA's runtime asks first where a library brings its own
DEVICE_ENGINES = "cuDNN's engines that need a device"  # driver/c/cudnn.c, at the first convolution
WITHOUT_DEVICE_NOTE = (
    "bounded: cuDNN chose how to convolve without a device; an H100 asked for another workspace in one case of five, "
    "seldom by gigabytes more, and small nets took up to 2.6 times as much: `vramtui trace` goes by what it asked for"
)


class EmulatedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job's end on one kind of card.

    Attributes:
        steps: after which it was to be ended; None at its own end.
        ended_after: seconds after which it was ended; None where it came to its end, or to that step.
    """

    device: Device
    devices: int
    finished: CompletedRun
    seen: tuple[RankResult, ...]
    reports: tuple[DriverReport, ...]
    places: tuple[ReadPlace, ...] = ()
    values: Values = "zeros"
    steps: int | None = None
    ended_after: float | None = None

    @property
    def largest(self) -> RankResult | None:
        """The process that held the most."""
        return max(self.seen, key=lambda one: one.ledger.process or 0, default=None)

    @property
    def out_of_memory(self) -> RankResult | None:
        """A process that ended for want of memory."""
        from vramtui.cli.run.oom import fatal_oom  # only when the job has ended

        return next((one for one in self.seen if fatal_oom(one) is not None), None)

    @property
    def caught(self) -> tuple[OutOfMemory, ...]:
        """PyTorch's out-of-memory errors that were caught and gone on after, as far as the probe was told."""
        return () if self.out_of_memory is not None else tuple(oom for job in self.finished.jobs for oom in job.ooms)

    @property
    def times_caught(self) -> int:
        """How often there was one, by the allocator's own count: the first may come before the probe listens."""
        if self.out_of_memory is not None:
            return 0
        return max(len(self.caught), sum(one.counters.num_ooms or 0 for one in self.seen))

    @property
    def uses_pytorch(self) -> bool:
        """Whether PyTorch told of any of its processes."""
        return any(one.uses_pytorch for one in self.seen)

    @property
    def refused(self) -> int | None:
        """Bytes that a job without PyTorch asked for in vain."""
        if self.uses_pytorch:
            return None
        return max((size for report in self.reports for size in report.refused), default=0) or None

    @property
    def fails_refused(self) -> bool:
        """Whether a job without PyTorch failed that had asked for memory in vain."""
        return bool(self.finished.code) and self.refused is not None

    @property
    def steps_taken(self) -> int:
        """How many steps the optimizers took, in the process where they took the most."""
        return max((job.beat.step for job in self.finished.jobs if job.beat is not None), default=0)

    @property
    def fails_once_done(self) -> bool:
        """Whether a process that was done with its steps was ended, and others failed for want of it."""
        return bool(self.finished.code) and self.steps is not None and self.steps_taken >= self.steps

    @property
    def bounded(self) -> bool:
        """Whether memory may differ on a card: by a value that was read, a library that is missing, or an early end."""
        if self.ended_after is not None or self.unplaced > 0:
            return True
        return bool(unmodelled_calls(self.reports)) or any(one.decides for one in self.places)

    @property
    def reads(self) -> int:
        """How often values were read that kernels would have computed."""
        return sum(report.reads for report in self.reports)

    @property
    def unplaced(self) -> int:
        """How many values were read in processes without the probe, whose lines are not known."""
        return max(0, self.reads - sum(place.times for place in self.places))

    @property
    def verdict(self) -> FitVerdict | None:
        """The verdict; None where the job ended for another reason than memory, or used no card; `unknown` where it ran
        out of memory after it took all places of masks that kernels would have computed.
        """
        if self.out_of_memory is not None:
            return "unknown" if any(one.decides and one.takes_all for one in self.places) else "does not fit"
        if self.fails_refused:
            return "does not fit"
        fit = self.fit
        is_cut_short = self.ended_after is not None or self.fails_once_done
        return None if fit is None or (self.finished.code and not is_cut_short) else fit.verdict

    @property
    def fit(self) -> Fit | None:
        """The largest process beside the card; None where none used it."""
        rank = self.largest
        if rank is None or rank.ledger.process is None:
            return None
        spread = loaded_context_spread(self.device.capability)
        if rank.uses_pytorch and rank.ledger.other:
            spread += NCCL_SPREAD
        return Fit(
            needs=rank.ledger.process,
            has=self.device.total_memory,
            error=spread / rank.ledger.process,
            note="; ".join(self._doubts()),
        )

    def _doubts(self) -> Iterator[str]:
        """Why the job may not have done what it does on a card, though it did not fail."""
        if self.ended_after is not None:
            yield f"it was ended after {self.ended_after:g} s"
        elif self.fails_once_done:
            yield f"one process was ended after {self.steps} steps, and the job with {self.finished.code}"
        if self.times_caught:
            largest = max((oom.asked for oom in self.caught), default=None)
            size = "" if largest is None else f" of {format_bytes(largest)}"
            yield f"a request{size} that did not was caught by the code"
        elif self.refused is not None:
            yield f"a request of {format_bytes(self.refused)} that did not was caught by the code"
        names = {name for name, _ in unmodelled_calls(self.reports)}
        if DEVICE_ENGINES in names:
            yield "cuDNN chose how to convolve without a device"
        if names - {DEVICE_ENGINES}:
            yield "it called what is not modelled, and may have gone on without"


def print_runs(runs: Sequence[EmulatedRun]) -> None:
    """The report of one card, or a table of several, and what is to be known beside it; on standard error."""
    from vramtui.cli.run.report import print_report  # only when the job has ended

    if len(runs) == 1:
        run = runs[0]
        if not run.seen:
            code = run.finished.code
            if run.ended_after is not None:
                fail(BAD_INPUT, f"the job was ended after {run.ended_after:g} s, before it used CUDA")
            ended = f"the job ended with {code} before it used CUDA" if code else WITHOUT_CUDA
            fail(BAD_INPUT, "; ".join([ended, *_own_runtimes(run)]))
        print_report(run.finished, run.seen, None)
    else:
        with redirect_stdout(sys.stderr):
            print()
            headings = ("CARD", "ALLOCATED", "RESERVED", "PROCESS", "OF", "VERDICT")
            print_table(headings, [row_of(run) for run in runs], right=(1, 2, 3, 4))
    for run in runs:
        for line in lines_of(run, alone=len(runs) == 1):
            sys.stderr.write(for_terminal(line) + "\n")


def _own_runtimes(run: EmulatedRun) -> Iterator[str]:
    """Which libraries could not start on this driver."""
    own = [caller for name, caller in unmodelled_calls(run.reports) if name == OWN_RUNTIME]
    if own:
        yield f"not started, for NVIDIA's own runtime inside needs NVIDIA's driver: {', '.join(own)}"


def _name(run: EmulatedRun) -> str:
    return run.device.name if run.devices == 1 else f"{run.devices}x{run.device.name}"


def row_of(run: EmulatedRun) -> tuple[str, ...]:
    """A run's row in the table of several cards."""
    rank = run.largest
    sizes = (None, None, None) if rank is None else (rank.ledger.allocated, rank.ledger.reserved, rank.ledger.process)
    return (_name(run), *map(format_bytes, sizes), format_bytes(run.device.total_memory), _verdict(run))


def _verdict(run: EmulatedRun) -> str:
    verdict = run.verdict
    if verdict is None:
        return f"failed with exit code {run.finished.code}" if run.finished.code else "did not use CUDA"
    return f"{SIGNS[verdict]} {verdict}"


def lines_of(run: EmulatedRun, *, alone: bool) -> Iterator[str]:
    """The verdict on a single card, then what stands between this result and a card's own."""
    if alone:
        yield f"\n{_verdict_line(run)}"
    prefix = "note: " if alone else f"note: {_name(run)}: "
    yield from (prefix + note for note in _notes_of_end(run))
    calls = unmodelled_calls(run.reports)
    yield from (prefix + sentence for sentence in _own_runtimes(run))
    if any(name == DEVICE_ENGINES for name, _ in calls):
        yield prefix + WITHOUT_DEVICE_NOTE
    others = [f"{name} (called by {caller})" for name, caller in calls if name not in (OWN_RUNTIME, DEVICE_ENGINES)]
    if others:
        yield f"{prefix}not modelled: {', '.join(others)}"
    deciding = [place for place in run.places if place.decides]
    if deciding or run.unplaced:
        yield f"{prefix}bounded: its way may hang on what kernels would have computed, which reads as {run.values}:"
        yield from (f"  {place.words}" for place in deciding[:MOST_PLACES])
        unnamed = run.unplaced + sum(place.times for place in deciding[MOST_PLACES:])
        if unnamed:
            yield f"  {unnamed:,} reads elsewhere"
    shown = [place for place in run.places if place.path and not place.decides]
    if shown:
        times = sum(place.times for place in shown)
        often = f"{times:,} times" if times > 1 else "once"
        yield f"{prefix}read {often} only to be shown or kept: {shown[0].words}" + (
            f", and {len(shown) - 1} more lines" if len(shown) > 1 else ""
        )


def _verdict_line(run: EmulatedRun) -> str:
    fit, verdict, name = run.fit, run.verdict, _name(run)
    if verdict == "does not fit":
        why = "PyTorch ran out of memory, as above"
        if run.fails_refused:
            why = f"there was no room for {format_bytes(run.refused)} more; the job ended with {run.finished.code}"
        return f"{SIGNS[verdict]} does not fit {name}: {why}"
    if verdict == "unknown":
        return (
            f"{SIGNS[verdict]} whether it fits {name} is not known: PyTorch ran out of memory, as above, where "
            "all places of a mask were taken that kernels would have computed, and on a card some hold"
        )
    if fit is not None and verdict is not None:
        return fit.line(name)
    return f"the job ended with {run.finished.code} before it could be said whether it fits {name}"


def _notes_of_end(run: EmulatedRun) -> Iterator[str]:
    """Why a job that did not fail may have done less than it was asked for."""
    if run.ended_after is not None:
        done = f", with {run.steps_taken} steps of its optimizers done" if run.uses_pytorch else ""
        later = "what it would have taken later is not in these figures"
        yield f"bounded: it was ended after {run.ended_after:g} s{done}; {later}"
    if run.times_caught:
        from vramtui.cli.run.oom import moment_of  # only when there is something to say of it

        often = f"{run.times_caught} times" if run.times_caught > 1 else "once"
        notes = [
            f", the last in {moment_of(last)}: it asked for {format_bytes(last.asked, 2)} with "
            f"{format_bytes(last.free, 2)} free"
            for last in run.caught[-1:]
        ]
        yield (
            f"PyTorch's out-of-memory error was caught {often}{''.join(notes)}; these are the figures of what ran all "
            "the same"
        )
    if run.steps is not None and run.steps_taken < run.steps and not run.finished.code and run.ended_after is None:
        yield f"its optimizers took {run.steps_taken} of the {run.steps} steps after which it was to end"


def document_of(run: EmulatedRun) -> dict[str, object]:
    """What `--json` says of it; bytes."""
    rank = run.largest
    ledger = None if rank is None else rank.ledger
    return {
        "card": run.device.name,
        "cards": run.devices,
        "verdict": run.verdict or "failed",
        "exit_code": run.finished.code,
        "steps": run.steps_taken,
        "ended_after": run.ended_after,
        "allocated": None if ledger is None else ledger.allocated,
        "reserved": None if ledger is None else ledger.reserved,
        "process": None if ledger is None else ledger.process,
        "memory": run.device.total_memory,
        "parts": None if ledger is None else {line: ledger.bytes_of(line) for line in PARTS},
        "phases": []
        if rank is None
        else [moment for moment in rank.job.moments if moment.device == rank.counters.index],
        "out_of_memory": None if run.out_of_memory is None else run.out_of_memory.out_of_memory,
        "caught": run.caught,
        "times_caught": run.times_caught,
        "bounded": run.bounded,
        "reads": run.reads,
        "read_places": run.places,
        "unmodelled": [{"function": name, "library": caller} for name, caller in unmodelled_calls(run.reports)],
    }
