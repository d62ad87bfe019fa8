"""The documents of jobs that ran: `history` and `oom`."""

from typing import Any

import msgspec

from vramtui.core.observation.oom.report import OomCause, OomReport
from vramtui.core.runs.run import Run, Spread
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


OomDocument = like(
    OomReport,
    "OomDocument",
    "What `vramtui oom --json` prints; bytes. `changes` are settings with which it would have fitted.",
    schema=int,
    cause=OomCause,
    others_hold=int | None,
    changes=dict[str, Any] | None,
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
