import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE, Popen
from types import SimpleNamespace

import msgspec
import pytest

from tests.tables import for_each, rows
from vramtui.agent import containers
from vramtui.agent.ancestors import ancestors_of, parent_of
from vramtui.agent.containers import ASK_AGAIN, container_of, is_unnamed
from vramtui.agent.processes import Processes
from vramtui.agent.runtime import LONGEST_SETTING, alloc_conf_of, program_of, torch_of
from vramtui.core.observation.readings import Absence, Process
from vramtui.sources.host.processes import ProcessReader, environment_of


class Proc:
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


def test_a_tree_ends_below_a_shell_and_what_cannot_be_read_is_not_known(proc: Proc) -> None:
    proc.add(70, 60, "bash", "bash run all.sh", session=60, terminal=34817)  # a script: no session of its own
    proc.add(80, 70, "torch) run", "torchrun train.py", session=60, terminal=34817)  # any name that a process takes
    proc.add(90, 80, "python", "python train.py", session=90)  # torchrun gives each worker a session
    assert proc.above(90) == {"pids": [80, 70], "command": "bash run all.sh"}
    assert proc.above(70) == {"pids": [], "command": ""}
    assert proc.above(4711) is None
    proc.add(81, 4711, "python", "python train.py")  # its parent went meanwhile
    assert proc.above(81) == {"pids": [], "command": ""}
    proc.add(91, 92, "x", "x")
    proc.add(92, 91, "y", "y")  # as no system has it
    assert proc.above(91) == {"pids": [92, 91], "command": "x"}


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
        assert parent_of(ancestors_of(pid, str(proc.folder)), str(proc.folder)) == parent
        label = program_of(pid, "runner", b"", parent)
        assert label == (f"app:{parent}" if parent else None)
    assert program_of(92, "python train.py", b"", "bash") is None


def test_a_true_child_by_both_readers() -> None:
    program = "import sys; print('ready', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        table = ProcessReader()
        table.update({child.pid})
        seen = table.row(child.pid, "GPU-0", "C", 1, None)
        far = Processes()
        far.private = False
        told = far.row(child.pid)["ancestors"]
        child.kill()
    assert seen.ancestors.pids[0] == os.getpid()
    assert (list(seen.ancestors.pids), seen.ancestors.command) == (told["pids"], told["command"])
    assert seen.absent.get("ancestors") is not Absence.NO_PERMISSION


