"""Other hosts through the real OpenSSH, client and server, on loopback."""

import contextlib
import os
import pwd
import shutil
import signal
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE, free_port, until
from vramtui.records.recording.files import read_recording

SERVER = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
CLIENT = shutil.which("ssh")
DROPBEAR = shutil.which("dropbear", path="/usr/sbin:/usr/bin:/usr/local/sbin")
pytestmark = pytest.mark.skipif(
    not (SERVER and CLIENT and os.getuid() == 0),
    reason="needs OpenSSH's server and client (Debian: openssh-server), and root, as whom the server begins",
)
far_python = pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="the far side needs a python3 of the system's"
)


class Server:
    """An sshd of its own on a port of loopback, and an `ssh` that knows its key.

    Args:
        folder: where all that it has is kept.
        settings: lines for its configuration.
        jump: a server through which it is reached.
    """

    def __init__(self, folder: Path, *settings: str, jump: "Server | None" = None) -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.log = folder / "sshd.log"
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        self.authorized = folder / "authorized_keys"
        shutil.copy(folder / "user_key.pub", self.authorized)
        self.port = free_port()
        self.process = self._begin(settings)
        self.know(f"[127.0.0.1]:{self.port} {(folder / 'host_key.pub').read_text()}")
        self.commands = folder / "commands"
        self.commands.mkdir()
        ssh = self.commands / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {CLIENT} -F {folder}/config "$@"\n')
        ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
        hosts = [f"Host *\n{self.as_a_host()}\n  SendEnv LD_LIBRARY_PATH VRAMTUI_*\n"]
        if jump is not None:
            hosts = [f"Host bastion\n{jump.as_a_host()}\nHost gpu*\n  ProxyJump bastion\n", *hosts]
        (folder / "config").write_text("".join(hosts))
        until(self._answers)

    def know(self, line: str) -> None:
        (self.folder / "known_hosts").write_text(line + "\n")

    def sessions(self) -> list[int]:
        found = [self.process.pid]
        for one in found:
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found[1:]

    def close(self) -> None:
        for one in (*self.sessions(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                os.kill(one, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def _begin(self, settings: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        folder = self.folder
        lines = (
            f"Port {self.port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {self.authorized}", "StrictModes no", "UsePAM no", f"PidFile {folder}/sshd.pid",
            "PermitRootLogin prohibit-password", "PasswordAuthentication no", "AcceptEnv LD_LIBRARY_PATH VRAMTUI_*",
            *settings,
        )  # fmt: skip
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        assert SERVER is not None
        return subprocess.Popen([SERVER, "-D", "-f", str(folder / "sshd_config"), "-E", str(self.log)])

    def as_a_host(self) -> str:
        keys = f"  IdentityFile {self.folder}/user_key\n  UserKnownHostsFile {self.folder}/known_hosts"
        return f"  HostName 127.0.0.1\n  Port {self.port}\n  User root\n{keys}"

    def _answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*settings: str, jump: Server | None = None) -> Server:
        made.append(Server(tmp_path / f"server{len(made)}", *settings, jump=jump))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _environment(server: Server, stand_in: StandIn) -> dict[str, str]:
    return stand_in.whole_environment(PATH=f"{server.commands}:/usr/bin:/bin")


def _run(program: str, server: Server, stand_in: StandIn, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = _environment(server, stand_in)
    ended = subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "Traceback" not in ended.stderr
    return ended


@far_python
def test_a_host_through_real_ssh(make_server: Callable[..., Server], program: str, stand_in: StandIn) -> None:
    server = make_server()
    ended = _run(program, server, stand_in, "ps", "--host", "gpu01", "--json")
    assert ended.returncode == 0, ended.stderr + server.log.read_text()
    assert msgspec.json.decode(ended.stdout)["gpus"][0]["memory"]["used"] == 40 * GIB
    until(lambda: not server.sessions())


def test_a_changed_key_is_no_question(make_server: Callable[..., Server], program: str, stand_in: StandIn) -> None:
    server = make_server()
    server.authorized.write_text("")
    refused = _run(program, server, stand_in, "ps", "--host", "gpu01")
    assert refused.returncode == 3
    assert "gpu01: cannot log in without a password. Load a key" in refused.stderr
    server.know(f"[127.0.0.1]:{server.port} {(server.folder / 'user_key.pub').read_text()}")
    changed = _run(program, server, stand_in, "ps", "--host", "gpu01")
    assert "gpu01: its key has changed: another machine may answer in its name." in changed.stderr
    assert "`ssh-keygen -R gpu01`" in changed.stderr
    server.know("")
    unknown = _run(program, server, stand_in, "ps", "--host", "gpu01")
    assert "gpu01: its key is not known here yet. Connect once by hand, `ssh gpu01`" in unknown.stderr


@far_python
def test_a_half_open_connection(
    make_server: Callable[..., Server], program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    """The server's side of the connection stands still; the client would wait for twenty seconds."""
    server = make_server()
    file = tmp_path / "day.jsonl"
    command = [program, "record", str(file), "--host", "gpu01", "--interval", "0.1"]
    env = _environment(server, stand_in)
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as recorder:
        until(lambda: file.exists() and file.read_bytes().count(b"\n") > 3)
        for one in server.sessions():
            if "sshd" in Path(f"/proc/{one}/comm").read_text():
                os.kill(one, signal.SIGSTOP)
        until(lambda: len(_accepted(server)) > 1)
        count = file.read_bytes().count(b"\n")
        until(lambda: file.read_bytes().count(b"\n") > count + 3)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(PATIENCE) == 0
        assert "gpu01 does not answer: no sample for 3 s; connecting again" in recorder.stderr.read()
    assert len(read_recording(file).samples) > 5


@far_python
def test_hosts_behind_a_bastion_that_takes_no_more_connections_for_now(
    make_server: Callable[..., Server], program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    """ProxyJump; the bastion's MaxStartups is used up by others at first, and both say a lot before anybody logs in."""
    (tmp_path / "banner").write_text("Authorized use only.\n" * 50)
    banner = f"Banner {tmp_path}/banner"
    bastion = make_server("MaxStartups 4:100:4", banner)
    inner = make_server(banner, jump=bastion)
    others = [socket.create_connection(("127.0.0.1", bastion.port)) for _ in range(4)]
    asked = ("ps", "--host", "gpu[01-03]", "--json")
    env = _environment(inner, stand_in)
    with subprocess.Popen([program, *asked], env=env, stdout=subprocess.PIPE, text=True) as running:
        until(lambda: "MaxStartups" in bastion.log.read_text())
        for one in others:
            one.close()
        told = msgspec.json.decode(running.communicate(timeout=PATIENCE)[0])
    assert running.returncode == 0, bastion.log.read_text()
    assert [host["target"] for host in told["hosts"]] == ["gpu01", "gpu02", "gpu03"]
    assert all(host["gpus"][0]["memory"]["used"] == 40 * GIB for host in told["hosts"])
    assert len(_accepted(bastion)) == len(_accepted(inner)) == 3


def test_a_far_side_that_floods(make_server: Callable[..., Server], program: str, stand_in: StandIn) -> None:
    flooding = _run(program, make_server("ForceCommand yes"), stand_in, "ps", "--host", "gpu01")
    assert "gpu01: its output is not a recording" in flooding.stderr
    gone = _run(program, make_server("ForceCommand kill -9 $PPID"), stand_in, "ps", "--host", "gpu01")
    assert (flooding.returncode, gone.returncode) == (3, 3)
    # On a slow machine it is said before that nothing has come yet.
    assert gone.stderr.splitlines()[-1].startswith("vramtui: gpu01: ")


class Dropbear(Server):
    """The same with dropbear for a server. It looks for keys in the home of the user alone, so that this is another for
    it: in a mount namespace of its own.
    """

    def _begin(self, settings: tuple[str, ...]) -> "subprocess.Popen[bytes]":
        assert DROPBEAR is not None
        home = Path(pwd.getpwuid(0).pw_dir)
        key = self.folder / "dropbear_key"
        subprocess.run(
            ["dropbearconvert", "openssh", "dropbear", str(self.folder / "host_key"), str(key)],
            check=True,
            capture_output=True,
        )
        own = self.folder / ".ssh"
        own.mkdir()
        shutil.copy(self.authorized, own)
        source, place = (own, home / ".ssh") if (home / ".ssh").is_dir() else (self.folder, home)
        listen = ("-F", "-E", "-e", "-s", "-p", f"127.0.0.1:{self.port}", "-r", str(key), "-P", str(own / "pid"))
        mount = f"mount --bind {source} {place} && exec {DROPBEAR} {' '.join(listen)}"
        env = {**os.environ, **dict(setting.split("=", 1) for setting in settings)}
        with self.log.open("wb") as log:
            return subprocess.Popen(["unshare", "-m", "sh", "-c", mount], env=env, stderr=log)


CAN_MOUNT = shutil.which("unshare") and not subprocess.run(["unshare", "-m", "true"], check=False).returncode


@far_python
@pytest.mark.skipif(not DROPBEAR, reason="dropbear is not installed (Debian: dropbear-bin)")
@pytest.mark.skipif(bool(DROPBEAR) and not CAN_MOUNT, reason="no mount namespace can be made here")
def test_a_host_with_dropbear_for_a_server(tmp_path: Path, program: str, stand_in: StandIn) -> None:
    env = {name: value for name, value in stand_in.environment.items() if value and name != "PATH"}
    server = Dropbear(tmp_path / "dropbear", *(f"{name}={value}" for name, value in env.items()))
    try:
        ended = _run(program, server, stand_in, "ps", "--host", "gpu01", "--json")
        assert ended.returncode == 0, ended.stderr + server.log.read_text()
        assert msgspec.json.decode(ended.stdout)["gpus"][0]["memory"]["used"] == 40 * GIB
    finally:
        server.close()


def _accepted(server: Server) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if line.startswith("Accepted publickey")]
