"""What `vramtui run` says when the job has ended, on standard error: predicted against observed."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout

from vramtui.cli.common.console import print_table, print_wrapped, text_width
from vramtui.cli.common.exit_codes import for_terminal
from vramtui.cli.run.monitor import GpuWatch
from vramtui.cli.run.oom import oom_lines
from vramtui.cli.run.results import CompletedRun, RankResult
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_bytes, format_column, format_duration, format_percent, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Moment, Phase
from vramtui.core.estimate.ledger import CUDA, Line, title_of
from vramtui.core.observation.probe_messages import FIRST_STEPS

PHASES: tuple[Phase, ...] = ("build", "input", "forward", "backward", "step")
STATES: tuple[tuple[str, tuple[Line, ...]], ...] = (
    ("weights", ("weights",)),
    ("gradients", ("gradients",)),
    ("optimizer", ("optimizer", "master_weights")),
)
TOTALS: tuple[Line, ...] = ("allocated", "reserved", "context", "other", "process")
NOTHING = "no process of it used CUDA through PyTorch, so there is nothing to report"


def print_report(finished: CompletedRun, seen: tuple[RankResult, ...], watch: GpuWatch | None) -> None:
    with redirect_stdout(sys.stderr):
        print(f"\n{for_terminal(f'vramtui: {_ending(finished)}')}")
        if not seen:
            print(for_terminal(f"vramtui: {NOTHING}{'' if watch is not None else _without_gpu(finished.command)}"))
        if len(seen) > 1:
            _print_known(
                ("PROCESS", "ALLOCATED", "RESERVED", "PROCESS PEAK", "PEAKED IN"), [*map(_row, seen)], (1, 2, 3)
            )
        for rank in _telling(seen):
            _print_one(rank, finished)
        for sentence in _loading(finished, seen):
            print_wrapped(sentence, text_width())
        for rank in seen:
            for line in oom_lines(rank, finished, watch):
                print(for_terminal(line))
        if watch is not None and watch.problem and seen:
            print(f"note: {printable(watch.problem)}")


def _print_known(
    headings: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int], spare: Sequence[int] = ()
) -> None:
    """A table without the columns in which nothing is known; a narrow terminal has none of those in `spare`."""
    known = [at for at in range(len(headings)) if any(row[at] != UNKNOWN for row in rows)]
    numbers, left_out = ([known.index(at) for at in columns if at in known] for columns in (right, spare))
    shown = [[row[at] for at in known] for row in rows]
    print_table([headings[at] for at in known], shown, right=numbers, spare=left_out)


def _without_gpu(command: Sequence[str]) -> str:
    """The command that shows the job's memory on a machine without a GPU."""
    return f"; without a GPU, `{printable(shlex.join(['vramtui', 'dry-run', '--gpu', '4090', *command]))}` shows it"


def _ending(finished: CompletedRun) -> str:
    command = printable(shlex.join(finished.command))
    shown = command if len(command) <= 80 else command[:79] + "…"
    lasted = format_duration(finished.ended_at - finished.started_at)
    return f"{shown} ended with {finished.code} after {lasted}{_steps(finished)}"


def _steps(finished: CompletedRun) -> str:
    beats = [job.beat for job in finished.jobs if job.beat is not None and job.beat.step]
    if not beats:
        return ""
    most = max(beats, key=lambda beat: beat.step)
    pace = "" if most.step_seconds is None else f" of {1e3 * most.step_seconds:,.1f} ms"
    return f", {most.step:,} step{'s' if most.step > 1 else ''}{pace}"


def _telling(seen: tuple[RankResult, ...]) -> tuple[RankResult, ...]:
    """Ranks of one job are much alike: the largest is shown in full."""
    return (max(seen, key=lambda one: one.counters.reserved_peak or 0),) if seen else ()


def _loading(finished: CompletedRun, seen: tuple[RankResult, ...]) -> Iterator[str]:
    """What the DataLoaders of the process that is shown kept on the host; of any where none used CUDA."""
    beats = [job.beat for job in ([one.job for one in _telling(seen)] or finished.jobs) if job.beat is not None]
    for batches in max((beat.loaders for beat in beats), key=len, default=()):
        yield f"{batches.sentence}. None of it is on the card"


def _row(rank: RankResult) -> tuple[str, ...]:
    return (
        printable(rank.title),
        format_bytes(rank.ledger.allocated),
        format_bytes(rank.ledger.reserved),
        format_bytes(rank.ledger.process),
        _where(rank.peak),
    )


