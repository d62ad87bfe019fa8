"""Throw away what a job writes, let nothing that it sends leave the machine, and end all that it has started."""

import builtins
import contextlib
import ctypes
import errno
import functools
import io
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import stat
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fcntl import ioctl
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

from vramtui.probe.import_hook import when_imported
from vramtui.probe.socket_dir import SERVED, STEPS, listeners_folder

_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
# Functions of os that change what their first paths name, and how many paths those are; then those that only look.
_CHANGING = {"mkdir": 1, "mkfifo": 1, "mknod": 1, "rmdir": 1, "unlink": 1, "remove": 1, "rename": 2, "replace": 2}
_CHANGING |= {"link": 2, "chmod": 1, "chown": 1, "utime": 1, "truncate": 1}
_LOOKING = ("stat", "lstat", "access", "readlink", "chdir")
_RENAMING = ("rename", "replace")
_REMOVING = ("rmdir", "unlink", "remove", *_RENAMING)
_NO_FILES = ("/dev/", "/proc/", "/sys/")
_PACKAGE = str(Path(__file__).resolve().parents[2])
_TEMPORARY = ".tmp-"  # begins the folder of temporary files among the copies


class Copies:
    """Copies of the files below `roots` that were written to; those below `unchanged` are written themselves."""

    def __init__(self, scratch: str, roots: Sequence[str], unchanged: Sequence[str] = ()) -> None:
        self._scratch = os.path.realpath(scratch)
        self._roots = tuple(root.rstrip("/") + "/" for root in roots)
        self._not = (f"{self._scratch}/", *_NO_FILES, *(f"{os.path.realpath(one)}/" for one in unchanged))
        self._stat, self._mkdir, self._open, self._list = os.lstat, os.mkdir, io.open, os.listdir
        self._asked = threading.local()
        self._gone: set[str] = set()  # what the code removed: nothing of it, or below, is looked at any more

    def place(self, path: Any, *, written: bool) -> Any:
        """The path to use for `path`; that itself where it was never written to, or is none."""
        if (real := self._real(path)) is None:
            return path
        copy = self._scratch + real
        if self._is_there(copy):
            return copy
        gone = self._is_gone(real)
        if not gone and (not written or not self._has_folder(real)):
            return path
        if written and self._has_folder(real):
            self._make_folders(os.path.dirname(copy))  # noqa: PTH120 - Path asks what asks this
            if os.path.isdir(real) and not gone:  # noqa: PTH112 - as above
                self._mkdir(copy)
            elif not gone and self._is_there(real):
                with contextlib.suppress(OSError), self._open(real, "rb") as old, self._open(copy, "wb") as new:
                    shutil.copyfileobj(old, new)
        return copy

    def place_whole(self, path: Any) -> Any:
        """Place a folder with all that lies below it, as `place` does with a file that is written to."""
        real = self._real(path)
        placed = self.place(path, written=True)
        if real is not None and os.path.isdir(placed):  # noqa: PTH112 - as above
            for name in self.names(path):
                self.place_whole(f"{real}/{name}")
        return placed

    def names(self, path: Any) -> list[str]:
        """The names in a folder.

        Raises:
            OSError: there is none.
        """
        real = self._real(path)
        copy = self.place(path, written=False)
        names = self._list(copy)
        if real is not None and copy != path:
            with contextlib.suppress(OSError):  # it is new
                names += [] if self._is_gone(real) else self._list(real)
        return sorted({name for name in names if real is None or self._stands(f"{real}/{name}")})

    def forget(self, path: Any) -> None:
        """Take a path as gone: it was removed or renamed."""
        if (real := self._real(path)) is not None:
            self._gone.add(real)

    def is_changed(self, path: Any) -> bool:
        real = self._real(path)
        return real is not None and (
            self._is_there(self._scratch + real) or any(one.startswith(f"{real}/") for one in self._gone)
        )

    def original(self, path: str) -> str:
        """The path by which the code knows a copy; temporary files are not copies."""
        inside = path.removeprefix(self._scratch)
        return path if inside == path or not inside.startswith("/") or inside.startswith(f"/{_TEMPORARY}") else inside

    def _real(self, path: Any) -> str | None:
        """The path without links on its way; None for anything but a file below the roots."""
        if getattr(self._asked, "looks", False) or not isinstance(path, (str, bytes, os.PathLike)):
            return None
        self._asked.looks = True  # what looks for links asks this for every folder on its way
        try:
            folder, name = os.path.split(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - Path asks what asks this
            real = self.original(f"{os.path.realpath(folder).rstrip('/')}/{name}")
        except FileNotFoundError:  # the folder that this process is in was removed
            return None
        finally:
            self._asked.looks = False
        return real if name and real.startswith(self._roots) and not f"{real}/".startswith(self._not) else None

    def _stands(self, real: str) -> bool:
        return self._is_there(self._scratch + real) or (not self._is_gone(real) and self._is_there(real))

    def _has_folder(self, real: str) -> bool:
        folder = os.path.dirname(real)  # noqa: PTH120 - as above
        return folder == "/" or self._stands(folder)

    def _is_gone(self, real: str) -> bool:
        parts = real.split("/") if self._gone else []
        return any("/".join(parts[:count]) in self._gone for count in range(2, len(parts) + 1))

    def _is_there(self, path: str) -> bool:
        with contextlib.suppress(OSError, ValueError):
            self._stat(path)
            return True
        return False

    def _make_folders(self, folder: str) -> None:
        if not self._is_there(folder):
            self._make_folders(os.path.dirname(folder))  # noqa: PTH120 - as above
            self._mkdir(folder)


class Entry:
    """An `os.DirEntry` of a folder whose copies lie elsewhere."""

    def __init__(self, folder: Any, name: str) -> None:
        self.name = os.fsencode(name) if isinstance(folder, bytes) else name
        self.path = os.path.join(os.fspath(folder), self.name)  # noqa: PTH118 - bytes are paths too

    def __fspath__(self) -> Any:
        return self.path

    def __repr__(self) -> str:
        return f"<DirEntry {self.name!r}>"

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return os.stat(self.path) if follow_symlinks else os.lstat(self.path)  # noqa: PTH116 - as above

    def inode(self) -> int:
        return self.stat(follow_symlinks=False).st_ino

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isdir(self.path) and (follow_symlinks or not self.is_symlink())  # noqa: PTH112 - as above

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return os.path.isfile(self.path) and (follow_symlinks or not self.is_symlink())  # noqa: PTH113 - as above

    def is_symlink(self) -> bool:
        return os.path.islink(self.path)  # noqa: PTH114 - as above

    def is_junction(self) -> bool:
        return False


class _Entries(contextlib.closing[Any], Iterator[Entry]):
    """The answer of `os.scandir`: an iterator that a `with` closes."""

    thing: Iterator[Entry]

    def __next__(self) -> Entry:
        return next(self.thing)

    def close(self) -> None:
        pass


def redirect(scratch: str, roots: Sequence[str], unchanged: Sequence[str] = ()) -> None:
    """Take what this process writes below `roots`, but not below `unchanged`, to `scratch`."""
    copies = Copies(scratch, roots, unchanged)
    tempfile.tempdir = tempfile.mkdtemp(prefix=_TEMPORARY, dir=scratch)
    os.environ["TMPDIR"] = tempfile.tempdir
    shutil._use_fd_functions = False  # type: ignore[attr-defined] # rmtree then goes by paths, which are led to copies
    plain_list, plain_link, plain_scan, plain_getcwd = os.listdir, os.symlink, os.scandir, os.getcwd

    def listdir(path: Any = ".") -> Any:
        if not copies.is_changed(path):
            return plain_list(path)
        names = copies.names(path)
        return [os.fsencode(name) for name in names] if isinstance(path, bytes) else names

    def scandir(path: Any = ".") -> Any:
        return _Entries(Entry(path, one) for one in copies.names(path)) if copies.is_changed(path) else plain_scan(path)

    def symlink(src: Any, dst: Any, *args: Any, **kwargs: Any) -> None:
        plain_link(src, copies.place(dst, written=True), *args, **kwargs)

    functions = {name: _on_copies(copies, name, paths) for name, paths in _CHANGING.items()}
    functions |= {name: _on_copies(copies, name, 1) for name in _LOOKING}
    functions |= {"listdir": listdir, "scandir": scandir, "symlink": symlink, "open": _open_copies(copies, os.open)}
    functions["getcwd"] = lambda: copies.original(plain_getcwd())
    builtins.open = io.open = opened_file = _open_copies(copies, io.open)
    for name, function in functions.items():
        setattr(os, name, function)
    by_pathlib = vars(pathlib).get("_NormalAccessor")  # Python 3.10 has its own list of these
    for name, function in (functions | {"open": opened_file}).items() if by_pathlib else ():
        setattr(by_pathlib, name, staticmethod(function))
    for library in _OPENERS:
        when_imported(library, functools.partial(_lead, copies))


def _open_copies(copies: Copies, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def open_copy(file: Any, mode: Any = "r", *args: Any, **kwargs: Any) -> Any:
        writes = bool(mode & _WRITES) if isinstance(mode, int) else not set(mode).isdisjoint("wax+")
        file, kwargs = _beside_descriptor(file, kwargs)
        return plain(copies.place(file, written=writes), mode, *args, **kwargs)

    return open_copy


def _beside_descriptor(path: Any, keywords: dict[str, Any], name: str = "dir_fd") -> tuple[Any, dict[str, Any]]:
    """A path that was relative to a folder's descriptor, from the root."""
    descriptor = keywords.get(name)
    if descriptor is None or not isinstance(path, (str, bytes, os.PathLike)):
        return path, keywords
    folder = os.path.realpath(f"/proc/self/fd/{descriptor}")
    others = {key: value for key, value in keywords.items() if key != name}
    return os.path.join(folder, os.fsdecode(path)), others  # noqa: PTH118 - Path asks what asks this


def _on_copies(copies: Copies, name: str, paths: int) -> Callable[..., Any]:
    """A function of os whose first `paths` arguments are led to copies."""
    plain = getattr(os, name)
    place = functools.partial(copies.place, written=name not in _LOOKING)
    place_first = copies.place_whole if name in _RENAMING else place
    keywords = ("dir_fd",) if paths == 1 else ("src_dir_fd", "dst_dir_fd")

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        asked = list(args[:paths])
        for at, path in enumerate(asked):
            asked[at], kwargs = _beside_descriptor(path, kwargs, keywords[at])
        if name == "rmdir" and copies.is_changed(asked[0]) and copies.names(asked[0]):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), asked[0])
        moved = [place_first(path) for path in asked[:1]] + [place(path) for path in asked[1:]]
        try:
            answer = plain(*moved, *args[paths:], **kwargs)
        except OSError as error:
            error.filename = asked[0] if asked else error.filename  # as the code named it
            raise
        if name in _REMOVING:
            copies.forget(asked[0])
        return answer

    return call


