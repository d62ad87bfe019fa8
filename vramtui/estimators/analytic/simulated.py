"""The analytic estimate with what the caching allocator keeps beside it, from a simulation instead of a share."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Part
from vramtui.core.schema.workload import TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.models.registry import program_of
from vramtui.estimators.analytic.training.allocator_requests import Peaks, peaks_of
from vramtui.estimators.analytic.training.trainer import Trainer

SOURCE = "PyTorch 2.13, c10/cuda/CUDACachingAllocator.cpp: every request in the order of the model's operators"


class Simulated:
    """Training on one card: tens of milliseconds where `analytic` takes one. Needs no torch."""

    name = "simulated"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict; allocated and its parts are those of `analytic`.

        Raises:
            UserError: the workload is contradictory, or no training on one card.
        """
        found = ANALYTIC.estimate(workload, device)
        run = workload.run
        if not isinstance(run, TrainRun) or workload.parallel is not None:
            raise UserError("--method simulated follows training on one card; --method analytic knows the others")
        peaks = peaks_of(Trainer(program_of(workload.model, run, device), run, device), run)
        return _with(found, peaks)


def _with(found: Estimate, peaks: Peaks) -> Estimate:
    cached = max(peaks.reserved - found.allocated, 0)
    words = (
        f"segments of {format_bytes(peaks.reserved)} at the end of two simulated steps; give or take "
        f"{format_bytes(peaks.segment)}, the largest segment of one"
    )
    ledger = msgspec.structs.replace(
        found.ledger,
        cached=cached,
        reserved=found.allocated + cached,
        process=found.process - (found.ledger.cached or 0) + cached,
    )
    return msgspec.structs.replace(
        found,
        method=Simulated.name,
        parts=tuple(_cached(part, cached, words) if part.line == "cached" else part for part in found.parts),
        ledger=ledger,
        timeline=tuple(msgspec.structs.replace(row, reserved=None, peak_reserved=None) for row in found.timeline),
        error=peaks.segment / ledger.process if ledger.process and found.error is not None else None,
    )


def _cached(part: Part, cached: int, words: str) -> Part:
    return msgspec.structs.replace(part, bytes=cached, at_peak=cached, formula=words, source=SOURCE)


SIMULATED = Simulated()
