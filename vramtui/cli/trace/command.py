"""`vramtui trace`: run a training script on a card that is not there, and see its memory."""

import functools
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import BAD_INPUT, NO, exit_by, exit_on_user_error, fail, go_on_unread
from vramtui.cli.options import cards, command_of, scripts
from vramtui.cli.options import setting_keys as known_settings
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import MIB, format_bytes
from vramtui.core.estimate.devices import DEFAULT_CARD, chosen_device
from vramtui.core.estimate.fits import SIGNS, Fit

if TYPE_CHECKING:
    from vramtui.estimators.traced.process.interpreters import Interpreter
    from vramtui.estimators.traced.process.results import LargestBatch, TraceRequest, TraceResult
    from vramtui.estimators.traced.process.run import TraceFailedError

    Tracer = Callable[..., TraceResult]


Baseline = Annotated[Path | None, typer.Option(metavar="FILE", help="Compare with the peaks accepted in this file.")]
FailOver = Annotated[
    str, typer.Option(metavar="SHARE", help="How much more than the baseline passes: 2%; 0% by default.")
]
UpdateBaseline = Annotated[bool, typer.Option("--update-baseline", help="Write the peaks into the baseline.")]
Markdown = Annotated[Path | None, typer.Option(metavar="FILE", help="Add the comparison as a table to this file.")]
AllocConf = Annotated[str, typer.Option(metavar="CONF", help="What PYTORCH_CUDA_ALLOC_CONF would say.")]
ShowOutput = Annotated[bool, typer.Option("--show-output", help="Let what the code prints through, to standard error.")]
Share = Annotated[
    float,
    typer.Option(min=0, max=1, help="Where data decides how many (x\\[mask], nonzero): count this part; 1 is a bound."),
]
Ranks = Annotated[
    int, typer.Option(min=0, help="Ranks of the distributed job, whose rank 0 is traced; 0 goes by WORLD_SIZE.")
]
JobPython = Annotated[
    str | None,
    typer.Option(
        metavar="PATH",
        help="The job's Python or environment; else the active one, a .venv beside the script, its first line, PATH's.",
    ),
]
KeepFiles = Annotated[
    bool, typer.Option("--keep-files", help="Let the code write its files and reach the network; else neither stays.")
]
Target = Annotated[
    str,
    typer.Argument(
        metavar="FILE.py[:FUNCTION] | PRESET",
        help="A script, one function of it that takes no arguments, or a preset.",
        autocompletion=scripts,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a preset's value: run.batch_size=8.",
        autocompletion=known_settings,
    ),
]
# How far off the table of CUDA contexts may be, from the public measurements it is made of.
CONTEXT_ERROR = 200 * MIB


@dataclass(frozen=True, kw_only=True)
class TraceOptions:
    """What `vramtui trace` takes."""

    target: Target
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="Arguments for the script.")] = (
        None
    )
    device: Annotated[
        str,
        typer.Option(
            "--device",
            "--gpu",
            metavar="CARD",
            help="The card to simulate: H200, A100, T4, 24GB …",
            autocompletion=cards,
        ),
    ] = DEFAULT_CARD
    memory: Annotated[str | None, typer.Option(metavar="SIZE", help="The card's memory: 24GiB.")] = None
    steps: Annotated[int, typer.Option(min=1, help="End after this many optimizer steps.")] = 3
    alloc_conf: AllocConf = ""
    settings: Settings = None
    share: Share = 1.0
    ranks: Ranks = 0
    python: JobPython = None
    keep_files: KeepFiles = False
    show_output: ShowOutput = False
    baseline: Baseline = None
    fail_over: FailOver = ""
    update_baseline: UpdateBaseline = False
    markdown: Markdown = None
    timeout: Annotated[float | None, typer.Option(min=1, help="Give up after this many seconds.")] = None
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False