# Of libraries' own modules in C, the functions and classes that open a path: which argument it is and its keyword, and
# whether it is written to; None if the argument `mode` says so.
_OPENERS: dict[str, tuple[tuple[str, int, str, bool | None], ...]] = {
    "torch._C": (("PyTorchFileWriter", 0, "file_name", True), ("PyTorchFileReader", 0, "file_name", False)),
    "safetensors._safetensors_rust": (("serialize_file", 1, "filename", True), ("safe_open", 0, "filename", False)),
    "_sqlite3": (("connect", 0, "database", True),),
    "pyarrow.lib": (("OSFile", 0, "path", None), ("memory_map", 0, "path", None)),
}


def _lead(copies: Copies, module: ModuleType) -> None:
    """Put functions before a module's openers that hand them the paths of copies."""

    def with_copy(
        at: int, keyword: str, written: bool | None, args: Any, kwargs: Any
    ) -> tuple[list[Any], dict[str, Any]]:
        if written is None:
            mode = kwargs.get("mode", args[at + 1] if len(args) > at + 1 else "r")
            written = not set(str(mode)).isdisjoint("wax+")
        changed, keywords = list(args), dict(kwargs)
        place: Any = keywords if keyword in keywords else changed
        key: Any = keyword if keyword in keywords else at
        path = place[key] if keyword in keywords or len(changed) > at else None
        if isinstance(path, (str, bytes, os.PathLike)) and not os.fsdecode(path).startswith((":", "file:")):
            place[key] = copies.place(path, written=written)
        return changed, keywords

    for name, at, keyword, written in _OPENERS[module.__name__]:
        plain: Any = getattr(module, name, None)
        if plain is None:
            continue
        change = functools.partial(with_copy, at, keyword, written)
        if type(plain).__name__ == "pybind11_type":  # other classes take their arguments before there is an instance

            def initialise(self: Any, *args: Any, plain: Any = plain, change: Any = change, **kwargs: Any) -> None:
                changed, keywords = change(args, kwargs)
                plain.__init__(self, *changed, **keywords)

            inside = {"__init__": initialise, "__module__": plain.__module__}
            setattr(module, name, type(plain)(plain.__name__, (plain,), inside))
        else:

            @functools.wraps(plain)
            def call(*args: Any, plain: Any = plain, change: Any = change, **kwargs: Any) -> Any:
                changed, keywords = change(args, kwargs)
                return plain(*changed, **keywords)

            setattr(module, name, call)


