"""`vramtui dry-run`: a job's memory on GPUs that need not be there."""

import os
import platform
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from vramtui.cli.common import exit_codes
from vramtui.cli.common.console import filled, print_json, print_table, print_wrapped, text_width
from vramtui.cli.common.plot import NAMES, Bars, memory_curve
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import asked_size, format_bytes, format_column, unit_of
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Ledger

if TYPE_CHECKING:
    from vramtui.core.runs.run import Run
    from vramtui.dryrun.command import GpuAnswer
    from vramtui.dryrun.job_command import DryRunJob
    from vramtui.dryrun.result import DryRun, LiveAllocation, Progress, TraceRow


NO_GPU_HERE = "this machine has no GPU, so --gpu has to name one: vramtui dry-run --gpu 4090 {command}"
MOST_LINES = 20
Engines = Literal["cuda", "fake"] | None
SIGTERM_CODE = 128 + signal.SIGTERM


@command_of
def dry_run(
    *,
    command: list[str],
    gpu: str | None = None,
    memory: str | None = None,
    engine: Engines = None,
    steps: int = 3,
    timeout: float | None = None,
    largest_batch: bool = True,
    batch_option: str | None = None,
    python: str | None = None,
    keep_files: bool = False,
    show_output: bool = False,
    plot: bool = False,
    json: bool = False,
) -> None:
    """Run a script or command without its GPU, and show its memory phase by phase and whether it fits.

    Options stand before the command; all that follows it is the job's own. Files it writes are thrown away, and it
    reaches no network. Exit code 0 it fits, 1 it does not, 2 wrong input or the job failed, 3 no GPU, 4 unknown.
    """
    from vramtui.cli.common.settings import cache_dir, settings_in_force
    from vramtui.cli.run.placement import open_listener
    from vramtui.core.estimate.fits import SIGNS
    from vramtui.dryrun.child import input_ahead
    from vramtui.dryrun.command import DryRunDocument, engine_of, host_note, prepared
    from vramtui.dryrun.command import dry_run as run
    from vramtui.dryrun.job_command import DryRunJob, RunTools
    from vramtui.dryrun.largest_batch import batch_flag, sentence_of
    from vramtui.dryrun.largest_batch import largest_batch as search

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_CODE))
    gpus = _gpus(command, gpu, memory)
    usual = settings_in_force().dry_run.engine
    keyboard = None
    if sys.stdin is not None and not sys.stdin.isatty():
        with suppress(OSError, ValueError):  # not a file
            keyboard = os.dup(sys.stdin.fileno())
    job = prepared(
        DryRunJob(
            words=tuple(command),
            folder=str(Path.cwd()),
            environment=dict(os.environ),
            engine=engine or (None if usual == "auto" else usual),
            steps=steps,
            timeout=timeout,
            keep_files=keep_files,
            show_output=show_output,
            keyboard=keyboard,
            typed=b"" if keyboard is None else input_ahead(keyboard),
        ),
        python,
    )
    tools = RunTools(open_listener, cache_dir(), None if json else show_phase)
    engine, note = engine_of(job, tools)
    for text in filter(None, (note, host_note(job, engine))):
        sys.stderr.write(exit_codes.for_terminal(f"note: {text}") + "\n")
    answers: list[GpuAnswer] = []
    for asked in gpus:
        exit_codes.show_progress("" if show_output or json else "dry run: the job runs")
        answers.append(run(job, asked, engine, tools))
        job = msgspec.structs.replace(job, keyboard=None)  # the next run is given what there was
        engine = answers[-1].result.engine if answers[-1].result else engine
    result, largest = answers[0].result, None
    if largest_batch and len(gpus) == 1 and result is not None and result.verdict == "does not fit":
        flag = batch_flag(job.words, batch_option, job.folder)
        quiet = msgspec.structs.replace(job, show_output=False)

        def needs(words: tuple[str, ...]) -> int | None:
            smaller = run(msgspec.structs.replace(quiet, words=words), gpus[0], engine, tools).result
            if smaller is None:
                raise UserError("it fails with a smaller batch")
            return smaller.fit.needs if smaller.verdict in {"fits", "tight"} else None

        with suppress(UserError):
            largest = None if flag is None else search(flag, result.total_memory, needs)
    exit_codes.show_progress()
    code = exit_code(answers)
    keep(job, answers)
    with exit_codes.go_on_unread():
        if json:
            print_json(
                DryRunDocument(
                    command=tuple(command), engine=engine, exit_code=code, gpus=tuple(answers), largest_batch=largest
                )
            )
        elif len(answers) > 1:
            rows = []
            for answer in answers:
                one = answer.result
                if one is None:
                    rows.append((answer.gpu, *["?"] * 4, "failed"))
                    continue
                sizes = (one.peak_allocated, one.peak_reserved, one.fit.needs, one.total_memory)
                rows.append((answer.gpu, *map(format_bytes, sizes), f"{SIGNS[one.verdict]} {one.verdict}"))
            print_table(("GPU", "ALLOCATED", "RESERVED", "PROCESS", "OF", "VERDICT"), rows, right=(1, 2, 3, 4))
            for answer in answers:
                for sentence in () if answer.result is None else answer.result.warnings:
                    print_wrapped(f"note: {answer.gpu}: {sentence}", text_width(PIPE_WIDTH))
        else:
            if result is not None:
                print_result(result)
                if plot and (series := result.series):
                    events, allocated = [point.event for point in series], [point.allocated for point in series]
                    title = f"allocated by allocations and releases, · {answers[0].gpu}"
                    print(f"{memory_curve(title, events, allocated, result.total_memory)}\n")
            if largest is not None:
                print(f"{sentence_of(largest)}\n")
    for answer in answers:
        if answer.result is None:
            sys.stderr.writelines(f"{text}\n" for text in answer.output[-MOST_LINES:])
            where = f"{answer.gpu}: " if len(answers) > 1 else ""
            if len(answers) == 1 and not json:
                exit_codes.fail(code, answer.error.replace(f"{Path.cwd()}{os.sep}", ""))
            exit_codes.say(f"{where}{answer.error}")
    if not json and any(one.result and one.result.cut_short for one in answers):
        done = max([steps, *(one.result.steps for one in answers if one.result)])
        after = next(one.result.after for one in answers if one.result and one.result.after)
        print_wrapped(f"note: ended after step {done}: {after}; --steps 0 runs to the end", text_width(PIPE_WIDTH))
    raise SystemExit(code)


