"""Requests and answers of a dry run; without torch, so that both sides of the pipe can read them."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Any, Literal

import msgspec

from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.fits import Fit, FitVerdict

SCHEMA = 1
ALIKE = 1.02  # batches within this of one another are of one size: blocks are rounded
ROUNDED = 1.5  # growth of one kind within this of another may be the same: blocks are larger by up to 1 MiB
SMALL, SMALL_RESERVED = 0.005, 0.03  # of the peak: a change by less bounds nothing
MANY_STEPS, FIGURES = 1000, 4096  # whose growth is to matter; bytes of figures that a job keeps of a step, as its loss
SEGMENT = 2 * MIB  # the least that PyTorch's allocator takes of a card: nor does a known range by less than that
BOUNDED = "bounded: "
PLACES_COUNTED = "depends on data; all of"  # in the note on a mask
MAY_DEPEND = f"{BOUNDED}its way may depend on"
DECIDED = f"{MAY_DEPEND} unknown values, which read as ones or zeros:"
DIFFERING, KEEPING, AWAITING = "batches differ:", f"{BOUNDED}each step keeps", f"{BOUNDED}an optimizer took fewer"
OF_STEPS_SEEN = (MAY_DEPEND, DIFFERING, KEEPING, AWAITING)  # how notes begin that a longer run does not make again
CONTEXT_ERROR = 200 * MIB  # how far the table of CUDA contexts may be off, by the public measurements it is made of
ONE_PROCESS = "engine fake does not follow a process that the job starts, and engine cuda does"
OF_STEPS = ("activations", "inputs")
UNSEEN = "later steps and evaluation were not seen"
CATEGORIES = ("weights", "gradients", "optimizer", "activations", "inputs", "workspaces", "temporaries", "kv_cache")


class TraceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The code to run, and how: a file or a module's name, as a script or one function of it without arguments, or a
    file with a pickled function and its arguments (`vramtui.api.dry_runs`). `other_numbers` are those that are read
    for unknown ones, one of `reads.NUMBERS`; `rest` is whether it goes on to the end of its epoch, made short, once
    the steps are taken. `alloc_conf` is what `PYTORCH_CUDA_ALLOC_CONF` would say; what the code
    writes goes to `scratch`, an empty folder, unless it may keep its files and reach the network; `ranks` is the size
    of the job whose rank 0 is traced, 0: `WORLD_SIZE`, or 1.
    """

    path: str = ""
    is_module: bool = False
    function: str | None = None
    arguments: tuple[str, ...] = ()
    pickled: str = ""
    device: Device
    steps: int = 3
    alloc_conf: str = ""
    ranks: int = 0
    keep_files: bool = False
    scratch: str = ""
    other_numbers: str = ""
    rest: bool = False


class JobCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it was started, or is about to be, with the variables of before any probe: `script` is the Python file,
    an absolute path, or a module's name; `ranks` how many its launcher starts, 0 if not said, or by the environment.
    """

    words: tuple[str, ...]
    python: str
    script: str
    is_module: bool = False
    arguments: tuple[str, ...] = ()
    ranks: int = 0
    folder: str
    environment: dict[str, str]


class TraceRow(msgspec.Struct, frozen=True, kw_only=True):
    """The end of one phase: bytes held then, the phase's own peaks, and what the held bytes are."""

    phase: str
    step: int
    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    categories: dict[str, int]


