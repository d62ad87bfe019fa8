"""The machine this program runs on, and whether the pids that a driver lists mean the same processes here."""

import os
from collections.abc import Collection, Mapping

from vramtui.agent.ancestors import link_target, read_file
from vramtui.agent.processes import HOST_NAMESPACE, has_device_open
from vramtui.agent.stream import host_memory, load
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Host


class HostReader:
    """Asks the system about the machine as a whole."""

    def __init__(self) -> None:
        self._worked: tuple[int, int] | None = None
        self._private = PidNamespace().private

    def read(self, driver_version: str | None, cuda_version: str | None) -> Host:
        """Read the machine; CPU use is of the time since the last call, unknown on the first."""
        before, self._worked = self._worked, processor_time()
        share = None
        if before is not None and self._worked is not None:
            worked, passed = self._worked[0] - before[0], self._worked[1] - before[1]
            share = round(100 * min(max(worked / passed, 0.0), 1.0), 1) if passed > 0 else 0.0
        averages = load()
        return Host(
            name=printable(os.uname().nodename),
            driver_version=driver_version,
            cuda_version=cuda_version,
            cpu_percent=share,
            **host_memory(),
            load=None if averages is None else (averages[0], averages[1], averages[2]),
            private_pids=self._private,
        )


def processor_time() -> tuple[int, int] | None:
    """Return the ticks that all processors have worked, and all their ticks, since the machine was started; None if
    unknown, as in a sandbox. As htop counts: waiting for a disk is not work, and a guest's time is in `user` already
    (fs/proc/stat.c and kernel/sched/cputime.c of Linux 6.1: user, nice, system, idle, iowait, irq, softirq, steal).
    """
    ticks = [int(word) for word in read_file("/proc/stat", 1024).partition(b"\n")[0].split()[1:9]]
    return (sum(ticks) - sum(ticks[3:5]), sum(ticks)) if len(ticks) >= 5 else None


class PidNamespace:
    """A container's own pid namespace numbers its processes differently, while a driver reports the host's pids.

    There, the driver's pid 42 and /proc's pid 42 are most likely two processes. A pid is then taken for ours only if
    that process has the driver's device files open, as this one has after asking the driver. If this process has none
    open either (WSL, or a library that needs no device), pids are believed.
    """

    def __init__(self) -> None:
        self.private = own_namespace() not in (HOST_NAMESPACE, None)
        self._verdicts: dict[int, bool] = {}
        self._can_tell: bool | None = None
        self._outside: frozenset[int] | None = None
        self._jobs = frozenset[int]()
        self._pairs: dict[int, int] = {}
        self._numbers: dict[int, int] = {}

    def is_ours(self, pid: int) -> bool:
        """Return whether /proc's process of that number is the driver's."""
        if self.private and self._can_tell is None:
            self._can_tell = has_device_open(os.getpid())
        if not self.private or not self._can_tell:
            return True
        if pid not in self._verdicts:
            self._verdicts[pid] = has_device_open(pid)
        return self._verdicts[pid]

    def is_certain(self, pid: int) -> bool:
        """Return whether it is certain, and not only likely, that /proc's process of that number is the driver's."""
        return not self.private or (has_device_open(os.getpid()) and has_device_open(pid))

    def numbers(self, listed: Collection[int]) -> Mapping[int, int]:
        """Return the pids in this namespace of processes that the driver lists by the host's, as far as known.

        No pid leads from one to the other, and the driver tells neither name nor start. So a process of CUDA in here is
        taken for one outside if both came between two looks, or if there is one of each.
        """
        outside = frozenset(pid for pid in listed if not self.is_ours(pid)) if self.private else frozenset[int]()
        if outside == self._outside:
            return self._numbers
        pids = {int(name) for name in os.listdir("/proc") if name.isdigit()} if outside else set[int]()  # noqa: PTH208 - as below
        # Monitors do not open CUDA's memory manager.
        jobs = frozenset(pid for pid in pids - {os.getpid(), *listed} if has_device_open(pid, "/dev/nvidia-uvm"))
        arrived, begun = outside - (self._outside or set()), jobs - self._jobs
        if len(arrived) == len(begun) == 1 and self._outside is not None:
            self._pairs |= zip(arrived, begun, strict=True)
        self._outside, self._jobs = outside, jobs
        self._pairs = {pid: own for pid, own in self._pairs.items() if pid in outside and own in jobs}
        rest, others = outside - self._pairs.keys(), jobs - set(self._pairs.values())
        alone = zip(rest, others, strict=True) if len(rest) == len(others) == 1 else ()
        self._numbers = {**self._pairs, **dict(alone)}
        return self._numbers

    def hides(self, pid: int) -> bool:
        """Return whether a pid that cannot be looked at may be alive outside this namespace."""
        self._verdicts.pop(pid, None)
        return self.private


def own_namespace() -> str | None:
    """Return the kernel's name of this process's pid namespace; None if unknown."""
    return link_target("/proc/self/ns/pid") or None