def _gpus(words: list[str], gpu: str | None, memory: str | None) -> list[tuple[Device, int]]:
    """The GPUs that are asked for, or this machine's first and how many there are like it. Raises UserError if one is
    not known, or stands behind the job's command, and SystemExit if none is named, and there is none.
    """
    from vramtui.dryrun.command import parse_gpu

    if gpu is None:
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            value = value if equals else "".join(words[at + 1 : at + 2])
            if name == "--gpu" and value:
                try:
                    parse_gpu(value.split(",")[0])
                except UserError:
                    continue
                rest = [*words[:at], *words[at + (1 if equals else 2) :]]
                raise UserError(
                    f"--gpu stands before the command: vramtui dry-run --gpu {shlex.quote(value)} {shlex.join(rest)}"
                )
        from vramtui.cli.common.open_source import open_source
        from vramtui.core.observation.snapshot import device_of

        try:
            seen = open_source().source.read().gpus
        except SourceFailed:
            seen = ()
        if not seen:
            exit_codes.fail(exit_codes.NO_SOURCE, NO_GPU_HERE.format(command=shlex.join(words)))
        gpus = [(device_of(seen[0]), 1)]
    else:
        gpus = [parse_gpu(name) for name in gpu.split(",")]
    if memory is None:
        return gpus
    size = asked_size(memory)
    if size <= 0:
        raise UserError("--memory must be greater than 0")
    return [(msgspec.structs.replace(device, total_memory=size), count) for device, count in gpus]


def exit_code(answers: "Sequence[GpuAnswer]") -> int:
    verdicts = {answer.verdict for answer in answers}
    if "failed" in verdicts:
        return exit_codes.BAD_INPUT
    return exit_codes.NO if "does not fit" in verdicts else exit_codes.NOT_KNOWN if "unknown" in verdicts else 0


def keep(job: "DryRunJob", answers: "Sequence[GpuAnswer]") -> None:
    """Keep the predictions in the history: `vramtui run` of the same command is compared with them."""
    from vramtui.cli.common.settings import run_history

    try:
        for result in (answer.result for answer in answers):
            if result is not None and not result.unknown and result.ended_after is None:
                run_history().keep(prediction_run(job.words, result, time.time(), platform.node()))
    except UserError as error:
        exit_codes.say(str(error))


