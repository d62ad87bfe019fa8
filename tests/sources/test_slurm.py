"""Slurm: the hosts of a job and steps of it that carry samples.

What Slurm's commands answer is written here as squeue(1) and scontrol(1) have it, for 20.11, 22.05 and 24.05. The live
half, and the allocation that `fit --sbatch` prints (`sbatch --test-only`), were tried with slurmctld, slurmd and munge
22.05 on one node.
"""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.sources.slurm import job_hosts, srun_arguments

FAKE = """#!{python}
import sys
arguments = " ".join(sys.argv[1:])
answers = {answers!r}
for begin, (code, text) in answers.items():
    if arguments.startswith(begin):
        (sys.stderr if code else sys.stdout).write(text)
        raise SystemExit(code)
raise SystemExit(9)
"""


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def fake(folder: Path, name: str, answers: dict[str, tuple[int, str]]) -> None:
    path = folder / name
    path.write_text(FAKE.format(python=sys.executable, answers=answers))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)


SQUEUE = "--noheader --jobs={} --format=%A|%T|%u|%N"


def test_the_hosts_of_a_job_and_of_an_array(commands: Path) -> None:
    rows = "4711|RUNNING|anna|gpu[01-02]\n4712|RUNNING|anna|gpu02\n4713|PENDING|anna|\n"
    fake(commands, "squeue", {SQUEUE.format("4711"): (0, rows)})
    fake(
        commands,
        "scontrol",
        {"show hostnames gpu[01-02]": (0, "gpu01\ngpu02\n"), "show hostnames gpu02": (0, "gpu02\n")},
    )
    assert job_hosts("4711") == ({"gpu01": "4711", "gpu02": "4711"}, "anna")


@pytest.mark.parametrize(
    ("job", "answer", "said"),
    [
        ("5", (0, "5|PENDING|anna|\n"), "job 5 has no hosts now: it is PENDING"),
        ("5", (0, ""), "squeue does not list it"),
        ("5", (1, "slurm_load_jobs error: Invalid job id\n"), "squeue: slurm_load_jobs error: Invalid job id"),
        ("5", (1, ""), "squeue: status 1"),
        ("--help", (0, ""), "takes a job's id"),
        ("5;reboot", (0, ""), "takes a job's id"),
    ],
)
def test_a_job_without_hosts_is_a_sentence(commands: Path, job: str, answer: tuple[int, str], said: str) -> None:
    fake(commands, "squeue", {"": answer})
    with pytest.raises(UserError, match=said):
        job_hosts(job)


def test_where_slurm_is_not_installed(commands: Path) -> None:
    del commands
    with pytest.raises(UserError, match="squeue not found; run this"):
        job_hosts("5")


def test_a_step_takes_nothing_from_its_job_and_names_are_arguments() -> None:
    arguments = srun_arguments("4711", "gpu01", 2.0, 100)
    assert arguments[:3] == ("srun", "--jobid=4711", "--overlap")
    assert {"--nodelist=gpu01", "--mem=0", "--gres=none", "--ntasks=1"} <= set(arguments)
    assert arguments[-3:-1] == ("sh", "-c")
    said = subprocess.run(["/bin/sh", "-n", "-c", arguments[-1]], check=False, capture_output=True)
    assert said.returncode == 0, said.stderr
