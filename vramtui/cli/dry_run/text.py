"""`vramtui dry-run` for people: a row for each phase with a bar of what is held, and what the peak is made of."""

import os
import sys
import textwrap
from pathlib import Path

import msgspec

from vramtui.cli.common.console import text_width
from vramtui.cli.common.plot import NAMES, Bars
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes, format_column, unit_of
from vramtui.dryrun.result import DryRun, LiveAllocation, Progress, TraceRow

PIPE_WIDTH = 120
NARROWEST = 60
MOST_STEPS = 6
MOST_AGAIN = 6  # rows of one pass over a batch: input, forward, loss, backward and what a script does beside
GAP = "  "
_OF_OPTIMIZERS = {"step", "zero_grad"}


def print_result(result: DryRun) -> None:
    """The verdict, the timeline, the peak and its largest allocations, and what the figures leave out."""
    width = columns()
    bars = Bars()
    print(
        bars.strong(
            textwrap.fill(printable(result.verdict_line), width, subsequent_indent="  ", break_on_hyphens=False)
        )
    )
    torch = f", torch {result.torch}" if result.torch else ""
    print(
        f"{result.name}, compute capability {'.'.join(map(str, result.capability))}, "
        f"{format_bytes(result.total_memory)}; engine {result.engine}{torch}\n"
    )
    if result.timeline:
        print_timeline(result.timeline, width, bars)
    _print_peak(result, width, bars)
    here = f"{Path.cwd()}{os.sep}"  # a folder of files, written whole before each of its lines
    for sentence in result.warnings:
        print_note(f"note: {sentence}".replace(here, ""))


def print_note(note: str) -> None:
    """Print a note: its first line broken to the width, further lines (a command) as they are."""
    first, *others = note.splitlines()
    print(textwrap.fill(printable(first), columns(), subsequent_indent="  ", break_on_hyphens=False))
    for line in others:
        print(printable(line))


def print_timeline(rows: tuple[TraceRow, ...], width: int, bars: Bars) -> None:
    """One line for each phase's end, its bar as long as its own peak; the steps of many optimizers are one."""
    rows = _one_step_of_many(rows)
    top = max((row.peak_allocated for row in rows), default=0) or 1
    unit, name = unit_of(top)
    figures = [
        (row.phase, str(row.step) if row.step >= 0 else "", *(_number(size, unit) for size in _sizes(row)))
        for row in rows
    ]
    headings = ("PHASE", "STEP", "ALLOCATED", "PEAK", "RESERVED")
    widths = [max(map(len, column)) for column in zip(headings, *figures, strict=True)]
    room = width - sum(widths) - len(GAP) * len(widths)
    print(bars.strong(f"{_aligned(headings, widths)}{GAP}{name} HELD AT END"))
    left_out, repeats = _like_those_around(rows), _repeats(rows)
    step, shown_from = -1, 0
    for at, (row, cells) in enumerate(zip(rows, figures, strict=True)):
        if at < shown_from:
            continue
        if at in repeats and row.step not in left_out:
            period, times = repeats[at]
            shown_from = at + period * times
            print(f"… the {period} rows above, {times} times more")
            continue
        if row.step in left_out:
            if row.step == left_out.start and step != row.step:
                print(f"\n… {len(left_out)} steps more")
            step = row.step
            continue
        if row.step > max(step, 0):
            print()
        step = row.step
        print(f"{_aligned(cells, widths)}{GAP}{bars.bar(row.categories, row.peak_allocated, top, room)}".rstrip())
    seen = {category for row in rows for category, size in row.categories.items() if size}
    print(f"\n{bars.legend(seen, width)}\n")


def _one_step_of_many(rows: tuple[TraceRow, ...]) -> tuple[TraceRow, ...]:
    """The rows, where several optimizers take the same step with one `step` and one `zero_grad` for all of them."""
    merged: list[TraceRow] = []
    for row in rows:
        same = [i for i, before in enumerate(merged) if (before.step, before.phase) == (row.step, row.phase)]
        if row.phase not in _OF_OPTIMIZERS or not same or any(r.phase not in _OF_OPTIMIZERS for r in merged[same[0] :]):
            merged.append(row)
            continue
        before = merged[same[0]]
        peaks = {name: max(getattr(before, name), getattr(row, name)) for name in ("peak_allocated", "peak_reserved")}
        merged[same[0]] = msgspec.structs.replace(row, **peaks)
    return tuple(merged)


