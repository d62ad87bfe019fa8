import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.installed.terminal import until
from tests.probe.conftest import JOBS, Start
from tests.tables import rows

SHOW = "import sys\nprint(sys.argv, sys.flags.isolated, sys.flags.no_site, sys.flags.ignore_environment)\n"
PROGRAMS, MODULES = dict(rows(__file__, "programs")), dict(rows(__file__, "modules"))
FLAGS = [("-I",), ("-S",), ("-E",), ("-P",), ("-I", "-S", "-E"), ("-X", "dev")]


def _alone(command: list[str], cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, *command], env={**os.environ, **more}, cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_with_and_without(name: str, start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.py").write_text(PROGRAMS[name], encoding="utf-8")
    if name in MODULES:
        (tmp_path / "torch.py").write_text(MODULES[name], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    heard, alone = start("job.py"), _alone(["job.py"], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert heard.jobs == ()


@pytest.mark.torch
def test_the_same_with_a_data_loaders_workers(start: Start, tmp_path: Path) -> None:
    """Forked, spawned, from a server of forks, kept over epochs, one that fails, one that dies: the losses are the same
    to a bit, and only the job tells.
    """
    job = str(JOBS / "loaders.py")
    heard, alone = start(job), _alone([job], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert alone.stdout.count("0x1.") == 3 * 4 + 3 * 4
    assert "raises LookupError\ndies RuntimeError" in alone.stdout
    assert heard.job.hello is not None


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
def test_same_with_flags(flags: tuple[str, ...], start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "-P" in flags and sys.version_info < (3, 11):
        pytest.skip("this Python has no -P")
    (tmp_path / "job.py").write_text(SHOW, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    heard, alone = start(*flags, "job.py", "x"), _alone([*flags, "job.py", "x"], tmp_path)
    assert (heard.code, heard.stdout, heard.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_a_job_outlives_whoever_watches_it(tmp_path: Path) -> None:
    """`vramtui run` is killed with no chance to say goodbye; the job goes on to its end."""
    done, begun = tmp_path / "done", tmp_path / "begun"
    job = f"import time, pathlib as p; p.Path({str(begun)!r}).touch(); time.sleep(1.5); p.Path({str(done)!r}).touch()"
    command = [sys.executable, "-m", "vramtui", "run", "--", sys.executable, "-c", job]
    environment = {**os.environ, "VRAMTUI_DATA_DIR": str(tmp_path), "VRAMTUI_CONFIG_DIR": str(tmp_path)}
    watcher = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    until(begun.exists)
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    until(done.exists)