@command_of(TraceOptions)
def trace(options: TraceOptions) -> None:
    """Run PyTorch code on fake tensors as if the card were there, and show its memory phase by phase.

    The code runs, in a process of its own, up to the end of the last step: it is your own code. What it writes is
    thrown away, and it reaches no network.
    Exit code 1 when it does not fit the card.
    """
    with exit_on_user_error():
        from vramtui.cli.trace.baseline import baseline_check
        from vramtui.cli.trace.emulated_command import better_emulated, emulated_command, way_out
        from vramtui.cli.trace.text import print_note

        check = baseline_check(
            options.target,
            options.baseline,
            options.fail_over,
            update=options.update_baseline,
            markdown=options.markdown,
        )
        interpreter = chosen_interpreter(_script_of(options.target), options.python)
        request = msgspec.structs.replace(
            _what_to_run(options, interpreter),
            steps=options.steps,
            alloc_conf=options.alloc_conf,
            share=options.share,
            ranks=options.ranks,
            keep_files=options.keep_files,
            keyboard=_keyboard(shows_output=options.show_output),
        )
        tracer = functools.partial(_trace, interpreter=interpreter, timeout=options.timeout)
        command = emulated_command(request, interpreter)
        result = _run(options, request, tracer, way_out(command, interpreter))
        with go_on_unread():
            _answer(request, result, tracer, json=options.json, search=options.baseline is None)
            better = better_emulated(command, result.emulated_better, interpreter)
            if better and not options.json:
                print_note(_here(better))
        if options.show_output and result.cut_short:
            sys.stderr.write(
                f"note: ended after step {options.steps}: what the code does and prints behind it has not run; --steps "
                f"{options.steps + 1} goes further\n"
            )
        if result.out_of_memory is not None:
            fail(NO, _here(result.out_of_memory))
        grown = None if check is None else check.grown(result)
        if grown is not None:
            fail(NO, grown)
        exit_by((fit_of(result),))


def _keyboard(*, shows_output: bool) -> int | None:
    """A descriptor of this program's own standard input for the code; None where a terminal would wait for an answer
    to a question that is not shown.
    """
    if sys.stdin is None or (sys.stdin.isatty() and not shows_output):
        return None
    try:
        return os.dup(sys.stdin.fileno())
    except OSError:  # it is no file
        return None


def _trace(request: "TraceRequest", **how: Any) -> "TraceResult":  # noqa: ANN401 - as the function below takes them
    from vramtui.estimators.traced.process.run import trace as run

    return run(request, **how)


def chosen_interpreter(script: str, named: str | None) -> "Interpreter":
    """The job's Python; said where it is not that of vramtui's own environment.

    Raises:
        UserError: none within reach has a torch that can be traced.
    """
    from vramtui.estimators.traced.process.interpreters import job_interpreter

    interpreter = job_interpreter(script, named)
    if interpreter.path.parent != Path(sys.executable).parent:
        sys.stderr.write(f"{interpreter.line()}\n")
    return interpreter


def _answer(request: "TraceRequest", result: "TraceResult", tracer: "Tracer", *, json: bool, search: bool) -> None:
    """The result, and where a script does not fit the largest batch that would, which takes further traces."""
    from vramtui.cli.trace.largest_batch import sentence_of
    from vramtui.cli.trace.text import print_result

    if not json:
        print_result(result, verdict_line(result))
    smaller = _largest_batch(request, result, tracer, quiet=json) if search else None
    if json:
        print_json(document(result, smaller))
    elif smaller is not None:
        print(f"{sentence_of(smaller)}\n")


def _fits(result: "TraceResult") -> bool:
    return result.out_of_memory is None and fit_of(result).is_enough


def _largest_batch(
    request: "TraceRequest", result: "TraceResult", tracer: "Tracer", *, quiet: bool
) -> "LargestBatch | None":
    """Where a script did not fit and has a flag for its batch: the largest that would."""
    from vramtui.cli.trace.largest_batch import batch_flag, largest_batch
    from vramtui.cli.trace.text import ProgressLine

    is_script = bool(request.path) and request.function is None
    flag = batch_flag(request.path, request.arguments) if is_script and not _fits(result) else None
    if flag is None:
        return None
    line = ProgressLine("looking for the largest batch")

    def needs(arguments: tuple[str, ...]) -> int | None:
        smaller = msgspec.structs.replace(request, arguments=arguments)
        traced = tracer(smaller, progress=None if quiet else line)
        return traced.process if _fits(traced) else None

    try:
        return largest_batch(flag, result.total_memory, needs)
    except UserError:
        return None  # it cannot be run with a smaller batch
    finally:
        line.clear()


def fit_of(result: "TraceResult") -> Fit:
    """The verdict on a trace that came to its end: uncertain are the CUDA context and what is not seen of cuDNN."""
    uncertain = CONTEXT_ERROR + result.unseen
    return Fit(needs=result.process, has=result.total_memory, error=uncertain / max(result.process, 1))