def refuse_network() -> None:
    """Let this process reach no address of a network; sockets of the file system stay."""

    def refuse(event: str, arguments: tuple[Any, ...]) -> None:
        if event in {"socket.connect", "socket.sendto"} and isinstance(arguments[1], tuple):
            raise ConnectionRefusedError("a dry run has no network")
        if event == "socket.getaddrinfo":
            raise socket.gaierror(socket.EAI_AGAIN, "a dry run has no network")

    sys.addaudithook(refuse)


# linux/landlock.h, linux/prctl.h; the numbers of these calls are the same on x86-64 and aarch64
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF, PR_SET_NO_NEW_PRIVS = 444, 445, 446, 38
_PATH_BENEATH, _VERSION = 1, 1
# WRITE_FILE, and REMOVE_DIR to MAKE_SYM; REFER, moving between folders, and TRUNCATE came with versions 2 and 3.
_CHANGES, _REFER, _TRUNCATE = 0x1FF2, 1 << 13, 1 << 14
_REFER_SINCE, _TRUNCATE_SINCE = 2, 3
_STILL_WRITTEN = ("/dev", "/proc")


def refuse_writes(*folders: str) -> bool:
    """Let this process, its libraries and its children change no file but those in `folders` and of devices; return
    whether the kernel has Landlock, which does this.
    """
    if platform.machine() not in {"x86_64", "aarch64"}:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(_CREATE_RULESET, None, 0, _VERSION)
    if version < 1:
        return False
    changes = _CHANGES | (_REFER if version >= _REFER_SINCE else 0) | (_TRUNCATE if version >= _TRUNCATE_SINCE else 0)
    ruleset = libc.syscall(_CREATE_RULESET, struct.pack("Q", changes), 8, 0)
    if ruleset < 0:
        return False
    for folder in (*folders, *_STILL_WRITTEN):
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_PATH)
            libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", changes, descriptor), 0)
            os.close(descriptor)
    refused = libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)
    return not refused


