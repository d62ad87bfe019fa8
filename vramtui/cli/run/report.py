"""The report of `vramtui run` when the job has ended, on standard error: predicted and observed."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import for_terminal
from vramtui.cli.run.results import CompletedRun, GpuWatch, RankResult
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_duration, format_percent, unit_of
from vramtui.core.estimate.estimate import CUDA, PHASE_TITLES, Line, Phase, title_of
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.probe_messages import FIRST_STEPS

PHASES: tuple[Phase, ...] = ("build", "input", "forward", "backward", "step")
STATES: tuple[tuple[str, tuple[Line, ...]], ...] = (
    ("weights", ("weights",)),
    ("gradients", ("gradients",)),
    ("optimizer", ("optimizer", "master_weights")),
)
TOTALS: tuple[Line, ...] = ("allocated", "reserved", "context", "other", "process")
PHASE_COLUMNS = ("STEP", "END PREDICTED", "END OBSERVED", "Δ", "PEAK PREDICTED", "PEAK OBSERVED", "Δ")
NOTHING = "no process of it used CUDA through PyTorch, so there is nothing to report"
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
                    *map(format_bytes, _totals(one)),
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


def _totals(rank: RankResult) -> tuple[int | None, int | None, int | None]:
    return rank.ledger.allocated, rank.ledger.reserved, rank.ledger.process


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