def _where(peak: tuple[str, int] | None) -> str:
    return UNKNOWN if peak is None else f"{PHASE_TITLES.get(peak[0], peak[0])} of step {peak[1]}"  # type: ignore[call-overload]  # a probe's phases are among them


def _print_one(rank: RankResult, finished: CompletedRun) -> None:
    estimate = rank.estimate
    against = f" against {printable(finished.preset.key)}" if finished.preset is not None else ""
    print(f"\n{printable(rank.title)}{against}")
    # What the device holds of it decides; where that is not told, what PyTorch does.
    most = (
        rank.ledger.process,
        rank.ledger.reserved,
        rank.ledger.allocated,
        None if estimate is None else estimate.process,
    )
    unit, name = unit_of(next((size for size in most if size), 0))
    headings: tuple[str, ...] = (f"PEAK IN {name}", "PREDICTED", "OBSERVED", "Δ")
    _print_known(headings, list(_parts(rank, unit)), (1, 2, 3))
    rows = list(_phases(rank, estimate, unit))
    if rows:
        headings = (
            f"PHASE IN {name}",
            "STEP",
            "END PREDICTED",
            "END OBSERVED",
            "Δ",
            "PEAK PREDICTED",
            "PEAK OBSERVED",
            "Δ",
        )
        _print_known(headings, rows, range(1, 8), spare=(4, 2, 3))
    print_wrapped(_peak_sentence(rank, estimate), text_width())
    if finished.preset is not None and estimate is None:
        print(f"note: {printable(finished.preset.key)} cannot be estimated for this card")
    if rank.counters.num_alloc_retries:
        times = rank.counters.num_alloc_retries
        print(f"note: the cache had to be emptied for room {f'{times:,} times' if times > 1 else 'once'}")


def _parts(rank: RankResult, unit: int) -> Iterator[tuple[str, ...]]:
    """Each part at its own largest; the rest is what allocated peaks at beyond them, on both sides."""
    observed, estimate = rank.ledger, rank.estimate
    predicted_states = observed_states = 0
    for title, lines in STATES:
        predicted = None if estimate is None else sum(part.bytes for part in estimate.parts if part.line in lines)
        seen = observed.bytes_of(lines[0])
        predicted_states += predicted or 0
        observed_states += seen or 0
        yield _compared(title, predicted, seen, unit)
    rest = None if estimate is None else max(0, estimate.allocated - predicted_states)
    known = observed.allocated is not None and observed.weights is not None
    seen_rest = max(0, (observed.allocated or 0) - observed_states) if known else None
    yield _compared("activations and the rest", rest, seen_rest, unit)
    for line in TOTALS:
        predicted = None if estimate is None else estimate.ledger.bytes_of(line)
        if line == "other" and not (predicted or observed.other):
            continue
        yield _compared(
            title_of(line, CUDA if rank.gpu is None else rank.gpu.vendor), predicted, observed.bytes_of(line), unit
        )


def _compared(title: str, predicted: int | None, observed: int | None, unit: int) -> tuple[str, ...]:
    return title, format_column(predicted, unit), format_column(observed, unit), _off(predicted, observed)


def _off(predicted: int | None, observed: int | None) -> str:
    return UNKNOWN if not predicted or observed is None else format_percent(observed / predicted - 1)


def _phases(rank: RankResult, estimate: Estimate | None, unit: int) -> Iterator[tuple[str, ...]]:
    timeline = {} if estimate is None else {(moment.phase, moment.step): moment for moment in estimate.timeline}
    for step in range(FIRST_STEPS):
        ends = rank.job.phase_ends(rank.counters.index, step)
        for phase in PHASES:
            end = ends.get(phase)
            if end is None:
                continue
            expected: Moment | None = timeline.get((phase, step))
            allocated, peak = (None, None) if expected is None else (expected.allocated, expected.peak_allocated)
            yield (
                PHASE_TITLES[phase],
                str(step),
                format_column(allocated, unit),
                format_column(end.allocated, unit),
                _off(allocated, end.allocated),
                format_column(peak, unit),
                format_column(end.peak_allocated, unit),
                _off(peak, end.peak_allocated),
            )


def _peak_sentence(rank: RankResult, estimate: Estimate | None) -> str:
    observed = "allocated peaked" if rank.peak is None else f"allocated peaked in {_where(rank.peak)}"
    observed += f" at {format_bytes(rank.ledger.allocated, 2)}"
    if estimate is None:
        return observed
    step = "" if estimate.peak_step is None else f" of step {estimate.peak_step}"
    return (
        f"{observed}; predicted in {PHASE_TITLES[estimate.peak_phase]}{step} at {format_bytes(estimate.allocated, 2)}"
    )
