"""Slurm: the hosts of a running job and how to reach them, by a step of the job itself or over ssh."""

import getpass
import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.sources.ssh import far_command

LIMIT = 30.0  # seconds for a command of Slurm's, whose controller may be busy
_JOB = re.compile(r"\d{1,12}(?:_\d{1,9})?(?:\+\d{1,9})?")
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


def run_slurm(*arguments: str) -> str:
    """Run one of Slurm's commands; return its output.

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
            env={**os.environ, "LC_ALL": "C"},
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
    """Return the hosts of a job, each with the id to start a step under, and the job's user.

    Raises:
        UserError: it is not a job's id, or the job does not run.
    """
    if _JOB.fullmatch(job) is None:
        raise UserError(f"--slurm takes a job's id, as 4711 or 4711_3; not {printable(job)!r}")
    # squeue(1): %A is the own id of a task of an array, %T the state, %u the user, %N the nodes.
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
    """Return whether this user may start steps in that user's jobs."""
    return shutil.which("srun") is not None and (os.geteuid() == 0 or getpass.getuser() == user)


def srun_arguments(job: str, host: str, interval: float, agent_size: int) -> Sequence[str]:
    """A step on one host of a job that takes nothing from it: it shares processors and sees every GPU of the job.

    `--overlap` lets it start while other steps have everything; `--mem=0` and `--gres=none` keep it from waiting for a
    share of its own (srun(1), since 20.11).
    """
    return (
        *("srun", f"--jobid={job}", "--overlap", f"--nodelist={host}", "--nodes=1", "--ntasks=1", "--mem=0"),
        *("--gres=none", "--unbuffered", "--quiet", "--job-name=vramtui", "--kill-on-bad-exit=1", "--mpi=none"),
        *("sh", "-c", far_command(interval, agent_size)),
    )
