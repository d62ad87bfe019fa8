"""`vramtui dry-run`: a job's memory on GPUs that need not be there."""

import os
import shlex
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import (
    BAD_INPUT,
    NO,
    NO_SOURCE,
    NOT_KNOWN,
    exit_on_user_error,
    fail,
    for_terminal,
    go_on_unread,
)
from vramtui.cli.options import cards, command_of
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import asked_size, format_bytes
from vramtui.core.estimate.devices import Device

if TYPE_CHECKING:
    from vramtui.dryrun.command import GpuAnswer, RunTools
    from vramtui.dryrun.job_command import DryRunJob, Engine
    from vramtui.dryrun.result import LargestBatch

NO_GPU_HERE = "this machine has no GPU, so --gpu has to name one: vramtui dry-run --gpu 4090 {command}"
MOST_LINES = 20
Engines = Literal["cuda", "fake"] | None
SIGTERM_CODE = 128 + signal.SIGTERM


@dataclass(frozen=True, kw_only=True)
class DryRunOptions:
    """Options of `vramtui dry-run`."""

    command: Annotated[
        list[str], typer.Argument(metavar="SCRIPT|COMMAND [ITS OPTIONS]", help="Your job's command, unchanged.")
    ]
    gpu: Annotated[
        str | None,
        typer.Option(metavar="GPU[,GPU]", help="4090, 8xH100, or 4090,L40S for a table.", autocompletion=cards),
    ] = None
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="The GPU's memory: 24GiB.")] = None
    engine: Annotated[
        Engines,
        typer.Option(
            envvar="VRAMTUI_ENGINE", show_envvar=False, help="cuda: PyTorch's CUDA build; fake: fake tensors."
        ),
    ] = None
    steps: Annotated[int, typer.Option(min=0, help="Stop after this many optimizer steps; 0 runs to the end.")] = 3
    timeout: Annotated[float | None, typer.Option(min=1, metavar="SECONDS", help="Stop the job after this time.")] = (
        None
    )
    largest_batch: Annotated[bool, typer.Option(help="If it does not fit, find the largest batch that does.")] = True
    batch_option: Annotated[str | None, typer.Option(metavar="OPTION", help="The job's option for its batch size.")] = (
        None
    )
    values: Annotated[Literal["zeros", "ones"], typer.Option(help="Read computed values as zeros or ones.")] = "zeros"
    python: Annotated[str | None, typer.Option(metavar="PATH", help="The Python that runs the script.")] = None
    keep_files: Annotated[
        bool, typer.Option("--keep-files", help="Keep the files it writes, and allow network access.")
    ] = False
    show_output: Annotated[bool, typer.Option("--show-output", help="Show what the job prints.")] = False
    plot: Annotated[bool, typer.Option("--plot", help="Also draw the memory of PyTorch over the run.")] = False
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False


@command_of(DryRunOptions)
def dry_run(options: DryRunOptions) -> None:
    """Run a script or command without its GPU, and show its memory phase by phase and whether it fits.

    Options stand before the command; all that follows it is the job's own. Files it writes are thrown away, and it
    reaches no network. Exit code 0 it fits, 1 it does not, 2 wrong input or the job failed, 3 no GPU, 4 unknown.
    """
    with exit_on_user_error():
        from vramtui.cli.common.paths import cache_dir
        from vramtui.cli.common.settings import settings_in_force
        from vramtui.cli.dry_run.text import ProgressLine
        from vramtui.cli.run.placement import open_listener
        from vramtui.dryrun.command import RunTools, engine_of, prepared
        from vramtui.dryrun.job_command import DryRunJob

        signal.signal(signal.SIGTERM, lambda *_: sys.exit(SIGTERM_CODE))
        gpus = _gpus(options)
        usual = settings_in_force().dry_run.engine
        keyboard = None
        if sys.stdin is not None and not sys.stdin.isatty():
            with suppress(OSError, ValueError):  # not a file
                keyboard = os.dup(sys.stdin.fileno())
        job = prepared(
            DryRunJob(
                words=tuple(options.command),
                folder=str(Path.cwd()),
                environment=dict(os.environ),
                engine=options.engine or (None if usual == "auto" else usual),
                steps=options.steps,
                timeout=options.timeout,
                values=options.values,
                keep_files=options.keep_files,
                show_output=options.show_output,
                keyboard=keyboard,
            ),
            options.python,
        )
        line = ProgressLine("dry run")
        tools = RunTools(open_listener, cache_dir(), None if options.json else line)
        engine, note = engine_of(job, tools)
        if note:
            sys.stderr.write(for_terminal(f"note: {note}") + "\n")
        answers, largest = _answers(options, job, gpus, engine, tools)
        line.clear()
        code = exit_code(answers)
        keep(job, answers)
        with go_on_unread():
            if options.json:
                from vramtui.dryrun.command import DryRunDocument

                print_json(
                    DryRunDocument(
                        command=tuple(options.command),
                        engine=engine,
                        exit_code=code,
                        gpus=tuple(answers),
                        largest_batch=largest,
                    )
                )
            else:
                _print(answers, largest, plot=options.plot)
        for answer in answers:
            if answer.result is None:
                for text in answer.output[-MOST_LINES:]:
                    sys.stderr.write(f"{text}\n")
                where = f"{answer.gpu}: " if len(answers) > 1 else ""
                if len(answers) == 1 and not options.json:
                    fail(code, answer.error.replace(f"{Path.cwd()}{os.sep}", ""))
                sys.stderr.write(for_terminal(f"vramtui: {where}{answer.error}") + "\n")
        if not options.json and options.show_output and any(one.result and one.result.cut_short for one in answers):
            sys.stderr.write(f"note: ended after step {options.steps}; --steps {options.steps + 1} goes further\n")
        raise SystemExit(code)