def _like_those_around(rows: tuple[TraceRow, ...]) -> range:
    """Steps in the middle of many, which a table need not show."""
    last = max((row.step for row in rows), default=0)
    return range(MOST_STEPS // 2 + 1, last) if last >= MOST_STEPS else range(0)


def _repeats(rows: tuple[TraceRow, ...]) -> dict[int, tuple[int, int]]:
    """Where the rows before come again, as with gradient accumulation: by the place of the first that need not be
    shown, how many rows come again and how often.
    """
    repeats: dict[int, tuple[int, int]] = {}
    at = 0
    while at < len(rows):
        period = next((size for size in range(2, MOST_AGAIN + 1) if rows[at : at + size] == rows[at - size : at]), 0)
        times = 0
        while period and rows[at + times * period : at + (times + 1) * period] == rows[at - period : at]:
            times += 1
        if times > 1:
            repeats[at] = (period, times)
        at += max(1, period * times)
    return repeats


def _sizes(row: TraceRow) -> tuple[int, int, int]:
    return row.allocated, row.peak_allocated, row.reserved


def _aligned(cells: tuple[str, ...], widths: list[int]) -> str:
    numbers = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
    return GAP.join((f"{cells[0]:<{widths[0]}}", *numbers))


def _number(size: int, unit: int) -> str:
    return f"{size / unit:.2f}"


def _print_peak(result: DryRun, width: int, bars: Bars) -> None:
    if not result.torch:  # a program without PyTorch
        print(f"Process {format_bytes(result.process, 2)}, a CUDA context of {format_bytes(result.context)} included\n")
        return
    where = f"{result.peak_phase} of step {result.peak_step}" if result.peak_step >= 0 else result.peak_phase
    bound = ", bounded (see the notes)" if result.bounded else ""
    print(bars.strong(f"Peak allocated {format_bytes(result.peak_allocated, 2)} in {where}{bound}"))
    unit, name = unit_of(max(result.peak_categories.values(), default=0))
    for category, size in sorted(result.peak_categories.items(), key=lambda pair: -pair[1]):
        if size:
            share = f"{100 * size / max(result.peak_allocated, 1):.0f} %"
            print(f"  {bars.mark(category)} {NAMES[category]:<12}{format_column(size, unit):>8} {name}{share:>7}")
    more = f", up to {format_bytes(result.unseen)} more with cuDNN's workspaces" if result.unseen else ""
    print(f"Peak reserved {format_bytes(result.peak_reserved, 2)}{more}")
    other = f" and {format_bytes(result.other)} of other libraries" if result.other else ""
    print(
        f"Process {format_bytes(result.process, 2)}, a CUDA context of about {format_bytes(result.context)}{other} "
        "included"
    )
    if result.needs is not None and result.needs > result.process:
        print(f"All processes on one GPU {format_bytes(result.needs, 2)}")
    print()
    print_largest(result.largest, width, bars)


def print_largest(largest: tuple[LiveAllocation, ...], width: int, bars: Bars) -> None:
    """The largest allocations that are alive at the peak, with what made them; nothing where there is none."""
    if not largest:
        return
    unit, name = unit_of(max((allocation.bytes for allocation in largest), default=0))
    rows = [
        (
            format_column(allocation.bytes, unit),
            allocation.category,
            printable(allocation.module) or _operator(allocation.operator),
            printable(short_line(allocation.line)),
        )
        for allocation in largest
    ]
    title = f"SIZE {name}"
    size = max([len(row[0]) for row in rows] + [len(title)])
    module = max([len(row[2]) for row in rows] + [6])
    line = max([len(row[3]) for row in rows] + [4])
    kind = max(len(name) for name in NAMES.values()) + 2
    room = width - size - kind - 3 * len(GAP)
    line = min(line, max(room // 2, room - module))
    module = min(module, room - line)
    # A preset's own job has no lines that are anyone's.
    last = "LINE" if any(row[3] for row in rows) else ""
    print(bars.strong(f"{title:>{size}}{GAP}{'WHAT':<{kind}}{GAP}{'MADE IN':<{module}}{GAP}{last}".rstrip()))
    for bytes_, category, operator, at in rows:
        # Padded before it is coloured: the colours' codes differ in length.
        what = f"{bars.mark(category)} {NAMES[category]:<{kind - 2}}"
        end = _shortened(at, line)
        print(f"{bytes_:>{size}}{GAP}{what}{GAP}{_shortened(operator, module):<{module}}{GAP}{end}".rstrip())
    print()


def _operator(name: str) -> str:
    """`aten._to_copy.default` as `_to_copy`."""
    return name.removeprefix("aten.").removesuffix(".default")


def _shortened(text: str, width: int) -> str:
    """The end of a path or module tells more than its beginning."""
    return text if len(text) <= width else "…" + text[len(text) - width + 1 :]


def short_line(line: str) -> str:
    """`FILE:LINE`, the file relative to the working directory where it is below it."""
    path, colon, number = line.rpartition(":")
    if not colon:
        return line
    try:
        return f"{Path(path).relative_to(Path.cwd())}:{number}"
    except (ValueError, OSError):
        return line


def columns() -> int:
    """The width to draw to."""
    return max(text_width(PIPE_WIDTH), NARROWEST)


class ProgressLine:
    """One line on standard error that is written over, where that is a terminal."""

    def __init__(self, title: str = "tracing") -> None:
        self._title = title
        self.shown = sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        """Show the phase that ended last; a notice stays."""
        if progress.notice:
            sys.stderr.write(textwrap.fill(f"note: {progress.notice}", columns(), break_on_hyphens=False) + "\n")
            return
        if self.shown:
            step = f" of step {progress.step}" if progress.step >= 0 else ""
            events = f", {progress.place.events:,} allocations and releases" if progress.place else ""
            sys.stderr.write(
                f"\r\x1b[K{self._title}: {progress.phase}{step}, {format_bytes(progress.allocated)}{events}"
            )
            sys.stderr.flush()

    def clear(self) -> None:
        if self.shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
