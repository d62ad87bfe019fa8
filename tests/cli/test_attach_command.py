"""`vramtui attach`, with a stand-in for the function that only Python 3.14 has."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vramtui.cli.main import program

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

        def load(pid: int, path: str) -> None:
            assert job.stdin is not None
            assert pid == job.pid
            job.stdin.write(path + "\n")
            job.stdin.flush()

        monkeypatch.setattr(sys, "remote_exec", load, raising=False)
        done = RUNNER.invoke(program(), ["attach", str(job.pid), "--timeout", "60"])
        job.stdin.close()
        assert (done.exit_code, done.stdout) == (0, f"pid {job.pid} now has the probe\n")
        assert job.wait() == 0
    assert list((runtime / "vramtui").iterdir()) == []


def test_an_older_python_is_told_what_to_do_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "remote_exec", raising=False)
    done = RUNNER.invoke(program(), ["attach", str(os.getpid())])
    assert done.exit_code == 3
    assert "attach needs Python 3.14 or newer" in done.stderr
    assert "vramtui.probe.start()" in done.stderr


def test_what_cannot_be_reached_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, path: str) -> None:
        assert Path(path).exists()
        raise PermissionError(pid)

    monkeypatch.setattr(sys, "remote_exec", refuse, raising=False)
    done = RUNNER.invoke(program(), ["attach", str(os.getpid())])
    assert done.exit_code == 3
    assert "ptrace_scope" in done.stderr
    monkeypatch.setattr(sys, "remote_exec", lambda *_: None, raising=False)
    silent = RUNNER.invoke(program(), ["attach", str(os.getpid()), "--timeout", "0"])
    assert silent.exit_code == 3
    assert "has not reported" in silent.stderr
    nobody = RUNNER.invoke(program(), ["attach", str((1 << 22) + 1)])
    assert (nobody.exit_code, nobody.stderr) == (2, f"vramtui: there is no process {(1 << 22) + 1}\n")
