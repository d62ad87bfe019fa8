"""Messages of threads and widgets to the dashboard, and the state of the source."""

from collections.abc import Callable
from dataclasses import dataclass

from textual.message import Message

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Sample
from vramtui.core.schema.preset import PresetFile
from vramtui.monitor.poller import ReadResult

GRACE = 0.1  # seconds: reads take some time, and not always the same


@dataclass
class SampleTaken(Message):
    """The source answered."""

    sample: Sample


@dataclass
class SourceStuck(Message):
    """The source has not answered within its deadline; `since` is the time of the read by the poller's clock."""

    since: float


@dataclass
class ReadFailed(Message):
    """The source failed."""

    message: str
    hint: str = ""


@dataclass
class PresetsRead(Message):
    """The preset files are read; `problems` has a sentence for each that could not be."""

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
    """The cursor of Plan's map is to move by columns and rows."""

    across: int
    down: int


@dataclass
class CellChosen(Message):
    """A cell of Plan's map was clicked."""

    x: int
    y: int


def message_of(result: ReadResult) -> Message:
    if isinstance(result, Sample):
        return SampleTaken(result)
    if isinstance(result, SourceFailed):
        return ReadFailed(result.message, result.hint)
    return SourceStuck(result.asked_at)


class FeedStatus:
    """The state of the source for header and banner.

    Attributes:
        asked: the driver or host that should answer.
        failure: the source's own sentence, or that it has not answered yet; empty once it has.
        failed: why the latest read failed, without advice.
        stuck: the read in progress is past its deadline.
        notes: a sentence for each preset file that could not be read.
    """

    __slots__ = ("_answered_at", "_clock", "asked", "banner", "failed", "failure", "interval", "notes", "stuck")

    def __init__(self, interval: float, banner: str, clock: Callable[[], float], asked: str = "the driver") -> None:
        self.interval, self.banner, self.asked = interval, banner, asked
        self.failure = self.failed = ""
        self.stuck = False
        self.notes: tuple[str, ...] = ()
        self._clock = clock
        self._answered_at: float | None = None

    def add_banner(self, words: str) -> None:
        self.banner = " · ".join(filter(None, (self.banner, words)))

    def answer(self) -> None:
        self._answered_at = self._clock()
        self.stuck = False
        self.failure = self.failed = ""

    def begin_again(self, asked: str) -> None:
        self.answer()
        self.asked, self._answered_at = asked, None

    def stall(self) -> None:
        if self._answered_at is None:
            self.failure = f"waiting for {self.asked} to answer"
        self.stuck = True

    def fail(self, message: str, hint: str) -> None:
        self.failure = " ".join(filter(None, (message, hint)))
        self.failed = message

    @property
    def late(self) -> float | None:
        """The present time, in seconds since the epoch, if an answer is overdue; else None."""
        now = self._clock()
        return None if self._answered_at is None or now - self._answered_at < self.interval + GRACE else now

    @property
    def until_late(self) -> float:
        """Seconds until the next answer is overdue; 0 if it is, or none has come yet."""
        if self._answered_at is None:
            return 0.0
        return max(0.0, self._answered_at + self.interval + GRACE - self._clock())

    @property
    def age(self) -> float | None:
        """Seconds since the last answer, if the source has stopped answering."""
        if not (self.stuck or self.failed) or self._answered_at is None:
            return None
        return max(0.0, self._clock() - self._answered_at)
