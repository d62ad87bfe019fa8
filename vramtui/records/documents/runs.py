"""The documents of jobs that ran: `history` and `oom`."""

from typing import Any

import msgspec

from vramtui.core.observation.oom.report import OomCause
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
    """Output of `vramtui history --json`: runs, and how far predictions of each kind were off."""

    schema: int
    runs: tuple[PrintedRun, ...]  # type: ignore[valid-type] # made by msgspec
    errors: tuple[Spread, ...]


class OomWay(msgspec.Struct, frozen=True, kw_only=True):
    """A way out of an out-of-memory error, with the bytes that it frees if they are known."""

    text: str
    frees: int | None


class OomDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `vramtui oom --json`; bytes. `changes` are settings with which the job would have fitted."""

    schema: int
    program: str
    cause: OomCause
    sentence: str
    numbers: str
    ways: tuple[OomWay, ...]
    gpu: int | None
    gpu_name: str
    rank: int | None
    asked: int | None
    asked_for: str
    total: int | None
    free: int | None
    limit: int | None
    in_use: int | None
    allocated: int | None
    unallocated: int | None
    others: dict[int, int | None]
    others_hold: int | None
    held: dict[str, int]
    line: str
    command: str
    pool: tuple[int, int] | None
    changes: dict[str, Any] | None


HeldMemoryDocument = like(
    HeldMemory,
    "HeldMemoryDocument",
    "Output of `vramtui oom SNAPSHOT.pickle --json`: memory of one GPU at the last refused request.",
    schema=int,
    explanation=str,
)