# linux/sched.h, linux/mount.h, linux/sockios.h, linux/if.h
CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
# File systems that hold no files of anybody's.
NOT_FILES = {
    "autofs", "binfmt_misc", "bpf", "cgroup", "cgroup2", "configfs", "debugfs", "devpts", "devtmpfs", "efivarfs",
    "fusectl", "hugetlbfs", "mqueue", "nsfs", "proc", "pstore", "ramfs", "rpc_pipefs", "securityfs", "selinuxfs",
    "sysfs", "tracefs",
}  # fmt: skip
NO_NAMESPACE = (
    "no namespace of its own is to be had here ({}): what Python, PyTorch, safetensors, Arrow and SQLite write goes to "
    "a temporary folder, {}"
)
REST_REFUSED = "and whatever else writes is refused"
REST_OPEN = "and what other libraries and programs write is not shielded"
# The `sitecustomize` of a job's Pythons: it leads their files elsewhere, steps aside, and loads what it hides.
REDIRECTED = """import sys
hook, package, scratch, roots, unchanged = {}, {}, {}, {}, {}
sys.path[:] = [package, *(one for one in sys.path if one != hook)]
try:
    from vramtui.dryrun.shield import redirect
    redirect(scratch, roots, unchanged)
except Exception:
    pass
sys.path.remove(package)
for name in [one for one in sys.modules if one.partition(".")[0] == "vramtui"]:
    del sys.modules[name]
del sys.modules["sitecustomize"]
import sitecustomize
"""
# What libraries understand, so that they do not wait for an answer that does not come.
OFFLINE = {
    **dict.fromkeys(("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "TRANSFORMERS_OFFLINE", "CLEARML_OFFLINE_MODE"), "1"),
    **dict.fromkeys(("WANDB_MODE", "COMET_MODE", "SWANLAB_MODE"), "disabled"),
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "NEPTUNE_MODE": "debug",
}


def _refused(*place: str) -> OSError:
    return OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), *place)


