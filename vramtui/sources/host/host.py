"""The machine this program runs on."""

import os
from contextlib import suppress

import psutil

from vramtui.agent.stream import host_memory, load
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Host
from vramtui.sources.host.pid_namespace import PidNamespace


class HostReader:
    """Asks the system about the machine as a whole."""

    def __init__(self) -> None:
        self._asked = False
        self._private = PidNamespace().private

    def read(self, driver_version: str | None, cuda_version: str | None) -> Host:
        """The machine now; the share of CPU is that of the time since the last call, unknown on the first."""
        cpu = None
        with suppress(OSError):  # a sandbox may have no /proc: the cards are told all the same
            cpu = psutil.cpu_percent(interval=None)
        first, self._asked = not self._asked, True
        averages = load()
        return Host(
            name=printable(os.uname().nodename),
            driver_version=driver_version,
            cuda_version=cuda_version,
            cpu_percent=None if first else cpu,
            **host_memory(),
            load=None if averages is None else (averages[0], averages[1], averages[2]),
            private_pids=self._private,
        )
