"""Two users of one machine: what one sees of the other's processes, and what one can tell the other's dashboard."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.sources.namespaces import AS_NOBODY, NOBODY, run_in_namespace
from vramtui.core.base.errors import SourceFailed
from vramtui.sources.host.processes import ProcessReader
from vramtui.sources.probe_listener import ProbeListener

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
        assert job.stdout is not None
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
    """Neither through the folder, which is this user's alone, nor where somebody has opened it to all."""
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
        with pytest.raises(SourceFailed, match="can be used by others"):
            ProbeListener("test", folder)
        assert (folder / "1.sock").exists()
