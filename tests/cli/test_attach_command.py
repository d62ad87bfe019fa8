"""`vramtui attach`, with a stand-in for the job's own Python, which has to be 3.14."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.probe.test_sitecustomize import JOB as JOB_OF_STUB
from tests.probe.test_sitecustomize import TORCH
from vramtui.cli.main import program
from vramtui.cli.run import attach
from vramtui.sources.probe_listener import ProbeListener

JOB = """
import sys, torch
sys.stdout.write("ready\\n"); sys.stdout.flush()
path = sys.stdin.readline().strip()
exec(compile(open(path).read(), path, "exec"), {"__name__": "__main__"})
model = torch.nn.Linear(2, 2)
model(torch.ones(1, 2)).sum().backward()
sys.stdin.read()
"""
RUNNER = CliRunner()


@pytest.fixture(autouse=True)
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vt") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder)


@pytest.mark.torch
def test_a_running_job_is_heard_from_then_on(monkeypatch: pytest.MonkeyPatch, runtime: Path) -> None:
    command = [sys.executable, "-c", JOB]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdin is not None
        assert job.stdout is not None
        assert job.stdout.readline() == "ready\n"

        def load(pid: str, path: str) -> str:
            assert job.stdin is not None
            assert pid == str(job.pid)
            job.stdin.write(path + "\n")
            job.stdin.flush()
            return ""

        stand_in(monkeypatch, load)
        done = RUNNER.invoke(program(), ["attach", str(job.pid), "--timeout", "60"])
        job.stdin.close()
        assert (done.exit_code, done.stdout) == (0, f"pid {job.pid} now has the probe\n")
        assert job.wait() == 0
    assert list((runtime / "vramtui").iterdir()) == []


def stand_in(monkeypatch: pytest.MonkeyPatch, load: Callable[[str, str], str]) -> None:
    """The job's Python is 3.14: `load` gets pid and file, and what it returns was said on standard error."""

    def ask(python: str, code: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
        assert Path(python).is_file()
        said = "" if code == attach.RELEASE else load(*arguments)
        return subprocess.CompletedProcess([python], int(bool(said)), "3.14.1\n", said)

    monkeypatch.setattr(attach, "ask_python", ask)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python can be attached to")
def test_an_older_python_is_told_what_to_do_instead(runtime: Path, tmp_path: Path) -> None:
    """The line that the sentence names makes a job's phases known, in an environment without vramtui."""
    done = RUNNER.invoke(program(), ["attach", str(os.getpid())])
    assert done.exit_code == 2
    assert f"pid {os.getpid()} runs Python {sys.version.split()[0]}, and code can be loaded" in done.stderr
    line = " ".join(done.stderr.split()).partition("at its beginning: ")[2]
    (tmp_path / "torch.py").write_text(TORCH, encoding="utf-8")
    (tmp_path / "job.py").write_text(f"{line}\n{JOB_OF_STUB}", encoding="utf-8")
    listener = ProbeListener("dashboard", runtime / "vramtui")
    try:
        subprocess.run([sys.executable, "-S", "job.py"], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    finally:
        listener.close()
    (job,) = listener.jobs()
    assert [end.phase for end in job.moments][:4] == ["build", "forward", "backward", "step"]


def test_what_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_pid: str, path: str) -> str:
        assert Path(path).exists()
        return "Traceback\nPermissionError: [Errno 1] Operation not permitted"

    stand_in(monkeypatch, refuse)
    done = RUNNER.invoke(program(), ["attach", str(os.getpid())])
    assert done.exit_code == 3
    assert "ptrace_scope" in done.stderr
    stand_in(monkeypatch, lambda *_: "RuntimeError: remote debugging is not enabled")
    off = RUNNER.invoke(program(), ["attach", str(os.getpid())])
    assert (off.exit_code, "remote debugging is not enabled" in off.stderr) == (3, True)
    stand_in(monkeypatch, lambda *_: "")
    silent = RUNNER.invoke(program(), ["attach", str(os.getpid()), "--timeout", "0"])
    assert silent.exit_code == 3
    assert "has not reported" in silent.stderr
    nobody = RUNNER.invoke(program(), ["attach", str((1 << 22) + 1)])
    assert (nobody.exit_code, nobody.stderr) == (2, f"vramtui: there is no process {(1 << 22) + 1}\n")


def test_a_process_that_runs_no_python_is_named() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            until = time.monotonic() + 60
            while Path(f"/proc/{other.pid}/exe").readlink() == Path("/proc/self/exe").readlink():
                assert time.monotonic() < until  # it has not reached its own program yet
                time.sleep(0.01)
            done = RUNNER.invoke(program(), ["attach", str(other.pid)])
        finally:
            other.kill()
    assert done.exit_code == 2
    assert "which is no Python" in " ".join(done.stderr.split())
