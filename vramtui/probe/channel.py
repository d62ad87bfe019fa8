"""The way out: messages to whoever listens, and never a wait for anybody."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import contextlib
import errno
import os
import socket
import threading
import time
from collections.abc import Callable

from . import socket_dir
from .socket_dir import CREDENTIALS, own_uid

LOOK_EVERY = 1.0  # seconds between looks for new listeners
MOST_LISTENERS = 4


class Channel:
    """Sends each message to every listener that takes it at once; one that does not loses that message. `greet` makes
    the one that a listener gets before any other.
    """

    def __init__(self, greet: Callable[[], bytes]) -> None:
        self._greet = greet
        self._open: dict[str, tuple[socket.socket, tuple[int, int]]] = {}  # with the descriptor's device and inode
        self._greeted: set[str] = set()
        self._next_look, self.lost = 0.0, 0
        self._speaking = threading.Lock()

    def send(self, message: bytes, *, wait: float = 0.0) -> bool:
        """Give `message` to everyone who is there; False if another thread was sending for so many seconds."""
        if not (self._speaking.acquire(timeout=wait) if wait else self._speaking.acquire(blocking=False)):
            self.lost += 1
            return False
        try:
            now = time.monotonic()
            for path, (connection, descriptor) in list(self._open.items()):
                if _descriptor_of(connection) != descriptor:  # closed by the job, and the number may be its own now
                    self._drop(path)
                    self._next_look = now
            if now >= self._next_look:
                self._next_look = now + LOOK_EVERY
                self._look()
            for path in list(self._open):
                if path in self._greeted or self._give(path, self._greet()):
                    self._greeted.add(path)
                    self._give(path, message)
            return True
        finally:
            self._speaking.release()

    def greet_again(self) -> None:
        self._greeted.clear()

    def close(self) -> None:
        """Hang up. In a fork this closes the child's copies only."""
        for path in list(self._open):
            self._drop(path)

    def _give(self, path: str, message: bytes) -> bool:
        try:
            self._open[path][0].send(message)
        except (BlockingIOError, InterruptedError):
            self.lost += 1
            return False
        except OSError as error:
            # A message larger than the socket takes is lost; anything else means that the listener is gone.
            if error.errno == errno.EMSGSIZE:
                self.lost += 1
            else:
                self._drop(path)
            return False
        return True

    def _drop(self, path: str) -> None:
        self._greeted.discard(path)
        connection, descriptor = self._open.pop(path, (None, None))
        if connection is not None and _descriptor_of(connection) == descriptor:
            connection.close()
        elif connection is not None:
            connection.detach()

    def _look(self) -> None:
        """Connect to the listener of our own run, then to those of all dashboards of this user, the latest first."""
        own, folder = os.environ.get(socket_dir.SOCKET), socket_dir.listeners_folder()
        paths = [own] if own and socket_dir.private(os.path.dirname(own)) else []
        if socket_dir.private(folder):
            with contextlib.suppress(OSError), os.scandir(folder) as entries:
                sockets = [
                    (one.stat().st_mtime_ns, one.path) for one in entries if one.name.endswith(socket_dir.SUFFIX)
                ]
                paths += [path for _, path in sorted(sockets, reverse=True)]
        there = 0
        for path in dict.fromkeys(paths):
            if there >= MOST_LISTENERS:
                if path in self._open:
                    self._drop(path)
                continue
            if path not in self._open:
                connection = _connect(path)
                if connection is None:
                    continue
                self._open[path] = connection, _descriptor_of(connection)
            there += 1


def _descriptor_of(connection: socket.socket) -> tuple[int, int]:
    try:
        status = os.fstat(connection.fileno())
    except OSError:
        return -1, -1
    return status.st_dev, status.st_ino


def _connect(path: str) -> socket.socket | None:
    """A connection to the listener at `path`, if one of this user is there."""
    connection = None
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        connection.connect(path)
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
        if CREDENTIALS.unpack(credentials)[1] == own_uid():
            return connection
    except (OSError, ValueError):
        pass
    if connection is not None:
        connection.close()
    return None
