"""What the threads and the widgets tell the dashboard."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

from vramtui.app.state.view import RowId, SortColumn
from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.poller import ReadResult

if TYPE_CHECKING:
    from vramtui.core.runs.run_list import RunColumn
    from vramtui.monitor.fleet import FleetColumn, JobColumn


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
class GpuChosen(Message):
    """A GPU's bar was clicked."""

    uuid: str


@dataclass
class FleetRowChosen(Message):
    """A GPU of a host was chosen: the host's name and the GPU's uuid."""

    row: tuple[str, str]


@dataclass
class FleetSortChosen(Message):
    """The heading of a column of the hosts was clicked."""

    column: "FleetColumn"


@dataclass
class FleetJobChosen(Message):
    """A job of several ranks, or one rank of it, was chosen."""

    row: tuple[str, str]


@dataclass
class FleetJobSortChosen(Message):
    """The heading of a column of the jobs was clicked."""

    column: "JobColumn"


@dataclass
class RunChosen(Message):
    """A past run was chosen."""

    number: int


@dataclass
class RunSortChosen(Message):
    """The heading of a column of past runs was clicked."""

    column: "RunColumn"


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
class ExperimentChosen(Message):
    """The Lab screen is to show an experiment so many places on."""

    direction: int


@dataclass
class ExperimentStepped(Message):
    """The selected step of the Lab screen's experiment is to go so many on."""

    steps: int


def message_of(result: ReadResult) -> Message:
    """The message that says what came of a read."""
    if isinstance(result, Sample):
        return SampleTaken(result)
    if isinstance(result, SourceFailed):
        return ReadFailed(result.message, result.hint)
    return SourceStuck(result.asked_at)
