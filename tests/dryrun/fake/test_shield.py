"""What a traced script writes and sends is gone afterwards, with namespaces of its own and without any."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest

from vramtui.core.estimate.devices import card
from vramtui.dryrun import shield
from vramtui.dryrun.fake.run import trace
from vramtui.dryrun.result import TraceRequest

ROOT = Path(__file__).parents[3]
START = """
import errno, json, runpy, sys
from vramtui.dryrun import shield
if sys.argv[1] == "without":
    def refuse():
        raise OSError(errno.EPERM, "Operation not permitted")
    shield._leave_namespaces = refuse
print(json.dumps(shield.protect(sys.argv[2])))
del sys.argv[:3]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
SCRIPT = """
    import logging, os, pathlib, shutil, socket, sqlite3, subprocess, sys

    def read(path):
        return pathlib.Path(path).read_text()

    pathlib.Path("checkpoints/1").mkdir(parents=True)
    pathlib.Path("checkpoints/1/model.pt").write_bytes(b"weights")
    os.replace("checkpoints/1/model.pt", "checkpoints/1/last.pt")
    assert os.listdir("checkpoints/1") == ["last.pt"]
    shutil.copy("checkpoints/1/last.pt", "best.pt")
    logging.basicConfig(filename="train.log", level=logging.INFO)
    logging.info("step 1")
    assert "step 1" in read("train.log")
    cache = pathlib.Path("~/.cache/hub").expanduser()
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "kept.json").write_text("{}")
    assert (cache / "kept.json").exists() and read(cache / "kept.json") == "{}"
    with open("old.txt", "a") as file:
        file.write(" and new")
    assert read("old.txt") == "old and new"
    descriptor = os.open("raw.bin", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, b"raw")
    os.close(descriptor)
    assert sorted(os.listdir(".")) == [
        "best.pt", "checkpoints", "data", "old.txt", "raw.bin", "results", "script.py", "train.log"
    ]
    try:
        open("nowhere/at/all", "w")
    except FileNotFoundError:
        pass
    else:
        raise AssertionError("a folder that is not there")
    for _ in range(2):  # a folder of results is removed and made anew, as trainers do
        shutil.rmtree("results")
        assert not os.path.exists("results") and "results" not in os.listdir(".")
        os.makedirs("results/new")
        pathlib.Path("results/new/1.txt").write_text("1")
        assert [entry.name for entry in os.scandir("results")] == ["new"]
    shutil.move("results/new", "moved")
    assert [str(path) for path in pathlib.Path(".").glob("moved/*.txt")] == ["moved/1.txt"]
    os.chdir("moved")
    assert os.getcwd().endswith("work/moved") and read("../old.txt") == "old and new" and os.listdir() == ["1.txt"]
    os.chdir("..")
    shutil.move("data", "data.old")
    assert read("data.old/deep/kept.txt") == "kept" and not os.path.exists("data")
    with sqlite3.connect("study.db") as database:
        database.execute("create table trials (number)")
    assert os.path.exists("study.db")
    subprocess.run(["sh", "-c", "echo > other; echo > ~/.cache/other; rm old.txt"], stderr=subprocess.DEVNULL)
    try:
        socket.create_connection(("127.0.0.1", int(sys.argv[1])), timeout=5).sendall(b"metrics")
    except OSError:
        print("done")
"""


def everything(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in folder.rglob("*")}


