"""What the threads and the widgets tell the dashboard."""

from dataclasses import dataclass

from textual.message import Message

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.poller import ReadResult


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
class FieldStepped(Message):
    """A field of the run is to go up (1) or down (-1)."""

    field: str
    direction: int


@dataclass
class GpuChosen(Message):
    """A GPU's bar was clicked."""

    uuid: str


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


def message_of(result: ReadResult) -> Message:
    """The message that says what came of a read."""
    if isinstance(result, Sample):
        return SampleTaken(result)
    if isinstance(result, SourceFailed):
        return ReadFailed(result.message, result.hint)
    return SourceStuck(result.asked_at)