MAPS_A_LIBRARY = """\
import mmap, sys
file = open(sys.argv[1], "r+b")
held = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


def a_torch(folder: Path, version: str = "__version__ = '2.14.1+cu130'\n") -> Path:
    library = folder / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(bytes(4096))
    (folder / "torch" / "version.py").write_text(f"from typing import Optional\n{version}debug = False\n")
    return library


def test_release_and_settings_are_read_here_and_by_the_agent(tmp_path: Path) -> None:
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", MAPS_A_LIBRARY, str(a_torch(tmp_path / "a folder"))]
    with Popen(command, env=settings, stdin=PIPE, stdout=PIPE) as job:
        assert job.stdout.readline() == b"mapped\n"
        reader, agent = ProcessReader(), Processes()
        reader.update({job.pid})
        agent.private = False  # no device is open in it
        here, there = reader.row(job.pid, "G", "C", 1, None), agent.row(job.pid)
        job.communicate()
    assert (here.torch, here.alloc_conf) == ("2.14.1+cu130", "expandable_segments:True")
    assert (there["torch"], there["alloc_conf"]) == (here.torch, here.alloc_conf)
    assert msgspec.json.decode(msgspec.json.encode(here), type=Process) == here


@pytest.mark.parametrize("version", ["", "__version__ = 'newest'\n", "\0" * 100])
def test_a_library_without_a_release_beside_it_is_of_none(tmp_path: Path, version: str) -> None:
    command = [sys.executable, "-c", MAPS_A_LIBRARY, str(a_torch(tmp_path, version))]
    with Popen(command, stdin=PIPE, stdout=PIPE) as job:
        assert (job.stdout.readline(), torch_of(job.pid)) == (b"mapped\n", None)
        job.communicate()
    assert torch_of(job.pid) is None  # it is gone


@for_each(rows(__file__, "settings"))
def test_settings_of_the_allocator(environment: str, settings: str) -> None:
    told = environment.replace("{LONG}", "a" * (LONGEST_SETTING + 1)).encode()
    assert (alloc_conf_of(told) or "none") == settings


ID = "9b1c0f2e4d7a" + "0123456789abcdef" * 3 + "0123"


@for_each(rows(__file__, "control_groups"))
def test_by_the_names_of_control_groups(groups: str, expected: str) -> None:
    assert (container_of(groups.replace("{ID}", ID).encode("latin-1")) or "none") == expected


@for_each(rows(__file__, "environments"))
def test_by_the_environment_beside_them(groups: str, environment: str, expected: str) -> None:
    told = environment.replace("{HERE}", os.uname().nodename)
    assert container_of(groups.replace("{ID}", ID).encode(), told.encode()) == expected


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(containers, "DOCKER", (str(tmp_path / "docker"),))
    monkeypatch.setattr(containers, "PODMAN", (str(tmp_path / "podman"),))
    monkeypatch.setattr(containers, "known_names", {})
    return tmp_path


def test_a_name_that_is_not_written_yet_is_asked_for_again(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(containers, "time", SimpleNamespace(monotonic=lambda: now[0]))
    groups = f"0::/system.slice/docker-{ID}.scope\n".encode()
    assert container_of(groups) == "docker 9b1c0f2e4d7a"
    assert is_unnamed("docker 9b1c0f2e4d7a")
    folder = engines / "docker" / "containers" / ID
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_text(json.dumps({"Name": "/trainer"}))
    now[0] += ASK_AGAIN - 1
    assert container_of(groups) == "docker 9b1c0f2e4d7a"
    now[0] += 1
    assert container_of(groups) == "docker trainer"
    (folder / "config.v2.json").unlink()
    now[0] += ASK_AGAIN
    assert container_of(groups) == "docker trainer"
    assert not is_unnamed("docker trainer")


NAMED = (json.dumps({"ID": ID, "Name": "/trainer"}), json.dumps([{"id": "f" * 64}, {"id": ID, "names": ["eval"]}]))
OTHERWISE = ("", "[]", "{", '{"Name": 3}', '{"Name": "/a\\u001b[2J"}', "[" * 100_000)


@pytest.mark.parametrize(
    ("texts", "names"),
    [(NAMED, ("trainer", "eval")), *(((text, text), ("9b1c0f2e4d7a", "9b1c0f2e4d7a")) for text in OTHERWISE)],
)
def test_the_name_given_is_in_the_engines_files(engines: Path, texts: tuple[str, str], names: tuple[str, str]) -> None:
    """What an engine writes otherwise leaves the id."""
    docker, podman = engines / "docker" / "containers" / ID, engines / "podman" / "overlay-containers"
    for folder, file, text in ((docker, "config.v2.json", texts[0]), (podman, "containers.json", texts[1])):
        folder.mkdir(parents=True)
        (folder / file).write_text(text)
    assert container_of(f"0::/system.slice/docker-{ID}.scope\n".encode()) == f"docker {names[0]}"
    assert container_of(f"0::/machine.slice/libpod-{ID}.scope/container\n".encode()) == f"podman {names[1]}"


def test_the_environment_of_an_own_process_without_its_secrets() -> None:
    given = {"EMPTY": "", "HF_TOKEN": "hf_abc", "PROXY": "http://anna:pw@proxy:80", "ODD": "a\x1b[2J"}
    with Popen([sys.executable, "-c", "print(flush=True); input()"], env=given, stdin=PIPE, stdout=PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        reader = ProcessReader()
        reader.update([child.pid])
        started = reader.row(child.pid, "GPU", "C", 1, None).started_at
        shown = {"EMPTY": "", "HF_TOKEN": "***", "PROXY": "http://***@proxy:80", "ODD": "a␛[2J"}
        assert {name: environment_of(child.pid, started)[name] for name in given} == shown
        assert environment_of(child.pid, (started or 0) + 1) == environment_of(1 << 22, started) == {}
        child.kill()
