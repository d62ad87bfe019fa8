"""The machine this program runs on, and whether the pids that a driver lists mean the same processes here."""

import os

from vramtui.agent.processes import HOST_NAMESPACE, read_file
from vramtui.agent.stream import host_memory, load
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Host


class HostReader:
    """Asks the system about the machine as a whole."""

    def __init__(self) -> None:
        self._worked: tuple[int, int] | None = None
        self._private = PidNamespace().private

    def read(self, driver_version: str | None, cuda_version: str | None) -> Host:
        """The machine now; the share of CPU is that of the time since the last call, unknown on the first."""
        before, self._worked = self._worked, processor_time()
        averages = load()
        return Host(
            name=printable(os.uname().nodename),
            driver_version=driver_version,
            cuda_version=cuda_version,
            cpu_percent=_share(before, self._worked),
            **host_memory(),
            load=None if averages is None else (averages[0], averages[1], averages[2]),
            private_pids=self._private,
        )


def processor_time() -> tuple[int, int] | None:
    """Ticks that all processors have worked, and all their ticks, since the machine was started; None where that is not
    told, as in a sandbox. As htop counts them: waiting for a disk is no work, and a guest's time is in `user` already
    (fs/proc/stat.c and kernel/sched/cputime.c of Linux 6.1: user, nice, system, idle, iowait, irq, softirq, steal).
    """
    ticks = [int(word) for word in read_file("/proc/stat", 1024).partition(b"\n")[0].split()[1:9]]
    return (sum(ticks) - sum(ticks[3:5]), sum(ticks)) if len(ticks) >= 5 else None


def _share(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    """How much of the time between two looks the processors worked, in percent."""
    if before is None or after is None:
        return None
    worked, passed = after[0] - before[0], after[1] - before[1]
    return round(100 * min(max(worked / passed, 0.0), 1.0), 1) if passed > 0 else 0.0


class PidNamespace:
    """A container's own pid namespace numbers its processes anew, while a driver goes on giving the host's pids.

    There, pid 42 of the driver's and pid 42 of /proc are most likely two processes. A pid is then believed to be ours
    only when that process has the driver's device files open, as this one has after asking the driver. Where this
    process has none open either (WSL, or a library that needs no device), that cannot be told and pids are believed.
    """

    def __init__(self) -> None:
        self.private = own_namespace() not in (HOST_NAMESPACE, None)
        self._verdicts: dict[int, bool] = {}
        self._can_tell: bool | None = None

    def is_ours(self, pid: int) -> bool:
        """Whether /proc's process of that number is the one meant."""
        if not self.private:
            return True
        if self._can_tell is None:
            self._can_tell = has_device_open(os.getpid())
        if not self._can_tell:
            return True
        if pid not in self._verdicts:
            self._verdicts[pid] = has_device_open(pid)
        return self._verdicts[pid]

    def is_certain(self, pid: int) -> bool:
        """Whether it is known, and not only believed, that /proc's process of that number is the one meant."""
        return not self.private or (has_device_open(os.getpid()) and has_device_open(pid))

    def hides(self, pid: int) -> bool:
        """Whether a pid that cannot be looked at may well be alive outside this namespace."""
        self._verdicts.pop(pid, None)
        return self.private


def has_device_open(pid: int) -> bool:
    """Whether the process holds one of NVIDIA's device files; False when that may not be looked at."""
    folder = f"/proc/{pid}/fd"
    try:
        return any(link_target(f"{folder}/{name}").startswith("/dev/nvidia") for name in os.listdir(folder))  # noqa: PTH208 - hundreds per process, thousands of processes
    except OSError:
        return False


def link_target(path: str) -> str:
    """Where a link of /proc points; empty where there is none."""
    try:
        return os.readlink(path)  # noqa: PTH115 - as above
    except OSError:
        return ""


def own_namespace() -> str | None:
    """The name of this process's namespace of pids, as the kernel gives it; None where it is not told."""
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - a name such as pid:[4026531836], not a path
    except OSError:
        return None
