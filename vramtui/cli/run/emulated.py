"""`vramtui run --on CARD`: the job itself on an emulated card, and what each card says of it."""

import math
import os
import platform
import re
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from vramtui.cli.common.console import print_json
from vramtui.cli.common.exit_codes import BAD_INPUT, NO, NOT_KNOWN, fail, for_terminal
from vramtui.cli.common.paths import cache_dir, run_history
from vramtui.cli.run.child import (
    FROM_SIGNAL,
    NOT_FOUND,
    Child,
    NotStartedError,
    hold_signals,
    open_listener,
    probed_environment,
)
from vramtui.cli.run.emulated_report import EmulatedRun, Values, document_of, print_runs
from vramtui.cli.run.results import CompletedRun, RankResult, seen_in
from vramtui.cli.run.shielded import REFUSED, shielded
from vramtui.core.base.errors import UserError
from vramtui.core.base.file_limits import DRIVER_REPORT
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.probe_messages import MemoryCounters, ObservedJob, ProbeDevice
from vramtui.driver.build import build
from vramtui.driver.environment import (
    MOST_DEVICES,
    DriverReport,
    EmulatedCard,
    emulating,
    lay_out,
    read_reports,
)
from vramtui.driver.live import CardInUse, announced
from vramtui.driver.reads import read_places
from vramtui.estimators.analytic.sizes.nccl import FIRST_COMMUNICATOR, FURTHER_COMMUNICATOR
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context
from vramtui.models.readers.bounded import read_plain
from vramtui.probe.socket_dir import STEPS, UNTIL, VALUES, listeners_folder

if TYPE_CHECKING:
    from vramtui.core.schema.preset import PresetFile

LONGEST_NOTE = 2000
GRACE = 5.0  # seconds in which a job whose time is over may end by itself, and then after SIGTERM
ENDED_BY_HAND = (FROM_SIGNAL + signal.SIGINT, FROM_SIGNAL + signal.SIGTERM)  # nor is it tried on a further card


class EmulatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """What to run: the command, the variables it would have, after which steps or seconds to end it, what computed
    values read as, and whether the files that it writes stay; `preset` to hold it against.
    """

    command: tuple[str, ...]
    environment: dict[str, str]
    steps: int | None = None
    timeout: float | None = None
    values: Values = "zeros"
    keeps_files: bool = False
    preset: "PresetFile | None" = None


def run_on(names: str, job: EmulatedJob, *, json: bool) -> NoReturn:
    """Run the job on each card of the list, say what came of it, and leave with the exit code of `trace`.

    Args:
        names: cards, separated by commas; `8xH100` is eight of them.
        job: what to run.
        json: one JSON document in place of the report; what the job prints goes to standard error.

    Raises:
        UserError: no such card is known, the job's PyTorch has no CUDA, or the driver cannot be compiled.
    """
    cards = [parse_cards(name) for name in names.split(",")]
    if shutil.which(job.command[0]) is None:
        fail(NOT_FOUND, f"{printable(job.command[0])}: no such program")
    _require_cuda(job)
    libraries = build(cache_dir())
    runs = []
    for device, devices in cards:
        with _output_to_stderr(json):
            runs.append(_run(job, libraries, device, devices))
        if runs[-1].finished.code in ENDED_BY_HAND and runs[-1].ended_after is None:
            break
    if json:
        print_json({"schema": 1, "command": job.command, "cards": [document_of(run) for run in runs]})
    else:
        print_runs(runs)
    _keep(runs)
    raise SystemExit(exit_code(runs))


def exit_code(runs: Sequence[EmulatedRun]) -> int:
    """What the worst of them comes to: a failure, then that it does not fit, then that nobody knows."""
    verdicts = {run.verdict for run in runs}
    if None in verdicts:
        return BAD_INPUT
    return NO if "does not fit" in verdicts else NOT_KNOWN if "unknown" in verdicts else 0


def _require_cuda(job: EmulatedJob) -> None:
    """Refuse a job whose own PyTorch is not built for CUDA, before anything is compiled or runs."""
    from vramtui.cli.trace.job_command import python_of
    from vramtui.estimators.traced.process.interpreters import interpreter_at

    python = python_of(job.command, job.environment)
    interpreter = None if python is None else interpreter_at(python, job.environment)
    if interpreter is not None and interpreter.torch is not None and interpreter.cuda is None:
        raise UserError(
            f"{printable(str(interpreter.path))} has torch {printable(interpreter.torch)}, which is not built for "
            "CUDA: --on needs a job in an environment with PyTorch's CUDA build"
        )


def _keep(runs: Sequence[EmulatedRun]) -> None:
    """Keep what they predict: the same command's run on such a card is held against it."""
    from vramtui.cli.run.history_entry import prediction_run

    history = run_history()
    try:
        for run in runs:
            if run.largest is not None and run.verdict not in (None, "unknown") and run.ended_after is None:
                history.keep(prediction_run(run.finished, run.largest, run.device, platform.node()))
    except UserError as error:
        sys.stderr.write(f"vramtui: {error}\n")


def parse_cards(text: str) -> tuple[Device, int]:
    """A card and how many of it: `8xH100`."""
    several = re.fullmatch(r"(\d{1,3})x(.+)", text.strip())
    count = 1 if several is None else int(several[1])
    if not 1 <= count <= MOST_DEVICES:
        raise UserError(f"--on {text.strip()}: 1 to {MOST_DEVICES} cards")
    return card(text.strip() if several is None else several[2]), count


