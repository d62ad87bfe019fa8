"""What started a process, by /proc."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramtui.agent.ancestors import ancestors_of, parent_of
from vramtui.agent.processes import Processes
from vramtui.agent.runtime import program_of
from vramtui.core.observation.readings import Absence
from vramtui.sources.host.processes import ProcessReader


class Proc:
    """A made-up /proc."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, pid: int, parent: int, name: str, command: str = "", *, session: int = 0, terminal: int = 0) -> None:
        place = self.folder / str(pid)
        place.mkdir()
        (place / "stat").write_text(f"{pid} ({name}) S {parent} {pid} {session} {terminal} -1 0 0")
        (place / "cmdline").write_bytes(command.replace(" ", "\0").encode())

    def above(self, pid: int) -> object:
        return ancestors_of(pid, str(self.folder))


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    made = Proc(tmp_path)
    made.add(1, 0, "systemd", session=1)
    made.add(50, 1, "tmux: server", session=50)
    made.add(60, 50, "bash", "-bash", session=60, terminal=34817)
    return made


def test_a_tree_ends_below_the_shell_that_somebody_types_in(proc: Proc) -> None:
    proc.add(70, 60, "bash", "bash run all.sh", session=60, terminal=34817)  # a script: no session of its own
    proc.add(80, 70, "torch) run", "torchrun train.py", session=60, terminal=34817)  # any name that a process takes
    proc.add(90, 80, "python", "python train.py", session=90)  # torchrun gives each worker a session
    assert proc.above(90) == {"pids": [80, 70], "command": "bash run all.sh"}
    assert proc.above(70) == {"pids": [], "command": ""}


@pytest.mark.parametrize("starter", ["slurmstepd", "containerd-shim", "sshd-session", "jupyter-lab", "systemd"])
def test_what_starts_everything_is_above_all_trees(proc: Proc, starter: str) -> None:
    proc.add(70, 1, starter, starter)
    proc.add(80, 70, "python", "python serve.py")
    proc.add(81, 80, "python", "worker")
    assert proc.above(80) == {"pids": [], "command": ""}
    assert proc.above(81) == {"pids": [80], "command": "python serve.py"}


def test_a_containers_first_process_starts_a_tree_but_for_a_shell(tmp_path: Path) -> None:
    for name, expected in (("vllm", [1]), ("bash", [])):
        made = Proc(tmp_path / name)
        made.folder.mkdir()
        made.add(1, 0, name, "vllm serve")
        made.add(7, 1, "python", "worker")
        assert made.above(7) == {"pids": expected, "command": "vllm serve" if expected else ""}


def test_a_servers_runner_is_called_by_the_program_that_started_it(proc: Proc) -> None:
    proc.add(70, 1, "ollama", "/usr/local/bin/ollama serve")
    proc.add(71, 70, "runner", "/usr/lib/ollama/cuda_v13/runner --model /models/blobs/sha256-ab")
    proc.add(80, 60, "llama-server", "llama-server --models-dir /models")
    proc.add(81, 80, "llama-server", "/opt/llama.cpp/llama-server -m /models/a.gguf")
    proc.add(91, 60, "python", "python train.py")
    for pid, parent in ((71, "ollama"), (81, "llama-server"), (91, ""), (70, "")):
        above = ancestors_of(pid, str(proc.folder))
        assert parent_of(above, str(proc.folder)) == parent
        label = program_of(pid, "runner", b"", parent)
        assert label == (f"app:{parent}" if parent else None)
    assert program_of(92, "python train.py", b"", "bash") is None


def test_what_cannot_be_read_is_not_known(proc: Proc) -> None:
    assert proc.above(4711) is None
    proc.add(80, 4711, "python", "python train.py")  # its parent went meanwhile
    assert proc.above(80) == {"pids": [], "command": ""}
    proc.add(91, 92, "x", "x")
    proc.add(92, 91, "y", "y")  # as no system has it
    assert proc.above(91) == {"pids": [92, 91], "command": "x"}


def test_a_true_child_by_both_readers() -> None:
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        table = ProcessReader()
        table.update({child.pid})
        seen = table.row(child.pid, "GPU-0", "C", 1, None)
        far = Processes()
        far.private = False
        told = far.row(child.pid)["ancestors"]
        child.kill()
    assert seen.ancestors is not None
    assert seen.ancestors.pids[0] == os.getpid()
    assert (list(seen.ancestors.pids), seen.ancestors.command) == (told["pids"], told["command"])
    assert seen.absent.get("ancestors") is not Absence.NO_PERMISSION
