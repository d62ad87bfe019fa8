"""Where the files are that a running process was started with: seen from its own folder, root and environment."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from vramtui.presets.importers.command_lines import LONGEST, read_command_line

PROC = Path("/proc")
# What tells where models are stored; nothing else of a process's environment is looked at.
STORES = ("HOME", "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "OLLAMA_MODELS")
# What servers and launchers call the processes that do their work: the model is named by the one that started them.
_WORKER = re.compile(r"VLLM::|sglang::|ray::|multiprocessing[. ](?:spawn|forkserver)")
MOST_ABOVE = 4


class JobPlace(msgspec.Struct, frozen=True):
    """Where a running process is on this host's disks.

    Attributes:
        folder: its working directory.
        root: what stands before its absolute paths; empty where they are this host's.
        environ: where its models are stored, of `STORES`, as paths of this host.
    """

    folder: Path
    root: str = ""
    environ: Mapping[str, str] = {}

    def find(self, name: str) -> Path:
        """Where the file is that the process calls so."""
        return Path(f"{self.root}{name}") if name.startswith("/") else self.folder / name


def place_of(pid: int, command: str, proc: Path = PROC) -> JobPlace | None:
    """Where the process `pid` is; None where it does not run `command` on this host, or may not be looked into."""
    place = proc / str(pid)
    if not _runs(place, command):
        return None
    try:
        at_root = str((place / "root").readlink()) == "/"
        folder = (place / "cwd").readlink() if at_root else place / "cwd"
    except OSError:
        return None
    root = "" if at_root else str(place / "root")
    return JobPlace(folder, root, {name: f"{root}{path}" for name, path in _stores(place)})


def starters_of(pid: int, command: str, proc: Path = PROC) -> Iterator[tuple[int, str]]:
    """The processes above a server's or launcher's worker, the nearest first, each with its command line; none for a
    process that says itself what it does, and none of another user.
    """
    if not _WORKER.search(command[:LONGEST]):
        return
    for _ in range(MOST_ABOVE):
        above = _parent(pid, proc)
        if above is None or above <= 1:
            return
        try:
            same = (proc / str(above)).stat().st_uid == (proc / str(pid)).stat().st_uid
        except OSError:
            return
        words = _words(proc / str(above))
        if not same or not words:
            return
        pid = above
        yield pid, shlex.join(words)


def finder_of(pid: int, command: str, proc: Path = PROC) -> Callable[[str], Path | None]:
    """What finds a file that the process `pid` names. Where no process of that number runs `command` on this host, a
    relative name cannot be followed, and an absolute one is taken as this host has it.
    """
    place = proc / str(pid)
    runs = _runs(place, command)

    def find(name: str) -> Path | None:
        path = Path(name)
        if not runs:
            return path if path.is_absolute() else None
        return place / "root" / name.lstrip("/") if path.is_absolute() else place / "cwd" / name

    return find


def _runs(place: Path, command: str) -> bool:
    run = _words(place)
    return bool(run) and (" ".join(run) == command or run == read_command_line(command).words)


def _words(place: Path) -> tuple[str, ...]:
    """The command line of a process; empty where it cannot be read."""
    words = _read(place / "cmdline").rstrip(b"\0").split(b"\0")
    return tuple(word.decode(errors="replace") for word in words) if words != [b""] else ()


def _stores(place: Path) -> Iterator[tuple[str, str]]:
    for line in _read(place / "environ").split(b"\0"):
        name, _, value = line.decode(errors="replace").partition("=")
        if name in STORES and value.startswith("/"):
            yield name, value


def _parent(pid: int, proc: Path) -> int | None:
    match = re.search(rb"^PPid:\s*(\d+)$", _read(proc / str(pid) / "status"), re.MULTILINE)
    return int(match[1]) if match else None


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST)
    except OSError:
        return b""
