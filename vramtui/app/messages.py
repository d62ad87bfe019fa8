"""What the threads and the widgets tell the dashboard."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from vramtui.app.state import RowId, SortColumn
from vramtui.app.timeline.tracer import FinishedTrace, Job
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.core.runs.calibration import Calibration
    from vramtui.core.runs.run import StoredRun
    from vramtui.core.runs.run_list import RunColumn


@dataclass
class SampleTaken(Message):
    """The source answered."""

    sample: Sample


@dataclass
class SourceStuck(Message):
    """The source has not answered within its deadline; `since` is when it was asked, on the poller's clock."""

    since: float


@dataclass
class ReadFailed(Message):
    """The source says that it can tell nothing, and why."""

    message: str
    hint: str = ""


@dataclass
class PresetsRead(Message):
    """The preset files are read; `problems` holds a sentence for each that could not be."""

    presets: tuple[PresetFile, ...]
    problems: tuple[str, ...] = ()


@dataclass
class SnapshotSaved(Message):
    """The files of a snapshot are written, or `problem` says why they are not."""

    paths: list[str]
    problem: str = ""


@dataclass
class RowChosen(Message):
    """A row of the process table was chosen; `held` when by a person, who then wants the order to stay."""

    row: RowId


@dataclass
class SortChosen(Message):
    """The heading of a column was clicked."""

    column: SortColumn


@dataclass
class FieldStepped(Message):
    """A field of the run is to go up (1) or down (-1)."""

    field: str
    direction: int


@dataclass
class FilterTyped(Message):
    """The filter of the process table is now `text`."""

    text: str


@dataclass
class GpuChosen(Message):
    """A GPU's bar was clicked."""

    uuid: str


@dataclass
class TraceProgressed(Message):
    """A running trace is at `words`."""

    job: Job
    words: str


@dataclass
class TraceEnded(Message):
    """A trace is done, or an earlier one was found (`recalled`).

    Without `traced`, `problem` says why it ended early, and is empty where it was called off.
    """

    job: Job
    traced: FinishedTrace | None = None
    problem: str = ""
    recalled: bool = False


@dataclass
class PastRead(Message):
    """The history of runs was looked at; `stamp` is what it looked like.

    `runs` is None where it has not changed since, or `problem` says why it was not read.
    """

    stamp: object
    runs: "tuple[StoredRun, ...] | None"
    calibration: "Calibration | None" = None
    problem: str = ""


@dataclass
class RunChosen(Message):
    """A past run was chosen."""

    number: int


@dataclass
class RunSortChosen(Message):
    """The heading of a column of past runs was clicked."""

    column: "RunColumn"


@dataclass
class RunFilterTyped(Message):
    """The filter of past runs is now `text`."""

    text: str


@dataclass
class RunAnswered(Message):
    """Something was done with a past run: what, and lines about it; or `problem` says why it was not."""

    title: str
    lines: list[str]
    problem: str = ""


@dataclass
class CellMoved(Message):
    """The cursor of the Plan screen's map is to go so many columns and rows on."""

    across: int
    down: int


@dataclass
class CellChosen(Message):
    """A cell of the Plan screen's map was clicked."""

    x: int
    y: int


@dataclass
class PlanProgressed(Message):
    """The Plan screen's maps and advice know more than before; `problem` says what went wrong."""

    problem: str = ""


@dataclass
class VariantSaved(Message):
    """A variant is a preset now, or `problem` says why it is not."""

    found: PresetFile | None
    path: str = ""
    problem: str = ""
