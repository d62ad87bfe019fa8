"""Slurm: the hosts of a job, steps of it that carry samples, and peaks that sacct tells of finished jobs.

What Slurm's commands answer is written here as squeue(1), scontrol(1), sacct(1) and gres.conf(5) have it, for 20.11 (no
SubmitLine), 22.05 and 24.05. REAL is what sacct 22.05.8 printed of a slurmdbd with MariaDB, where one step's peak was
put into the database by hand; PUBLIC are lines that sites with newer versions have published. The live half, and the
allocation that `fit --sbatch` prints (`sbatch --test-only`), were tried with slurmctld, slurmd and munge 22.05 on one
node.
"""

import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.common.paths import run_history
from vramtui.cli.history.slurm import command_of, runs_of
from vramtui.cli.main import program
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.sources.slurm import FIELDS, SEPARATOR, SlurmStep, job_hosts, known_fields, read_steps, srun_arguments

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
        (
            "5",
            (1, "slurm_load_jobs error: Invalid job id specified\n"),
            "squeue: slurm_load_jobs error: Invalid job id",
        ),
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


# --- what sacct tells --------------------------------------------------------------------------------------------


def row(fields: tuple[str, ...] = FIELDS, **said: str) -> str:
    usual = {
        "JobID": "4711.0",
        "Cluster": "one",
        "User": "anna",
        "JobName": "python",
        "State": "COMPLETED",
        "Start": "1763800000",
        "End": "1763803600",
        "NTasks": "1",
        "NodeList": "gpu01",
        "AllocTRES": "cpu=8,gres/gpu:h100=1,gres/gpu=1,mem=64G,node=1",
        "TRESUsageInMax": "cpu=00:10:00,energy=0,fs/disk=1,gres/gpumem=40777023488,gres/gpuutil=93,mem=9G",
        "SubmitLine": "srun python train.py",
    }
    return SEPARATOR.join({**usual, **said}[field] for field in fields) + "\n"


def steps(*rows: str, fields: tuple[str, ...] = FIELDS) -> list[SlurmStep]:
    return list(read_steps("".join(rows), fields))


def test_a_step_as_slurm_24_tells_it() -> None:
    (step,) = steps(row())
    assert (step.id, step.card, step.gpus, step.tasks, step.gpu_memory) == ("4711.0", "h100", 1, 1, 40777023488)
    assert (step.started_at, step.ended_at, step.state) == (1763800000.0, 1763803600.0, "COMPLETED")
    assert step.is_of_one_gpu


@pytest.mark.parametrize(
    ("text", "size"), [("38888M", 38888 << 20), ("37.5G", int(37.5 * (1 << 30))), ("40777023488", 40777023488)]
)
def test_units_that_some_versions_write(text: str, size: int) -> None:
    assert steps(row(TRESUsageInMax=f"cpu=1,gres/gpumem={text},mem=1"))[0].gpu_memory == size


def test_an_older_sacct_has_no_command_and_its_own_times() -> None:
    fields = known_fields(
        "Account AdminComment AllocTRES Cluster End JobID JobName NTasks NodeList Start State TRESUsageInMax User"
    )
    assert fields == FIELDS[:-1]
    job = row(fields, JobID="4711", TRESUsageInMax="", AllocTRES="gres/gpu:a100=1,gres/gpu=1")
    batch = row(fields, JobID="4711.batch", NTasks="1", AllocTRES="gres/gpu=1", Start="2025-11-22T08:26:40")
    (step,) = steps(job, batch, fields=fields)
    assert (step.card, step.command, step.is_of_one_gpu) == ("a100", "", True)
    assert step.started_at > 1.7e9


