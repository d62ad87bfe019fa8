"""Slurm: the hosts of a running job and how to reach them, by a step of the job itself or over ssh; and what it
accounts of jobs that have ended.
"""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.sources.ssh.far_command import far_command

LIMIT = 30.0  # seconds for a command of Slurm's, whose controller may be busy
_JOB = re.compile(r"\d{1,12}(?:_\d{1,9})?(?:\+\d{1,9})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def run_slurm(*arguments: str, environment: Mapping[str, str] | None = None) -> str:
    """What a command of Slurm's prints.

    Raises:
        UserError: it is not installed, fails (in its own words) or takes too long.
    """
    try:
        ended = subprocess.run(  # noqa: S603 - a list, no shell
            arguments,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "LC_ALL": "C", **(environment or {})},
        )
    except FileNotFoundError:
        raise UserError(f"{arguments[0]} not found; run this where Slurm's commands are installed") from None
    except subprocess.TimeoutExpired:
        raise UserError(f"{arguments[0]} has not answered for {LIMIT:g} s; is slurmctld up?") from None
    if ended.returncode:
        errors = [line for line in ended.stderr.decode(errors="replace").splitlines() if line.strip()]
        raise UserError(f"{arguments[0]}: {printable(errors[0][:200]) if errors else f'status {ended.returncode}'}")
    return ended.stdout.decode(errors="replace")


def job_hosts(job: str) -> tuple[dict[str, str], str]:
    """The hosts of a job, each with the id to start a step under, and the job's user. An array has all its tasks'.

    Raises:
        UserError: it is no job's id, or the job does not run.
    """
    if _JOB.fullmatch(job) is None:
        raise UserError(f"--slurm takes a job's id, as 4711 or 4711_3; not {printable(job)!r}")
    # squeue(1): %A is the id of its own that a task of an array has, %T the state, %u the user, %N the nodes.
    output = run_slurm("squeue", "--noheader", f"--jobs={job}", "--format=%A|%T|%u|%N")
    rows = [row for line in output.splitlines() if len(row := line.split("|", 3)) == 4]
    hosts: dict[str, str] = {}
    user = ""
    for number, state, owner, nodes in rows:
        user = owner
        if state.startswith(("RUNNING", "COMPLETING", "SUSPENDED")) and nodes.strip():
            for node in run_slurm("scontrol", "show", "hostnames", nodes.strip()).split():
                if _NODE.fullmatch(node):
                    hosts.setdefault(node, number)
    if not hosts:
        states = ", ".join(sorted({row[1] for row in rows}))
        why = f"it is {printable(states)}" if states else "squeue does not list it"
        raise UserError(f"job {job} has no hosts now: {why}")
    return hosts, user


def may_step(user: str) -> bool:
    """Whether this user may start steps in that user's jobs."""
    return shutil.which("srun") is not None and (os.geteuid() == 0 or getpass.getuser() == user)


def srun_arguments(job: str, host: str, interval: float, agent_size: int) -> Sequence[str]:
    """A step on one host of a job that takes nothing from it: it shares processors and sees every GPU of the job.

    `--overlap` lets it start beside steps that have everything; `--mem=0` and `--gres=none` keep it from waiting for a
    share of its own (srun(1), since 20.11).
    """
    return (
        *("srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--mem=0"),
        *("--gres=none", "--unbuffered", "--quiet", "--job-name=vramtui", "--kill-on-bad-exit=1", "--mpi=none"),
        *("sh", "-c", far_command(interval, agent_size)),
    )


SEPARATOR = "\x1f"
# The command comes last: it may hold anything.
FIELDS = (
    *("JobID", "Cluster", "User", "JobName", "State", "Start", "End", "NTasks", "NodeList", "AllocTRES"),
    *("TRESUsageInMax", "SubmitLine"),
)
_GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,6})(?:,|$)")
_MEMORY = re.compile(r"gres/gpumem=(\d{1,18}(?:\.\d+)?)([KMGTP]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_MOST = 1 << 50


class SlurmStep(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step with a peak; `gpu_memory` in bytes of one task, times in seconds since the epoch.

    `gpus` and `tasks` are those of the whole step, None where sacct does not say; `card` is the site's name for the
    type.
    """

    id: str
    cluster: str
    user: str
    name: str
    state: str
    started_at: float
    ended_at: float
    nodes: str
    command: str
    gpu_memory: int
    gpus: int | None
    tasks: int | None
    card: str

    @property
    def is_of_one_gpu(self) -> bool:
        """Whether a task had one GPU, so that its peak is that GPU's."""
        return self.gpus is not None and self.tasks is not None and 0 < self.gpus <= self.tasks


def known_fields(helpformat: str) -> tuple[str, ...]:
    """Those of `FIELDS` that this sacct has, by what `sacct --helpformat` prints: `SubmitLine` came with 21.08."""
    words = {word.lower() for word in helpformat.split()}
    return tuple(field for field in FIELDS if field.lower() in words)


def read_steps(text: str, fields: tuple[str, ...]) -> Iterator[SlurmStep]:
    """The steps that have ended and have a peak.

    Args:
        text: of `sacct --parsable2 --noheader --noconvert --delimiter=SEPARATOR --format=FIELDS`; times are seconds
            since the epoch or Slurm's own form, which is local time.
        fields: what each line has.
    """
    cards: dict[str, str] = {}
    for row in _rows(text.splitlines(), fields):
        card, gpus = _gpus(row.get("AllocTRES", ""))
        job = row["JobID"].partition(".")[0]
        if card:
            cards[job] = card  # a step's line may leave the type out
        memory = _MEMORY.search(row.get("TRESUsageInMax", ""))
        start, end = _moment(row.get("Start", "")), _moment(row.get("End", ""))
        if memory is None or start is None or end is None or "." not in row["JobID"]:
            continue
        size = int(float(memory[1]) * _UNITS[memory[2]])
        if not 0 < size < _MOST:
            continue
        step = row["JobID"].partition(".")[2]
        tasks = row.get("NTasks", "")
        yield SlurmStep(
            id=row["JobID"],
            cluster=row.get("Cluster", ""),
            user=row.get("User", ""),
            name=row.get("JobName", ""),
            state=row.get("State", "").partition(" ")[0],
            started_at=start,
            ended_at=end,
            nodes=row.get("NodeList", ""),
            command=row.get("SubmitLine", "") if step not in ("batch", "extern") else "",
            gpu_memory=size,
            gpus=gpus,
            tasks=int(tasks) if tasks.isdigit() else 1 if step == "batch" else None,
            card=card or cards.get(job, ""),
        )


def _rows(lines: Iterable[str], fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Each record; a command with line breaks goes on in the lines below."""
    record: list[str] = []
    for line in lines:
        parts = line.split(SEPARATOR)
        if len(parts) == len(fields):
            if record:
                yield dict(zip(fields, record, strict=True))
            record = [printable(part.strip()) for part in parts]
        elif record:
            record[-1] += f" {printable(line.strip())}"
    if record:
        yield dict(zip(fields, record, strict=True))


def _gpus(tres: str) -> tuple[str, int | None]:
    """The type of the GPUs and their number: `gres/gpu=4,gres/gpu:h100=4`."""
    matches = _GPUS.findall(tres)
    if not matches:
        return "", None
    named = [(card, int(count)) for card, count in matches if card]
    return named[0] if len(named) == 1 else ("", max(int(count) for _, count in matches))


def _moment(text: str) -> float | None:
    if text.isdigit() and len(text) < 12:
        return float(text) or None
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