def verdict_line(result: "TraceResult") -> str:
    """Whether it fits. One that ran out of memory has no total: what it had asked for by then is said."""
    if result.out_of_memory is None:
        line = fit_of(result).line(result.device)
        caught = result.asked is not None
        return (
            f"{line}; a request of {format_bytes(result.asked or 0)} that did not was caught by the code"
            if caught
            else line
        )
    where = result.timeline[-1].phase if result.timeline else "build"
    step = result.timeline[-1].step if result.timeline else -1
    when = f"{where} of step {step}" if step >= 0 else where
    taken = f"{format_bytes(result.process)} of {format_bytes(result.total_memory)} taken"
    more = "more" if result.asked is None else f"{format_bytes(result.asked)} more"
    short = "" if result.missing is None else f": {format_bytes(result.missing)} short"
    return f"{SIGNS['does not fit']} does not fit {result.device}: {when} asked for {more} with {taken}{short}"


def document(result: "TraceResult", smaller: "LargestBatch | None" = None) -> dict[str, object]:
    """What `--json` prints: the result, with the fine trace as `[event, allocated, reserved]`."""
    built: dict[str, object] = msgspec.to_builtins(result)
    built["verdict"] = "does not fit" if result.out_of_memory is not None else fit_of(result).verdict
    built["largest_batch"] = None if smaller is None else msgspec.to_builtins(smaller)
    built["series"] = [[point.event, point.allocated, point.reserved] for point in result.series]
    return built


def _script_of(target: str) -> str:
    """The Python file that is named; empty for a preset."""
    from vramtui.estimators.traced.process.run import is_file_target, split_target

    return split_target(target)[0] if is_file_target(target) else ""


def _what_to_run(options: TraceOptions, interpreter: "Interpreter") -> "TraceRequest":
    from vramtui.estimators.traced.process.results import TraceRequest
    from vramtui.estimators.traced.process.run import is_file_target, split_target

    device, arguments = chosen_device(options.device, options.memory, rename=False), tuple(options.arguments or ())
    if is_file_target(options.target):
        if options.settings:
            raise UserError("--set changes presets, not Python files; pass a script's arguments after --")
        path, function = split_target(options.target)
        return TraceRequest(path=path, function=function, arguments=arguments, device=device)
    from vramtui.cli.estimate.command import changed_preset, naming_setting
    from vramtui.estimators.traced.estimator import request_of

    preset_file = changed_preset(options.target, options.settings or [])
    with naming_setting(preset_file):
        return request_of(preset_file.preset.workload, device, arguments, interpreter)


def _run(options: TraceOptions, request: "TraceRequest", tracer: "Tracer", way_out: str) -> "TraceResult":
    """The result; where a trace cannot follow the script, `way_out` stands behind the sentence that says so."""
    from vramtui.cli.trace.text import ProgressLine
    from vramtui.estimators.traced.process.run import TraceFailedError, TraceTimeoutError

    line = ProgressLine()
    try:
        result = tracer(request, progress=None if options.json else line, show_output=options.show_output)
    except TraceFailedError as failed:
        line.clear()
        _tell(failed)
        fail(BAD_INPUT, _here(str(failed) + (way_out if failed.beyond_trace else "")))
    except TraceTimeoutError as late:
        fewer = "`--steps 1`, " if options.steps > 1 else ""
        fail(BAD_INPUT, f"{late}; {fewer}smaller data or a longer `--timeout` let it come to its end")
    finally:
        if not options.json:
            line.clear()
    if result.peak_allocated == 0 and result.out_of_memory is None:
        fail(BAD_INPUT, f"{printable(options.target)} put nothing on the GPU: it ran on the CPU, or made no tensors")
    return result


def _here(sentence: str) -> str:
    """Paths below the working directory as people write them."""
    return sentence.replace(f"{Path.cwd()}{os.sep}", "")


def _tell(failed: "TraceFailedError") -> None:
    """What the code printed last, and the user's own lines that led to the error."""
    from vramtui.cli.trace.text import short_line

    for text in failed.output:
        sys.stderr.write(f"{printable(text)}\n")
    for frame in failed.frames:
        place, word, rest = frame.partition(" in ")
        sys.stderr.write(f"  {printable(short_line(place) + word + rest)}\n")