REAL = """\
5|one|root|hostname|CANCELLED|None|1795371683||None assigned|||srun --gres=gpu:1 -n1 hostname
1|one|root|hostname|COMPLETED|1795371686|1795371686||vm|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1,node=1||srun hostname
1.0|one||hostname|COMPLETED|1795371686|1795371686|1|vm|cpu=1,gres/gpu:h100=1,gres/gpu=1,mem=0,node=1|\
cpu=00:00:00,energy=0,fs/disk=0,mem=2637824,pages=0,vmem=146300928|srun --gres=gpu:1 -n1 hostname
3|one|root|w.sh|COMPLETED|1795371708|1795371714||vm|billing=1,cpu=1,gres/gpu:h100=1,gres/gpu=1,node=1||sbatch w.sh
3.batch|one||batch|COMPLETED|1795371708|1795371714|1|vm|cpu=1,gres/gpu:h100=1,gres/gpu=1,mem=0,node=1|\
cpu=00:00:00,energy=0,fs/disk=0,mem=1093632,pages=0,vmem=78327808|
3.0|one||python|COMPLETED|1795371708|1795371711|1|vm|cpu=1,gres/gpu:h100=1,gres/gpu=1,mem=0,node=1|\
cpu=00:00:00,energy=0,fs/disk=0,gres/gpumem=88700000000,gres/gpuutil=93,mem=696320,pages=0,vmem=146300928|\
srun python train.py --model meta-llama/Llama-3.1-8B --lora --method lora
"""


def test_what_a_real_slurmdbd_answers() -> None:
    (step,) = steps(REAL.replace("|", SEPARATOR))
    assert (step.id, step.card, step.gpu_memory, step.is_of_one_gpu) == ("3.0", "h100", 88_700_000_000, True)
    ((run,), reasons) = runs_of([step], "", None)
    assert (run.preset, run.gpu_name, run.ending, reasons) == ("llama-3.1-8b-lora", card("H100").name, "exited", {})


# Of ResearchComputing/Documentation (pull request 498), neilmunday/slurm-mail (issue 142), Open XDMoD's GPU metrics.
PUBLIC = (
    (
        "cpu=00:56:24,energy=0,fs/disk=350130624578,gres/gpumem=40777023488,gres/gpuutil=100,mem=10621726720",
        40777023488,
    ),
    ("cpu=00:56:24,energy=0,fs/disk=350130624578,gres/gpumem=38888M,gres/gpuutil=100,mem=10372780K", 38888 << 20),
)
ALLOCATED = (
    ("billing=192,cpu=16,gres/cpu=16,gres/gpu:h100=1,gres/gpu=1,mem=180G,node=1", "h100", 1),
    ("billing=64,cpu=9,gres/cpu=9,gres/gpu:a100_3g.20gb=1,gres/gpu=1,mem=60G,node=1", "a100_3g.20gb", 1),
    ("cpu=4,mem=32G,node=1,gres/gpu=4", "", 4),
)


def test_lines_that_sites_have_published() -> None:
    for said, size in PUBLIC:
        assert steps(row(TRESUsageInMax=said))[0].gpu_memory == size
    for said, kind, count in ALLOCATED:
        (step,) = steps(row(AllocTRES=said))
        assert (step.card, step.gpus) == (kind, count)
    assert not steps(row(JobID="18194943.extern", TRESUsageInMax="cpu=00:00:00,gres/gpumem=0,gres/gpuutil=0,mem=256K"))


def test_what_is_no_peak_is_passed_over() -> None:
    assert not steps(
        row(JobID="4711"),  # the job itself
        row(TRESUsageInMax="cpu=1,mem=1"),
        row(TRESUsageInMax="gres/gpumem=0"),
        row(End="Unknown"),
        row(TRESUsageInMax="gres/gpumem=" + "9" * 18 + "P"),
        "no record at all\n",
    )


def test_a_command_may_have_line_breaks_and_bars() -> None:
    one, other = steps(row(SubmitLine="srun sh -c 'a | b\nc'"), row(JobID="4711.1"))
    assert one.command == "srun sh -c 'a | b c'"
    assert other.id == "4711.1"


