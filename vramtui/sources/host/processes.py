"""Facts of the processes that a driver lists, from this system: user, command, start and CPU use."""

import math
import os
import pwd
import re
import sys
import time
from collections.abc import Callable, Collection, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from vramtui.agent.ancestors import LONGEST_COMMAND, ancestors_of, flags_of, owner_of, parent_of, read_bytes, read_file
from vramtui.agent.containers import ASK_AGAIN, LONGEST_CGROUP, container_of, is_unnamed
from vramtui.agent.processes import when_booted
from vramtui.agent.runtime import LONGEST, alloc_conf_of, module_loading_of, program_of, rank_of, settings_in, torch_of
from vramtui.core.base.text import ascii_wanted, plain_text, printable
from vramtui.core.observation.readings import (
    CLOCKS_APART,
    Absence,
    Ancestors,
    JobRank,
    Process,
    ProcessColumns,
    ProcessState,
    ProcessType,
)
from vramtui.sources.host.host import PidNamespace

if TYPE_CHECKING:
    from vramtui.sources.nvml.processes import ProcessUse

REFRESH_EVERY = 0.9  # seconds; CPU time is counted in hundredths, so a shorter span says little
REFRESH_AT_ONCE = 128  # processes looked at again in one update; if there are more, they take turns
# Seconds of work and of waiting after which an update stops asking for users and commands; the rest follow in the next.
INTRODUCE_WORK, INTRODUCE_WAIT = 0.05, 0.3
FIRST_WORK = 0.02  # seconds of work in the first update if a screen waits for it
FIRST_AT_ONCE = 64  # processes in it, or fewer where the screen has room for fewer
INTRODUCE_AT_ONCE = 8  # processes between two looks at the clock of the work, which are slow on some systems
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
# Names of variables whose values are secret, and names and passwords in addresses.
_SECRET, _LOGIN, MASK = "(?i)TOKEN|KEY|PASS|SECRET|CREDENTIAL", "//[^/@\\s]+@", "***"
_STATES: dict[bytes, ProcessState] = {b"Z": "zombie", b"X": "exited", b"x": "exited"}


class _Entry(msgspec.Struct):
    """Facts of a pid as a row that no device lists yet. `introduced`: user and command have been asked for, and its
    container at `container_at`, by the clock. `rows` are those of its devices while the facts do not change.
    """

    facts: Process
    rows: dict[str, Process] = {}
    start_ticks: int | None = None
    parent: int | None = None
    cpu_seconds: float = 0.0
    refreshed: float = 0.0
    introduced: bool = False
    container_at: float = 0.0

    def note(self, facts: Process) -> None:
        if facts != self.facts:
            self.facts, self.rows = facts, {}