@pytest.mark.parametrize("namespaces", ["with", "without"])
def test_a_script_leaves_no_checkpoint_no_log_no_cache_and_sends_nothing(tmp_path: Path, namespaces: str) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    (work / "script.py").write_text(textwrap.dedent(SCRIPT), encoding="utf-8")
    (work / "old.txt").write_text("old", encoding="utf-8")
    for folder in ("results/deep", "data/deep"):
        (work / folder).mkdir(parents=True)
        (work / folder / "kept.txt").write_text("kept", encoding="utf-8")
    (tmp_path / "home").mkdir()
    before = everything(work) | everything(tmp_path / "home")
    environment = {**os.environ, "HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = str(server.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-c", START, namespaces, str(scratch), "script.py", port],
            cwd=work, env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        with pytest.raises(BlockingIOError):
            server.accept()
    assert done.returncode == 0, done.stderr
    notes, said = done.stdout.splitlines()
    assert said == "done"
    assert everything(work) | everything(tmp_path / "home") == before
    if namespaces == "with" and "no namespace" in notes:
        pytest.skip(f"the kernel gives none: {notes}")
    assert shield.REST_OPEN not in notes, "this kernel has no Landlock: other programs that a script starts write"
    assert [note[:30] for note in json.loads(notes)] == (
        [] if namespaces == "with" else ["no namespace of its own is to "]
    )
    if namespaces == "with":
        assert not list(scratch.iterdir())


@pytest.mark.torch
@pytest.mark.usefixtures("warm_children")
def test_a_traced_script_writes_where_it_says_only_when_it_may(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import pathlib, torch\nx = torch.zeros(1, device='cuda')\n"
        "torch.save({'step': 1}, pathlib.Path(__file__).with_name('step.pt'))\n"
        "pathlib.Path(__file__).with_name('log').write_text('x')\n"
    )
    request = TraceRequest(path=str(script), device=card("A100"))
    assert trace(request).peak_allocated == 512
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]
    assert trace(msgspec.structs.replace(request, keep_files=True)).peak_allocated == 512
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "step.pt", "train.py"]


CHECKPOINTS = """
    import os, pathlib, sys
    {start}
    import torch
    model = torch.nn.Linear(2, 2)
    torch.save(model.state_dict(), "last.pt")
    torch.save(model.state_dict(), pathlib.Path("old.pt"))
    for name in ("last.pt", "old.pt"):
        model.load_state_dict(torch.load(name))
    try:
        from safetensors.torch import load_file, save_file
    except ImportError:
        pass
    else:
        save_file(model.state_dict(), "model.safetensors")
        assert set(load_file("model.safetensors")) == {{"weight", "bias"}}
    print(sorted(os.listdir(".")))
"""


@pytest.mark.torch
def test_what_pytorch_itself_writes_goes_too_without_namespaces(tmp_path: Path) -> None:
    work, scratch = tmp_path / "work", tmp_path / "scratch"
    work.mkdir()
    scratch.mkdir()
    (work / "old.pt").write_bytes(b"old")
    start = (
        "from vramtui.dryrun.shield import redirect; "
        "from vramtui.dryrun.shield import refuse_writes; "
        "redirect(sys.argv[1], ('/',)); refuse_writes(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHECKPOINTS.format(start=start)), str(scratch)],
        cwd=work, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "last.pt" in done.stdout
    assert everything(work) == {str(work / "old.pt"): b"old"}


def test_a_process_that_has_just_ended_is_none_that_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    for call in ("stat", "read_bytes"):
        monkeypatch.setattr(Path, call, Mock(side_effect=ProcessLookupError))
    assert shield.started_by(os.getpid()) == set()


def test_a_hidden_device_is_the_null_device_in_there_alone(tmp_path: Path) -> None:
    """As `dry-run` hides the files of NVIDIA's driver from a job that opens that driver by its path."""
    device, scratch = tmp_path / "nvidia0", tmp_path / "scratch"
    device.write_text("a card")
    scratch.mkdir()
    text = (
        "import sys\n"
        "from pathlib import Path\n"
        "from vramtui.dryrun.shield import protect\n"
        "said = protect(sys.argv[1], (), (sys.argv[2],))\n"
        "print(bool(said), Path(sys.argv[2]).is_char_device(), repr(open(sys.argv[2]).read()))\n"
    )
    command = [sys.executable, "-c", text, str(scratch), str(device)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    if ran.stdout.startswith("True"):
        pytest.skip("no namespace is to be had here")
    assert ran.stdout == "False True ''\n"
    assert device.read_text() == "a card"
