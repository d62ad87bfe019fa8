"""Peaks of GPU memory that Slurm itself has kept of finished steps, as sacct tells them.

With `AccountingStorageTRES=gres/gpumem` and `AutoDetect=nvml` (gres.conf(5)) a step's `TRESUsageInMax` has
`gres/gpumem`: the most that one task held on all its GPUs together, looked at each `JobAcctGatherFrequency` (30 s by
default). Not on MIG instances.
"""

import re
from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from vramtui.core.base.text import printable

SEPARATOR = "\x1f"
# The command comes last: it may hold anything.
FIELDS = (
    *("JobID", "Cluster", "User", "JobName", "State", "Start", "End", "NTasks", "NodeList", "AllocTRES"),
    *("TRESUsageInMax", "SubmitLine"),
)
_GPUS = re.compile(r"gres/gpu(?::([^=,]+))?=(\d{1,6})(?:,|$)")
_MEMORY = re.compile(r"gres/gpumem=(\d{1,18}(?:\.\d+)?)([KMGTP]?)")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_MOST = 1 << 50


class SlurmStep(msgspec.Struct, frozen=True, kw_only=True):
    """A finished step with a peak; `gpu_memory` in bytes of one task, times in seconds since the epoch.

    `gpus` and `tasks` are those of the whole step, None where sacct does not say; `card` is the site's name for the
    type.
    """

    id: str
    cluster: str
    user: str
    name: str
    state: str
    started_at: float
    ended_at: float
    nodes: str
    command: str
    gpu_memory: int
    gpus: int | None
    tasks: int | None
    card: str

    @property
    def is_of_one_gpu(self) -> bool:
        """Whether a task had one GPU, so that its peak is that GPU's."""
        return self.gpus is not None and self.tasks is not None and 0 < self.gpus <= self.tasks


def known_fields(helpformat: str) -> tuple[str, ...]:
    """Those of `FIELDS` that this sacct has, by what `sacct --helpformat` prints: `SubmitLine` came with 21.08."""
    words = {word.lower() for word in helpformat.split()}
    return tuple(field for field in FIELDS if field.lower() in words)


def read_steps(text: str, fields: tuple[str, ...]) -> Iterator[SlurmStep]:
    """The steps that have ended and have a peak.

    Args:
        text: of `sacct --parsable2 --noheader --noconvert --delimiter=SEPARATOR --format=FIELDS`; times are seconds
            since the epoch or Slurm's own form, which is local time.
        fields: what each line has.
    """
    cards: dict[str, str] = {}
    for row in _rows(text.splitlines(), fields):
        card, gpus = _gpus(row.get("AllocTRES", ""))
        job = row["JobID"].partition(".")[0]
        if card:
            cards[job] = card  # a step's line may leave the type out
        memory = _MEMORY.search(row.get("TRESUsageInMax", ""))
        start, end = _moment(row.get("Start", "")), _moment(row.get("End", ""))
        if memory is None or start is None or end is None or "." not in row["JobID"]:
            continue
        size = int(float(memory[1]) * _UNITS[memory[2]])
        if not 0 < size < _MOST:
            continue
        step = row["JobID"].partition(".")[2]
        tasks = row.get("NTasks", "")
        yield SlurmStep(
            id=row["JobID"],
            cluster=row.get("Cluster", ""),
            user=row.get("User", ""),
            name=row.get("JobName", ""),
            state=row.get("State", "").partition(" ")[0],
            started_at=start,
            ended_at=end,
            nodes=row.get("NodeList", ""),
            command=row.get("SubmitLine", "") if step not in ("batch", "extern") else "",
            gpu_memory=size,
            gpus=gpus,
            tasks=int(tasks) if tasks.isdigit() else 1 if step == "batch" else None,
            card=card or cards.get(job, ""),
        )


def _rows(lines: Iterable[str], fields: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Each record; a command with line breaks goes on in the lines below."""
    record: list[str] = []
    for line in lines:
        parts = line.split(SEPARATOR)
        if len(parts) == len(fields):
            if record:
                yield dict(zip(fields, record, strict=True))
            record = [printable(part.strip()) for part in parts]
        elif record:
            record[-1] += f" {printable(line.strip())}"
    if record:
        yield dict(zip(fields, record, strict=True))


def _gpus(tres: str) -> tuple[str, int | None]:
    """The type of the GPUs and their number: `gres/gpu=4,gres/gpu:h100=4`."""
    found = _GPUS.findall(tres)
    if not found:
        return "", None
    named = [(card, int(count)) for card, count in found if card]
    return named[0] if len(named) == 1 else ("", max(int(count) for _, count in found))


def _moment(text: str) -> float | None:
    if text.isdigit() and len(text) < 12:
        return float(text) or None
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