class ProcessReader:
    """Facts of pids, remembered by pid and start time, so that a tick with thousands of processes stays cheap."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, namespace: PidNamespace | None = None) -> None:
        self._clock = clock
        self._namespace = namespace or PidNamespace()
        self._boot = boot_time()
        self._entries: dict[int, _Entry] = {}
        self._turn = 0
        self._users: dict[int, str] = {}
        self._host = os.uname().nodename
        # What one update has read of processes above others; those of the same parent and user have it in common, and
        # control groups too, unless that parent is above their tree: it may start containers, or steps of Slurm.
        self._above: dict[int, dict[str, Any]] = {}
        self._families: dict[tuple[int | None, int], tuple[dict[str, Any] | None, Ancestors | None, str, bytes]] = {}
        self.asks_torch = True
        # Seconds of work and processes of the next update: who looks once, as `ps` does, needs all of them.
        self._limits: tuple[float, float] = (math.inf, math.inf)

    def shorten_first_read(self) -> None:
        """Let the first update introduce few, as a screen waits for it: the next ones introduce the rest."""
        self._limits = (FIRST_WORK, min(FIRST_AT_ONCE, os.get_terminal_size(2).lines if os.isatty(2) else math.inf))

    def update(self, pids: Collection[int]) -> None:
        """Learn of these pids in their order, and forget all others. Call once per tick, before `row`."""
        wanted = pids if isinstance(pids, set | frozenset | dict) else dict.fromkeys(pids)
        self._entries = {pid: entry for pid, entry in self._entries.items() if pid in wanted}
        now = self._clock()
        for pid in [pid for pid in wanted if pid not in self._entries]:
            self._entries[pid] = _Entry(Process(pid=pid, type="C"))
            self._refresh(pid, self._entries[pid], now)
        known = list(self._entries)
        if len(known) > REFRESH_AT_ONCE:
            start = self._turn % len(known)
            self._turn = start + REFRESH_AT_ONCE
            known = (known + known)[start : self._turn]
        for pid in known:
            entry = self._entries[pid]
            if now - entry.refreshed >= REFRESH_EVERY:
                self._refresh(pid, entry, now)
        (work, most), self._limits = self._limits, (INTRODUCE_WORK, math.inf)
        over, until = time.thread_time() + work, now + max(work, INTRODUCE_WAIT)
        self._above, self._families = {}, {}
        introduced = 0
        for pid, entry in self._entries.items():
            if entry.introduced or entry.facts.state not in ("running", "zombie"):
                continue
            entry.note(self._with_owner(pid, entry.facts, entry.parent))
            entry.introduced, entry.container_at = True, now
            introduced += 1
            if introduced == most or self._clock() > until:
                return
            if introduced % INTRODUCE_AT_ONCE == 0 and time.thread_time() > over:
                return

    def row(self, pid: int, device: str, kind: ProcessType, used: int | None, absent: Absence | None) -> Process:
        """Return a process of the last `update` as one row of a device's list, the very same one while it does not
        change; `absent` is why its bytes there are unknown.
        """
        entry = self._entries[pid]
        facts, last = entry.facts, entry.rows.get(device)
        if last is None or last.used_memory != used or last.type != kind or used is None:
            why = facts.absent if absent is None else {**facts.absent, "used_memory": absent}
            last = entry.rows[device] = msgspec.structs.replace(facts, type=kind, used_memory=used, absent=why)
        return last

    def columns(
        self, uses: "Mapping[int, ProcessUse]", busy: Mapping[int, int] | None, peaks: Mapping[int, int]
    ) -> ProcessColumns:
        """Return all processes of a device's list, each as `row` gives it; `busy` is SM % by pid (0 for missing ones),
        None if unknown, `peaks` the driver's own in bytes.
        """
        facts = [self._entries[pid].facts for pid in uses]
        alike: Any = uses  # those of `sources.nvml`, whose columns are taken as they are
        if not peaks and getattr(uses, "kind", "") == "C" and None not in alike.sizes:
            return ProcessColumns(facts, alike.sizes, busy)
        for at, (pid, use) in enumerate(uses.items()):
            if use.type != "C" or use.used is None or pid in peaks:
                absent = facts[at].absent | ({} if use.used is not None else {"used_memory": Absence.NOT_SUPPORTED})
                facts[at] = msgspec.structs.replace(facts[at], type=use.type, peak_memory=peaks.get(pid), absent=absent)
        return ProcessColumns(facts, [use.used for use in uses.values()], busy)

    def _refresh(self, pid: int, entry: _Entry, now: float) -> None:
        facts = entry.facts
        status = read_stat(pid) if self._namespace.is_ours(pid) else None
        if status is None:
            entry.note(_gone(pid, facts, outside=self._namespace.hides(pid) and entry.start_ticks is None))
        else:
            name, letter, cpu_seconds, ticks, pages, entry.parent = status
            if entry.start_ticks != ticks:
                entry.start_ticks, entry.introduced, entry.refreshed = ticks, False, 0.0
                facts = Process(pid=pid, type="C", started_at=round(self._boot + ticks / CLOCK_TICKS, 2))
            span = now - entry.refreshed
            known = entry.refreshed > 0 and span > 0
            state = _STATES.get(letter, "running")
            share = round(100 * (cpu_seconds - entry.cpu_seconds) / span, 1) if known else None
            new = {"cpu_percent": share, "host_memory": pages * PAGE if state == "running" else None}
            facts = msgspec.structs.replace(facts, name=facts.name or name, state=state, **new)
            if is_unnamed(facts.container) and now - entry.container_at > ASK_AGAIN + 1:
                container = container_of(
                    read_file(f"/proc/{pid}/cgroup", LONGEST_CGROUP), read_file(f"/proc/{pid}/environ", LONGEST)
                )
                facts = msgspec.structs.replace(facts, container=container)
                entry.container_at = now
            entry.cpu_seconds = cpu_seconds
            entry.note(facts)
        entry.refreshed = now

    def _with_owner(self, pid: int, facts: Process, parent: int | None) -> Process:
        owner = owner_of(pid)
        if owner is None:
            return facts  # it ended between the two looks; the next one shows it
        user = self._users[owner] = self._users.get(owner) or user_name(owner)
        try:
            text = read_bytes(f"/proc/{pid}/cmdline", LONGEST)
        except PermissionError:
            return msgspec.structs.replace(facts, user=user, absent={"command": Absence.NO_PERMISSION})
        except OSError:
            return facts
        # A title that a process gave itself may end without the zero.
        command = os.fsdecode(text.removesuffix(b"\0")).replace("\0", " ")[:LONGEST_COMMAND]
        environment = settings_in(read_file(f"/proc/{pid}/environ", LONGEST))
        rank = rank_of(environment, self._host) if environment else None
        if (parent, owner) not in self._families:
            above, tree, groups = ancestors_of(pid, seen=self._above, above=parent), None, b""
            if above is not None:
                tree = Ancestors(pids=tuple(above["pids"]), command=printable(above["command"]))
                groups = read_file(f"/proc/{pid}/cgroup", LONGEST_CGROUP) if tree.pids else b""
            self._families[parent, owner] = above, tree, parent_of(above, seen=self._above), groups
        above, tree, starter, groups = self._families[parent, owner]
        flags = flags_of(command, above)
        # a zombie has no command line any more, and the kernel's threads never had one
        return msgspec.structs.replace(
            facts,
            user=user,
            # The title of an engine's worker has its place.
            name=printable(command)
            if flags != command
            else program_of(pid, command, environment, starter) or facts.name,
            command=printable(flags[:LONGEST_COMMAND]) or facts.name,
            rank=None if rank is None else JobRank(**rank),
            container=container_of(groups or read_file(f"/proc/{pid}/cgroup", LONGEST_CGROUP), environment),
            ancestors=tree,  # those when it was first seen
            module_loading=module_loading_of(environment),
            torch=torch_of(pid) if self.asks_torch else None,
            alloc_conf=alloc_conf_of(environment),
            absent={},
        )


def environment_of(pid: int, started_at: float | None) -> dict[str, str]:
    """Return the environment at its start of a process of this user, by name; secrets are masked.

    Empty if `pid` is another user's, or not the process that started then (seconds since the epoch).
    """
    stat = read_stat(pid)
    if stat is None or owner_of(pid) != os.getuid() or started_at != round(boot_time() + stat[3] / CLOCK_TICKS, 2):
        return {}
    pairs = (entry.partition("=") for entry in os.fsdecode(read_file(f"/proc/{pid}/environ", LONGEST)).split("\0"))
    return {
        printable(name): MASK if re.search(_SECRET, name) else printable(re.sub(_LOGIN, rf"//{MASK}@", value))
        for name, equals, value in sorted(pairs)
        if equals
    }


def user_name(uid: int) -> str:
    """Return the user's name; the number if it has none, or letters that the terminal lacks."""
    try:
        name = os.fsencode(pwd.getpwuid(uid).pw_name).decode("utf-8", "replace")
    except KeyError:
        return str(uid)
    is_plain = name.isascii() or not ascii_wanted(os.environ, getattr(sys.__stdout__, "encoding", None))
    return printable(name) if is_plain or "?" not in plain_text(name) else str(uid)