class Mounts:
    """Mounts of this process's own namespace, whose upper layers lie in `scratch`."""

    def __init__(self, scratch: str) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._call("tmpfs", scratch, "tmpfs", 0, "mode=700")
        self._upper = os.open(scratch, os.O_PATH)
        self._attributes = "" if os.geteuid() == 0 else ",userxattr"  # of the root's no other user may set any
        self._count = 0

    def _call(self, source: str, target: str, kind: str, flags: int, data: str) -> None:
        if self._libc.mount(*map(os.fsencode, (source, target, kind)), flags, os.fsencode(data)):
            raise _refused(target)

    def cover(self, target: str, lower: int) -> None:
        """Lay an overlay over `target`; `lower` is a descriptor of it; a file is bound back as it was.

        Raises:
            OSError: the kernel refuses it there.
        """
        below = f"/proc/self/fd/{lower}"
        if not Path(below).is_dir():
            self.bind(below, target)
            return
        self._count += 1
        above = f"/proc/self/fd/{self._upper}/{self._count}"
        for part in ("", "/upper", "/work"):
            Path(above + part).mkdir()
        status = os.fstat(lower)
        Path(above, "upper").chmod(status.st_mode & 0o7777)
        with contextlib.suppress(OSError):
            os.chown(f"{above}/upper", status.st_uid, status.st_gid)
        layers = f"lowerdir={below},upperdir={above}/upper,workdir={above}/work"
        self._call("overlay", target, "overlay", 0, layers + self._attributes)

    def bind(self, source: str, target: str) -> None:
        """Show `source` at `target`: what a mount hides, or the null device for a device."""
        self._call(source, target, "", MS_BIND | MS_REC, "")


def protect(
    scratch: str, unchanged: Sequence[str] = (), hidden: Sequence[str] = (), command: Sequence[str] = ()
) -> tuple[str, ...]:
    """Let this process and its children write to `scratch`, an empty folder, instead of wherever they do but to folders
    that stay `unchanged`, find no `hidden` devices and reach no network; it becomes `command`, if any. A sentence each
    on what could not be shielded.
    """
    os.environ.update(OFFLINE)
    try:
        _leave_namespaces()
        descriptors = [os.open(folder, os.O_PATH) for folder in unchanged]
        mounts = Mounts(scratch)
        open_to_writes = _cover_all(mounts, command)
        for folder, was in zip(unchanged, descriptors, strict=True):
            mounts.bind(f"/proc/self/fd/{was}", folder)
            os.close(was)
        for device in hidden:
            mounts.bind(os.devnull, device)
    except OSError as error:
        _redirect_all(scratch, ("/",), unchanged, command)
        refusal = REST_REFUSED if refuse_writes(scratch, *unchanged) else REST_OPEN
        if not command:
            refuse_network()
        reach = "it" if command else "other programs that the code starts"
        return (NO_NAMESPACE.format(error.strerror, f"{refusal}; {reach} may reach the network"),)
    os.chdir(Path.cwd())  # as it is seen now
    if not open_to_writes:
        return ()
    _redirect_all(scratch, open_to_writes, unchanged, command)
    return (f"no overlay can lie over {', '.join(open_to_writes)}: what C libraries write there is not shielded",)


