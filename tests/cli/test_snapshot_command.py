import json
import os
import socket
import tempfile
import threading
import time
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.examples import Never
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample

GIB = 1 << 30


@pytest.fixture(autouse=True)
def _no_settings_of_a_persons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "config"))


@pytest.mark.slow
def test_markdown_and_html_or_all_formats_are_written_and_nothing_is_overwritten(tmp_path: Path) -> None:
    every = [word for kind in ("json", "csv", "md", "html") for word in ("-f", kind)]
    first = invoke("snapshot", "--demo", "--folder", str(tmp_path))
    second = invoke("snapshot", "--demo", "--folder", str(tmp_path), *every)
    assert (first.exit_code, second.exit_code) == (0, 0)
    paths = [Path(line) for line in (first.stdout + second.stdout).splitlines()]
    assert len(set(paths)) == 6
    assert [path.suffix for path in paths] == [".md", ".html", ".json", ".csv", ".md", ".html"]
    assert all(path.stat().st_size for path in paths)


def test_one_file_by_its_name_with_its_versions_and_jobs(tmp_path: Path) -> None:
    path = tmp_path / "to-send.md"
    first, again = (invoke("snapshot", "--demo", str(path)) for _ in range(2))
    assert (first.stdout.strip(), path.read_text()[:15]) == (str(path), "pid 4213 (anna)")
    assert (again.exit_code, "exists" in again.stderr) == (2, True)
    for words, answer in (
        ((str(tmp_path / "x.png"),), "takes a new file's name in .json, .csv, .md, .html"),
        (("x.md", "--format", "md"), "without --format and --folder"),
        (("--md",), "Write --format md"),
        (("-o", "x.md"), "Write vramtui snapshot FILE"),
    ):
        done = invoke("snapshot", "--demo", *words, columns=200)
        assert (done.exit_code, answer in done.output) == (2, True), done.output
    result = invoke("snapshot", "--demo", "-f", "json", "--folder", str(tmp_path))
    document = json.loads(Path(result.stdout.strip()).read_text())
    assert {"vramtui", "python", "driver", "cuda"} <= set(document["versions"])
    result = invoke("snapshot", "--demo", "-f", "json", "--folder", str(tmp_path))
    first = json.loads(Path(result.stdout.strip()).read_text())["gpus"][0]["processes"][0]
    assert {row["line"] for row in first["comparison"]["rows"] if row["observed"]} >= {"weights", "reserved", "context"}


@pytest.mark.slow
def test_the_picture_shows_the_dashboard(tmp_path: Path) -> None:
    result = invoke("snapshot", "--demo", "-f", "html", "--folder", str(tmp_path))
    _, _, screen = Path(result.stdout.strip()).read_text().partition("<h2>Screen</h2><svg")
    assert "llama-3.1-8b-lora" in screen
    assert "train.py" in screen


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = invoke("snapshot", "--demo", "-f", "json", "--folder", str(tmp_path / "file"))
    assert result.exit_code == 2
    assert "file" in result.stderr
    assert "Traceback" not in result.output


def test_formats_and_folder_are_those_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    folder = tmp_path / "taken"
    (tmp_path / "config.toml").write_text(f'[snapshot]\nfolder = "{folder}"\nformats = ["md", "csv"]\n')
    result = invoke("snapshot", "--demo")
    assert result.exit_code == 0
    paths = [Path(line) for line in result.stdout.splitlines()]
    assert [(path.parent, path.suffix) for path in paths] == [(folder, ".md"), (folder, ".csv")]
    result = invoke("snapshot", "--demo", "-f", "json", "--folder", str(tmp_path / "other"))
    assert Path(result.stdout.strip()).parent == tmp_path / "other"
    (tmp_path / "config.toml").write_text("[snapshot]\nformats = 3\n")
    assert invoke("snapshot", "--demo").exit_code == 2


class _Host(Never):
    name = "nvml"

    def read(self) -> Sample:
        command = "python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4"
        job = Process(pid=os.getpid(), type="C", used_memory=82 * GIB, command=command, started_at=5.0)
        memory = Memory(total=140 * GIB, used=83 * GIB, reserved=GIB, free=56 * GIB)
        gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA H200", memory=memory, processes=(job,))
        return Sample(taken_at=1000.0, source="nvml", host=Host(name="here"), gpus=(gpu,))


def _tell(folder: Path) -> None:
    message = {"v": 1, "pid": os.getpid(), "at": 1.0}
    device = {"index": 0, "name": "H200", "total_memory": 140 * GIB, "capability": [9, 0], "uuid": "0"}
    hello = {"kind": "hello", "preset": "llama-3.1-8b-lora", **message, "devices": [device]}
    counters = {"index": 0, "allocated": 60 * GIB, "allocated_peak": 71 * GIB, "reserved_peak": 80 * GIB}
    beat = {"kind": "beat", **message, "step": 9, "devices": [counters], "parts": {"weights": {"cuda:0": 15 * GIB}}}
    sockets: list[Path] = []
    until = time.monotonic() + 30
    while not sockets and time.monotonic() < until:
        sockets = list(folder.glob("vramtui/*.sock"))
        time.sleep(0.01)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
        peer.connect(str(sockets[0]))
        for said in (hello, beat):
            peer.send(json.dumps(said).encode())
        peer.settimeout(30)
        peer.recv(1)  # until the listener closes: what a job told that has gone is no longer what runs


def test_what_a_job_tells_of_itself_is_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vramtui.sources.pick.pick_source", _Host)
    with tempfile.TemporaryDirectory(prefix="vt") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        job = threading.Thread(target=_tell, args=(Path(folder),))
        job.start()
        result = invoke("snapshot", "-f", "json", "-f", "html", "--folder", str(tmp_path))
        job.join()
        assert list(Path(folder).glob("vramtui/*.sock")) == []
    assert result.exit_code == 0, result.output
    written = [Path(line) for line in result.stdout.splitlines()]
    (holding,) = json.loads(written[0].read_text())["gpus"][0]["processes"]
    observed = {row["line"]: row["observed"] for row in holding["comparison"]["rows"]}
    assert (observed["weights"], observed["allocated"], observed["reserved"]) == (15 * GIB, 71 * GIB, 80 * GIB)
    assert observed["context"] == 2 * GIB
    assert "15.00 GiB" in written[1].read_text()
