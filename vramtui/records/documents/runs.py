"""The documents of jobs that ran, on a card, an emulated one or fake tensors: `history`, `run`, `oom`, `trace`,
`allocator`, `convert`.
"""

from typing import Any

import msgspec

from vramtui.core.estimate.fits import FitVerdict
from vramtui.core.observation.oom.report import OomCause, OomReport
from vramtui.core.observation.probe_messages import OutOfMemory, PhaseEnd
from vramtui.core.runs.run import Run, Spread
from vramtui.driver.reads import ReadPlace
from vramtui.estimators.traced.process.results import LargestBatch, TraceResult
from vramtui.records.documents import like

PrintedRun = like(
    Run,
    "PrintedRun",
    "One job on one GPU; `error` is observed over predicted, less one, of the process.",
    id=int,
    error=float | None,
)


class HistoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui history --json` prints: runs, and how far predictions of each kind were off."""

    schema: int
    runs: tuple[PrintedRun, ...]  # type: ignore[valid-type] # made by msgspec
    errors: tuple[Spread, ...]


class LearnedContext(msgspec.Struct, frozen=True, kw_only=True):
    """The CUDA context's bytes on one kind of GPU under one driver."""

    gpu_name: str
    driver: str
    runs: int
    enough: bool
    median: int
    lowest: int
    highest: int


class LearnedShare(msgspec.Struct, frozen=True, kw_only=True):
    """Reserved over allocated at their peaks, for one kind of model and of run."""

    method: str
    model_kind: str
    run_kind: str
    runs: int
    enough: bool
    median: float
    lowest: float
    highest: float


class CalibrationDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui history --calibration --json` prints; fewer runs than `enough` correct nothing."""

    schema: int
    host: str
    enough: int
    contexts: tuple[LearnedContext, ...]
    cached_shares: tuple[LearnedShare, ...]


class UnmodelledCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the driver's that the emulated card does not model, and the library that called it."""

    function: str
    library: str


class EmulatedCardRun(msgspec.Struct, frozen=True, kw_only=True):
    """A job's end on one kind of emulated card; bytes, of the process that held the most.

    Attributes:
        verdict: `failed` where the job ended for another reason than memory, `unknown` where it ran out of memory after
            it took all places of masks that kernels would have computed.
        ended_after: seconds after which `--timeout` ended it; `null` where it came to an end.
        caught: PyTorch's out-of-memory errors after which it went on, as far as each was told; `times_caught` are all.
        bounded: whether it may have gone another way than on a card.
        reads: how often it read values back, and `read_places` where.
    """

    card: str
    cards: int
    verdict: str
    exit_code: int
    steps: int
    ended_after: float | None
    allocated: int | None
    reserved: int | None
    process: int | None
    memory: int
    parts: dict[str, int | None] | None
    phases: tuple[PhaseEnd, ...]
    out_of_memory: OutOfMemory | None
    caught: tuple[OutOfMemory, ...]
    times_caught: int
    bounded: bool
    reads: int
    read_places: tuple[ReadPlace, ...]
    unmodelled: tuple[UnmodelledCall, ...]


class RunDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What `vramtui run --on CARD --json` prints."""

    schema: int
    command: tuple[str, ...]
    cards: tuple[EmulatedCardRun, ...]


OomDocument = like(
    OomReport,
    "OomDocument",
    "What `vramtui oom --json` prints; bytes. `changes` are settings with which it would have fitted.",
    schema=int,
    cause=OomCause,
    others_hold=int | None,
    changes=dict[str, Any] | None,
)
TraceDocument = like(
    TraceResult,
    "TraceDocument",
    "What `vramtui trace --json` prints; bytes. A point of `series` is an event's number, allocated and reserved.",
    series=tuple[tuple[int, int, int], ...],
    verdict=FitVerdict,
    largest_batch=LargestBatch | None,
)


class HeldBlocks(msgspec.Struct, frozen=True, kw_only=True):
    """Memory that one line of code allocated; `where` is empty if the snapshot has no stacks."""

    where: str
    size: int
    blocks: int


class HeldMemoryDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui oom SNAPSHOT.pickle --json`: memory of one GPU at the last refused request."""

    schema: int
    explanation: str
    gpu: int
    asked: int | None
    device_free: int | None
    allocated: int
    reserved: int
    free_blocks: tuple[int, ...]
    peak_allocated: int | None
    peak_reserved: int | None
    holders: tuple[HeldBlocks, ...]
    largest: tuple[HeldBlocks, ...]
