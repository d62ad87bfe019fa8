"""Other hosts through the real OpenSSH, client and server, on loopback."""

import contextlib
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE
from vramtui.records.recording.writer import read_recording

SERVER = shutil.which("sshd", path="/usr/sbin:/usr/bin:/usr/local/sbin")
CLIENT = shutil.which("ssh")
pytestmark = pytest.mark.skipif(
    not (SERVER and CLIENT and os.getuid() == 0),
    reason="needs OpenSSH's server and client (Debian: openssh-server), and root, as whom the server begins",
)


class Server:
    """An sshd of its own on a port of loopback, and an `ssh` that knows its key."""

    def __init__(self, folder: Path, *settings: str) -> None:
        self.folder = folder
        self.log = folder / "sshd.log"
        for name in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(command, check=True)
        shutil.copy(folder / "user_key.pub", folder / "authorized_keys")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        lines = (
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {folder}/host_key",
            f"AuthorizedKeysFile {folder}/authorized_keys",
            "StrictModes no",
            "UsePAM no",
            f"PidFile {folder}/sshd.pid",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "AcceptEnv LD_LIBRARY_PATH VRAMTUI_*",
            *settings,
        )
        (folder / "sshd_config").write_text("\n".join(lines) + "\n")
        Path("/run/sshd").mkdir(exist_ok=True)
        assert SERVER is not None
        command = [SERVER, "-D", "-f", str(folder / "sshd_config"), "-E", str(self.log)]
        self.process = subprocess.Popen(command)
        self.know(f"[127.0.0.1]:{self.port} {(folder / 'host_key.pub').read_text()}")
        (folder / "config").write_text(
            f"Host *\n  HostName 127.0.0.1\n  Port {self.port}\n  User root\n  IdentityFile {folder}/user_key\n"
            f"  UserKnownHostsFile {folder}/known_hosts\n  SendEnv LD_LIBRARY_PATH VRAMTUI_*\n"
        )
        self.commands = folder / "commands"
        self.commands.mkdir()
        ssh = self.commands / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {CLIENT} -F {folder}/config "$@"\n')
        ssh.chmod(ssh.stat().st_mode | stat.S_IXUSR)
        _until(self._answers)

    def know(self, line: str) -> None:
        """Let this be the key that the client knows."""
        (self.folder / "known_hosts").write_text(line + "\n")

    def sessions(self) -> list[int]:
        """The server's processes for the connections that there are."""
        found = [self.process.pid]
        for one in found:
            for task in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(child) for child in task.read_text().split()]
        return found[1:]

    def close(self) -> None:
        """End the server and its connections."""
        for one in (*self.sessions(), self.process.pid):
            with contextlib.suppress(ProcessLookupError):  # it may end by itself meanwhile
                os.kill(one, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def _answers(self) -> bool:
        with socket.socket() as one:
            return one.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    made: list[Server] = []

    def make(*settings: str) -> Server:
        made.append(Server(tmp_path, *settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def _until(found: Callable[[], object], seconds: float = PATIENCE) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < until
        time.sleep(0.02)


def _environment(server: Server, stand_in: StandIn) -> dict[str, str]:
    return stand_in.whole_environment(PATH=f"{server.commands}:/usr/bin:/bin")


def _run(program: str, server: Server, stand_in: StandIn, *arguments: str) -> "subprocess.CompletedProcess[str]":
    env = _environment(server, stand_in)
    ended = subprocess.run(
        [program, *arguments], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert "Traceback" not in ended.stderr
    return ended


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the far side needs a python3 of the system's")
def test_a_host_through_the_real_client_and_server(
    make_server: Callable[..., Server], program: str, stand_in: StandIn
) -> None:
    server = make_server()
    ended = _run(program, server, stand_in, "ps", "--host", "gpu01", "--json")
    assert ended.returncode == 0, ended.stderr + server.log.read_text()
    assert msgspec.json.decode(ended.stdout)["gpus"][0]["memory"]["used"] == 40 * GIB
    _until(lambda: not server.sessions())


def test_a_changed_key_and_no_key_are_sentences_and_never_a_question(
    make_server: Callable[..., Server], program: str, stand_in: StandIn
) -> None:
    server = make_server()
    key = server.folder / "authorized_keys"
    key.write_text("")
    refused = _run(program, server, stand_in, "ps", "--host", "gpu01")
    assert refused.returncode == 3
    assert "gpu01: it lets nobody in without being asked. Load a key" in refused.stderr
    server.know(f"[127.0.0.1]:{server.port} {(server.folder / 'user_key.pub').read_text()}")
    changed = _run(program, server, stand_in, "ps", "--host", "gpu01")
    assert "gpu01: its key is unknown or has changed." in changed.stderr


@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="the far side needs a python3 of the system's")
def test_a_half_open_connection_is_dead_and_made_anew(
    make_server: Callable[..., Server], program: str, stand_in: StandIn, tmp_path: Path
) -> None:
    """The server's side of the connection stands still; the client would wait for twenty seconds."""
    server = make_server()
    file = tmp_path / "day.jsonl"
    command = [program, "record", str(file), "--host", "gpu01", "--interval", "0.1"]
    env = _environment(server, stand_in)
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as recorder:
        _until(lambda: file.exists() and file.read_bytes().count(b"\n") > 3)
        for one in server.sessions():
            if "sshd" in Path(f"/proc/{one}/comm").read_text():
                os.kill(one, signal.SIGSTOP)
        _until(lambda: len(_accepted(server)) > 1)
        count = file.read_bytes().count(b"\n")
        _until(lambda: file.read_bytes().count(b"\n") > count + 3)
        recorder.send_signal(signal.SIGINT)
        assert recorder.wait(PATIENCE) == 0
        assert recorder.stderr is not None
        assert "no sample for 3 s; connecting again" in recorder.stderr.read()
    assert len(read_recording(file).samples) > 5


def _accepted(server: Server) -> list[str]:
    return [line for line in server.log.read_text().splitlines() if line.startswith("Accepted publickey")]
