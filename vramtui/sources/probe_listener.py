"""Listens to the probes inside this user's jobs: sockets that only this user's processes can reach.

Neither probes nor readers ever wait: one thread takes each message, throws away malformed ones, and keeps for each
process an ObservedJob (`vramtui.core.observation.probe_messages`).
"""

import contextlib
import selectors
import socket
import threading
from pathlib import Path

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.probe_messages import AnyMessage, Hello, ObservedJob, decode_message
from vramtui.probe.socket_dir import CREDENTIALS, SUFFIX, listeners_folder, own_uid, private

LONGEST_MESSAGE = 1 << 18
PATIENCE = 10.0  # seconds to take what has arrived, on a machine that is busy
MOST_CONNECTIONS = 4096
MOST_JOBS = 8192
RUN_SUFFIX = ".run"
UNREADY = ".new"


class ProbeListener:
    """Hears every probe that connects to its socket, from the moment that it is made.

    Args:
        name: the socket's in the folder.
        folder: its place; the folder that every probe of this user looks in by default.
        run: hear only the processes of the run with this mark, which are given the socket's path; other processes do
            not look for it, and are disconnected.

    Raises:
        SourceFailed: others can use the folder, or the socket cannot be made.
    """

    def __init__(self, name: str, folder: Path | None = None, run: str | None = None) -> None:
        self._run = run
        self._jobs: dict[int, ObservedJob] = {}
        self._peers: dict[socket.socket, int] = {}
        self._lock = threading.Lock()
        self.malformed = self.refused = 0
        self.path = (folder or Path(listeners_folder())) / f"{name}{SUFFIX if run is None else RUN_SUFFIX}"
        self._socket = _listening(self.path)
        try:
            self._wake, self._woken = socket.socketpair()
            self._selector = selectors.DefaultSelector()
        except OSError as error:
            self._socket.close()
            self.path.unlink(missing_ok=True)
            raise _no_socket(self.path, error) from error
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._listen, name="vramtui-probes", daemon=True)
        self._thread.start()

    def jobs(self) -> tuple[ObservedJob, ...]:
        """Return each process's job so far, in the order in which they were first heard."""
        with self._lock:
            return tuple(self._jobs.values())

    def close(self) -> None:
        """Take what has arrived already, hang up, and remove the socket."""
        self.path.unlink(missing_ok=True)
        self._wake.close()
        self._thread.join(timeout=PATIENCE)

    def _listen(self) -> None:
        over = False
        while not over:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    over = True
                elif key.fileobj is self._socket:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._take(key.fileobj)
        self._accept()
        for peer in list(self._peers):
            while peer in self._peers and self._take(peer):
                pass
            peer.close()
        self._selector.close()
        self._socket.close()
        self._woken.close()

    def _accept(self) -> None:
        while True:
            try:
                peer, _ = self._socket.accept()
            except OSError:
                return
            pid, uid, _ = CREDENTIALS.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size))
            if uid != own_uid() or len(self._peers) >= MOST_CONNECTIONS:
                self.refused += 1
                peer.close()
                continue
            peer.setblocking(False)
            self._peers[peer] = pid
            self._selector.register(peer, selectors.EVENT_READ)

    def _take(self, peer: socket.socket) -> bool:
        """Take one message of `peer`; return False if there is none now."""
        try:
            data, _, flags, _ = peer.recvmsg(LONGEST_MESSAGE)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data, flags = b"", 0
        if not data:
            self._hung_up(peer)
            return False
        message = None if flags & socket.MSG_TRUNC else decode_datagram(data)
        if message is None:
            self.malformed += 1
            return True
        # A probe in another pid namespace has another pid there than here: the kernel's is used.
        pid = self._peers[peer] or message.pid
        with self._lock:
            job = self._jobs.get(pid)
            if isinstance(message, Hello) and self._run is not None and message.run != self._run:
                self._jobs.pop(pid, None)
                self._hung_up(peer)
                return False
            if job is None or (job.gone and isinstance(message, Hello)):
                job = ObservedJob(pid=pid)
            self._jobs[pid] = msgspec.structs.replace(job.heard(message), gone=False)
            while len(self._jobs) > MOST_JOBS:  # forget the longest gone
                gone = next((pid for pid, job in self._jobs.items() if job.gone), next(iter(self._jobs)))
                del self._jobs[gone]
        return True

    def _hung_up(self, peer: socket.socket) -> None:
        pid = self._peers.pop(peer)
        self._selector.unregister(peer)
        peer.close()
        job = self._jobs.get(pid)
        if job is not None:
            self._jobs[pid] = msgspec.structs.replace(job, gone=True)


def decode_datagram(data: bytes) -> AnyMessage | None:
    """Return a job's message; None if it is malformed."""
    try:
        return decode_message(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _listening(path: Path) -> socket.socket:
    """Return a listening socket at `path`; its folder is made if it is missing."""
    folder = path.parent
    listener: socket.socket | None = None
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        if not private(str(folder)):
            raise SourceFailed(
                f"{folder} can be used by others, so no probe would connect there.",
                f"Remove it, or: chmod 700 {folder}",
            )
        # Remove the sockets of listeners that were killed.
        for left in (*folder.glob(f"*{SUFFIX}"), *folder.glob(f"*{RUN_SUFFIX}")):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe, contextlib.suppress(OSError):
                probe.setblocking(False)
                try:
                    probe.connect(str(left))
                except ConnectionRefusedError:
                    left.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # It gets its name when it listens; before that another listener would take it for a dead one.
        unready = path.with_suffix(UNREADY)
        unready.unlink(missing_ok=True)
        listener.bind(str(unready))
        unready.chmod(0o600)
        listener.listen(256)
        listener.setblocking(False)
        unready.replace(path)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise _no_socket(path, error) from error
    return listener


def _no_socket(path: Path, error: OSError) -> SourceFailed:
    return SourceFailed(f"No socket can be made for probes at {path}: {error.strerror or error}.")