def _redirect_all(scratch: str, roots: Sequence[str], unchanged: Sequence[str], command: Sequence[str]) -> None:
    """Redirect this process, unless it becomes a command, and every Python that it starts."""
    hook = Path(scratch, f"{_TEMPORARY}hook")
    hook.mkdir()
    text = REDIRECTED.format(*map(ascii, (str(hook), _PACKAGE, scratch, tuple(roots), tuple(unchanged))))
    (hook / "sitecustomize.py").write_text(text, encoding="ascii")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(hook), os.environ.get("PYTHONPATH"))))
    os.environ["TMPDIR"] = tempfile.mkdtemp(prefix=_TEMPORARY, dir=scratch)
    if not command:
        redirect(scratch, roots, unchanged)


def _leave_namespaces() -> None:
    """Files and network of its own; as an ordinary user by way of a user namespace in which ids are what they were.

    Raises:
        OSError: the kernel refuses it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWNS | CLONE_NEWNET):
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET):
            raise _refused()
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path(f"/proc/self/{name}").write_text(text, encoding="ascii")
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        raise _refused()
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        flags = struct.unpack("16sH", ioctl(control, SIOCGIFFLAGS, struct.pack("16sH14x", b"lo", 0))[:18])[1]
        ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | IFF_UP))


def _cover_all(mounts: Mounts, command: Sequence[str]) -> tuple[str, ...]:
    """Cover what can be written to; the folders that stay open, where this user may write there."""
    left: list[str] = []
    places = _places()
    for path in () if os.geteuid() == 0 else (str(Path.cwd()), *os.environ.values(), *command):
        _add_own_folders(places, path.partition("=")[2] if path.startswith("-") else path)
    descriptors = {}
    for place in places:
        with contextlib.suppress(OSError):
            descriptors[place] = os.open(place, os.O_PATH)
    for place in sorted(descriptors, key=lambda path: path.count("/")):
        if not places[place]:
            if place.count("/") > 1 and not place.startswith(_NO_FILES):
                with contextlib.suppress(OSError):
                    mounts.bind(f"/proc/self/fd/{descriptors[place]}", place)
            continue
        try:
            mounts.cover(place, descriptors[place])
        except OSError:
            left += _cover_below(mounts, place)
    for descriptor in descriptors.values():
        os.close(descriptor)
    return tuple(left)


def _cover_below(mounts: Mounts, place: str) -> list[str]:
    """Cover the writable folders of a folder that takes no overlay, as other file systems from outside are in it."""
    if os.access(place, os.W_OK):
        return [place]
    left = []
    with contextlib.suppress(OSError):
        for folder in [one for one in Path(place).iterdir() if one.is_dir() and not one.is_symlink()]:
            if os.access(folder, os.W_OK) and not folder.is_mount():
                try:
                    descriptor = os.open(folder, os.O_PATH)
                    mounts.cover(str(folder), descriptor)
                    os.close(descriptor)
                except OSError:
                    left.append(str(folder))
    return left


def _places() -> dict[str, bool]:
    """Every mount and every folder of the root, and whether files are written there."""
    places = {
        str(path): f"{path}/" not in _NO_FILES
        for path in Path("/").iterdir()
        if path.is_dir() and not path.is_symlink()
    }
    text = Path("/proc/self/mountinfo").read_bytes()
    for line in text.split(b"\n")[:-1]:
        before, _, after = os.fsdecode(line).partition(" - ")
        escaped = os.fsencode(before.split(" ")[4])
        place = os.fsdecode(re.sub(rb"\\(\d{3})", lambda digits: bytes([int(digits[1], 8)]), escaped))
        if place != "/" and not place.startswith(_NO_FILES):
            kind, options = after.split(" ")[0], before.split(" ")[5].split(",")
            places[place] = kind not in NOT_FILES and "rw" in options and places.get(place, True)
    if b"/dev/shm" in text:
        places["/dev/shm"] = True  # noqa: S108 - as above
    return places


def _add_own_folders(places: dict[str, bool], path: str) -> None:
    """Add the folders on the way to `path` that this user may write to, below one that is not this user's own: the
    kernel copies none of these, as its owner has no number in this namespace.
    """
    is_own = False
    for folder in (*reversed(Path(path).parents), Path(path)) if path.startswith("/") else ():
        try:
            status = folder.stat()
        except (OSError, ValueError):
            return
        is_own = is_own and (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid())
        if not is_own and stat.S_ISDIR(status.st_mode) and os.access(folder, os.W_OK):
            is_own = places.setdefault(str(folder.resolve()), True)


GRACE = 5.0  # seconds for a job to end by itself after its time is over, and then after SIGTERM
LEAVING = 60.0  # seconds for the processes of a server to tell their end
AT_REST, NEXT_TO_NOTHING = 10.0, 0.05  # seconds after which a server that does no more of a core's time awaits requests
DAEMONS = 30.0  # seconds in which what a job has left behind it may begin to use CUDA, where nothing else of it did
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h
REFUSED = "shield"  # a file in the first folder that is kept: what could not be shielded
# The kernel's signal is not the one by which the starter ends a job. It comes as the starter's first thread ends, and
# `getppid` names a starter until its last one has.
ORPHANED = signal.SIGHUP
ENDED = (signal.SIGTERM, ORPHANED, signal.SIGCHLD)
KEEPER = "import sys; sys.path.insert(0, sys.argv.pop(1)); from vramtui.dryrun.shield import keep_job; keep_job()"


def supervised(
    command: Sequence[str], left: Sequence[str], *, scratch: str = "", reports: str = "", shared: str = ""
) -> list[str]:
    """The command of a process that runs `command` and ends all that it started, also when this one ends; if this one
    was killed it removes the folders `left`. `scratch` is an empty folder for what the job writes, or empty if the job
    is not to be shielded; `reports`, with a report of each process that used CUDA, and `shared` are written themselves.
    """
    unchanged = [one for one in (reports, shared, listeners_folder()) if one and Path(one).is_dir()]
    order = {"parent": os.getpid(), "scratch": scratch, "unchanged": unchanged, "reports": reports}
    return [sys.executable, "-I", "-c", KEEPER, _PACKAGE, json.dumps(order | {"left": [*left, shared]}), *command]


def end_supervised(keeper: Any) -> int:
    """End a job and all that it started, which may ignore SIGTERM; its exit code as a shell gives it."""
    for end in (keeper.terminate, keeper.kill):
        if keeper.poll() is None:
            left = started_by(keeper.pid) if end == keeper.kill else ()
            end()
            signal_all(left, signal.SIGKILL)  # on a busy machine the keeper, which is idle, had no time for it
            until = time.monotonic() + 3 * GRACE
            while keeper.poll() is None and time.monotonic() < until:
                time.sleep(0.01)
    return int(keeper.wait())


class Rest:
    """Since when a job's processes do next to nothing: their threads neither run nor wait for a core or a disk."""

    def __init__(self) -> None:
        self._looked = self._since = time.monotonic()
        self._seen: dict[str, int] = {}  # ns of each thread

    def lasts(self, pids: Iterable[int]) -> float:
        """Seconds for which these have been at rest, as far as that was looked at."""
        now, busy, seen = time.monotonic(), 0, dict[str, int]()
        for pid in pids:
            with contextlib.suppress(OSError):  # one has ended
                for thread in Path(f"/proc/{pid}/task").iterdir():
                    ran, waited = (thread / "schedstat").read_bytes().split()[:2]
                    seen[thread.name] = int(ran) + int(waited)
                    is_on_disk = b") D " in (thread / "stat").read_bytes()
                    busy += (1 << 62) * is_on_disk + seen[thread.name] - self._seen.get(thread.name, 0)
        self._since = now if busy > NEXT_TO_NOTHING * 1e9 * (now - self._looked) else self._since
        self._looked, self._seen = now, seen
        return now - self._since


