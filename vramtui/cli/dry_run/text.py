"""`vramtui dry-run` for people: a row for each phase with a bar of its memory, and the parts of the peak."""

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
MOST_AGAIN = 6  # rows of one pass over a batch: input, forward, loss, backward and others of the script
GAP = "  "
OF_OPTIMIZERS = {"step", "zero_grad"}


def print_result(result: DryRun) -> None:
    """The verdict, the timeline, the peak and its largest allocations, and the notes."""
    width = columns()
    bars = Bars()
    verdict = textwrap.fill(printable(result.verdict_line), width, subsequent_indent="  ", break_on_hyphens=False)
    print(bars.strong(verdict))
    torch = f", torch {result.torch}" if result.torch else ""
    print(
        f"{result.name}, compute capability {'.'.join(map(str, result.capability))}, "
        f"{format_bytes(result.total_memory)}; engine {result.engine}{torch}\n"
    )
    if result.timeline:
        print_timeline(result.timeline, width, bars)
    _print_peak(result, width, bars)
    for sentence in result.warnings:
        print_note(f"note: {sentence}".replace(f"{Path.cwd()}{os.sep}", ""))


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
    figures = []
    for row in rows:
        sizes = (row.allocated, row.peak_allocated, row.reserved)
        figures.append((row.phase, str(row.step) if row.step >= 0 else "", *(f"{size / unit:.2f}" for size in sizes)))
    headings = ("PHASE", "STEP", "ALLOCATED", "PEAK", "RESERVED")
    widths = [max(map(len, column)) for column in zip(headings, *figures, strict=True)]
    room = width - sum(widths) - len(GAP) * len(widths)

    def aligned(cells: tuple[str, ...]) -> str:
        numbers = (f"{cell:>{width}}" for cell, width in zip(cells[1:], widths[1:], strict=True))
        return GAP.join((f"{cells[0]:<{widths[0]}}", *numbers))

    print(bars.strong(f"{aligned(headings)}{GAP}{name} HELD AT END"))
    last = max((row.step for row in rows), default=0)
    left_out = range(MOST_STEPS // 2 + 1, last if last >= MOST_STEPS else 0)  # steps in the middle of many
    repeats = _repeats(rows)
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
        print(f"{aligned(cells)}{GAP}{bars.bar(row.categories, row.peak_allocated, top, room)}".rstrip())
    seen = {category for row in rows for category, size in row.categories.items() if size}
    print(f"\n{bars.legend(seen, width)}\n")


def _one_step_of_many(rows: tuple[TraceRow, ...]) -> tuple[TraceRow, ...]:
    """The rows, with one `step` and one `zero_grad` for several optimizers that take the same step."""
    merged: list[TraceRow] = []
    for row in rows:
        same = [i for i, before in enumerate(merged) if (before.step, before.phase) == (row.step, row.phase)]
        if row.phase not in OF_OPTIMIZERS or not same or any(r.phase not in OF_OPTIMIZERS for r in merged[same[0] :]):
            merged.append(row)
            continue
        before = merged[same[0]]
        peaks = {name: max(getattr(before, name), getattr(row, name)) for name in ("peak_allocated", "peak_reserved")}
        merged[same[0]] = msgspec.structs.replace(row, **peaks)
    return tuple(merged)


def _repeats(rows: tuple[TraceRow, ...]) -> dict[int, tuple[int, int]]:
    """Rows that come again, as with gradient accumulation: by the index of the first that is left out, how many rows
    come again and how often.
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
    context = f"a CUDA context of about {format_bytes(result.context)}{other} included"
    print(f"Process {format_bytes(result.process, 2)}, {context}")
    if result.needs is not None and result.needs > result.process:
        print(f"All processes on one GPU {format_bytes(result.needs, 2)}")
    print()
    print_largest(result.largest, width, bars)


def print_largest(largest: tuple[LiveAllocation, ...], width: int, bars: Bars) -> None:
    """The largest allocations that are alive at the peak, with the operators that made them."""
    if not largest:
        return
    unit, name = unit_of(max(allocation.bytes for allocation in largest))
    rows = []
    for one in largest:
        place = printable(one.module) or one.operator.removeprefix("aten.").removesuffix(".default")
        rows.append((format_column(one.bytes, unit), one.category, place, printable(short_line(one.line))))
    title = f"SIZE {name}"
    size = max([len(row[0]) for row in rows] + [len(title)])
    module = max([len(row[2]) for row in rows] + [6])
    line = max([len(row[3]) for row in rows] + [4])
    kind = max(len(name) for name in NAMES.values()) + 2
    room = width - size - kind - 3 * len(GAP)
    line = min(line, max(room // 2, room - module))
    module = min(module, room - line)

    def shortened(text: str, width: int) -> str:  # the end of a path or module tells more than its beginning
        return text if len(text) <= width else "…" + text[len(text) - width + 1 :]

    last = "LINE" if any(row[3] for row in rows) else ""  # a preset's own job has no lines of a script
    print(bars.strong(f"{title:>{size}}{GAP}{'WHAT':<{kind}}{GAP}{'MADE IN':<{module}}{GAP}{last}".rstrip()))
    for bytes_, category, operator, at in rows:
        # Padded before it is coloured: the colours' codes differ in length.
        part = f"{bars.mark(category)} {NAMES[category]:<{kind - 2}}"
        end = f"{shortened(operator, module):<{module}}{GAP}{shortened(at, line)}"
        print(f"{bytes_:>{size}}{GAP}{part}{GAP}{end}".rstrip())
    print()


def short_line(line: str) -> str:
    """`FILE:LINE`, the file relative to the working directory if it is below it."""
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
    """One line on standard error that is written over; nothing if that is not a terminal."""

    def __init__(self, title: str) -> None:
        self._title = title
        self.shown = sys.stderr.isatty()

    def __call__(self, progress: Progress) -> None:
        """Show the phase that ended last; a notice stays."""
        if progress.notice:
            sys.stderr.write(textwrap.fill(f"note: {progress.notice}", columns(), break_on_hyphens=False) + "\n")
        elif self.shown:
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