def _gpus(options: DryRunOptions) -> list[tuple[Device, int]]:
    """The GPUs that are asked for, or this machine's first and how many there are like it.

    Raises:
        UserError: one is not known, or stands behind the job's command.
        SystemExit: none is named, and there is none.
    """
    import msgspec

    from vramtui.dryrun.command import parse_gpu

    words = options.command
    if options.gpu is None:
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
            fail(NO_SOURCE, NO_GPU_HERE.format(command=shlex.join(words)))
        gpus = [(device_of(seen[0]), 1)]
    else:
        gpus = [parse_gpu(name) for name in options.gpu.split(",")]
    if options.memory is None:
        return gpus
    size = asked_size(options.memory)
    if size <= 0:
        raise UserError("--memory must be greater than 0")
    return [(msgspec.structs.replace(device, total_memory=size), count) for device, count in gpus]


def _answers(
    options: DryRunOptions, job: "DryRunJob", gpus: Sequence[tuple[Device, int]], engine: "Engine", tools: "RunTools"
) -> "tuple[list[GpuAnswer], LargestBatch | None]":
    """The job's result on each GPU, and the largest batch if it does not fit the only one."""
    import msgspec

    from vramtui.dryrun.command import dry_run as run
    from vramtui.dryrun.largest_batch import batch_flag, largest_batch

    answers = [run(job, gpu, engine, tools) for gpu in gpus]
    result = answers[0].result
    is_asked = options.largest_batch and len(gpus) == 1
    if not is_asked or result is None or result.verdict != "does not fit":
        return answers, None
    flag = batch_flag(job.words, options.batch_option, job.folder)
    if flag is None:
        return answers, None
    quiet = msgspec.structs.replace(job, show_output=False)

    def needs(words: tuple[str, ...]) -> int | None:
        smaller = run(msgspec.structs.replace(quiet, words=words), gpus[0], engine, tools).result
        if smaller is None:
            raise UserError("it fails with a smaller batch")
        return smaller.fit.needs if smaller.verdict in {"fits", "tight"} else None

    try:
        return answers, largest_batch(flag, result.total_memory, needs)
    except UserError:
        return answers, None


def exit_code(answers: "Sequence[GpuAnswer]") -> int:
    """The exit code of the worst answer: failed, then does not fit, then unknown."""
    verdicts = {answer.verdict for answer in answers}
    if "failed" in verdicts:
        return BAD_INPUT
    return NO if "does not fit" in verdicts else NOT_KNOWN if "unknown" in verdicts else 0


def keep(job: "DryRunJob", answers: "Sequence[GpuAnswer]") -> None:
    """Keep the predictions in the history: `vramtui run` of the same command is compared with them."""
    import platform

    from vramtui.cli.common.paths import run_history
    from vramtui.cli.run.history_entry import prediction_run

    try:
        for answer in answers:
            result = answer.result
            if result is not None and not result.unknown and result.ended_after is None:
                run_history().keep(prediction_run(job.words, result, time.time(), platform.node()))
    except UserError as error:
        sys.stderr.write(for_terminal(f"vramtui: {error}") + "\n")


def _print(answers: "Sequence[GpuAnswer]", largest: "LargestBatch | None", *, plot: bool) -> None:
    """The report of one GPU with its drawing, or a table of several."""
    from vramtui.cli.dry_run.text import print_note, print_result
    from vramtui.core.estimate.fits import SIGNS
    from vramtui.dryrun.largest_batch import sentence_of

    if len(answers) == 1:
        if answers[0].result is not None:
            print_result(answers[0].result)
            if plot and (series := answers[0].result.series):
                from vramtui.cli.common.plot import memory_curve

                events, allocated = [point.event for point in series], [point.allocated for point in series]
                title = f"allocated by allocations and releases, · {answers[0].gpu}"
                print(f"{memory_curve(title, events, allocated, answers[0].result.total_memory)}\n")
        if largest is not None:
            print(f"{sentence_of(largest)}\n")
        return
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
        for note in () if answer.result is None else answer.result.warnings:
            print_note(f"note: {answer.gpu}: {note}")
