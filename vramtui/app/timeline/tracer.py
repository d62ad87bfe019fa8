"""What the dashboard asks of a tracer; torch never comes into this process."""

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload
from vramtui.estimators.traced.process.results import Progress, TraceResult

Job = tuple[Workload, Device]


class FinishedTrace(msgspec.Struct, frozen=True):
    """A finished trace, as an estimate and whole."""

    estimate: Estimate
    result: TraceResult


class Tracer(Protocol):
    """Runs a workload on fake tensors in a process of its own. Everything but `refusal` may take seconds."""

    def refusal(self, workload: Workload) -> str:
        """The sentence that says why `workload` cannot be traced here; empty where it can be."""
        ...

    def cached(self, workload: Workload, device: Device) -> FinishedTrace | None:
        """An earlier trace that was kept."""
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