class LiveAllocation(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation that is alive at the peak: its bytes, what they are, and who made them."""

    bytes: int
    category: str
    operator: str
    module: str
    line: str
    phase: str


def differing_batches(rows: Sequence[TraceRow]) -> Iterator[str]:
    """A note if the batches of the steps were of different sizes and that moves the peak."""
    trained = [row for row, after in pairwise(rows) if row.phase == "forward" and after.phase == "backward"]
    forwards = trained or [row for row in rows if row.phase == "forward"]  # validation's are of another size
    sizes = [row.categories.get("inputs", 0) for row in forwards]
    activations = [size + row.categories.get("activations", 0) for size, row in zip(sizes, forwards, strict=True)]
    peak = max((row.peak_allocated for row in rows), default=0)
    if sizes and max(sizes) > ALIKE * min(sizes) and max(activations) - min(activations) > (ALIKE - 1) * peak:
        yield (
            f"{DIFFERING} those of the {len(sizes)} steps seen held {format_bytes(min(sizes))} to "
            f"{format_bytes(max(sizes))} of inputs; a larger one of the epoch needs more"
        )


def later_steps(rows: Sequence[TraceRow], unstepped: int) -> Iterator[str]:
    """Notes on steps that were not seen: if each keeps as much more than the one before; and if an optimizer had yet to
    step a second time, as the job was ended after so many.
    """
    trained = [row for row in rows if row.phase == "backward"]
    ends = trained or [row for row in rows if row.step >= 0 and row.phase == rows[-1].phase]
    least = max(FIGURES, SMALL * max((row.peak_allocated for row in rows), default=0) / MANY_STEPS)
    for turns, is_part in product((1, 2), (False, True)):  # of optimizers; of all, or of OF_STEPS
        last = ends[-1 - 2 * turns :: turns]
        sizes = [sum(row.categories.get(one, 0) for one in OF_STEPS) if is_part else row.allocated for row in last]
        grown = [after - before for before, after in pairwise(sizes)]
        alike = ROUNDED if is_part else ALIKE
        if len(ends) > 2 * turns and max(grown) <= alike * min(grown) and min(grown) > least:
            yield f"{KEEPING} {format_bytes(grown[-1])} more than the one before; {len(ends)} were seen"
            break
    if unstepped:
        yield (
            f"{AWAITING} than two steps until the job was ended after {unstepped}: its passes "
            f"and what it keeps may take more (--steps {2 * unstepped} sees more)"
        )


def range_note(low: int, peak: int, high: int, why: str) -> str:
    """A sentence on a range around the peak that is known from its least to its most; empty if no figure shows it."""
    if max(high - peak, peak - low) > max(SMALL * peak, SEGMENT):
        return f"{BOUNDED}{format_bytes(low, 2)} to {format_bytes(high, 2)} allocated {why}"
    is_shown = format_bytes(high, 2) != format_bytes(peak, 2)
    return f"up to {format_bytes(high - peak)} more allocated {why}" if is_shown else ""


def is_alike(one: "DryRun", other: "DryRun") -> bool:
    """Return whether two runs of a job came to the same, but for what bounds nothing."""
    return (
        one.out_of_memory == other.out_of_memory
        and abs(one.peak_allocated - other.peak_allocated) <= SMALL * one.peak_allocated
        and abs(one.peak_reserved - other.peak_reserved) <= max(SMALL_RESERVED * one.peak_reserved, SEGMENT)
    )


def with_rest(own: "DryRun", rest: "DryRun | None") -> "DryRun":
    """The result of a job's steps, and what a run of the `rest` of the job took more, if there was one."""
    if rest is None or (epoch := rest.epoch) is None:
        return msgspec.structs.replace(own, after=UNSEEN * own.cut_short)
    notes, is_known = [*own.warnings], 0 < epoch.looked == epoch.length
    until = "" if rest.ended_after is None else f" until it was ended after {rest.ended_after:.3g} s"
    has_failed = rest.exit_code != 0 and rest.out_of_memory is None
    until = f" until it failed{rest.after}" if has_failed and not epoch.has_left else until
    is_all = not (epoch.is_cut or until or epoch.has_left)
    over = (DIFFERING,) * is_known + (DIFFERING, KEEPING, AWAITING) * (is_all and not epoch.looked)  # it ran as it is
    open_notes = [note for note in notes if note.startswith(BOUNDED) or PLACES_COUNTED in note]
    if open_notes and all(note.startswith(over) for note in open_notes):
        own = msgspec.structs.replace(own, bounded=False)
    ran = f"{'all its' if is_all else 'its first'} {'epochs' if epoch.looked else f'{rest.steps:,} steps'}"
    ran += " and what comes at intervals" * (epoch.intervals > 0)
    ran += " and what follows" * (epoch.has_left and not (epoch.is_cut or has_failed))
    seen = f"{ran}, made short ({epoch})," if epoch.looked else ran
    unseen = "; an evaluation was not seen" if epoch.looked else "; what follows was not seen"
    unseen = "" if epoch.others or is_all or ran.endswith("what follows") else unseen
    after = f"{seen} took no more{until}{unseen}"
    is_more = rest.peak_allocated > own.peak_allocated or rest.peak_reserved > own.peak_reserved
    if rest.out_of_memory is not None or (is_more and not is_alike(own, rest)):
        notes = [note for note in rest.warnings if not note.startswith(DIFFERING)]
        grown = max(0, rest.peak_allocated - own.peak_allocated)  # either way, as far as is known
        also = f"\n  (figures of the first steps; what the rest takes, {format_bytes(grown)} more, comes on top)"
        also = also if grown else ""
        notes += [note + also * note.startswith(MAY_DEPEND) for note in own.warnings if note.startswith(OF_STEPS_SEEN)]
        sizes = [format_bytes(size, 2) for one in (rest, own) for size in (one.peak_allocated, one.peak_reserved)]
        took = f"took {sizes[0]} allocated and {sizes[1]} reserved{until}"
        larger = ", and other epochs may have larger batches" * epoch.is_larger
        more = f"; a whole epoch may reserve more{larger}" * bool(epoch.looked)
        notes.append(f"{seen} {took}, the first {own.steps} steps {sizes[2]} and {sizes[3]}{more}")
        after = f"{ran} {'were made short' if epoch.looked else 'ran'}{unseen}"
        rows = list[TraceRow]()
        for row in rest.timeline:  # passes of an evaluation are one
            twin = next((at for at in (-2, -1) if len(rows) > 1 and row.phase == rows[at].phase), None)
            if row.step < own.steps or twin is None or row.step != rows[twin].step:
                rows.append(row)
            else:
                peak = max(row.peak_allocated, rows[twin].peak_allocated)
                rows[twin] = msgspec.structs.replace(row, peak_allocated=peak)
        own = msgspec.structs.replace(
            rest,
            timeline=tuple(rows),
            bounds={line: (low, high + grown) for line, (low, high) in own.bounds.items()} | rest.bounds,
            bounded=own.bounded or rest.bounded,
            doubts=own.doubts,
            steps=own.steps,
            unknown=own.unknown,
            ended_after=None,
            exit_code=own.exit_code if rest.out_of_memory is None else rest.exit_code,
        )
    if epoch.grown > FIGURES and epoch.left:
        each, most = format_bytes(epoch.grown), format_bytes(epoch.grown * epoch.left)
        notes.append(
            f"{BOUNDED}each batch of another DataLoader keeps {each} more than the one before; the {epoch.left:,} that "
            f"did not run keep up to {most}"
        )
    notes = [note for note in notes if not note.startswith(over)]
    bounded, is_cut = own.bounded or any(note.startswith(BOUNDED) for note in notes), bool(epoch.looked) or not is_all
    how: dict[str, Any] = {"warnings": tuple(notes), "bounded": bounded, "epoch": epoch}
    return msgspec.structs.replace(own, **how, cut_short=is_cut, after=after * is_cut)


def repeated(passes: Mapping[str, Any], ended: str = "there") -> str:
    """A note on a job that was ended in a loop whose passes took the same memory, by `probe.report.RepeatedPasses`."""
    grown = f", each with {format_bytes(passes['grown'])} more" if passes["grown"] else ""
    return (
        f"{printable(passes['place'])} ran {passes['times']:,} times, the last {passes['alike']:,} in the same memory"
        f"{grown}: the job was ended {ended}; what follows was not seen (--steps 0 runs on to it)"
    )


class TracePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the fine trace: the number of the event, and the bytes just after it."""

    event: int
    allocated: int
    reserved: int


def _moment(phase: str, step: int) -> str:
    return f"{phase} of step {step}" if step >= 0 else phase


class SeenEpoch(msgspec.Struct, frozen=True, kw_only=True):
    """Batches of the DataLoader that trains, none without one: looked at, and all, if that is known; whether a larger
    one than those of the steps was among them, and ran; batches of other DataLoaders that ran then, of how many; by how
    many bytes each of the last ones left more than the one before, with so many left; whether the rest was cut off;
    how many intervals of the job's own, as of evaluations, were made one step or epoch; and whether it left its loops.
    """

    looked: int
    length: int | None
    is_larger: bool
    others: int
    others_length: int
    grown: int
    left: int
    is_cut: bool
    intervals: int
    has_left: bool

    def __str__(self) -> str:
        of = f"{self.length:,}" if self.looked == self.length else f"{self.looked:,} of {self.length or 'its'}"
        plural = "batch" if of == "1" else "batches"
        seen = f"the largest of {of} batches" if self.is_larger else f"{of} {plural}, none larger than before"
        others = f", and {self.others:,} of {self.others_length:,} batch{'es' * (self.others_length != 1)}"
        return seen + f"{others} of other DataLoaders" * bool(self.others)


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A finished trace; bytes throughout.

    Attributes:
        peak_phase: the phase in which allocated peaks, `peak_step` its step.
        process: the most that nvidia-smi would show: peak of reserved, and the CUDA context.
        unseen: how much higher the peak of reserved may be by workspaces that are not in it (cuDNN's); the largest
            difference that was measured.
        warnings: what the figures leave out, a sentence each.
        needs: the most bytes that the job's processes held of one GPU at a time; None: `process`.
        other: bytes that other libraries (NCCL) hold on the GPU outside PyTorch.
        spread: how far off context and other libraries may be, in bytes.
        ended_after: so many seconds, if a timeout ended it.
        unknown: why there is no verdict, though it ran; empty if there is one.
        doubts: why the job may have done something else than on a GPU.
        bounded: whether sizes that depend on data are in it, at their bound, workspaces of convolutions far from any
            that was measured, or kernels that `cudnn.benchmark` tries; the warnings name each place.
        bounds: the least and the most that is allocated at the peak, by a line that may make it either.
        cut_short: whether the code was ended after the last step that was asked for: nothing behind it has run.
        epoch: what is known of the epoch that it was ended in; `after` says what another run saw of the rest of the
            job, or that none did.
        out_of_memory: why the code stopped early, when the card was too small for it.
        asked: what the request that failed then, or that failed and was caught by the code, tried to get from the card,
            `missing` how much of it was not there.
        series: the fine trace, thinned; its peak is in it.
    """

    schema: int = SCHEMA
    torch: str
    device: str
    capability: tuple[int, int]
    total_memory: int
    timeline: tuple[TraceRow, ...]
    peak_allocated: int
    peak_reserved: int
    peak_phase: str
    peak_step: int
    process: int
    context: int
    unseen: int = 0
    peak_categories: dict[str, int]
    largest: tuple[LiveAllocation, ...]
    warnings: tuple[str, ...]
    engine: Literal["cuda", "fake"] = "fake"
    gpus: int = 1
    needs: int | None = None
    other: int = 0
    spread: int = CONTEXT_ERROR
    exit_code: int = 0
    steps: int = 0
    ended_after: float | None = None
    unknown: str = ""
    doubts: tuple[str, ...] = ()
    bounded: bool = False
    bounds: dict[str, tuple[int, int]] = {}
    cut_short: bool = False
    epoch: SeenEpoch | None = None
    after: str = ""
    out_of_memory: str | None = None
    asked: int | None = None
    missing: int | None = None
    series: tuple[TracePoint, ...]
    events: int

    @property
    def name(self) -> str:
        """The GPU, and how many: `8xH100`."""
        return self.device if self.gpus == 1 else f"{self.gpus}x{self.device}"

    @property
    def peak_moment(self) -> str:
        """The phase in which allocated peaks, and its step if it has one; empty without phases."""
        return _moment(self.peak_phase, self.peak_step)

    @property
    def fit(self) -> Fit:
        """The verdict by what was held; uncertain are the CUDA context and the workspaces of cuDNN."""
        needs = self.process if self.needs is None else max(self.needs, self.process)
        return Fit(
            needs=needs,
            has=self.total_memory,
            error=(self.spread + self.unseen) / max(needs, 1),
            note="; ".join(self.doubts),
        )

    @property
    def verdict(self) -> FitVerdict:
        """`does not fit` where it ran out of memory, `unknown` where a guess may have made it do so."""
        return "unknown" if self.unknown else "does not fit" if self.out_of_memory is not None else self.fit.verdict

    @property
    def fits(self) -> bool | None:
        return None if self.verdict == "unknown" else self.verdict != "does not fit"

    @property
    def verdict_line(self) -> str:
        if self.unknown:
            return f"? unknown whether it fits {self.name}: {self.unknown}"
        if self.out_of_memory is None:
            line = self.fit.line(self.name)
            caught = self.asked is not None and not self.doubts
            return f"{line}; the code caught a failed request of {format_bytes(self.asked)}" if caught else line
        when = _moment(self.timeline[-1].phase, self.timeline[-1].step) if self.timeline else "build"
        taken = f"{format_bytes(self.fit.needs)} of {format_bytes(self.total_memory)} taken"
        more = "more" if self.asked is None else f"{format_bytes(self.asked)} more"
        short = "" if self.missing is None else f": {format_bytes(self.missing)} short"
        return f"✗ does not fit {self.name}: {when} asked for {more} with {taken}{short}"

    def __str__(self) -> str:
        when = f", in {self.peak_moment}" if self.peak_phase else ""
        process, reserved = format_bytes(self.process), format_bytes(self.peak_reserved)
        lines = [f"{self.device}: {process} in the process, {reserved} reserved"]
        lines.append(f"  peak of allocated{when}: {format_bytes(self.peak_allocated, 2)}")
        categories = sorted(self.peak_categories.items(), key=lambda one: -one[1])
        lines += [f"    {name.replace('_', ' '):<12}{format_bytes(size, 2):>12}" for name, size in categories if size]
        return "\n".join([*lines, *filter(None, (self.out_of_memory,))])

    def __repr__(self) -> str:
        return f"<DryRun {str(self).partition(chr(10))[0]}>"


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running trace is: a phase, what is held, and the user's own line that runs, `file:line` (empty if there
    is none, None if the phase has ended); or a notice before the code runs, of what could not be kept from the outside.
    """

    phase: str
    step: int
    allocated: int
    peak_allocated: int
    line: str | None = None
    notice: str = ""


class TraceReads(msgspec.Struct, frozen=True, kw_only=True):
    """The lines that read unknown values, in the code or where a library may do anything with them; how often each
    number of bytes was asked for; and whether anything but a read bounds the figures.
    """

    lines: tuple[str, ...]
    requests: dict[int, int]
    bounded: bool


class ChildLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of the child's answer: exactly one of progress, reads, result and error is there.

    `frames` are the user's own lines that led to the error, outermost first; `beyond_trace` is whether the error is, or
    may be, a limit of the trace and none of the code.
    """

    progress: Progress | None = None
    result: DryRun | None = None
    reads: TraceReads | None = None
    error: str | None = None
    frames: tuple[str, ...] = ()
    beyond_trace: bool = False


class LargestBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The largest batch that fits (0: none), the next one tried, and what the process takes with the former."""

    flag: str
    largest: int
    too_large: int
    process: int | None
    arguments: str

    @property
    def exact(self) -> bool:
        return self.too_large == self.largest + 1