def awaits_requests(pids: Iterable[int]) -> bool:
    """Return whether one of the processes listens at a port of TCP without a connection."""
    listening, connected, opened = dict[str, str](), set[str](), set[str]()
    for pid in pids:
        with contextlib.suppress(OSError):  # as above
            for one in list(Path(f"/proc/{pid}/fd").iterdir()):
                with contextlib.suppress(OSError):  # it was closed
                    opened.add(str(one.readlink()))
            for table in ("tcp", "tcp6"):
                for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
                    _, own, _, state, *others = line.split()  # net/ipv4/tcp_ipv4.c
                    if state == "0A":  # it listens (include/net/tcp_states.h)
                        listening[f"socket:[{others[5]}]"] = own.rpartition(":")[2]
                    elif state == "01":  # it is connected
                        connected.add(own.rpartition(":")[2])
    return any(port not in connected for inode, port in listening.items() if inode in opened)


def keep_job() -> None:
    """Start a job in a shield and stay until it has ended; then end all that it left, and with a parent that was killed
    remove what this one would have removed. `sys.argv` has the order as JSON, then the job's command.
    """
    order, command = json.loads(sys.argv[1]), sys.argv[2:]
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDED)
    prctl(PR_SET_PDEATHSIG, ORPHANED, 0, 0, 0)
    job = os.fork()
    if not job:
        os.setpgid(0, 0)  # as a shell does
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _become(command, order["scratch"], order["unchanged"])
    code, was_ended, waits, serves, rest = 0, False, False, False, Rest()
    is_orphan = os.getppid() != order["parent"]
    until = 0.0 if is_orphan else float("inf")  # when all that is left is killed
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            break
        reports = Path(order["reports"] or os.devnull)
        users = {int(path.name.partition("-")[0]) for path in reports.glob("*.report")}
        used_cuda = not order["reports"] or bool(users)
        if pid == job:
            code = 0 if serves else os.waitstatus_to_exitcode(status)
            waits = not (code or was_ended or used_cuda)
            until = until if serves else time.monotonic() + DAEMONS if waits else 0.0
        elif not pid:
            if waits and used_cuda and not was_ended:
                waits, until = False, float("inf")
            left, is_watched = started_by(os.getpid()), STEPS in os.environ and until == float("inf")
            if time.monotonic() >= until or (serves and (rest.lasts(left) > GRACE or not left & users)):
                signal_all(left, signal.SIGKILL)
            elif is_watched and rest.lasts(left) > AT_REST and awaits_requests(left):
                (reports / SERVED).touch()
            if not serves and Path(reports, SERVED).exists():  # processes with a probe now tell their end
                serves, until, rest = True, min(until, time.monotonic() + LEAVING), Rest()
            seen = signal.sigtimedwait(ENDED, 1 if is_watched else 0.2)
            is_orphan = is_orphan or (seen is not None and seen.si_signo == ORPHANED)
            if seen is not None and seen.si_signo != signal.SIGCHLD and not was_ended:
                was_ended, until = True, time.monotonic() + GRACE
                signal_all(started_by(os.getpid()), signal.SIGTERM)
    if is_orphan or ORPHANED in signal.sigpending() or os.getppid() != order["parent"]:
        for folder in order["left"]:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(code if code >= 0 else 128 - code)


