import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.signals import SIGNALS, SignalName
from vramtui.sources.host import host
from vramtui.sources.host.host import PidNamespace
from vramtui.sources.host.processes import ProcessReader, read_stat
from vramtui.sources.host.signals import Signals
from vramtui.sources.probe_listener import ProbeListener

NOBODY = 65534
AS_NOBODY = f"os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})"
WAITS = "import sys, time; print(flush=True); time.sleep(600)"
PATIENCE = 60.0  # seconds; only a signal that never arrives takes so long
Child = subprocess.Popen[bytes]


def start(code: str) -> Child:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


@cache
def _works(flags: tuple[str, ...], mount: str) -> bool:
    try:
        command = ["unshare", *flags, "sh", "-c", mount]
        return not subprocess.run(command, capture_output=True, timeout=2 * PATIENCE, check=False).returncode
    except (OSError, subprocess.TimeoutExpired):
        return False


def run_in_namespace(
    script: str, *arguments: object, mount: str = "true", flags: Sequence[str] = ("--mount",)
) -> dict[str, Any]:
    """What a script prints, as JSON. The test is skipped where this user or machine may not make the namespace.

    Args:
        script: Python, whose `sys.argv[1:]` are the arguments.
        arguments: for it.
        mount: a command of the shell that is run there before.
        flags: those of unshare(1).
    """
    if not _works((*flags,), mount):
        pytest.skip(f"unshare {' '.join(flags)} with `{mount}` is for root on a Linux that lets it")
    program = shlex.join([sys.executable, "-c", script, *map(str, arguments)])
    ended = subprocess.run(
        ["unshare", *flags, "sh", "-c", f"{mount} && exec {program}"],
        capture_output=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert not ended.returncode, ended.stderr.decode(errors="replace")
    return dict(json.loads(ended.stdout))


@pytest.fixture
def child() -> Iterator[Child]:
    started = start(WAITS)
    yield started
    started.kill()
    started.communicate()


def seen_start(pid: int) -> float:
    table = ProcessReader()
    table.update({pid})
    started = table.row(pid, "GPU-0", "C", 1, None).started_at
    assert started is not None
    return started


@pytest.mark.parametrize("pidfds", [True, False])
@pytest.mark.parametrize("name", SIGNALS)
def test_it_gets_the_signal(child: Child, name: SignalName, pidfds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what was taken hold of: were its pid given to another process after the look, that one would not be hit."""
    sender, started = Signals(), seen_start(child.pid)
    assert sender.is_there(child.pid, started)
    with monkeypatch.context() as patch:
        if not pidfds:
            patch.delattr(os, "pidfd_open", raising=False)
        elif has_pidfds(child.pid):
            patch.setattr(os, "kill", lambda *sent: pytest.fail(f"sent by pid: {sent}"))
        assert sender.send(child.pid, started, name).outcome == "sent"
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie, which has ended
    for _ in range(2):
        assert not sender.is_there(child.pid, started)
        assert sender.send(child.pid, started, name).outcome == "gone"
        assert child.wait(PATIENCE) == -getattr(signal, name)


def has_pidfds(pid: int) -> bool:
    try:
        os.close(os.pidfd_open(pid))
    except (AttributeError, OSError):
        return False
    return True


def test_one_that_takes_no_notice_or_is_another_process_is_left_alone() -> None:
    child = start(f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAITS}")
    try:
        sender, started = Signals(), seen_start(child.pid)
        assert "sent" not in [sender.send(pid, 1.0, "SIGKILL").outcome for pid in (0, -1, 1 << 40)]  # no pids
        for other in (started - 3600, started - 0.02, started + 0.02, None):
            assert sender.send(child.pid, other, "SIGKILL").outcome == "reused"
        assert sender.send(child.pid, started, "SIGTERM").outcome == "sent"
        assert sender.is_there(child.pid, started)
        assert sender.send(child.pid, started, "SIGKILL").outcome == "sent"
        assert child.wait(PATIENCE) == -signal.SIGKILL
    finally:
        child.kill()
        child.communicate()


def test_a_pid_that_changes_hands_after_the_look_is_not_hit(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process that was meant ends between look and signal, and its pid is given to another one, which lives on."""
    last, started, pid = Path("/proc/sys/kernel/ns_last_pid"), seen_start(child.pid), child.pid
    if not hasattr(os, "pidfd_open"):
        pytest.skip("this system has no pidfds")
    heirs: list[Child] = []
    ending = os.pidfd_open(pid)

    def look_and_lose(which: int) -> object:
        status = read_stat(which)
        signal.pidfd_send_signal(ending, signal.SIGKILL)
        child.wait(PATIENCE)
        with contextlib.suppress(OSError):  # only root says which pid comes next, and another process may get it
            last.write_text(str(which - 1))
            heirs.append(start(WAITS))
        return status

    try:
        with monkeypatch.context() as patch:
            patch.setattr("vramtui.sources.host.signals.read_stat", look_and_lose)
            patch.setattr(os, "kill", lambda *sent: pytest.fail(f"sent by pid: {sent}"))
            assert Signals().send(pid, started, "SIGKILL").outcome == "gone"
        assert [heir.poll() for heir in heirs] == [None for _ in heirs]
        if heirs and heirs[0].pid == pid:
            assert (Signals().send(pid, started - 10, "SIGKILL").outcome, heirs[0].poll()) == ("reused", None)
    finally:
        os.close(ending)
        for heir in heirs:
            heir.kill()
            heir.communicate()


TICKS_APART = 0.05  # seconds: more than a tick, in which the kernel counts start times
REUSE = f"""
import json, os, signal, sys, time
from pathlib import Path
from vramtui.sources.host import signals
from vramtui.sources.host.processes import ProcessReader, read_stat

Path("/proc/sys/kernel/pid_max").write_text("400")

class Certain:
    def is_certain(self, pid): return True
    is_ours = is_certain
    def hides(self, pid): return False

def fork(*, group=False):
    pid = os.fork()
    if not pid:
        if group: os.setpgid(0, 0)
        while True: signal.pause()
    return pid

def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)

def heir_of(pid):
    for _ in range(5000):
        heir = fork()
        if heir == pid: return heir
        end(heir)
    raise SystemExit("that pid is not given again")

def ended(pid):
    return os.waitpid(pid, os.WNOHANG)[0] == pid

def started(pid):
    reader = ProcessReader(namespace=Certain())
    reader.update({{pid}})
    return reader.row(pid, "GPU-0", "C", 1, None).started_at

def look_and_lose(pid):
    status = read_stat(pid)
    end(pid)
    heir_of(pid)
    return status

sender, told = signals.Signals(Certain()), {{}}
while (victim := fork()) <= 300: end(victim)  # the lower ones are never given again
at = started(victim)
signals.read_stat = look_and_lose
told["between look and signal"] = sender.send(victim, at, "SIGKILL").outcome, ended(victim)
signals.read_stat = read_stat
at = started(victim)
end(victim)
time.sleep({TICKS_APART})
heir = heir_of(victim)
told["between question and answer"] = sender.send(victim, at, "SIGKILL").outcome, ended(heir)
end(heir)
leader = fork(group=True)
member = fork()
try: os.setpgid(leader, leader)
except PermissionError: pass
os.setpgid(member, leader)
told["leader of a group"] = sender.send(leader, started(leader), "SIGKILL").outcome, ended(member)
end(member)
print(json.dumps(told))
"""


def test_a_pid_that_is_given_again_is_not_hit() -> None:
    """In a namespace of 400 pids, where the next process but some hundred has the same one."""
    told = run_in_namespace(REUSE, flags=("--mount", "--pid", "--fork", "--mount-proc", "--kill-child"))
    assert told == {
        "between look and signal": ["gone", False],
        "between question and answer": ["reused", False],
        "leader of a group": ["sent", False],
    }


def test_what_the_system_refuses_is_told(child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    started = seen_start(child.pid)
    for error, expected in (
        (PermissionError(1, "Operation not permitted"), ("refused", psutil.Process(child.pid).username(), "")),
        (OSError(38, "Function not\x1b implemented"), ("failed", "", "Function not␛ implemented")),
    ):

        def fail(*_: int, error: OSError = error) -> None:
            raise error

        with monkeypatch.context() as patch:
            patch.delattr(os, "pidfd_open", raising=False)
            patch.setattr(os, "kill", fail)
            sent = Signals().send(child.pid, started, "SIGTERM")
        assert (sent.outcome, sent.owner, sent.detail) == expected


@pytest.mark.parametrize(
    ("ours", "its", "outcome"),
    [(True, True, "sent"), (True, False, "elsewhere"), (False, False, "elsewhere"), (False, True, "elsewhere")],
)
def test_in_a_container_only_a_process_that_has_the_driver_open(
    child: Child, monkeypatch: pytest.MonkeyPatch, ours: bool, its: bool, outcome: str
) -> None:
    started = seen_start(child.pid)
    monkeypatch.setattr(host, "own_namespace", lambda: "pid:[4026532200]")
    monkeypatch.setattr(host, "has_device_open", lambda pid, _device="": ours if pid == os.getpid() else its)
    assert Signals(PidNamespace()).send(child.pid, started, "SIGTERM").outcome == outcome
    if outcome != "sent":
        assert child.poll() is None


HIDDEN = "mount -t proc -o hidepid=2 proc /proc"
EMPTY = "mount -t tmpfs none /proc"
# Everything is used once before this becomes another user's, who may not read the modules that come late.
LOOK = f"""
import json, os, sys
from vramtui.sources.host.processes import ProcessReader, process_is_gone
from vramtui.sources.host.signals import Signals

def look(pid, started):
    reader.update({{pid}})
    row = reader.row(pid, "GPU-0", "C", 1 << 30, None)
    sent = sender.send(pid, started, "SIGKILL")
    return dict(state=row.state, user=row.user, command=row.command, used=row.used_memory, outcome=sent.outcome,
                there=sender.is_there(pid, started), gone=process_is_gone(pid, started))

reader, sender = ProcessReader(), Signals()
look(int(sys.argv[1]), 1.0)
{AS_NOBODY}
reader = ProcessReader()
print(json.dumps(look(int(sys.argv[1]), float(sys.argv[2]))))
"""
TELL = f"""
import json, os, socket, sys
os.chdir(sys.argv[1])
{AS_NOBODY}
peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
try:
    peer.connect(sys.argv[2])
    peer.send(b'{{"v":1,"kind":"hello","pid":4213,"at":1.0}}')
    peer.settimeout(60)
    print(json.dumps({{"answer": len(peer.recv(1))}}))
except OSError as error:
    print(json.dumps({{"answer": type(error).__name__}}))
"""


@pytest.mark.parametrize("mount", [HIDDEN, EMPTY])
def test_processes_that_are_hidden_are_there(mount: str) -> None:
    """Of another's job neither user nor command is known, nor is it said to have ended; and nothing reaches it."""
    job = subprocess.Popen(["sleep", "600"])
    try:
        seen = run_in_namespace(LOOK, job.pid, psutil.Process(job.pid).create_time(), mount=mount)
        assert job.poll() is None
    finally:
        job.kill()
        job.wait()
    assert (seen["state"], seen["user"], seen["command"], seen["used"]) == ("unknown", None, None, 1 << 30)
    assert (seen["outcome"], seen["there"], seen["gone"]) == ("refused", True, False)


def test_another_users_process_is_seen_and_named() -> None:
    if os.geteuid():
        pytest.skip("only root may start a process of another user")
    # The name is read of the one who runs, so it has to be that user's before it is looked at.
    code = f"import os, time; {AS_NOBODY}; print(flush=True); time.sleep(600)"
    job = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        job.stdout.readline()
        reader = ProcessReader()
        reader.update({job.pid})
        row = reader.row(job.pid, "GPU-0", "C", 1 << 30, None)
        assert row.user == psutil.Process(job.pid).username() != psutil.Process().username()
        assert "time.sleep(600)" in (row.command or "")
    finally:
        job.kill()
        job.communicate()


@pytest.mark.parametrize("opened", [False, True])
def test_what_another_user_tells_is_not_heard(tmp_path: Path, opened: bool) -> None:
    folder = tmp_path / "vramtui"
    listener = ProbeListener("test", folder)
    try:
        (place,) = folder.glob("*.sock")
        if opened:
            folder.chmod(0o711)
            place.chmod(0o666)
        told = run_in_namespace(TELL, folder, place.name)
        assert told["answer"] in ((0, "ConnectionResetError", "BrokenPipeError") if opened else ("PermissionError",))
        assert listener.refused == (1 if opened else 0)
        assert listener.jobs() == ()
    finally:
        listener.close()


@pytest.mark.parametrize(("owner", "mode"), [(NOBODY, 0o700), (0, 0o777), (0, 0o750)])
def test_a_folder_that_another_user_made_is_not_used(tmp_path: Path, owner: int, mode: int) -> None:
    folder = tmp_path / "vramtui"
    folder.mkdir()
    folder.chmod(mode)
    if owner:
        if os.geteuid():
            pytest.skip("only root may give a folder away")
        os.chown(folder, owner, owner)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as foreign:
        foreign.bind(str(folder / "1.sock"))
        with pytest.raises(SourceFailed, match="can be used by others") as refused:
            ProbeListener("test", folder)
        assert f"chmod 700 {folder}" in refused.value.hint
        assert (folder / "1.sock").exists()
