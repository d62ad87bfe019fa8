"""Emulated cards that are announced and found, and what NVML tells of one on a machine without a driver."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.driver.libraries import libraries
from vramtui.core.base.errors import SourceFailed
from vramtui.core.estimate.devices import CARDS
from vramtui.dryrun.cuda.environment import SUFFIX, CardInUse, EmulatedCard, announced, cards_in_use, emulating
from vramtui.sources.emulated import open_here

CARD = EmulatedCard(device=CARDS["RTX4090"], multiprocessors=128, context=460 << 20)
JOB = """
import ctypes, sys
cuda = ctypes.CDLL(None)
address = ctypes.c_uint64()
assert cuda.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
print("ready", flush=True)
sys.stdin.read()
"""
LOOK = """
import json, os
from vramtui.sources.emulated import open_here
sample = open_here().read()
gpu = sample.gpus[0]
held = [[one.pid, one.used_memory] for one in gpu.processes]
handed_on = [name for name in os.environ if name.startswith("VRAMTUI_")]
print(json.dumps([sample.source, gpu.name, gpu.memory.used, held, handed_on]))
"""


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="run-") as folder:  # a short path, as sockets need
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder) / "vramtui"


def test_what_a_killed_command_announced_is_removed_though_another_has_its_number(runtime: Path) -> None:
    program = (
        "import time\n"
        "from vramtui.dryrun.cuda.environment import CardInUse, announced\n"
        "with announced(CardInUse(card='', reports='', libraries='')):\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    assert len(cards_in_use()) == 1
    child.kill()
    child.wait()
    child.stdout.close()
    left = runtime / f"{child.pid}{SUFFIX}"
    reused = runtime / f"{os.getpid()}{SUFFIX}"
    left.rename(reused)
    assert cards_in_use() == ()
    assert not reused.exists()


@pytest.mark.usefixtures("runtime")
def test_a_card_is_announced_as_long_as_its_command_runs() -> None:
    used = CardInUse(card=CARD.text, reports="/reports", libraries="/libraries")
    with announced(used):
        assert cards_in_use() == (used,)
    assert cards_in_use() == ()


def test_what_is_no_announcement_is_passed_over(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    (runtime / f"{os.getpid()}{SUFFIX}").write_text("no card")
    (runtime / f"name{SUFFIX}").write_text("{}")
    (runtime / f"{1 << 30}{SUFFIX}").write_text("{}")  # no such process
    assert cards_in_use() == ()


def test_names_and_files_that_nobody_announced_are_passed_over(runtime: Path) -> None:
    runtime.mkdir(mode=0o700)
    (runtime / f"{'9' * 30}{SUFFIX}").write_text("{}")
    os.mkfifo(runtime / f"{os.getpid()}{SUFFIX}")
    (runtime / f"{os.getppid()}{SUFFIX}").symlink_to("/dev/zero")
    assert cards_in_use() == ()


def test_a_path_that_no_system_has_is_a_sentence(runtime: Path) -> None:
    used = CardInUse(card=CARD.text, reports="/a\0b", libraries="/libraries")
    with announced(used), pytest.raises(SourceFailed, match="cannot be loaded"):
        open_here()
    assert list(runtime.iterdir()) == []


def test_nothing_is_written_where_another_user_could_have_laid_a_link(runtime: Path, tmp_path: Path) -> None:
    """XDG_RUNTIME_DIR may be a folder of all users'; under a link of this command's pid anything could stand."""
    runtime.mkdir(mode=0o777)
    runtime.chmod(0o777)
    target = tmp_path / "precious"
    target.write_text("as it was")
    (runtime / f"{os.getpid()}{SUFFIX}").symlink_to(target)
    with announced(CardInUse(card=CARD.text, reports="/reports", libraries="/libraries")):
        assert target.read_text() == "as it was"
    assert target.read_text() == "as it was"


@pytest.mark.usefixtures("runtime")
def test_who_watches_sees_the_card_and_the_job_on_it(tmp_path: Path) -> None:
    reports = tmp_path / "reports"
    reports.mkdir()
    job = subprocess.Popen(
        [sys.executable, "-c", JOB],
        env=emulating(os.environ, CARD, libraries(), reports),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "ready\n"
    with announced(CardInUse(card=CARD.text, reports=str(reports), libraries=str(libraries()))):
        own = {name: value for name, value in os.environ.items() if not name.startswith("VRAMTUI_")}
        looked = subprocess.run([sys.executable, "-c", LOOK], env=own, capture_output=True, text=True, check=True)
    job.communicate()
    held = (1 << 30) + CARD.context * 518 // 740  # no kernel, no library's handle
    assert json.loads(looked.stdout) == ["emulated", "NVIDIA RTX4090", held, [[job.pid, held]], []]