def _become(command: list[str], scratch: str, unchanged: list[str]) -> NoReturn:
    """Be the job; without `scratch` it is not shielded."""
    try:
        devices = (path for name in ("nvidia*", "dxg") for path in Path("/dev").glob(name) if not path.is_dir())
        missing = protect(scratch, unchanged, sorted(map(str, devices)), command) if scratch else ()
        if missing:
            Path(unchanged[0], REFUSED).write_text("\n".join(missing), encoding="utf-8", errors="replace")
        for sign in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
            signal.signal(sign, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execvp(command[0], command)  # noqa: S606 - the person's own command
    except OSError as error:
        os.write(2, f"vramtui: {command[0]}: {error.strerror}\n".encode(errors="replace"))
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def started_by(pid: int) -> set[int]:
    """The processes that one started, and that these started, as far as they have not ended."""
    parents = {}
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # one that has ended is ESRCH, at which `glob` fails
            number, fields = int(folder.name), (folder / "stat").read_bytes().rpartition(b")")[2].split()
            if fields[0] != b"Z" or int(fields[17]) > 1:  # not where only the first thread has ended
                parents[number] = int(fields[1])
    started: set[int] = set()
    while more := {one for one, parent in parents.items() if parent in started | {pid}} - started:
        started |= more
    return started


def signal_all(pids: Iterable[int], sign: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, sign)
