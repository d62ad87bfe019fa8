import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_sitecustomize import JOB, TORCH
from tests.stub.build import build
from tests.stub.world import MIB, StubGpu, StubProcess, World

pytestmark = pytest.mark.slow  # each test starts processes

JOBS = Path(__file__).parents[1] / "probe" / "jobs"
FAKE = str(JOBS / "fake_cuda.py")
UUID = "GPU-00000000-0000-0000-0000-000000000000"
PYTHON = sys.executable
PLACE = 424242  # stands in the world for the job's pid until the job is there

# Counts what reaches it, and says so when it is asked to end. `signal.pause` would miss what comes just before it.
COUNTING = """
import os, signal, time
seen = []
def count(number, frame):
    seen.append(number); os.write(1, b"interrupted\\n")
def end(number, frame):
    os.write(1, f"{len(seen)} interrupts\\n".encode()); os._exit(7)
signal.signal(signal.SIGINT, count); signal.signal(signal.SIGTERM, end)
os.write(1, b"ready\\n")
while True: time.sleep(0.02)
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    world = World(
        gpus=[
            StubGpu(
                name="Fake RTX",
                uuid=UUID,
                total=24 << 30,
                reserved=0,
                used=20 << 30,
                processes=[StubProcess(PLACE, 1700 * MIB), StubProcess(1, 16 << 30)],
            )
        ]
    )
    world.write(tmp_path / "world")
    with tempfile.TemporaryDirectory(prefix="vt") as runtime:
        yield {
            **os.environ,
            "LD_LIBRARY_PATH": str(build()),
            "VRAMTUI_STUB_STATE": str(tmp_path / "world"),
            "VRAMTUI_DATA_DIR": str(tmp_path / "data"),
            "VRAMTUI_CONFIG_DIR": str(tmp_path / "config"),
            "XDG_RUNTIME_DIR": runtime,
        }


def ended(environment: dict[str, str], *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [PYTHON, "-m", "vramtui", "run", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        **options,
    )


def history(environment: dict[str, str]) -> list[dict[str, Any]]:
    command = [PYTHON, "-m", "vramtui", "history", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    runs: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
    return runs


def seen_by_the_driver(how: str) -> tuple[str, ...]:
    shell = f'sed -i "s/ {PLACE} / $$ /" "$VRAMTUI_STUB_STATE" && exec {PYTHON} {FAKE} {how}'
    return ("sh", "-c", shell)


@pytest.mark.parametrize(
    ("shell", "code"), [("exit 0", 0), ("exit 5", 5), ("kill -9 $$", 137), ("kill -TERM $$", 143)], ids=str
)
def test_its_exit_code_is_the_jobs(environment: dict[str, str], shell: str, code: int) -> None:
    done = ended(environment, "--", "sh", "-c", shell)
    assert (done.returncode, done.stdout) == (code, "")
    assert f"ended with {code}" in done.stderr


def test_its_input_output_and_options_are_the_jobs_alone(environment: dict[str, str]) -> None:
    done = ended(environment, "--", "sh", "-c", "cat; echo complaint >&2", input="one\ntwo\n")
    assert done.stdout == "one\ntwo\n"
    assert done.stderr.startswith("complaint\n")
    assert "the job never used CUDA through PyTorch" in done.stderr
    done = ended(environment, PYTHON, "-c", "import sys; print(sys.argv[1:])", "--steps", "1", "--json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "['--steps', '1', '--json']"
    folder = Path(environment["XDG_RUNTIME_DIR"]) / "vramtui"
    folder.chmod(0o755)
    done = ended(environment, "--", "sh", "-c", "echo $VRAMTUI_PROBE; exit 4")
    assert (done.returncode, done.stdout) == (4, "\n")
    assert "the job runs without a probe" in done.stderr
    folder.chmod(0o700)
    done = ended(environment, "--predict", "--", "sh", "-c", "echo out; exit 4")
    assert (done.returncode, done.stdout) == (4, "out\n")
    assert done.stderr.startswith("vramtui: no dry run of the job: sh is not a Python program")
    waits = ended(environment, "--predict", "--when-fits", "--", "sh", "-c", "echo out")
    assert (waits.returncode, waits.stdout) == (2, "")


def test_what_is_not_there_starts_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    done = ended(environment, "--", "no-such-program")
    assert (done.returncode, done.stderr) == (127, "vramtui: no-such-program: no such file or directory\n")
    (tmp_path / "data.txt").write_text("", encoding="utf-8")
    done = ended(environment, "--", str(tmp_path / "data.txt"))
    assert done.returncode == 126
    assert "permission denied" in done.stderr
    done = ended(environment, "--preset", "no-such", "--", "touch", str(tmp_path / "made"))
    assert done.returncode == 2
    assert "no-such" in done.stderr
    assert not (tmp_path / "made").exists()


@contextmanager
def killed(environment: dict[str, str], **more: Any) -> Iterator["subprocess.Popen[str]"]:
    """The run of a job that counts interrupts, a leader of its group: neither outlives a test that fails."""
    command, quiet = [PYTHON, "-m", "vramtui", "run", "--", PYTHON, "-c", COUNTING], subprocess.DEVNULL
    more |= {"env": environment, "stdout": subprocess.PIPE, "text": True, "start_new_session": True}
    with subprocess.Popen(command, stderr=quiet, **more) as run:
        try:
            yield run
        finally:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)


def test_signals_reach_the_job_and_its_answer_is_ours(environment: dict[str, str]) -> None:
    with killed(environment) as run:
        assert run.stdout.readline() == "ready\n"
        os.kill(run.pid, signal.SIGINT)
        assert run.stdout.readline() == "interrupted\n"
        os.kill(run.pid, signal.SIGTERM)
        assert run.stdout.read() == "1 interrupts\n"
        assert run.wait() == 7


def test_a_key_on_the_terminal_interrupts_the_job_once(environment: dict[str, str]) -> None:
    ours, theirs = os.openpty()
    terminal = termios.tcgetattr(theirs)
    terminal[1] &= ~termios.OPOST
    terminal[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, terminal)
    take = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # noqa: E731 - what the child does first
    with killed(environment, stdin=theirs, preexec_fn=take) as run:
        assert run.stdout.readline() == "ready\n"
        os.write(ours, b"\x03")
        assert run.stdout.readline() == "interrupted\n"
        os.kill(run.pid, signal.SIGTERM)
        assert run.stdout.read() == "1 interrupts\n"
        assert run.wait() == 7
    os.close(ours)
    os.close(theirs)


@pytest.mark.torch
def test_a_job_that_fits_is_reported_and_kept(environment: dict[str, str]) -> None:
    done = ended(environment, "--preset", "gpt2-124m", "--interval", "0.05", "--", *seen_by_the_driver("fits"))
    assert (done.returncode, done.stdout) == (0, "")
    lines = done.stderr.splitlines()
    assert any("on GPU 0 Fake RTX against gpt2-124m" in line for line in lines)
    rows = {line.split("  ")[0]: line.split() for line in lines if "  " in line}
    assert rows["PEAK IN GiB"][-2:] == ["OBSERVED", "Δ"]
    assert rows["allocated"][-3] == "1.07"
    assert rows["reserved"][-3] == "1.17"
    assert rows["CUDA context"][-3] == "0.49"  # what the driver shows less what is reserved
    assert rows["process"][-3] == "1.66"
    assert any(line.startswith("allocated peaked in backward of step 1 at 1.07 GiB; predicted in") for line in lines)
    (kept,) = history(environment)
    assert (kept["source"], kept["preset"], kept["ending"], kept["exit_code"]) == ("run", "gpt2-124m", "exited", 0)
    assert (kept["gpu_uuid"], kept["peak_how"], kept["method"]) == (UUID, "probe", "simulated")
    assert kept["observed"]["process"] == 1700 * MIB
    assert kept["observed"]["reserved"] == 1200 * MIB
    assert kept["predicted"]["process"] > 10 << 30
    assert kept["versions"]["torch"]
    assert kept["versions"]["driver"]
    assert max(kept["values"]) == 1700 * MIB
    assert len(kept["times"]) == len(kept["values"])
    assert kept["key"].startswith(f"{kept['host']}/{UUID}/{kept['pid']}/")


@pytest.mark.torch
def test_a_job_that_does_not_fit_is_told_why_and_what_would_have(environment: dict[str, str]) -> None:
    done = ended(environment, "--preset", "gpt2-124m", "--interval", "0.05", "--", *seen_by_the_driver("oom"))
    assert done.returncode == 1
    told = done.stderr[done.stderr.index("ran out of memory in backward of step 1") :]
    figures = {line[2:29].strip(): line[29:].split("  ")[0] for line in told.splitlines() if line.startswith("  ")}
    assert figures["asked for"] == "2.00 GiB"
    assert figures["free on the card"] == "512.00 MiB"
    assert figures["allocated"] == "700.00 MiB"
    assert figures["cached but unusable"] == "200.00 MiB"
    assert figures["also on the card"] == "16.00 GiB"
    assert "pid 1 " in told
    assert "What would have fitted: " in told
    assert "of the 8.0 GiB that it could have" in told
    assert "run." in told
    (kept,) = history(environment)
    assert (kept["ending"], kept["exit_code"]) == ("out_of_memory", 1)


@pytest.mark.torch
def test_without_a_preset_the_observed_side_stands_alone(environment: dict[str, str]) -> None:
    done = ended(environment, "--", PYTHON, FAKE, "fits")
    assert done.returncode == 0
    assert "against" not in done.stderr
    assert "allocated peaked in backward of step 1 at 1.07 GiB\n" in done.stderr
    (kept,) = history(environment)
    assert (kept["preset"], kept["error"]) == ("", None)


def test_a_recording_is_made_while_it_runs(environment: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "run.jsonl.gz"
    done = ended(environment, "--record", str(file), "--interval", "0.05", "--", "sh", "-c", "exit 3")
    assert done.returncode == 3
    replayed = subprocess.run(
        [PYTHON, "-m", "vramtui", "ps", "--replay", str(file), "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(replayed.stdout)["gpus"][0]["uuid"] == UUID
    again = ended(environment, "--record", str(file), "--", "touch", str(tmp_path / "made"))
    assert again.returncode == 2
    assert "a recording never overwrites" in again.stderr
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("is_full", [True, False])
def test_the_exit_code_survives_errors_that_cannot_be_written(environment: dict[str, str], *, is_full: bool) -> None:
    job = "import sys, time; time.sleep(0.2); sys.exit(7)"
    command = [PYTHON, "-m", "vramtui", "run", "--preset", "gpt2-124m", "--", PYTHON, "-c", job]
    if is_full:
        with Path("/dev/full").open("w") as full:
            assert subprocess.run(command, env=environment, stderr=full, check=False).returncode == 7
        return
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as running:
        running.stderr.close()
        assert running.wait() == 7


@pytest.mark.parametrize("options", [[], ["--record", "run.jsonl"]])
def test_a_job_starts_whatever_the_driver_says(environment: dict[str, str], tmp_path: Path, options: list[str]) -> None:
    held = [StubProcess(pid, 1 << 63) for pid in range(10, 14)] + [StubProcess(20, MIB)]
    World(gpus=[StubGpu(total=0, used=0, reserved=0, processes=held)]).write(tmp_path / "world")
    done = subprocess.run(
        [PYTHON, "-m", "vramtui", "run", *options, "--", "sh", "-c", "echo done; exit 3"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.returncode) == ("done\n", 3), done.stderr
    assert "Traceback" not in done.stderr


# Under the trace it trains on the card that is there; as a job it plays with a stand-in for torch, once it is traced.
TRACED = """
import os, sys, time
if "VRAMTUI_CARD" in os.environ or "VRAMTUI_RUN" not in os.environ:  # the dry run, of engine cuda or fake
    import torch
    assert torch.cuda.is_available()
    model = torch.nn.Linear(1024, int(sys.argv[1])).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(torch.ones(8, 1024, device="cuda")).sum().backward()
        optimizer.step()
    open("checkpoint.pt", "w").write("x")
    print("never seen")
