"""The starters of a process, by /proc: the processes above it that belong to the same piece of work.

The tree ends below what starts everything that a person or a service runs: an interactive shell, a terminal
multiplexer, a login, the system's first process, a container's or Slurm's daemon, and below another user's process.
"""

from __future__ import annotations

import os
from typing import Any

MOST = 16  # processes above one
ONE_PAGE = 4096  # bytes; the kernel describes one process in fewer
LONGEST_COMMAND = 4096  # characters
# Names as the kernel has them: 15 bytes at most.
STARTERS = frozenset(
    (
        *("systemd", "init", "runit", "s6-svscan", "openrc-init", "tini", "dumb-init", "docker-init", "catatonit"),
        *("login", "sshd", "sshd-session", "su", "sudo", "cron", "crond", "atd", "tmux: server", "screen", "zellij"),
        *("dockerd", "containerd", "containerd-shim", "conmon", "slurmd", "slurmstepd", "supervisord", "kubelet"),
        *("jupyter-lab", "jupyter-noteboo", "jupyter-server", "jupyterhub-sing", "code-server", "node", "code"),
        *("gnome-terminal-", "konsole", "xterm", "kitty", "alacritty", "wezterm-gui", "ghostty", "vramtui"),
    )
)
# What engines call the processes that hold a GPU's memory (vllm/utils/system_utils.py of vLLM 0.11, sglang/srt/managers
# of SGLang 0.5): the flags stand with the process above.
TITLES = ("VLLM::", "sglang::")
SHELLS = frozenset(("sh", "bash", "zsh", "fish", "dash", "ksh", "tcsh", "csh", "ash", "nu", "xonsh", "elvish", "pwsh"))


def ancestors_of(
    pid: int, proc: str = "/proc", seen: dict[int, dict[str, Any]] | None = None, above: int | None = None
) -> dict[str, Any] | None:
    """`pids` of the processes above one in its tree, the nearest first, and the `command` of the last of them; no pids
    where it is the first of its tree itself, None if its parent is not known. `seen` is what was read for other
    processes a moment ago; the processes of a job have the same `above` them, which is the parent's pid where known.
    """
    owner, above = owner_of(pid, proc), _parent(pid, proc) if above is None else above
    if owner is None or above is None:
        return None
    seen = {} if seen is None else seen
    pids: list[int] = []
    while len(pids) < MOST and above > 0 and above not in pids:
        if above not in seen:
            seen[above] = {"owner": owner_of(above, proc), "parent": _parent(above, proc, within=True)}
        if seen[above]["owner"] != owner or seen[above]["parent"] is None:
            break
        pids.append(above)
        above = seen[above]["parent"]
    if not pids:
        return {"pids": pids, "command": ""}
    last = seen[pids[-1]]
    if "command" not in last:
        last["command"] = _command(pids[-1], proc)
    return {"pids": pids, "command": last["command"]}


def flags_of(command: str, above: dict[str, Any] | None, proc: str = "/proc") -> str:
    """The command line that says how a process was started: `command`, or where that is only a title which an engine
    gave it, that of the nearest process `above` (of `ancestors_of`) with more to say.
    """
    if not command.startswith(TITLES):
        return command
    commands = (_command(pid, proc) for pid in (above or {}).get("pids", ()))
    return next((text for text in commands if text and not text.startswith(TITLES)), command)


def parent_of(above: dict[str, Any] | None, proc: str = "/proc", seen: dict[int, dict[str, Any]] | None = None) -> str:
    """The name of the program right `above` a process (of `ancestors_of`), by its command line; empty if unknown."""
    pids = (above or {}).get("pids", ())
    known: dict[str, Any] = (seen or {}).get(pids[0], {}) if pids else {"command": ""}
    if "command" not in known:
        known["command"] = _command(pids[0], proc)
    return os.path.basename(str(known["command"]).split(" ")[0])


def owner_of(pid: int, proc: str = "/proc") -> int | None:
    """Return the uid that a process acts as, as `ps` and `top` have it; None if it is gone or hidden."""
    try:
        return os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return None


def _parent(pid: int, proc: str, *, within: bool = False) -> int | None:
    """Return the pid above; None if it is not known or, `within` a tree, if this process is above the tree."""
    text = read_file(f"{proc}/{pid}/stat", 1024)
    opened, closed = text.find(b"("), text.rfind(b")")  # the name between them may hold brackets and spaces
    rest = text[closed + 2 :].split()
    if closed < 0 or len(rest) < 5:
        return None
    name, parent, session, terminal = text[opened + 1 : closed], int(rest[1]), int(rest[3]), int(rest[4])
    known = name.decode("utf-8", "replace").lower()
    is_first = pid == 1 or (session == pid and terminal != 0)
    return None if within and (known in STARTERS or (known in SHELLS and is_first)) else parent


def _command(pid: int, proc: str) -> str:
    words = read_file(f"{proc}/{pid}/cmdline", LONGEST_COMMAND).rstrip(b"\0").split(b"\0")
    return " ".join(word.decode("utf-8", "replace") for word in words)


def read_file(path: str, most: int = 1 << 16) -> bytes:
    """Return what `read_bytes` does; nothing if it cannot be read."""
    try:
        return read_bytes(path, most)
    except OSError:
        return b""


def read_bytes(path: str, most: int = ONE_PAGE, *, is_line: bool = False) -> bytes:
    """Read the first `most` bytes of a file of /proc; thousands are read, and `open` takes three times as long. The
    kernel gives a file that `is_line` whole at the first read. Raises OSError if it does not exist, or may not be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = part = os.read(file, min(most, 4 * ONE_PAGE))  # more takes longer to make room for than to read
        while len(part) >= ONE_PAGE and len(text) < most and not is_line:  # the kernel gives at most a page of some
            part = os.read(file, most - len(text))
            text += part
        return text
    finally:
        os.close(file)


def link_target(path: str) -> str:
    """Return the target of a link in /proc, or an empty string if there is none."""
    try:
        return os.readlink(path)
    except OSError:
        return ""
