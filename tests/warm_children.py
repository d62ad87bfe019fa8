"""Children that trace, forked from one process that has loaded torch: a Python of its own takes seconds to begin.

All else is as it is with a child of `subprocess`: its pipes, its environment and folder, its session and how it ends.
"""

import atexit
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[1]
LOADED = ("torch._dynamo", "torch._inductor.config", "torch.utils.checkpoint", "vramtui.estimators.traced.session")
START = "import sys; sys.path.remove(''); from tests.warm_children import serve; serve(int(sys.argv[1]))"
LONGEST = 1 << 17  # bytes of a request: an environment and a folder


class WarmChild:
    """What `subprocess.Popen` is to `traced.process.run`."""

    def __init__(
        self,
        command: list[str],
        *,
        stdin: int,
        stdout: int,
        stderr: IO[bytes] | None,
        env: dict[str, str],
        cwd: str | Path | None,
        start_new_session: bool,
    ) -> None:
        assert "traced.process.child" in command[-1]
        assert (stdin, stdout, start_new_session) == (subprocess.PIPE, subprocess.PIPE, True)
        asked, told, status = os.pipe(), os.pipe(), os.pipe()
        said = 2 if stderr is None else stderr.fileno()
        request = json.dumps([env, str(cwd or Path.cwd())]).encode()
        socket.send_fds(_server(), [request], [asked[0], told[1], said, status[1]])
        for descriptor in (asked[0], told[1], status[1]):
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(asked[1], "wb"), os.fdopen(told[0], "rb")
        self.returncode: int | None = None
        self._status = os.fdopen(status[0], "rb")
        self._lock = threading.Lock()
        self.pid = int(self._status.readline())

    def wait(self) -> int:
        """The exit code, once it has ended."""
        with self._lock:
            if self.returncode is None:
                self.returncode = int(self._status.readline())
                self._status.close()
            return self.returncode


_started: list[socket.socket] = []


def _server() -> socket.socket:
    if not _started:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        quiet = {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            [sys.executable, "-c", START, str(theirs.fileno())],
            env={**os.environ, **quiet},
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        atexit.register(process.kill)
        _started.append(ours)
    return _started[0]


def serve(descriptor: int) -> None:
    """Load torch, then fork for each request until nobody asks any more."""
    for name in LOADED:
        importlib.import_module(name)
    with socket.socket(fileno=descriptor) as asking:
        while True:
            request, descriptors, _, _ = socket.recv_fds(asking, LONGEST, 4)
            if not request:
                return
            keeper = os.fork()
            if not keeper:
                asking.close()
                _keep(request, descriptors)
            for one in descriptors:
                os.close(one)
            os.waitpid(keeper, 0)


def _keep(request: bytes, descriptors: list[int]) -> None:
    """Fork once more, so that nobody waits for this, and tell how that child ends."""
    if os.fork():
        os._exit(0)
    *others, status = descriptors
    child = os.fork()
    if not child:
        _trace(request, others, status)
    for one in others:
        os.close(one)
    _, code = os.waitpid(child, 0)
    os.write(status, b"%d\n" % os.waitstatus_to_exitcode(code))
    os._exit(0)


def _trace(request: bytes, others: list[int], status: int) -> None:
    """What the child's Python would do from its start."""
    env, folder = json.loads(request)
    os.setsid()
    os.write(status, b"%d\n" % os.getpid())
    os.close(status)
    for number, descriptor in enumerate(others):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.argv = ["-c"]
    try:
        run: Any = runpy.run_module
        run("vramtui.estimators.traced.process.child", run_name="__main__", alter_sys=True)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        os._exit(1)
    os._exit(0)
