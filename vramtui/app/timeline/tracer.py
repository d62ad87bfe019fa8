"""What the dashboard asks of a tracer; torch never comes into this process."""

import threading
from collections.abc import Callable
from typing import Protocol

from vramtui.core.estimate.devices import Device
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.result import JobCommand, Progress
from vramtui.dryrun.traces import FinishedTrace, JobTrace


class Tracer(Protocol):
    """Runs a workload on fake tensors in a process of its own. Everything but `refusal` may take seconds."""

    def refusal(self, workload: Workload) -> str:
        """The sentence that says why `workload` cannot be traced here; empty where it can be."""
        ...

    def trace(
        self,
        workload: Workload,
        device: Device,
        progress: Callable[[Progress], None],
        cancel: threading.Event,
    ) -> FinishedTrace | None:
        """Trace; None when `cancel` was set.

        Raises:
            UserError: it cannot be traced to its end.
        """
        ...

    def command_of(self, pid: int, command: str) -> JobCommand:
        """The command of the process `pid` of this machine; raises UserError if it has no Python script."""
        ...

    def trace_job(
        self, command: JobCommand, device: Device, progress: Callable[[Progress], None], cancel: threading.Event
    ) -> JobTrace | None:
        """Trace a running job's own command; None when `cancel` was set.

        Raises:
            UserError: it cannot be traced to its end.
        """
        ...