def read_stat(pid: int) -> tuple[str, bytes, float, int, int, int] | None:
    """Return name, state, CPU seconds, start in clock ticks after boot, resident pages, parent; None if it is gone."""
    try:
        text = read_bytes(f"/proc/{pid}/stat", is_line=True)
    except OSError:
        return None
    opened, closed = text.find(b"("), text.rfind(b")")  # the name between them may hold brackets and spaces
    rest = text[closed + 2 :].split(None, 22)
    name = printable(text[opened + 1 : closed].decode(errors="surrogateescape"))
    cpu_seconds = (int(rest[11]) + int(rest[12])) / CLOCK_TICKS
    return name, rest[0], cpu_seconds, int(rest[19]), int(rest[21]), int(rest[1])


@cache
def boot_time() -> float:
    """Return when the machine was started, in seconds since the epoch. The kernel's answer moves with the clock, so the
    first answer is kept: start times that are counted from it are equal only for the same process. 0 without /proc.
    """
    return when_booted()


def process_is_gone(pid: int, ran_at: float) -> bool:
    """Return whether the process that had `pid` at a time (seconds since the epoch) has ended."""
    try:
        os.kill(pid, 0)  # asks whether it exists; sends nothing
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        pass
    stat = read_stat(pid)
    if stat is None:
        return False  # it exists, and is hidden
    return stat[1] in _STATES or boot_time.__wrapped__() + stat[3] / CLOCK_TICKS > ran_at + CLOCKS_APART


def _gone(pid: int, last: Process, *, outside: bool) -> Process:
    """Facts of a pid that cannot be looked at; its last name stays known."""
    if outside:
        return Process(pid=pid, type="C", state="unseen")
    try:
        os.kill(pid, 0)  # asks whether it exists; sends nothing
    except ProcessLookupError:
        return msgspec.structs.replace(last, state="exited", cpu_percent=None, host_memory=None)
    except (PermissionError, OverflowError):
        pass
    hidden = dict.fromkeys(("user", "name", "command", "started_at"), Absence.NO_PERMISSION)
    return Process(pid=pid, type="C", state="unknown", absent=hidden)
