"""Who the pids are that a driver lists, by /proc."""

from __future__ import annotations

import os
import pwd
import time
from typing import Any

from . import ancestors
from .ancestors import link_target, read_file
from .containers import LONGEST_CGROUP, container_of
from .nvml import plain
from .runtime import LONGEST, alloc_conf_of, module_loading_of, program_of, rank_of, settings_in, torch_of

RUNTIME = ("module_loading", "torch", "alloc_conf")
LASTING = ("name", "started_at", "user", "command", "rank", "container", "ancestors", *RUNTIME)
HOST_NAMESPACE = "pid:[4026531836]"  # the kernel gives its first pid namespace this number (PROC_PID_INIT_INO)


def when_booted() -> float:
    """When the machine was started, seconds since the epoch; 0 where there is no /proc."""
    fields = dict(line.split(b" ", 1) for line in read_file("/proc/stat", 1 << 24).splitlines() if b" " in line)
    return float(fields.get(b"btime", b"0"))


class Processes:
    def __init__(self) -> None:
        self.boot = when_booted()
        self.ticks = os.sysconf("SC_CLK_TCK")
        self.page = os.sysconf("SC_PAGE_SIZE")
        self.private = link_target("/proc/self/ns/pid") not in (HOST_NAMESPACE, "")
        self._cpu: dict[int, tuple[float, float]] = {}
        self._last: dict[int, dict[str, Any]] = {}
        self._above: dict[int, tuple[float, dict[str, Any] | None]] = {}
        self._torch: dict[int, tuple[float, str | None]] = {}

    def row(self, pid: int) -> dict[str, Any]:
        """The fields of a Process that the system knows."""
        text = b"" if self.private and not has_device_open(pid) else read_file(f"/proc/{pid}/stat")
        if not text:
            if self.private:
                return {"state": "unseen"}
            if os.path.exists(f"/proc/{pid}"):
                hidden = dict.fromkeys(("user", "name", "command", "started_at"), "no_permission")
                return {"state": "unknown", "absent": hidden}
            return dict(self._last.get(pid, {}), state="exited")
        opened, closed = text.find(b"("), text.rfind(b")")
        rest = text[closed + 2 :].split()
        state = {b"Z": "zombie", b"X": "exited", b"x": "exited"}.get(rest[0], "running")
        name, now = plain(text[opened + 1 : closed]), time.monotonic()
        spent = (int(rest[11]) + int(rest[12])) / self.ticks
        before = self._cpu.get(pid)
        self._cpu[pid] = (now, spent)
        row: dict[str, Any] = {"name": name, "state": state}
        row["started_at"] = round(self.boot + int(rest[19]) / self.ticks, 2)
        if before is not None and now > before[0]:
            row["cpu_percent"] = round(100 * max(0.0, spent - before[1]) / (now - before[0]), 1)
        if state == "running":
            row["host_memory"] = int(rest[21]) * self.page
        self._introduce(pid, name, row)
        self._last[pid] = {key: row[key] for key in LASTING if key in row}
        return row

    def keep(self, pids: set[int]) -> None:
        """Forget all others."""
        for known in (self._cpu, self._last, self._above, self._torch):
            for pid in [pid for pid in known if pid not in pids]:
                del known[pid]

    def _introduce(self, pid: int, name: str, row: dict[str, Any]) -> None:
        uid = ancestors.owner_of(pid)
        if uid is None:
            return
        try:
            row["user"] = pwd.getpwuid(uid).pw_name
        except KeyError:
            row["user"] = str(uid)
        words = [plain(word) for word in read_file(f"/proc/{pid}/cmdline").rstrip(b"\0").split(b"\0")]
        row["command"] = " ".join(words)[: ancestors.LONGEST_COMMAND] or name
        environment = settings_in(read_file(f"/proc/{pid}/environ", LONGEST))
        rank = rank_of(environment, os.uname().nodename)
        if rank is not None:
            row["rank"] = rank
        started = row["started_at"]
        torch = self._torch.get(pid)
        if torch is None or torch[0] != started:  # looked for once, as a driver lists who has a context already
            torch = self._torch[pid] = (started, torch_of(pid))
        values = (module_loading_of(environment), torch[1], alloc_conf_of(environment))
        named = zip(RUNTIME, values)  # noqa: B905 - no `strict` before Python 3.10
        row.update({key: value for key, value in named if value is not None})
        container = container_of(read_file(f"/proc/{pid}/cgroup", LONGEST_CGROUP), environment)
        if container is not None:
            row["container"] = container
        known = self._above.get(pid)
        if known is None or known[0] != started:  # as it was when it was first seen: a launcher may end before
            known = self._above[pid] = (started, ancestors.ancestors_of(pid))
        if known[1] is not None:
            row["ancestors"] = known[1]
            command = ancestors.flags_of(row["command"], known[1])[: ancestors.LONGEST_COMMAND]
            if command != row["command"]:  # the title has the place of an engine's worker
                row["name"], row["command"] = row["command"], command
        row["name"] = program_of(pid, row["command"], environment, ancestors.parent_of(known[1])) or row["name"]


def has_device_open(pid: int, device: str = "/dev/nvidia") -> bool:
    """Return whether the process holds one of NVIDIA's device files; False if it may not be looked at."""
    folder = f"/proc/{pid}/fd"
    try:
        return any(link_target(f"{folder}/{name}").startswith(device) for name in os.listdir(folder))
    except OSError:
        return False