else:
    world = os.environ["VRAMTUI_STUB_STATE"]
    text = open(world).read().replace(" 424242 ", f" {os.getpid()} ")
    open(world + "~", "w").write(text)
    os.replace(world + "~", world)
    while not os.path.exists(os.environ["VRAMTUI_PRESET"]):
        time.sleep(0.05)
    sys.path.insert(0, "stub")
    exec(open("stub/job.py").read())
    sys.exit(5)
"""
# The trace has the processor only where nobody else wants it; tests beside this one do.
AS_EVERYBODY = (
    "from vramtui.dryrun import child; child.let_others_go_first = lambda pid, **_: None; "
    "import runpy; runpy.run_module('vramtui', run_name='__main__', alter_sys=True)"
)


@pytest.mark.torch
def test_a_traced_job_is_predicted_by_its_own_command(environment: dict[str, str], tmp_path: Path) -> None:
    """The trace sees no GPU and leaves nothing; the job's output and exit code are its own; what it was predicted to
    take stands in the report and in the history.
    """
    folder = tmp_path / "job"
    (folder / "stub").mkdir(parents=True)
    (folder / "train.py").write_text(TRACED, encoding="utf-8")
    (folder / "stub" / "torch.py").write_text(TORCH.replace("major=8, minor=9", "major=9, minor=0"), encoding="utf-8")
    (folder / "stub" / "job.py").write_text(JOB, encoding="utf-8")
    command = [PYTHON, "-c", AS_EVERYBODY, "run", "--predict", "--", PYTHON, "train.py", "65536"]
    done = subprocess.run(
        command, env=environment, cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert (done.returncode, done.stdout) == (5, "trained\n"), done.stderr
    assert re.search(r"^vramtui: dry run in .*: ✓ fits GPU 0: needs ", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"^weights +0\.25 ", done.stderr, re.MULTILINE), done.stderr
    assert re.search(r"against train\.py \(dry run [0-9a-f]{4}\)", done.stderr)
    assert {path.name for path in folder.iterdir()} == {"train.py", "stub"}
    assert not list(Path(environment["XDG_RUNTIME_DIR"]).glob("vramtui/*.trace"))
    (run,) = history(environment)
    assert (run["method"], run["exit_code"]) == ("traced", 5)
    assert run["predicted"]["weights"] == (1024 * 65536 + 65536) * 4
    assert run["observed"]["allocated"] == 90 * MIB
