"""The release of PyTorch that a job runs under, its settings of the caching allocator, and what follows."""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import CATEGORIES, Estimate, Part
from vramtui.core.schema.workload import InferRun, Run, TrainRun
from vramtui.estimators.torch_facts.cublas import Workspace, workspace_of
from vramtui.estimators.torch_facts.releases import KNOWN, NEWEST, OLDEST, release_of

if TYPE_CHECKING:
    from vramtui.estimators.allocator.config import AllocatorConfig

ASSUMED = NEWEST  # the release of a job that does not name one
KEY = "run.alloc_conf"
UNFOLLOWED = f"{KEY} is not simulated for such a job: what is cached is that of the allocator's defaults"
SOURCE = "PyTorch, c10/cuda/CUDACachingAllocator.cpp, round_size and should_split"


def torch_of(run: Run) -> tuple[int, int]:
    """The release that a job runs under: the newest that is known where nothing says it."""
    if isinstance(run, (TrainRun, InferRun)) and run.torch is not None:
        release = release_of(run.torch)
        if release == (0, 0):
            raise UserError(f"run.torch: {run.torch!r} is not a release of PyTorch; write it as 2.13")
        return release
    return ASSUMED


def workspace_for(run: Run, device: Device) -> Workspace:
    return workspace_of(device.capability, torch_of(run))


def release_note(run: Run) -> str:
    """Which release was taken, where the job does not say it or it is none that was looked at; else empty."""
    if not isinstance(run, (TrainRun, InferRun)):
        return ""
    if run.torch is None:
        return f"as under PyTorch {ASSUMED[0]}.{ASSUMED[1]}, the newest that is known; run.torch names another"
    release = release_of(run.torch)
    if OLDEST <= release <= NEWEST:
        return ""
    taken = NEWEST if release > NEWEST else OLDEST
    return f"run.torch = {run.torch!r}: measured only with PyTorch {KNOWN}; taken as {taken[0]}.{taken[1]}"


def allocator_config(run: Run) -> "AllocatorConfig":
    from vramtui.estimators.allocator.config import AllocatorConfig  # noqa: PLC0415 - few jobs have settings

    if not isinstance(run, (TrainRun, InferRun)) or not run.alloc_conf:
        return AllocatorConfig()
    try:
        return AllocatorConfig.parse(run.alloc_conf)
    except UserError as error:
        raise UserError(f"{KEY}: {str(error).partition(': ')[2]}") from None


def has_allocator_settings(run: Run) -> bool:
    if not isinstance(run, (TrainRun, InferRun)) or not run.alloc_conf:
        return False
    config = allocator_config(run)
    return config != type(config)()


def with_rounding(estimate: Estimate, more: int, alloc_conf: str) -> Estimate:
    """The estimate with `more` bytes allocated than under the defaults, or fewer: blocks are larger under
    `roundup_power2_divisions`; under expandable segments none keeps the rest of its segment.
    """
    if not more:
        return estimate
    line = max(CATEGORIES, key=lambda category: estimate.ledger.bytes_of(category) or 0)
    part = Part(
        name="rounding by run.alloc_conf",
        line=line,
        bytes=more,
        at_peak=more,
        formula=f"{more:+,} B: blocks as {alloc_conf} cuts them, less those of the defaults",
        source=SOURCE,
        lifetime="at the peak",
    )
    allocated, own = estimate.allocated + more, (estimate.ledger.bytes_of(line) or 0) + more
    peak = max((row.peak_allocated for row in estimate.timeline), default=0)
    rows = (
        replace(row, peak_allocated=peak + more) if row.peak_allocated == peak else row for row in estimate.timeline
    )
    ledger = replace(
        estimate.ledger, allocated=allocated, cached=(estimate.ledger.reserved or 0) - allocated, **{line: own}
    )
    return replace(estimate, parts=(*estimate.parts, part), ledger=ledger, timeline=tuple(rows))
