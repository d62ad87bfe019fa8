"""The View: one frozen value with everything the screen shows, from which every widget draws its part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from vramtui.core.base.units import QUICK
from vramtui.core.estimate.assumptions import Range
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.estimate.fits import Comparison
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.history import Peak
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import Grouping, ProcessColumn
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.monitor.predictor import MaxBatchSearch

RowKind = Literal["group", "process", "exited", "instances", "unattributed", "reserved", "note"]
SortColumn = ProcessColumn
SORT_COLUMNS: tuple[SortColumn, ...] = get_args(SortColumn)
RowId = ProcessKey | tuple[str, str]


class ProcessRow(msgspec.Struct, frozen=True, eq=False, gc=False):  # as a Process
    """One line of the process table; sizes in bytes.

    Its `kind`: a group of rows; a process; an exited one; the memory of a GPU's MIG instances, of no known process, or
    of the driver; a note about a GPU whose process list cannot be read.

    Attributes:
        fraction: peak over predicted, minus one.
        age: seconds since the GPU answered; None if it answers.
        learned: the peak and its source.
        fast_since: the time since which the process is sampled fast, every `fast_interval` seconds.
        gpus: the GPUs of a group, or the name of a MIG instance; `user` is a group's as well.
        depth: number of processes above it in its tree.
        order: GiB that give it its place; they follow `now` with some play.
        is_assumed: some of its settings are unknown.
        is_quick: a nearer estimate will replace `predicted`.
    """

    kind: RowKind
    id: RowId
    gpu: Gpu
    now: int | None
    peak: int | None = None
    process: Process | None = None
    predicted: int | None = None
    fraction: float | None = None
    preset: str | None = None
    gone_at: float | None = None
    note: str = ""
    age: float | None = None
    minutes: int | None = None
    learned: Peak | None = None
    fast_since: float | None = None
    fast_interval: float | None = None
    gpus: str = ""
    user: str = ""
    depth: int = 0
    order: float | None = None
    is_assumed: bool = False
    is_quick: bool = False

    @property
    def mark(self) -> str:
        """The sign before its prediction."""
        return "~" if self.is_assumed else QUICK if self.is_quick else ""


class GpuBar(msgspec.Struct, frozen=True):
    """One GPU in the GPU panel: `predicted` is the bytes in use at the predicted peaks. A GPU that does not answer has
    its `last` reading, `age` seconds old.
    """

    gpu: Gpu
    predicted: int | None
    chosen: bool
    last: Gpu | None = None
    age: float | None = None


class Layers(msgspec.Struct, frozen=True, eq=False):
    """The parts of a process's memory, from below: bytes of each of `names` from each of `times` on (seconds since the
    epoch). Further memory has the colour `rest`; `source` names who reports the parts.
    """

    names: tuple[str, ...]
    times: Sequence[float]
    values: tuple[Sequence[int], ...]
    rest: str
    source: str


class Series(msgspec.Struct, frozen=True, eq=False):
    """The chosen process's memory for the graph, in seconds since the epoch and bytes: point i holds from times[i] on.

    Attributes:
        ends: words at the ends of the time axis, if these are not its length ago and now.
        what_if: the peak with the changes made in the panel; None without changes.
        mark: the sign before `what_if`.
        expected: the times from which predicted sizes hold, if the job reported its phases.
        busy: the GPU's utilisation in per cent over time.
    """

    title: str
    times: Sequence[float]
    values: Sequence[int]
    start: float
    end: float
    ceiling: int
    predicted: int | None
    ends: tuple[str, str] | None = None
    what_if: int | None = None
    mark: str = ""
    layers: Layers | None = None
    expected: tuple[tuple[float, int], ...] = ()
    busy: tuple[Sequence[float], tuple[Sequence[int], ...]] | None = None


class Panel(msgspec.Struct, frozen=True, eq=False):
    """The estimate panel: a preset on one GPU, with the process that runs it.

    Attributes:
        workload: the preset's, with the changes made to it; `estimate` and all that follows from it are of this one.
        peak: the seen peak of `process`, only with a `guess`: the range if too much is assumed for a prediction.
        room: bytes of the GPU that others do not hold now.
        batch: the largest batch that fits the empty card, None while `search` goes on; `is_quick` while a nearer
            estimate may change it.
        matched: the estimate without changes, which `comparison` compares with the process; None without changes.
        is_rough, is_known_rough: a nearer estimate will replace `estimate`, or the one without changes.
    """

    preset: PresetFile
    workload: Workload
    gpu: Gpu | None
    device: Device
    estimate: Estimate | None = None
    comparison: Comparison | None = None
    process: Process | None = None
    changed: frozenset[str] = frozenset()
    room: int | None = None
    batch: int | None = None
    search: "MaxBatchSearch | None" = None
    is_quick: bool = False
    problem: str = ""
    traced: Estimate | None = None
    rules: tuple[Estimate, ...] = ()
    matched: Estimate | None = None
    guess: Range | None = None
    peak: int | None = None
    is_rough: bool = False
    is_known_rough: bool = False


class HeldTotals(msgspec.Struct, frozen=True):
    """The figures below the process table, in bytes; together all memory in use.

    `users` is sorted by size. `driver` and `unattributed` are 0 if each of them has rows.
    """

    of_processes: int = 0
    users: tuple[tuple[str, int], ...] = ()
    driver: int = 0
    unattributed: int = 0


class RecordingStatus(msgspec.Struct, frozen=True):
    """A recording in progress: its length in seconds, and the samples dropped because the disk was too slow."""

    seconds: float
    dropped: int = 0


class ReplayPosition(msgspec.Struct, frozen=True):
    """The position in a recording, in seconds since the epoch; `seeking` and `reading` are None when they are done, and
    `prediction` is `as recorded`, `made now`, or empty without a panel.
    """

    started: float
    ended: float
    at: float
    speed: float
    playing: bool
    seeking: float | None = None
    prediction: str = ""
    reading: float | None = None

    @property
    def fraction(self) -> float:
        length = self.ended - self.started
        return (self.at - self.started) / length if length > 0 else 1.0


class View(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Watch screen.

    Attributes:
        rows: filtered and in order, with `chosen` at `chosen_at`; `totals` are the figures below them.
        total: number of processes.
        columns: the columns that the user asked for; empty if the width decides.
        predicts: a process had a prediction, so there are columns for it; `rare` has other columns for this host only.
        reported: the chosen process's own report, if it has no preset; `reason` says why it has none.
        by_hand: the user chose the row; `is_frozen` if rows keep their order since then.
        stale: seconds since `asked` (the driver, a host) answered, if that is too long.
        late: the present time, in seconds since the epoch, if an answer is overdue.
        history_error: why runs are not kept.
        down: other hosts that do not answer.
        is_monitor: no presets, predictions and estimates are shown.
        view_only: nothing may be signalled, traced, edited or written.
    """

    sample: Sample | None = None
    rows: Sequence[ProcessRow] = ()
    total: int = 0
    totals: HeldTotals = HeldTotals()
    columns: tuple[SortColumn, ...] = ()
    group: Grouping = "none"
    predicts: bool = False
    rare: frozenset[SortColumn] = frozenset()
    bars: tuple[GpuBar, ...] = ()
    chosen: ProcessRow | None = None
    chosen_at: int = 0
    series: Series | None = None
    panel: Panel | None = None
    reported: Ledger | None = None
    reason: str = ""
    sort: SortColumn = "now"
    reverse: bool = False
    by_hand: bool = False
    is_frozen: bool = False
    filter: str = ""
    paused: bool = False
    stale: float | None = None
    asked: str = "the driver"
    late: float | None = None
    failure: str = ""
    banner: str = ""
    hint: str = ""
    notes: tuple[str, ...] = ()
    history_error: str = ""
    has_fleet: bool = False
    down: tuple[str, ...] = ()
    is_monitor: bool = False
    view_only: bool = False
    alerts: tuple[Alert, ...] = ()
    interval: float = 1.0
    recording: RecordingStatus | None = None