@contextmanager
def _output_to_stderr(yes: bool) -> Iterator[None]:
    """What the job prints goes to standard error, so that standard output holds the document alone."""
    if not yes:
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _run(job: EmulatedJob, libraries: Path, device: Device, devices: int) -> EmulatedRun:
    emulated = EmulatedCard(
        device=device,
        multiprocessors=card_limits(device).multiprocessors,
        context=cuda_context(device.capability).bytes,
        devices=devices,
        communicator=FIRST_COMMUNICATOR,
        further=FURTHER_COMMUNICATOR,
    )
    with tempfile.TemporaryDirectory(prefix="vramtui-on-") as folder:
        environment = emulating(job.environment, emulated, libraries, Path(folder))
        lay_out(Path(folder), libraries)
        if job.steps is not None:
            environment[STEPS] = str(job.steps)
        until = math.inf
        if job.timeout is not None:
            until = math.ceil(time.monotonic() + job.timeout)
            environment[UNTIL] = str(until)
        environment[VALUES] = job.values
        with (
            announced(CardInUse(card=emulated.text, reports=folder, libraries=str(libraries))),
            tempfile.TemporaryDirectory(prefix="vramtui-scratch-") as scratch,
        ):
            writable = [one for one in (folder, listeners_folder()) if Path(one).is_dir()]
            command = list(job.command) if job.keeps_files else shielded(job.command, scratch, writable)
            finished = _finished_run(command, environment, job)
            is_late = time.monotonic() >= until
        reports, places = read_reports(Path(folder)), read_places(Path(folder))
        refused = _why_refused(Path(folder, REFUSED))
        if refused:
            sys.stderr.write(for_terminal(f"note: what it wrote is not thrown away: {refused}") + "\n")
    seen = tuple(with_process(one, reports) for one in seen_in(finished, None)) or without_pytorch(reports, device)
    return EmulatedRun(
        device=device,
        devices=devices,
        finished=finished,
        seen=seen,
        reports=reports,
        places=places,
        values=job.values,
        steps=job.steps,
        ended_after=job.timeout if is_late else None,
    )


def _why_refused(path: Path) -> str:
    """What the shield wrote, or the job in its place."""
    try:
        return read_plain(path, DRIVER_REPORT).decode(errors="replace")[:LONGEST_NOTE]
    except UserError:
        return ""


def _finished_run(command: list[str], environment: dict[str, str], job: EmulatedJob) -> CompletedRun:
    """The job, run by this command with these variables and the probe; no GPU of this machine is looked at."""
    mask = hold_signals()
    mark = secrets.token_hex(8)
    listener = open_listener(mark)
    if listener is not None:
        environment = probed_environment(environment, str(listener.path), mark)
    started_at = time.time()
    try:
        child = Child(command, environment, mask)
        code = child.wait() if job.timeout is None else _wait_or_end(child, job.timeout)
    except NotStartedError as error:
        fail(error.code, str(error))
    finally:
        if listener is not None:
            listener.close()
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    return CompletedRun(
        command=job.command,
        code=code,
        started_at=started_at,
        ended_at=max(started_at, time.time()),
        jobs=() if listener is None else listener.jobs(),
        preset=job.preset,
    )


def _wait_or_end(child: Child, timeout: float) -> int:
    """The exit code. Where the probe inside does not end the job after `timeout` seconds, it is asked to or killed."""
    try:
        return child.wait(timeout + GRACE)
    except TimeoutError:
        os.kill(child.pid, signal.SIGTERM)
    try:
        return child.wait(GRACE)
    except TimeoutError:
        os.kill(child.pid, signal.SIGKILL)
    return child.wait()


def with_process(rank: RankResult, reports: Sequence[DriverReport]) -> RankResult:
    """The process with what the driver held for it beside PyTorch: its context, and what others allocated."""
    own = next((report for report in reports if report.pid == rank.job.pid), None)
    index = rank.counters.index
    if own is None or index >= len(own.peaks) or rank.ledger.reserved is None:
        return rank
    return _split(rank, own, rank.ledger.reserved)


def without_pytorch(reports: Sequence[DriverReport], device: Device) -> tuple[RankResult, ...]:
    """What the driver held, by process and card, for those that took memory beyond their context, or would have."""
    return tuple(
        _split(_without_counters(report.pid, index, device), report, 0)
        for report in reports
        for index, process in enumerate(report.peaks)
        if process > report.contexts[index] or report.refused[index]
    )


def _without_counters(pid: int, index: int, device: Device) -> RankResult:
    known = ProbeDevice(index=index, name=device.name, total_memory=device.total_memory, capability=device.capability)
    return RankResult(
        job=ObservedJob(pid=pid),
        counters=MemoryCounters(index=index),
        reported=known,
        ledger=Ledger(),
        device=device,
    )


def _split(rank: RankResult, report: DriverReport, reserved: int) -> RankResult:
    """The driver's bytes of a process: its context, and what stands beside that and PyTorch's `reserved`."""
    process, most = report.peaks[rank.counters.index], report.contexts[rank.counters.index]
    outside = process - reserved
    context, other = min(most, outside), max(0, outside - most)
    ledger = msgspec.structs.replace(rank.ledger, context=context, other=other or None, process=process)
    return msgspec.structs.replace(rank, ledger=ledger)
