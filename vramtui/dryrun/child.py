"""A command run as if the shell had started it: its signals, its exit code, its variables with the probe."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import stat
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple

from vramtui.core.base.errors import UserError, os_reason
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, MIB, format_bytes
from vramtui.probe.socket_dir import RUN, SOCKET

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping, Sequence

    from vramtui.dryrun.job_command import DryRunJob

NOT_FOUND = 127
NOT_ALLOWED = 126
FROM_SIGNAL = 128
_FORWARDED = tuple(getattr(signal, f"SIG{name}") for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM"))
# Python ignores these for itself; what it starts shall not.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


class NotStartedError(Exception):
    """The command could not be started: the shell's exit code for that, and a sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


Mask = set[int | signal.Signals]


def hold_signals() -> Mask:
    """Let this process's signals wait for `Child.wait`, and say what was held back before.

    To be called before there are other threads: one that does not hold a signal back takes it from the one that waits.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))


class Child:
    """A started command.

    Raises:
        NotStartedError: there is no such program, or it may not be run.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], mask: Mask) -> None:
        try:
            self.pid = os.posix_spawnp(command[0], list(command), environment, setsigmask=mask, setsigdef=_RESTORED)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
            name = printable(command[0])
            is_script = name.endswith(".py") and Path(command[0]).is_file()
            hint = f"; it is a script: vramtui run python {name}" if is_script else ""
            raise NotStartedError(code, f"{name}: {os_reason(error)}{hint}") from None

    def wait(self) -> int:
        """Pass signals on until it ends. Its exit code, or 128 and the number of the signal that killed it."""
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else FROM_SIGNAL - code
            signal_info = signal.sigwaitinfo((*_FORWARDED, signal.SIGCHLD))
            # The terminal sends its signals to the child as well: only those for this process are passed on.
            if signal_info.si_signo != signal.SIGCHLD and signal_info.si_code <= 0:
                os.kill(self.pid, signal_info.si_signo)


def probed_environment(environment: Mapping[str, str], socket: str, run: str) -> dict[str, str]:
    """`environment` in which every Python loads the probe, which reports to what listens at `socket`."""
    paths = (str(hook_folder()), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths)), SOCKET: socket, RUN: run}


def hook_folder() -> Path:
    """The folder whose `sitecustomize` loads the probe."""
    return Path(__file__).resolve().parents[1] / "probe" / "hook"


class CancelledError(Exception):
    """The dry run was cancelled."""


class HostFullError(UserError):
    """The host has not enough memory for the job."""


# A job that fills the memory is ended when this much is left: bytes, or one part in so many; a quarter of little.
LEAST_LEFT, SHARE_LEFT, SHARE_OF_LITTLE = GIB, 20, 4
LOOK_EVERY, FASTEST = 0.5, 32 * GIB  # seconds between looks at the host's memory; bytes that jobs fill in a second
_HELD = re.compile(rb"^Pss_(?:Anon|Shmem):\s+(\d+) kB$", re.MULTILINE)  # of /proc/PID/smaps_rollup, Linux 5.4 on
# Files of a control group of memory by its controller's name, of version 2 and 1 (Linux, cgroup-v2.rst and
# cgroup-v1/memory.rst): the limit, what it holds, and how many of its processes the kernel killed.
_GROUPS = {"": ("max", "current", "events"), "memory": ("limit_in_bytes", "usage_in_bytes", "oom_control")}
SYSTEM = Path("/")


class HostMemory(NamedTuple):
    """Bytes that jobs may have, and those left; whose they are; how many processes of its group the kernel killed."""

    total: int
    free: int | None
    owner: str
    killed: int


