"""`vramtui run`: a job as it is, with PyTorch's own figures beside the driver's, and a report at its end."""

import os
import platform
import secrets
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, exit_on_user_error, fail, require_open_files
from vramtui.cli.options import cards, command_of, presets
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes, format_percent
from vramtui.core.estimate.devices import card
from vramtui.models.named_files import exists, path_named
from vramtui.probe.socket_dir import PRESET

if TYPE_CHECKING:
    from vramtui.cli.run.child import Child, Mask
    from vramtui.cli.run.monitor import GpuWatch
    from vramtui.cli.run.results import CompletedRun
    from vramtui.cli.run.run_trace import RunTrace
    from vramtui.core.schema.preset import PresetFile
    from vramtui.sources.probe_listener import ProbeListener

AUTO, AUTO_STEPS = "auto", 3
WITHOUT_FIGURES = "vramtui: the job runs without the driver's figures"


On = Annotated[
    str | None,
    typer.Option(
        metavar="CARD[,CARD]",
        help="Run it on an emulated card, without a GPU: RTX4090, 8xH100; with --when-fits: auto.",
        autocompletion=cards,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(min=1, help="With --on: end after this many optimizer steps, a server of vLLM once it listens."),
]
Timeout = Annotated[
    float | None,
    typer.Option(min=1, metavar="SECONDS", help="With --on: end it after this many seconds; what it took stands then."),
]
Values = Annotated[
    Literal["zeros", "ones"], typer.Option(help="With --on: as what values that kernels would have computed are read.")
]
KeepFiles = Annotated[
    bool, typer.Option("--keep-files", help="With --on: let it write its files and reach the network.")
]
Json = Annotated[bool, typer.Option("--json", help="With --on: one JSON document, bytes as integers.")]
Command = Annotated[list[str], typer.Argument(metavar="-- COMMAND [ARGS]...", help="The job's command, unchanged.")]
Preset = Annotated[
    str | None, typer.Option(help="The preset to predict with: a name or a path.", autocompletion=presets)
]
Needs = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="With --when-fits: its need on each GPU: 38GiB; by default that of its preset or command."
    ),
]


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What `vramtui run` takes."""

    command: Command
    preset: Preset = None
    record: Annotated[Path | None, typer.Option(metavar="FILE", help="Record the GPUs while it runs.")] = None
    interval: Annotated[float, typer.Option(min=0.05, max=3600, help="Seconds between samples of the GPUs.")] = 1.0
    when_fits: Annotated[
        bool, typer.Option("--when-fits", help="Wait for a GPU with room, and run on that one alone.")
    ] = False
    needs: Needs = None
    gpus: Annotated[int | None, typer.Option(min=1, help="With --when-fits: how many GPUs.")] = None
    trace: Annotated[
        bool,
        typer.Option("--trace", help="Trace the command beside the job, and predict the job by it; see `trace`."),
    ] = False
    on: On = None
    steps: Steps = None
    timeout: Timeout = None
    values: Values = "zeros"
    keep_files: KeepFiles = False
    json: Json = False


@command_of(RunOptions)
def run(options: RunOptions) -> None:
    """Run a training job unchanged and see its memory from the inside: parts, phases, peaks.

    Its terminal, signals and exit code are its own. What vramtui has to say comes at the end, on standard error.
    With --on it runs on an emulated card: no GPU is needed, kernels do nothing, and the exit code says whether it fits.
    NVIDIA's licences speak of use "in systems with NVIDIA GPUs" only: see Licences of docs/emulated-card.md.
    """
    with exit_on_user_error():
        if options.on == AUTO and (options.trace or not options.when_fits):
            raise UserError(
                "--on auto goes with --when-fits, without --trace: it finds out what the job needs on the GPUs of this "
                "machine"
            )
        if options.on is not None and options.on != AUTO:
            if options.when_fits or options.record is not None or options.trace:
                raise UserError("--on runs on no GPU, so it goes with none of --when-fits, --record and --trace")
            run_emulated(options.on, options)
        ends_early = options.steps is not None or options.timeout is not None
        if options.on is None and (ends_early or options.json or options.keep_files or options.values != "zeros"):
            raise UserError("--steps, --timeout, --values, --keep-files and --json go with --on CARD")
        from vramtui.cli.estimate.command import changed_preset

        preset_file = None if options.preset is None else changed_preset(options.preset, [])
        trace = _trace(options) if options.trace else None
        placed = {} if options.preset is None else {PRESET: resolved_preset(options.preset)}
        if trace is not None:
            placed[PRESET] = str(trace.path)
        if options.when_fits:
            placed |= _placed(options, preset_file, trace)
        elif options.needs is not None or options.gpus is not None:
            raise UserError("--needs and --gpus go with --when-fits")
        finished, watch = _run(options, preset_file, trace, placed)
        _report(finished, watch)
        raise SystemExit(finished.code)


def _run(
    options: RunOptions, preset: "PresetFile | None", trace: "RunTrace | None", placed: dict[str, str]
) -> "tuple[CompletedRun, GpuWatch | None]":
    """The job from its start to its end, and what looked at its GPUs meanwhile.

    Args:
        options: the command, and what is recorded.
        preset: what it is predicted by, where that was given.
        trace: what traces it; None where nothing does.
        placed: the job's variables beside this process's.

    Raises:
        SourceFailed: it has to be recorded, and there is nothing to record.
        UserError: the recording cannot be written.
    """
    from vramtui.cli.run.child import NotStartedError, hold_signals, open_listener

    mask = hold_signals()
    mark = secrets.token_hex(8)
    with ExitStack() as at_end:
        at_end.push(lambda kind, _error, _trace: _let_signals_go(mask) if kind is not None else None)
        listener = open_listener(mark)
        if listener is not None:
            at_end.callback(listener.close)
        watch = _watch(options.interval, options.record, listener, preset)
        if watch is not None:
            at_end.callback(watch.close)
        if trace is not None:
            at_end.callback(trace.close)
            trace.hand_on()
        try:
            job = _start(options.command, listener, mark, mask, placed)
        except NotStartedError as error:
            fail(error.code, str(error))
        started_at = time.time()
        if watch is not None:
            watch.start()
        if trace is not None:
            trace.start(watch, listener)
        code = job.wait()
        ended_at = max(started_at, time.time())  # the clock may have been set back
        if trace is not None:
            trace.finish()
    from vramtui.cli.run.results import CompletedRun  # not while the job waits to start

    finished = CompletedRun(
        command=tuple(options.command),
        code=code,
        started_at=started_at,
        ended_at=ended_at,
        jobs=() if listener is None else listener.jobs(),
        preset=preset if trace is None else trace.preset,
        traces=None if trace is None else trace.traces,
    )
    return finished, watch


def _let_signals_go(mask: "Mask") -> None:
    """Restore the signal mask of before the job: one that did not start takes no signals."""
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def run_emulated(on: str, options: RunOptions) -> NoReturn:
    """The command on each card of `on`; see `run_on`."""
    from vramtui.cli.estimate.command import changed_preset
    from vramtui.cli.run.emulated import EmulatedJob, run_on

    job = EmulatedJob(
        command=tuple(options.command),
        environment=dict(os.environ),
        steps=options.steps,
        timeout=options.timeout,
        values=options.values,
        keeps_files=options.keep_files,
        preset=None if options.preset is None else changed_preset(options.preset, []),
    )
    run_on(on, job, json=options.json)


def emulated_need(options: RunOptions) -> str:
    """What the command needs on this machine's first GPU, found out on an emulated one of its kind.

    Raises:
        SourceFailed: the GPUs cannot be read.
        UserError: there is no GPU, it is none that is known by name, or the job does not run so far without one.
    """
    from vramtui.api.tracing import run_dry
    from vramtui.cli.common.open_source import open_source
    from vramtui.cli.run.placement import say_waiting

    gpu = next(iter(open_source(demo=False, replay=None).source.read().gpus), None)
    if gpu is None:
        raise UserError("--on auto: this machine has no GPU")
    name = card(gpu.name).name
    say_waiting(f"running it on an emulated {name} first: what it needs there is what it waits for")
    steps = options.steps or AUTO_STEPS
    result, printed = run_dry(options.command, on=name, steps=steps, values=options.values, timeout=options.timeout)
    if result.verdict == "does not fit":
        raise UserError(f"--on auto: the job runs out of memory on an emulated {name}, so it fits no GPU of that kind")
    if result.process is None or result.fits is None:
        last = printable(printed.strip().splitlines()[-1]) if printed.strip() else ""
        raise UserError(
            f"--on auto: the job ended with {result.exit_code} on an emulated {name}"
            f"{f' ({last})' if last else ''}; --needs says it instead"
        )
    say_waiting(f"it needs {format_bytes(result.process)}{', perhaps' if result.bounded else ''}")
    return f"{result.process}B"


def resolved_preset(preset: str) -> str:
    """The preset as dashboards find it, wherever they were started."""
    path = path_named(preset)
    is_path = os.sep in preset or path.suffix == ".toml"
    return str(path.resolve()) if is_path and exists(path) else preset


def placed_by(command: list[str]) -> "PresetFile | None":
    """What the command amounts to by the model and the flags that it names, which is said; None where it names none."""
    from vramtui.cli.run.placement import say_waiting
    from vramtui.core.estimate.assumptions import values_of
    from vramtui.presets.importers.derived import derived_preset
    from vramtui.presets.importers.process_files import STORES, JobPlace

    stores = {name: os.environ[name] for name in STORES if name in os.environ}
    preset_file = derived_preset(" ".join(command), JobPlace(Path.cwd(), "", stores))
    if preset_file is not None:
        read = "".join(f", {known.words}" for known in preset_file.known)
        assumed = f"; {', '.join(values_of(preset_file))} assumed" if preset_file.assumed else ""
        say_waiting(
            f"what it needs is derived from {preset_file.derived}{read}{assumed}; --needs or --preset says it surely"
        )
    return preset_file


def _trace(options: RunOptions) -> "RunTrace | None":
    """What traces the command; None where it is no Python script, which is said, and the job runs all the same.

    Raises:
        UserError: it is predicted by a preset already, or has to wait for a trace that there cannot be.
    """
    from vramtui.cli.run.run_trace import NOT_TRACED, RunTrace

    if options.preset is not None:
        raise UserError("--trace predicts by the command itself, and goes without --preset")
    try:
        return RunTrace(options.command)
    except UserError as error:
        if options.when_fits and options.needs is None:
            raise
        sys.stderr.write(f"vramtui: {NOT_TRACED.format(error)}\n")
        return None


def _placed(options: RunOptions, preset: "PresetFile | None", trace: "RunTrace | None") -> dict[str, str]:
    """Wait until there is room. The variables that put the job there; the claim lasts as long as this process.

    Raises:
        SourceFailed: the GPUs cannot be read.
        UserError: it is not said what the job needs, it cannot be traced, or no GPU here is large enough.
    """
    from vramtui.cli.common.open_source import open_source
    from vramtui.cli.run import placement
    from vramtui.cli.run.child import placing

    needs = emulated_need(options) if options.on == AUTO else options.needs
    if needs is None and trace is not None:
        source = open_source(demo=False, replay=None).source
        need = placement.Need(trace.need(source), None, options.gpus or 1)
    else:
        known = preset if needs or preset is not None else placed_by(options.command)
        need = placement.need_of(needs, known, options.gpus)  # what is wrong there is said before a GPU is looked for
        source = open_source(demo=False, replay=None).source
    sample, chosen = placement.wait_for_room(source, need, placement.Claims(), say=placement.say_waiting)
    for gpu, fit in chosen:
        placement.say_waiting(f"on GPU {gpu.index}: {fit.sentence}")
    return placing([gpu for gpu, _ in chosen], sample.gpus)


def _start(
    command: list[str], listener: "ProbeListener | None", mark: str, mask: "Mask", placed: dict[str, str]
) -> "Child":
    from vramtui.cli.run.child import Child, probed_environment

    environment = dict(os.environ) | placed
    if listener is not None:
        environment = probed_environment(environment, str(listener.path), mark)
    return Child(command, environment, mask)


def _watch(
    interval: float, record: Path | None, listener: "ProbeListener | None", preset: "PresetFile | None"
) -> "GpuWatch | None":
    """The driver's side. A job may run where there is no driver; a recording cannot be made there. What else goes wrong
    is said, and the job starts.

    Raises:
        SourceFailed: it has to be recorded, and there is nothing to record.
        UserError: the recording cannot be written.
    """
    from vramtui.cli.common.open_source import open_source
    from vramtui.cli.run.monitor import GpuWatch
    from vramtui.monitor.probes import no_jobs

    try:
        require_open_files(RECORDER_ROOM)
        source = open_source(demo=False, replay=None).source
    except SourceFailed:
        if record is not None:
            raise
        return None
    except UserError as error:
        if record is not None:
            raise
        sys.stderr.write(f"{WITHOUT_FIGURES}: {error}\n")
        return None
    try:
        return GpuWatch(source, interval, record, no_jobs if listener is None else listener.jobs, preset)
    except (SourceFailed, UserError):
        raise
    except Exception as error:  # noqa: BLE001 - the job is what counts
        sys.stderr.write(f"{WITHOUT_FIGURES}: {error}\n")
        return None


def _report(finished: "CompletedRun", watch: "GpuWatch | None") -> None:
    """Say it, and keep it. The job has ended: nothing that goes wrong here may change its exit code."""
    from vramtui.cli.common.paths import run_history
    from vramtui.cli.run.history_entry import EMULATED, completed_runs
    from vramtui.cli.run.report import print_report
    from vramtui.cli.run.results import seen_in

    try:
        seen = seen_in(finished, watch)
        print_report(finished, seen, watch)
        history = run_history()
        former = [stored.run for stored in history.runs()] if finished.preset is None else []
        for run in completed_runs(finished, seen, platform.node(), watch, former):
            if run.method == EMULATED and run.error is not None:
                sizes = format_bytes(run.predicted.process), format_bytes(run.observed.process)
                sys.stderr.write("on an emulated card {}, here {}: ".format(*sizes) + format_percent(run.error) + "\n")
            history.keep(run)
    except UserError as error:
        sys.stderr.write(f"vramtui: {error}\n")
    except BrokenPipeError:
        pass
    except Exception as error:  # noqa: BLE001 - as the docstring says
        sys.stderr.write(f"vramtui: the report cannot be made: {error}\n")
