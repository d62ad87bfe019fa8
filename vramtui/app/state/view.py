"""What the screen shows at one moment: one frozen value, from which every widget draws its part."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from vramtui.core.base.units import QUICK
from vramtui.core.estimate.assumptions import Range
from vramtui.core.estimate.comparison import Comparison
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import Grouping, ProcessColumn
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.monitor.predictor import MaxBatchSearch

RowKind = Literal["group", "process", "exited", "instances", "unattributed", "reserved", "note"]
SortColumn = ProcessColumn
SORT_COLUMNS: tuple[SortColumn, ...] = get_args(SortColumn)
RowId = ProcessKey | tuple[str, str]


class ProcessRow(msgspec.Struct, frozen=True, eq=False):
    """One line of the process table; bytes. `fraction` is peak over predicted, less one.

    `kind`: several under one row; a process; one that has exited; what a card's MIG instances hold; what a GPU holds
    that nobody accounts for; what its driver keeps; a `note` about a GPU whose processes cannot be told.
    `age` is how many seconds old a row is whose GPU does not answer now.
    `minutes` is how long its process has run, in whole minutes.
    `learned` is the peak with what it was learned by, and `fast_since` since when its process is looked at between
    samples (seconds since the epoch; None where it is not), every `fast_interval` seconds.
    `gpus` and `user` are those of several processes under one row, the user where they have the same; `gpus` is also
    the name of a MIG instance that is not the only one of its size. `depth` is how
    many processes of its tree stand above it. `order` is the size in GiB by which its place is found, which follows
    `now` with some play. `is_assumed` says that not all of its settings are known, `is_quick`
    that a nearer estimate will replace `predicted`.
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
        """What stands before its prediction."""
        return "~" if self.is_assumed else QUICK if self.is_quick else ""

    @property
    def how(self) -> str:
        """Where the peak comes from: `sampled`, `accounting` or `probe`; empty where there is none."""
        return self.learned.how if self.learned is not None else ""


class GpuBar(msgspec.Struct, frozen=True):
    """One GPU's line in the GPU panel. `predicted` is how many of its bytes will be in use at the predicted peaks.

    `last` is the latest reading in which it answered and `age` how many seconds old that is; None when it answers.
    """

    gpu: Gpu
    predicted: int | None
    chosen: bool
    last: Gpu | None = None
    age: float | None = None


class Layers(msgspec.Struct, frozen=True, eq=False):
    """What a process's memory is made of, from below: for each category of `names` its bytes from each of `times` on
    (seconds since the epoch). What is seen beyond them is `rest`, a colour; `source` says who knows that, in words.
    """

    names: tuple[str, ...]
    times: Sequence[float]
    values: tuple[Sequence[int], ...]
    rest: str
    source: str


class Series(msgspec.Struct, frozen=True, eq=False):
    """What the graph draws: the chosen process's memory. Point i holds from times[i] until times[i + 1]; the last
    one until `end`. Seconds since the epoch and bytes. `ends` stand below its beginning and its end where that is not
    so long ago and now. `what_if` is the peak with the changes made in the panel, None where there are none; `marks`
    are what stands before it and, first, before `predicted`.

    `layers` is what the memory is made of, where somebody knows. `expected` is from when on how much was predicted to
    be held, where the job told when its phases began. `busy` is the GPU's utilisation in per cent over time.
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
    marks: tuple[str, str] = ("", "")
    layers: Layers | None = None
    expected: tuple[tuple[float, int], ...] = ()
    busy: tuple[Sequence[float], tuple[Sequence[int], ...]] | None = None


class Panel(msgspec.Struct, frozen=True, eq=False):
    """The estimate panel: a preset with the changes made to it, on one GPU, beside the process that runs it.

    `room` is what the GPU could give the process at most: its whole memory less what others hold now. `problem` is
    the sentence shown where no estimate can be made. `batch` is the largest one that fits the card when empty, and
    `search` what still looks for it; `is_quick` while a nearer estimate may still move it.
    `traced` is what a trace of the workload said, if there was one, and `rules` is what each rule that fits it says.
    `estimate` and all that follows from it are of `workload`, changes included. `matched` is the prediction without
    them, None where nothing is changed; `comparison` sets that beside the process: what is tried out is not what runs.
    `guess` is what the process may need where too much of it is assumed: there is no estimate then but of changes.
    `peak` is the most that the process was seen to hold.
    `is_rough` says that a nearer method's estimate will replace this one.
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


class HeldTotals(msgspec.Struct, frozen=True):
    """What stands below the process table, in bytes: what all processes hold, what each user's do (the largest first),
    what drivers and firmware keep, and what nobody accounts for: together all that is in use. The latter two are 0
    where each of them has a row, however small.
    """

    of_processes: int = 0
    users: tuple[tuple[str, int], ...] = ()
    driver: int = 0
    unattributed: int = 0


class RecordingStatus(msgspec.Struct, frozen=True):
    """A recording under way: since how many seconds, and how many samples the disk was too slow for."""

    seconds: float
    dropped: int = 0


class ReplayPosition(msgspec.Struct, frozen=True):
    """Where in a recording the screen is; seconds since the epoch.

    `seeking` is how much of the way to another place is done, None when there; `reading` how much of the file is read
    of which `ended` is the end so far, None when it is all; `prediction` says whether the panel's
    estimate is `as recorded` or `made now`, and is empty without a panel.
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
        """How much of the recording is over."""
        length = self.ended - self.started
        return (self.at - self.started) / length if length > 0 else 1.0


class View(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Watch screen. `rows` are filtered and in order, made when they are looked at; `chosen_at` is
    the place of the chosen one among them; `total` is how many processes there are.

    `reported` is what the chosen process tells of itself where it has no preset.
    `stale` is how many seconds ago the source answered last, where that is longer than it should be.
    `asked` is who is to answer.
    `late` is the time, in seconds since the epoch, where an answer should have come by now.
    `totals` stand below the rows. `columns` are those that a person asked for, none where the width decides, and
    `predicts` says that a process has had a prediction, so that there are columns for it; `rare` are columns of which
    not every host has values, and this one has.
    `by_hand` says that a person chose a row, and `held` that rows keep their order since.
    `is_monitor` says that only what is seen is shown: no preset, prediction or estimate.
    `history_error` says why runs are not written down. `has_fleet` says that there are other hosts beside this one,
    `down` which of them do not answer, `view_only` that nothing may be signalled, traced, edited or written.
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
    sort: SortColumn = "gpu"
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