def prediction_run(words: Sequence[str], result: "DryRun", ended_at: float, host: str) -> "Run":
    """A dry run as a prediction for a GPU of its kind."""
    from vramtui import __version__
    from vramtui.core.runs.run import DRY_RUN, Run, run_key
    from vramtui.dryrun.estimate import ledger_of

    return Run(
        key=run_key(host, f"{DRY_RUN} {result.name}", 0, ended_at),
        source=DRY_RUN,
        host=host,
        gpu_uuid=f"{DRY_RUN} {result.device}",
        gpu_name=result.device,
        pid=0,
        command=shlex.join(words),
        started_at=ended_at,
        ended_at=ended_at,
        ending="exited" if result.out_of_memory is None else "out_of_memory",
        exit_code=result.exit_code,
        preset="",
        method=DRY_RUN,
        peak_phase=result.peak_phase,
        predicted=ledger_of(result),
        observed=Ledger(),
        versions={"vramtui": __version__, "torch": result.torch, "engine": result.engine},
    )


PIPE_WIDTH, NARROWEST = 120, 60
MOST_STEPS = 6
MOST_AGAIN = 6  # rows of one pass over a batch: input, forward, loss, backward and others of the script
GAP = "  "


def print_result(result: "DryRun") -> None:
    width = max(text_width(PIPE_WIDTH), NARROWEST)
    bars = Bars()
    print(bars.strong(filled(result.verdict_line, width)))
    torch = f", torch {result.torch}" if result.torch else ""
    print(
        f"{result.name}, compute capability {'.'.join(map(str, result.capability))}, "
        f"{format_bytes(result.total_memory)}; engine {result.engine}{torch}\n"
    )
    if result.timeline:
        print_timeline(result.timeline, width, bars)
    if result.torch:
        when = f" in {result.peak_moment}" if result.peak_moment else ""
        bound = ", bounded (see the notes)" if result.bounded else ""
        print(bars.strong(f"Peak allocated {format_bytes(result.peak_allocated, 2)}{when}{bound}"))
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
    else:  # a program without PyTorch
        print(f"Process {format_bytes(result.process, 2)}, a CUDA context of {format_bytes(result.context)} included\n")
    for sentence in result.warnings:
        print_wrapped(f"note: {sentence}".replace(f"{Path.cwd()}{os.sep}", ""), width)


def print_timeline(rows: "tuple[TraceRow, ...]", width: int, bars: Bars) -> None:
    """One line for each phase's end, its bar as long as its own peak; the steps of many optimizers are one."""
    merged: dict[tuple[int, int, str], TraceRow] = {}
    others = 0
    for row in rows:
        others += row.phase not in {"step", "zero_grad"}
        before = merged.get((others, row.step, row.phase), row)
        peaks = {name: max(getattr(before, name), getattr(row, name)) for name in ("peak_allocated", "peak_reserved")}
        merged[others, row.step, row.phase] = msgspec.structs.replace(row, **peaks)
    rows = tuple(merged.values())
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
    left_out = set(range(MOST_STEPS // 2 + 1, last if last >= MOST_STEPS else 0))  # steps in the middle of many
    left_out.discard(max(rows, key=lambda row: row.peak_allocated).step if rows else last)
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
            if step not in left_out:
                behind = next(one for one in range(row.step, last + 1) if one not in left_out)
                print(f"\n… {behind - row.step} step{'s' * (behind > row.step + 1)} more")
            step = row.step
            continue
        if row.step > max(step, 0):
            print()
        step = row.step
        print(f"{aligned(cells)}{GAP}{bars.bar(row.categories, row.peak_allocated, top, room)}".rstrip())
    seen = {category for row in rows for category, size in row.categories.items() if size}
    print(f"\n{bars.legend(seen, width)}\n")


def _repeats(rows: "tuple[TraceRow, ...]") -> dict[int, tuple[int, int]]:
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


def print_largest(largest: "tuple[LiveAllocation, ...]", width: int, bars: Bars) -> None:
    """The largest allocations that are alive at the peak, with the operators that made them."""
    if not largest:
        return
    unit, name = unit_of(max(allocation.bytes for allocation in largest))
    rows = []
    for one in largest:
        place = printable(one.module) or one.operator.removeprefix("aten.").removesuffix(".default")
        made_at = printable(one.line.removeprefix(f"{Path.cwd()}{os.sep}"))
        rows.append((format_column(one.bytes, unit), one.category, place, made_at))
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


def show_phase(progress: "Progress") -> None:
    """Show the phase that ended last, or the run that began, in a terminal's line; a notice stays."""
    if progress.notice:
        sys.stderr.write(filled(f"note: {progress.notice}", text_width(PIPE_WIDTH), rest="") + "\n")
    else:
        step = f" of step {progress.step}" if progress.step >= 0 else ""
        line = f", {Path(progress.line).name}" if progress.line else ""
        exit_codes.show_progress(f"dry run: {progress.phase}{step}, {format_bytes(progress.allocated)}{line}")
