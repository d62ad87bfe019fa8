"""`vramtui history import --slurm`: predictions scored by the peaks that Slurm has kept of finished jobs."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.devices import Device, card
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.runs.run import Ending, Run
from vramtui.monitor.job_presets import matcher_of_library
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary
from vramtui.sources.slurm import SEPARATOR, SlurmStep, known_fields, read_steps, run_slurm

if TYPE_CHECKING:
    from vramtui.records.run_history import RunHistory

STATES = "COMPLETED,FAILED,CANCELLED,TIMEOUT,OUT_OF_MEMORY,NODE_FAIL,PREEMPTED"
NO_PEAKS = "Slurm keeps peaks with AccountingStorageTRES=gres/gpumem and AutoDetect=nvml in gres.conf."
USUAL = 7 * 86400.0  # seconds back, without --since
# An OUT_OF_MEMORY of Slurm's is the host's memory; a GPU's ends the program itself.
ENDINGS: dict[str, Ending] = {"COMPLETED": "exited", "FAILED": "failed"}
_SWITCHES = ("--exact", "--exclusive", "--label", "--overcommit", "--overlap", "--quiet", "--unbuffered", "--verbose")
_TYPES = str.maketrans("_-", "  ")


def import_slurm(history: "RunHistory", since: float | None, preset: str, gpu: str) -> None:
    """Ask sacct, match the steps' command lines to presets, and keep what can be scored. Asked again, the same runs
    are kept once.

    Args:
        history: takes the runs.
        since: seconds since the epoch.
        preset: only presets whose name holds this.
        gpu: the card, where Slurm does not say which.

    Raises:
        UserError: sacct cannot be asked, or no card has that name.
    """
    fields = known_fields(run_slurm("sacct", "--helpformat"))
    if not {"JobID", "TRESUsageInMax", "Start", "End"} <= set(fields):
        raise UserError("this sacct has no TRESUsageInMax; steps' peaks are kept by Slurm 18.08 and newer")
    begin = time.time() - USUAL if since is None else since
    text = run_slurm(
        *("sacct", "--allusers", "--parsable2", "--noheader", "--noconvert", f"--delimiter={SEPARATOR}"),
        *(f"--format={','.join(fields)}", f"--starttime={_slurm_time(begin)}"),
        *("--endtime=now", f"--state={STATES}"),
        environment={"SLURM_TIME_FORMAT": "%s"},
    )
    scored, reasons = runs_of(read_steps(text, fields), preset, card(gpu) if gpu else None)
    for run in scored:
        history.keep(run)
    total = len(scored) + sum(reasons.values())
    sys.stdout.write(f"{len(scored)} of {total} steps with a peak of GPU memory imported.\n")
    for reason, count in reasons.most_common():
        sys.stdout.write(f"  {count} not: {reason}\n")
    if not total:
        sys.stdout.write(f"  {NO_PEAKS}\n")


def _slurm_time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def runs_of(steps: Iterable[SlurmStep], preset: str, usual: Device | None) -> tuple[list[Run], Counter[str]]:
    """The runs that can be scored, and why how many others cannot."""
    library = PresetLibrary()
    session = MonitorSession()
    session.match_by(matcher_of_library(library))
    runs: list[Run] = []
    reasons: Counter[str] = Counter()
    for step in steps:
        run = _run_of(step, session, preset, usual)
        if isinstance(run, Run):
            runs.append(run)
        else:
            reasons[run] += 1
    return runs, reasons


def _run_of(step: SlurmStep, session: MonitorSession, preset: str, usual: Device | None) -> Run | str:
    """The run that a step was; or why it cannot be scored."""
    if not step.is_of_one_gpu:
        return "a task had several GPUs, or sacct does not say how many: their peak is of all of them together"
    device = _card(step.card) or usual
    if device is None:
        return f"no known card is of the type {printable(step.card) or '(none said)'}; --gpu CARD names it"
    command = command_of(step.command) or step.name
    memory = Memory(total=device.total_memory, used=step.gpu_memory)
    process = Process(
        pid=1, type="C", used_memory=step.gpu_memory, user=step.user, command=command, started_at=step.started_at
    )
    gpu = Gpu(
        index=0,
        uuid=f"slurm-{step.cluster}-{step.id}",
        name=device.name,
        memory=memory,
        processes=(process,),
        compute_capability=device.capability,
    )
    host = Host(name=step.nodes or step.cluster)
    sample = Sample(taken_at=step.ended_at, source="slurm", host=host, gpus=(gpu,))
    session.ingest(sample)
    runs = session.run_tracker().update(sample, session.history, session.matched)
    if not runs:
        return "no preset matches its command line or name"
    (run,) = runs
    if preset and preset.lower() not in run.preset.lower():
        return f"not of a preset whose name holds {preset}"
    return msgspec.structs.replace(
        run,
        key=f"slurm/{step.cluster}/{step.id}/{step.started_at:.0f}",
        source="slurm",
        ended_at=step.ended_at,
        ending=ENDINGS.get(step.state, "killed"),
        times=(),
        values=(),
    )


def _card(kind: str) -> Device | None:
    """The card of a type as sites call them: `h100`, `nvidia_h100_80gb_hbm3`, `a100-sxm4-80gb`."""
    if not kind:
        return None
    return _card_or_none(kind) or _card_or_none(kind.translate(_TYPES))


def _card_or_none(name: str) -> Device | None:
    try:
        return card(name)
    except UserError:
        return None


def command_of(line: str) -> str:
    """The program in `srun --ntasks=1 python train.py`: what follows srun's own options."""
    try:
        words = shlex.split(line)
    except ValueError:
        return line
    for at, word in enumerate(words):
        if at and not word.startswith("-") and (at == 1 or "=" in words[at - 1] or not _takes_value(words[at - 1])):
            return shlex.join(words[at:])
    return line


def _takes_value(option: str) -> bool:
    """Whether the next word is an option's value: `-n 4`, `--ntasks 4`, and not `-l`, `--exclusive`, `-n4`."""
    if option.startswith("--"):
        return option not in _SWITCHES
    return len(option) == 2 and option[1] not in "lusvQXOkKEZ"
