"""What a process runs under, as its environment and its loaded libraries have it: here and by the agent."""

import sys
from pathlib import Path
from subprocess import PIPE, Popen

import msgspec
import pytest

from vramtui.agent.processes import Processes
from vramtui.agent.runtime import LONGEST_SETTING, alloc_conf_of, torch_of
from vramtui.core.observation.readings import Process
from vramtui.sources.host.processes import ProcessReader

MAPS_A_LIBRARY = """\
import mmap, sys
file = open(sys.argv[1], "r+b")
held = mmap.mmap(file.fileno(), 0)
print("mapped", flush=True)
sys.stdin.read()
"""


def a_torch(folder: Path, version: str = "__version__ = '2.14.1+cu130'\n") -> Path:
    """A package that looks as PyTorch does from outside; its library."""
    library = folder / "torch" / "lib" / "libtorch_cpu.so"
    library.parent.mkdir(parents=True)
    library.write_bytes(bytes(4096))
    (folder / "torch" / "version.py").write_text(f"from typing import Optional\n{version}debug = False\n")
    return library


def test_release_and_settings_are_read_here_and_by_the_agent(tmp_path: Path) -> None:
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", MAPS_A_LIBRARY, str(a_torch(tmp_path / "a folder"))]
    with Popen(command, env=settings, stdin=PIPE, stdout=PIPE) as job:
        assert job.stdout is not None
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
        assert job.stdout is not None
        assert job.stdout.readline() == b"mapped\n"
        assert torch_of(job.pid) is None
        job.communicate()
    assert torch_of(job.pid) is None  # it is gone


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        (b"PYTORCH_ALLOC_CONF=max_split_size_mb:64\0A=b", "max_split_size_mb:64"),
        (b"PYTORCH_CUDA_ALLOC_CONF=a:1\0PYTORCH_ALLOC_CONF=b:2\0", "b:2"),
        (b"XPYTORCH_ALLOC_CONF=a:1\0PYTORCH_ALLOC_CONF=\0", None),
        (b"PYTORCH_ALLOC_CONF=" + b"a" * (LONGEST_SETTING + 1), None),
        (b"PYTORCH_ALLOC_CONF=a:1\x1b[2J", None),
        (b"", None),
    ],
)
def test_settings_of_the_allocator(environment: bytes, settings: str | None) -> None:
    assert alloc_conf_of(environment) == settings
