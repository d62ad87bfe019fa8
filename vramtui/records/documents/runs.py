"""The documents of jobs that ran: `history` and `oom`."""

from typing import Any

import msgspec

from vramtui.core.observation.oom.report import OomCause, OomReport
from vramtui.core.runs.run import Run, Spread
from vramtui.records.documents import like
from vramtui.records.memory_snapshot import HeldMemory

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


HeldMemoryDocument = like(
    HeldMemory,
    "HeldMemoryDocument",
    "Output of `vramtui oom SNAPSHOT.pickle --json`: memory of one GPU at the last refused request.",
    schema=int,
    explanation=str,
)
