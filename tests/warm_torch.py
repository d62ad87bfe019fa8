"""One process for all workers of a run that has loaded torch, and forks for each trace: a Python of its own takes
seconds to begin. A second one is a fork of it that has loaded transformers as well.
"""

import contextlib
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

import msgspec

from vramtui.core.base.errors import BeyondTraceError, UserError
from vramtui.dryrun.result import ChildLine, TraceReads, TraceRequest

ROOT = Path(__file__).parents[1]
FOLDER = "TESTS_SHARED_FOLDER"  # a variable: a folder that all workers of a run see (tests/conftest.py)
LOADED = ("torch.fx.experimental.symbolic_shapes", "torch.utils.checkpoint", "vramtui.dryrun.fake.session")
QUIET = {
    "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONWARNINGS": "ignore", "PYTHONUNBUFFERED": "1",
    "PYTHONPATH": str(ROOT),
}  # fmt: skip
START = "import sys; sys.path.remove(''); from tests.warm_torch import start; start(*map(int, sys.argv[1:]))"
LONGEST = 1 << 17  # bytes of a request: an environment and a folder, or a trace

Asked = Literal["serve", "child", "trace"]

_connected: dict[bool, socket.socket] = {}
_one_at_a_time = threading.RLock()  # a test may trace in several threads, and one way leads over the other
_started: list["subprocess.Popen[bytes]"] = []


def ask(asked: Asked, told: Sequence[object], descriptors: Sequence[int], *, transformers: bool = False) -> None:
    """Have it done in a fork of the warm process, which is started where no worker has done so before."""
    with _one_at_a_time:
        if transformers not in _connected:
            _connected[transformers] = _connection(transformers)
    request = json.dumps([asked, *told]).encode()
    assert len(request) < LONGEST
    socket.send_fds(_connected[transformers], [request], descriptors)


def _connection(transformers: bool) -> socket.socket:
    """A way to the warm process; one worker at a time looks for it, so that there is one."""
    path = Path(os.environ[FOLDER]) / ("transformers" if transformers else "torch")
    if transformers and False not in _connected:
        _connected[False] = _connection(transformers=False)
    ours = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with path.with_name("lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            ours.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as theirs:
                theirs.bind(str(path))
                theirs.listen()
                if transformers:
                    ask("serve", (), [theirs.fileno()])
                else:
                    _start(theirs.fileno())
            ours.connect(str(path))
    return ours


def _start(descriptor: int) -> None:
    command = [sys.executable, "-c", START, str(descriptor)]
    env = {**os.environ, **QUIET}
    _started.append(
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=2, env=env, cwd=ROOT, pass_fds=[descriptor])
    )


def start(descriptor: int) -> None:
    """Load torch, then answer whoever connects to the socket, until nobody is connected any more."""
    _load(*LOADED)
    _Server(descriptor).serve()


def _load(*names: str) -> None:
    gc.disable()
    for name in names:
        importlib.import_module(name)
    gc.enable()
    gc.collect()
    gc.freeze()  # a fork that looked through it for garbage would copy every page of it


class _Server:
    def __init__(self, descriptor: int) -> None:
        self._listener = socket.socket(fileno=descriptor)
        self._lock = (Path(os.environ[FOLDER]) / "lock").open("w")
        self._waiting = selectors.DefaultSelector()
        self._waiting.register(self._listener, selectors.EVENT_READ, self._accept)
        self._connections: set[socket.socket] = set()
        self._statuses: set[int] = set()
        self._gone = False

    def serve(self) -> None:
        while not self._gone:
            for key, _ in self._waiting.select():
                key.data()

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        self._connections.add(connection)
        self._waiting.register(connection, selectors.EVENT_READ, lambda: self._answer(connection))

    def _answer(self, connection: socket.socket) -> None:
        request, descriptors, _, _ = socket.recv_fds(connection, LONGEST, 4)
        if request:
            self._fork(request, descriptors)
            return
        self._waiting.unregister(connection)
        self._connections.remove(connection)
        connection.close()
        if not self._connections:
            self._leave()

    def _leave(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._listener.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._accept()
        self._listener.setblocking(True)
        if not self._connections:
            self._gone = True
            self._listener.close()
        fcntl.flock(self._lock, fcntl.LOCK_UN)

    def _fork(self, request: bytes, descriptors: list[int]) -> None:
        asked, *told = json.loads(request)
        child = os.fork()
        if not child:
            self._close()
            _do(asked, told, descriptors)
        status = descriptors.pop() if asked == "child" else None
        for one in descriptors:
            os.close(one)
        ended = os.pidfd_open(child)
        if status is not None:
            self._statuses.add(status)
        self._waiting.register(ended, selectors.EVENT_READ, lambda: self._tell_end(child, ended, status))

    def _tell_end(self, child: int, ended: int, status: int | None) -> None:
        _, code = os.waitpid(child, 0)
        self._waiting.unregister(ended)
        os.close(ended)
        if status is not None:
            with contextlib.suppress(BrokenPipeError):
                os.write(status, b"%d\n" % os.waitstatus_to_exitcode(code))
            os.close(status)
            self._statuses.remove(status)

    def _close(self) -> None:
        for key in list(self._waiting.get_map().values()):
            os.close(key.fd)
        for status in self._statuses:
            os.close(status)
        self._waiting.close()
        self._lock.close()


def _do(asked: Asked, told: list[Any], descriptors: list[int]) -> NoReturn:
    does: dict[Asked, Callable[..., None]] = {"serve": _serve_transformers, "child": _trace_child, "trace": _trace}
    try:
        does[asked](*told, *descriptors)
    except BaseException:  # noqa: BLE001 - as Python itself does
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def _serve_transformers(descriptor: int) -> None:
    with contextlib.suppress(ImportError):
        _load("transformers.models.llama.modeling_llama")
    _Server(descriptor).serve()


def _trace_child(env: dict[str, str], folder: str, asked: str, said: int, status: int) -> None:
    os.setsid()
    os.write(status, b"%d\n" % os.getpid())
    os.close(status)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, descriptor in enumerate((nothing, said, said)):
        os.dup2(descriptor, number)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    sys.path[:0] = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path]
    sys.argv = ["-c", asked]
    run: Any = runpy.run_module
    run("vramtui.dryrun.fake.child", run_name="__main__", alter_sys=True)


def _trace(env: dict[str, str], before: str, request: str, answers: int, errors: int) -> None:
    """A trace without a child's surroundings, after `before` has run."""
    from vramtui.dryrun.fake.child import trace_here  # noqa: PLC0415 - for the warm process alone

    os.environ.update(env)
    for number in (1, 2):  # what the code prints is not the answer
        os.dup2(errors, number)
    try:
        exec(compile(before, "before", "exec"), {})  # noqa: S102 - the test's own
        asked = msgspec.json.decode(request, type=TraceRequest)
        reads: list[TraceReads] = []
        result = trace_here(asked, lambda _progress: None, tell_reads=reads.append)
        answer = ChildLine(result=result, reads=reads[-1])
    except BaseException as error:  # noqa: BLE001 - it is the answer
        text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        answer = ChildLine(error=text, beyond_trace=isinstance(error, BeyondTraceError))
    with os.fdopen(answers, "wb") as pipe:
        pipe.write(msgspec.json.encode(answer))
