"""Where the kernel gives no view of the files of one's own: what Python opens for writing lies in another folder.

A file that is written to has a copy below `scratch`, at the same path; whoever reads it from then on reads that.
"""

import builtins
import contextlib
import functools
import io
import os
import pathlib
import shutil
import socket
import sys
from collections.abc import Callable
from typing import Any

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Functions of os that change what their first paths name, and how many paths those are; then those that only look.
_CHANGING = {"mkdir": 1, "mkfifo": 1, "rmdir": 1, "unlink": 1, "remove": 1, "rename": 2, "replace": 2, "link": 2}
_CHANGING |= {"symlink": 2, "chmod": 1, "chown": 1, "utime": 1, "truncate": 1}
_LOOKING = ("stat", "lstat", "access", "readlink", "chdir")
_NO_FILES = ("/dev/", "/proc/", "/sys/")


class Copies:
    """Where the files below `roots` lie that were written to.

    Args:
        scratch: the folder of the copies.
        roots: folders, each with a slash at its end.
    """

    def __init__(self, scratch: str, roots: tuple[str, ...]) -> None:
        self._scratch, self._roots = os.path.realpath(scratch), roots
        self._stat, self._mkdir, self._open = os.lstat, os.mkdir, io.open

    def place(self, path: Any, *, written: bool) -> Any:
        """The path to use for `path`; that itself where it was never written to, or is none."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return path
        folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - Path asks what asks this
        real = f"{os.path.realpath(folder).rstrip('/')}/{name}"
        if real.startswith((self._scratch, *_NO_FILES)) or not real.startswith(self._roots):
            return path
        copy = self._scratch + real
        if self._is_there(copy):
            return copy
        folder = os.path.dirname(real)  # noqa: PTH120 - as above
        if not written or not (self._is_there(folder) or self._is_there(self._scratch + folder)):
            return path
        self._make_folders(self._scratch + folder)
        if os.path.isdir(real):  # noqa: PTH112 - as above
            self._mkdir(copy)
        elif self._is_there(real):
            with contextlib.suppress(OSError), self._open(real, "rb") as old, self._open(copy, "wb") as new:
                shutil.copyfileobj(old, new)
        return copy

    def _is_there(self, path: str) -> bool:
        try:
            self._stat(path)
        except (OSError, ValueError):
            return False
        return True

    def _make_folders(self, folder: str) -> None:
        if not self._is_there(folder):
            self._make_folders(os.path.dirname(folder))  # noqa: PTH120 - as above
            self._mkdir(folder)


def redirect(scratch: str, roots: tuple[str, ...]) -> None:
    """Take what this process writes below `roots` to `scratch`."""
    copies = Copies(scratch, tuple(root.rstrip("/") + "/" for root in roots))

    def opened(plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def open_copy(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
            writes = bool(mode & _WRITES) if isinstance(mode, int) else not set(mode).isdisjoint("wax+")
            return plain(copies.place(file, written=writes), mode, *args, **kwargs)

        return open_copy

    def on_copies(plain: Callable[..., Any], paths: int, *, written: bool) -> Callable[..., Any]:
        @functools.wraps(plain)
        def call(*args: Any, **kwargs: Any) -> Any:
            moved = [copies.place(path, written=written) for path in args[:paths]]
            return plain(*moved, *args[paths:], **kwargs)

        return call

    plain_list = os.listdir

    def listdir(path: Any = ".") -> Any:
        copy = copies.place(path, written=False)
        if copy == path:
            return plain_list(path)
        names = set(plain_list(copy))
        with contextlib.suppress(OSError):  # it is new
            names.update(plain_list(path))
        return sorted(names)

    changed = {name: on_copies(getattr(os, name), paths, written=True) for name, paths in _CHANGING.items()}
    changed |= {name: on_copies(getattr(os, name), 1, written=False) for name in _LOOKING}
    changed |= {"open": opened(os.open), "listdir": listdir}
    builtins.open = io.open = opened_file = opened(io.open)
    for name, function in changed.items():
        setattr(os, name, function)
    by_pathlib = vars(pathlib).get("_NormalAccessor")  # Python 3.10 has its own list of these
    for name, function in (changed | {"open": opened_file}).items() if by_pathlib else ():
        setattr(by_pathlib, name, staticmethod(function))


def refuse_network() -> None:
    """Let this process reach no address of a network; sockets of the file system stay."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
            raise ConnectionRefusedError("a trace reaches no network")
        if event == "socket.getaddrinfo":
            raise socket.gaierror(socket.EAI_AGAIN, "a trace reaches no network")

    sys.addaudithook(refuse)