@pytest.mark.parametrize(
    ("tres", "tasks", "is_one"),
    [
        ("gres/gpu=1", "1", True),
        ("gres/gpu:h100=8,gres/gpu=8", "8", True),
        ("gres/gpu=8", "1", False),  # torchrun: one task has all of a node's
        ("gres/gpu=8", "", False),
        ("cpu=1", "1", False),
    ],
)
def test_a_peak_is_a_gpus_only_where_a_task_has_one(tres: str, tasks: str, is_one: bool) -> None:
    assert steps(row(AllocTRES=tres, NTasks=tasks))[0].is_of_one_gpu == is_one


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("srun python train.py --lr 1e-4", "python train.py --lr 1e-4"),
        ("srun -n 4 -l --gpus-per-task=1 --exclusive python x.py", "python x.py"),
        ("srun --ntasks 2 torchrun x.py", "torchrun x.py"),
        ("srun --verbose --ntasks 2 python x.py", "python x.py"),
        ("srun 'unfinished", "srun 'unfinished"),
    ],
)
def test_the_program_follows_sruns_options(line: str, command: str) -> None:
    assert command_of(line) == command


def test_sacct_is_asked_once_and_what_it_tells_is_kept_once(commands: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_DATA_DIR", str(commands))
    found = row(SubmitLine="srun python train.py --model meta-llama/Llama-3.1-8B --lora --method lora")
    several = row(JobID="9.0", NTasks="1", AllocTRES="gres/gpu=8")
    answers = {
        "--helpformat": (0, " ".join(FIELDS)),
        "--allusers --parsable2 --noheader --noconvert": (0, found + several),
    }
    fake(commands, "sacct", answers)
    for _ in range(2):
        done = CliRunner().invoke(program(["history"]), ["history", "import", "--slurm", "--since", "30d"])
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith("1 of 2 steps with a peak of GPU memory imported.\n  1 not: a task had several")
    (kept,) = run_history().runs()
    assert kept.run.source == "slurm"
    assert "llama-3.1-8b-lora" in CliRunner().invoke(program(["history"]), ["history", "1"]).stdout


def test_without_accounting_slurms_own_words_are_shown(commands: Path) -> None:
    fake(commands, "sacct", {"--helpformat": (0, " ".join(FIELDS)), "": (1, "Slurm accounting storage is disabled\n")})
    done = CliRunner().invoke(program(["history"]), ["history", "import", "--slurm"])
    assert (done.exit_code, "sacct: Slurm accounting storage is disabled" in done.output) == (2, True)
    for wrong in (["--slurm"], ["import"], ["x"]):
        assert CliRunner().invoke(program(["history"]), ["history", *wrong]).exit_code == 2


def test_runs_are_scored_on_their_card_and_the_others_counted() -> None:
    matching = "srun python train.py --model meta-llama/Llama-3.1-8B --lora --method lora"
    found, reasons = runs_of(
        steps(
            row(SubmitLine=matching),
            row(JobID="4711.1", SubmitLine=matching, State="CANCELLED by 1000"),
            row(JobID="4712.0", SubmitLine="srun sleep 5"),
            row(JobID="4713.0", AllocTRES="gres/gpu=8"),
            row(JobID="4714.0", SubmitLine=matching, AllocTRES="gres/gpu:abacus=1"),
        ),
        "",
        None,
    )
    assert [(run.source, run.preset, run.ending, run.gpu_name) for run in found] == [
        ("slurm", "llama-3.1-8b-lora", "exited", card("H100").name),
        ("slurm", "llama-3.1-8b-lora", "killed", card("H100").name),
    ]
    run = found[0]
    assert (run.observed.process, run.host, run.ended_at) == (40777023488, "gpu01", 1763803600.0)
    assert run.error is not None
    assert run.finished
    assert not found[1].finished  # one that was ended may not have reached its peak
    assert found[0].key != found[1].key
    assert sum(reasons.values()) == 3
    assert isinstance(reasons, Counter)
