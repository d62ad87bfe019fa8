import itertools
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.installed.conftest import Open
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE, until
from tests.stub.nvidia_smi import card, install
from vramtui.records.recording.files import read_recording

FAKE = """#!{python}
import os, sys, time
arguments = sys.argv[1:]
if "-G" in arguments:
    raise SystemExit
host, command = arguments[arguments.index("--") + 1:]
assert "-oBatchMode=yes" in arguments, arguments
folder = os.environ["FAKE_SSH"]
with open(os.path.join(folder, host), "a") as file:
    file.write(str(os.getpid()) + "\\n")
if host == "down":
    sys.exit("ssh: connect to host down port 22: Connection refused")
if host == "silent":
    time.sleep(600)
os.environ["PATH"] = os.environ["FAR_PATH"]
os.execv("/bin/sh", ["sh", "-c", command])
"""


class Far:
    def __init__(self, folder: Path, stand_in: StandIn, program: str) -> None:
        self.folder = folder / "calls"
        self.folder.mkdir()
        self.program = program
        commands = folder / "commands"
        commands.mkdir()
        fake = commands / "ssh"
        fake.write_text(FAKE.format(python=sys.executable))
        fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
        self.tools = folder / "tools"  # what there is at the far end, beside python3 and vramtui
        self.tools.mkdir()
        for name in ("sh", "cut", "grep", "paste", "ps", "sleep", "uname"):
            found = next(Path(place, name) for place in ("/usr/bin", "/bin") if Path(place, name).exists())
            (self.tools / name).symlink_to(found)
        self.environment = {"PATH": f"{commands}:{self.tools}", "FAKE_SSH": str(self.folder), "HOME": str(folder)}
        self.environment["FAR_PATH"] = str(self.tools)
        self.stand_in = stand_in

    def with_python(self) -> "Far":
        (self.tools / "python3").symlink_to(sys.executable)
        return self

    def run(self, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
        env = self.stand_in.whole_environment(**self.environment)
        ended = subprocess.run(
            [self.program, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert ended.returncode == code, ended.stderr
        assert "Traceback" not in ended.stderr
        return ended

    def calls(self, host: str) -> list[int]:
        path = self.folder / host
        return [int(line) for line in path.read_text().split()] if path.exists() else []


@pytest.fixture
def far(tmp_path: Path, stand_in: StandIn, program: str) -> Far:
    return Far(tmp_path, stand_in, program)


def test_a_host_with_vramtui(far: Far, program: str) -> None:
    (far.tools / "vramtui").symlink_to(program)
    told = msgspec.json.decode(far.run("ps", "--host", "gpu01", "--json").stdout)
    assert told["gpus"][0]["memory"]["used"] == 40 * GIB
    assert [row["pid"] for row in told["gpus"][0]["processes"]] == [far.stand_in.pids[0], far.stand_in.pids[2]]


@pytest.mark.parametrize("code", [9, 127])
def test_a_python_that_is_too_old_or_does_not_start_is_passed_over(far: Far, code: int) -> None:
    """As a shim of pyenv's for a release that is not chosen (127), or one that does not know `-I` (2)."""
    for name in ("python3", "python3.13"):
        (far.tools / name).write_text(f"#!/bin/sh\nexit {code}\n")
        (far.tools / name).chmod(0o755)
    (far.tools / "python3.12").symlink_to(sys.executable)
    told = msgspec.json.decode(far.run("ps", "--host", "gpu01", "--json").stdout)
    assert (told["source"], told["problems"], told["gpus"][0]["memory"]["used"]) == ("nvml", [], 40 * GIB)


def test_several_hosts_with_python_alone_and_one_that_is_down(far: Far, tmp_path: Path) -> None:
    far.with_python()
    (tmp_path / "config").mkdir(exist_ok=True)
    (tmp_path / "config" / "config.toml").write_text('[hosts]\ntrain = ["gpu[01-02]"]\n')
    assert far.run("ps", "--host", "@train").stdout.startswith("gpu01\n")
    assert (len(far.calls("gpu01")), len(far.calls("gpu02"))) == (1, 1)
    ended = far.run("ps", "--host", "gpu[01-02],down", "--json", code=3)
    first, second, down = msgspec.json.decode(ended.stdout)["hosts"]
    assert (first["target"], second["target"]) == ("gpu01", "gpu02")
    assert first["gpus"][0]["processes"][0]["command"] == "python train_llama.py --lr=1e-4"
    assert down == {"target": "down", "error": "down: it refuses connections.", "hint": "Does sshd run there?"}
    assert far.run("ps", "--host", "gpu[01-02]", "--csv").stdout.startswith("host,gpu,pid,")
    told = msgspec.json.decode(far.run("doctor", "--host", "gpu01,down", "--json", code=2).stdout)
    well, down = told["checks"]
    assert (well["check"], well["verdict"]) == ("gpu01", "ok")
    assert "driver 580.95.05, CUDA 13.0, read by nvml" in well["message"]
    assert (down["check"], down["verdict"]) == ("down", "failed")
    assert down["message"]
    asked = ("snapshot", "--host", "gpu01,down", "--format", "json", "--folder", str(tmp_path / "out"))
    ended = far.run(*asked, code=3)  # each host has a snapshot of its own
    assert "down: it refuses connections. Does sshd run there?" in ended.stderr
    (file,) = ended.stdout.split()
    told = msgspec.json.decode(Path(file).read_bytes())
    assert told["gpus"][0]["processes"][0]["command"] == "python train_llama.py --lr=1e-4"


def test_a_host_with_nvidia_smi_alone(far: Far) -> None:
    install(far.tools)
    state = far.folder / "smi.json"
    app = f"{far.stand_in.pids[0]}, {card(0)['uuid']}, 900, python"
    state.write_bytes(msgspec.json.encode({"gpus": [card(0)], "apps": [app]}))
    far.environment["VRAMTUI_STUB_SMI"] = str(state)
    told = msgspec.json.decode(far.run("ps", "--host", "gpu01", "--json").stdout)
    (row,) = told["gpus"][0]["processes"]
    assert row["command"].endswith("train_llama.py --lr=1e-4")
    assert "neither vramtui nor a Python" in told["problems"][0]["message"]


def test_names_that_are_options_and_wrong_groups_are_refused(far: Far) -> None:
    assert "is not a host name" in far.run("ps", "--host=-oProxyCommand=reboot", code=2).stderr
    for command in ("ps", "doctor"):
        assert "no group of hosts called x" in far.run(command, "--host", "@x", code=2).stderr
    assert "different things" in far.run("ps", "--host", "a", "--demo", code=2).stderr
    assert not list(far.folder.iterdir())


def test_hosts_are_recorded_each_in_its_file_and_nothing_stays_behind(far: Far, tmp_path: Path) -> None:
    far.with_python()
    files = {host: tmp_path / f"day.{host}.jsonl" for host in ("gpu01", "gpu02")}
    command = [far.program, "record", str(tmp_path / "day.jsonl"), "--host", "gpu[01-02]", "--interval", "0.1"]
    with subprocess.Popen(command, env=far.stand_in.whole_environment(**far.environment)) as recorder:
        until(lambda: all(file.exists() and file.read_bytes().count(b"\n") > 3 for file in files.values()))
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(PATIENCE) == 0
    for host, file in files.items():
        assert len(read_recording(file).samples) >= 3
        calls = [Path(f"/proc/{pid}") for pid in far.calls(host)]
        until(lambda calls=calls: not any(call.exists() for call in calls))  # type: ignore[misc]  # bound for this round


def test_a_far_process_that_stands_still_is_dead_and_called_again(far: Far, tmp_path: Path) -> None:
    """Its connection is alive and says nothing: as a stopped process, a host in swap, a half-open connection."""
    far.with_python()
    file = tmp_path / "day.jsonl"
    env = far.stand_in.whole_environment(**far.environment)
    command = [far.program, "record", str(file), "--host", "gpu01", "--interval", "0.1"]
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as recorder:
        until(lambda: file.exists() and file.read_bytes().count(b"\n") > 3)
        children = [*far.calls("gpu01")]
        assert len(children) == 1
        for one in children:
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                children += [int(child) for child in task.read_text().split()]
        for one in children:
            os.kill(one, signal.SIGSTOP)
        until(lambda: len(far.calls("gpu01")) > 1)
        count = file.read_bytes().count(b"\n")
        until(lambda: file.read_bytes().count(b"\n") > count + 2)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(PATIENCE) == 0
        assert "gpu01 does not answer: no sample for 3 s; connecting again." in recorder.stderr.read()
    for one in filter(lambda pid: Path(f"/proc/{pid}").exists(), children):
        os.kill(one, signal.SIGKILL)
    samples = read_recording(file).samples
    assert max(later.taken_at - one.taken_at for one, later in itertools.pairwise(samples)) > 2.5


def test_a_remote_host_in_the_dashboard(far: Far, open_terminal: Open) -> None:
    far.with_python()
    environment = {name: far.environment[name] for name in ("PATH", "FAKE_SSH", "FAR_PATH")}
    terminal = open_terminal("--host", "gpu01", size=(120, 35), cwd=None, **environment)
    terminal.wait_for("train_llama.py")
    terminal.leave()