def memory_for_jobs() -> HostMemory:
    """The memory of the host, or of the control group, this process's or one above, that has the least left."""
    from vramtui.agent.ancestors import read_file  # noqa: PLC0415 - `vramtui run` starts without it
    from vramtui.agent.stream import host_memory  # noqa: PLC0415 - `vramtui run` starts without it

    host, killed = host_memory(), 0
    least = HostMemory(host["memory_total"] or 0, host["memory_available"], "this host", 0)
    for line in read_file(f"{SYSTEM}/proc/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = line.split(":", 2)
        name = next((one for one in _GROUPS if one in controllers.split(",")), None)
        if name is None:
            continue
        base, parts = Path(SYSTEM, "sys/fs/cgroup", name), [one for one in path.split("/") if one not in ("", "..")]
        # The path is the host's; a container may see its own group at the top.
        group = next(filter(Path.is_dir, (base.joinpath(*parts[at:]) for at in range(len(parts) + 1))), base)
        for folder in (group, *group.parents)[: len(group.parts) - len(base.parts) + 1]:
            most, usage, events = (read_file(f"{folder}/memory.{one}").decode() for one in _GROUPS[name])
            kills = re.search(r"^oom_kill (\d+)", events, re.MULTILINE)
            killed += int(kills[1]) if kills and folder == group else 0
            if not (most.strip().isdigit() and usage.strip().isdigit()) or int(most) >= (least.total or 1 << 60):
                continue
            stat = dict(one.split(maxsplit=1) for one in read_file(f"{folder}/memory.stat").decode().splitlines())
            files = sum(int(stat.get(f"total_{one}", stat.get(one, 0))) for one in ("active_file", "inactive_file"))
            free = max(int(most) - max(int(usage) - files, 0), 0)  # what files take can be had
            if least.free is None or free < least.free:
                own = Path("/", folder.relative_to(SYSTEM))
                least = HostMemory(int(most), free, f"the control group {printable(str(own))}", 0)
    return least._replace(killed=killed)


def kills_for_memory() -> list[bytes]:
    """How often the kernel killed a process as memory ran out, as it says since Linux 4.13."""
    from vramtui.agent.ancestors import read_file  # noqa: PLC0415 - `vramtui run` starts without it

    return re.findall(rb"^oom_kill \d+", read_file(f"{SYSTEM}/proc/vmstat"), re.MULTILINE)


def input_ahead(descriptor: int) -> bytes:
    """Read what a file, from its position on, or a pipe has for now, up to 1 MiB, and leave it there; else empty."""
    with contextlib.suppress(OSError):
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            return os.pread(descriptor, MIB, os.lseek(descriptor, 0, os.SEEK_CUR))
        copy, end = os.pipe()
        with os.fdopen(copy, "rb") as copied, os.fdopen(end, "wb"):
            return copied.read(max(0, ctypes.CDLL(None).tee(descriptor, end, MIB, os.SPLICE_F_NONBLOCK)))
    return b""


def run_supervised(
    job: DryRunJob,
    command: Sequence[str],
    environment: Mapping[str, str],
    output: IO[bytes] | None,
    cancel: threading.Event | None,
    is_over: Callable[[], bool],
) -> int:
    """Run a dry run's job, by the words of `shield.supervised`, to its end, or until it `is_over`, asked 20 times a
    second, or another thread sets `cancel`; end all that it started. What it prints goes to `output`, or else to
    standard error. Its exit code as in a shell.

    Raises:
        UserError: it cannot be started.
        HostFullError: it was ended before it took the last of the memory, or the kernel killed one of its processes.
        CancelledError: `cancel` was set.
    """
    from vramtui.agent.ancestors import read_file  # noqa: PLC0415 - `vramtui run` starts without it
    from vramtui.dryrun.shield import end_supervised, signal_all, started_by  # noqa: PLC0415 - run has none

    before = memory_for_jobs()
    try:
        with tempfile.TemporaryFile() as typed:
            typed.write(job.typed)
            typed.seek(0)
            keeper = subprocess.Popen(  # noqa: S603 - the person's own command
                command,
                env=environment,
                cwd=job.folder,
                stdin=(typed if job.typed else subprocess.DEVNULL) if job.keyboard is None else job.keyboard,
                stdout=2 if output is None else output,
                stderr=2 if output is None else output,
                start_new_session=True,  # Ctrl-C is for this process, which then ends the job
            )
    except OSError as error:
        raise UserError(f"the job cannot be started: {os_reason(error)}") from None
    try:
        let_others_go_first(keeper.pid, is_idle=job.is_idle)
        next_look = 0.0
        while not is_over() and keeper.poll() is None:
            if cancel is not None and cancel.is_set():
                raise CancelledError
            time.sleep(0.05)
            if time.monotonic() < next_look:
                continue
            total, free, owner, _ = memory_for_jobs()
            least = max(min(LEAST_LEFT, total // SHARE_OF_LITTLE), total // SHARE_LEFT)
            left = LOOK_EVERY if free is None or free < least else (free - least) / FASTEST
            next_look = time.monotonic() + min(LOOK_EVERY, left)
            if free is not None and free < least:
                processes = started_by(keeper.pid)
                # Each one's share of what it shares, and no files, which can be read again.
                shares = (_HELD.findall(read_file(f"/proc/{pid}/smaps_rollup")) for pid in processes)
                if (own := sum(int(size) << 10 for one in shares for size in one)) > least:
                    signal_all(processes, signal.SIGKILL)
                    raise HostFullError(
                        f"the job was ended before the memory of {owner} ran out: it held {format_bytes(own)} of "
                        f"{format_bytes(total)}, others {format_bytes(max(total - free - own, 0))}, and "
                        f"{format_bytes(free)} was left"
                    )
    finally:
        code = end_supervised(keeper)
    if code and (after := memory_for_jobs()).killed > before.killed:
        raise HostFullError(
            f"the kernel killed a process of the job, as memory ran out: {after.owner} has {format_bytes(after.total)}"
        )
    return code


def let_others_go_first(pid: int, *, is_idle: bool = True) -> None:
    """Let a child end before others if memory runs out, and have the processor and the disk only when they are idle."""
    acts: tuple[Callable[[], object], ...] = (
        lambda: Path(f"/proc/{pid}/oom_score_adj").write_text("1000", encoding="ascii"),
        lambda: os.setpriority(os.PRIO_PROCESS, pid, 19),
        lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)),
    )
    for act in acts if is_idle else acts[:1]:
        with contextlib.suppress(OSError):
            act()
