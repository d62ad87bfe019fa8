"""Where the files are that a running process was started with: seen from its own folder and its own root."""

from collections.abc import Callable
from pathlib import Path

from vramtui.presets.importers.command_lines import LONGEST, read_command_line

PROC = Path("/proc")


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
    try:
        with (place / "cmdline").open("rb") as file:
            words = file.read(LONGEST).rstrip(b"\0").split(b"\0")
    except OSError:
        return False
    run = tuple(word.decode(errors="replace") for word in words)
    return " ".join(run) == command or run == read_command_line(command).words
