import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.installed.terminal import until
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.dryrun.child import hook_folder, probed_environment
from vramtui.dryrun.command import prepared
from vramtui.dryrun.job_command import DryRunJob, command_of_process, job_command

PYTHON = sys.executable


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    first = {"torchrun": f"#!{PYTHON}\n", "train-cli": "#!/usr/bin/env python3\n", "job.sh": "#!/bin/sh\n"}
    for name, text in first.items():
        (tmp_path / "bin" / name).write_text(text, encoding="utf-8")
        (tmp_path / "bin" / name).chmod(0o755)
    for name in ("python3", "python"):
        (tmp_path / "bin" / name).symlink_to(PYTHON)
    (tmp_path / "train.py").touch()
    return tmp_path


@pytest.mark.parametrize("row", rows(__file__, "which_script_runs_with_which_arguments"), ids=str)
def test_which_script_runs_with_which_arguments(folder: Path, row: tuple[str, str, bool, str, int]) -> None:
    words, script, is_module, arguments, ranks = row
    found = job_command(words.split(), str(folder), {"PATH": str(folder / "bin")})
    assert found.script == (script if is_module else str(folder / script))
    assert (found.is_module, " ".join(found.arguments), found.ranks) == (is_module, arguments, ranks)
    assert os.path.realpath(found.python) == os.path.realpath(PYTHON)
    assert Path(found.python).parent in {folder / "bin", Path(PYTHON).parent}


@pytest.mark.parametrize(("words", "sentence"), rows(__file__, "what_cannot_be_traced_is_a_sentence"), ids=str)
def test_what_cannot_be_traced_is_a_sentence(folder: Path, words: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        job_command(words.split(), str(folder), {"PATH": str(folder / "bin")})


def test_what_a_run_put_into_the_environment_is_left_out(folder: Path) -> None:
    mine = {"PATH": str(folder / "bin"), "PYTHONPATH": "/mine", "LOCAL_RANK": "3", "RANK": "7", "WORLD_SIZE": "8"}
    watched = probed_environment(mine, "/run/socket", "mark")
    assert str(hook_folder()) in watched["PYTHONPATH"]
    found = job_command(["python", "train.py"], str(folder), watched)
    assert found.environment == {**mine, "LOCAL_RANK": "0", "RANK": "0"}, "a trace is of the first rank"
    alone = job_command(["python", "train.py"], str(folder), probed_environment({"PATH": mine["PATH"]}, "s", "m"))
    assert alone.environment == {"PATH": mine["PATH"]}


def test_a_running_process_tells_its_command_folder_and_variables(folder: Path) -> None:
    ready = folder / "ready"
    (folder / "train.py").write_text(f"open({str(ready)!r}, 'w').close()\nimport time\ntime.sleep(120)")
    environment = {"PATH": str(folder / "bin"), "BATCH": "8"}
    with subprocess.Popen([PYTHON, "train.py", "a b"], cwd=folder, env=environment) as job:
        try:
            until(ready.exists)
            found = command_of_process(job.pid)
        finally:
            job.kill()
            job.wait()
    assert (found.script, found.arguments, found.folder) == (str(folder / "train.py"), ("a b",), str(folder))
    assert (found.python, found.environment["BATCH"]) == (PYTHON, "8")
    with pytest.raises(UserError, match="cannot be looked into"):
        command_of_process(job.pid)


def test_anothers_process_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(UserError, match="another user's"):
        command_of_process(os.getpid())


def test_a_program_is_that_of_the_chosen_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = SimpleNamespace(path=folder / "bin" / "python3")
    monkeypatch.setattr("vramtui.dryrun.job_command.job_interpreter", lambda *_: chosen)
    job = DryRunJob(words=("torchrun", "train.py"), folder=str(folder), environment={"PATH": os.defpath})
    assert prepared(job, "bin/python3").words == (str(folder / "bin" / "torchrun"), "train.py")
