"""One look at a host with everything the program knows of it, for the commands that are not the dashboard."""

from vramtui.core.observation.history import History
from vramtui.core.observation.matching import Matcher
from vramtui.core.observation.snapshot import Snapshot, ToldOf, nothing_told, take_snapshot
from vramtui.core.observation.source import Source
from vramtui.monitor.predictor import Predictor
from vramtui.presets import PresetLibrary


class Snapshotter:
    """Looks through a source again and again and keeps what it saw, so that peaks grow with each look.

    Args:
        source: the host.
        library: the presets that processes are matched with.
        told: what a process tells of itself.
    """

    def __init__(self, source: Source, library: PresetLibrary, told: ToldOf = nothing_told) -> None:
        self._source = source
        self._matcher = Matcher.of_candidates(library.candidates(), library.find)
        self._history = History()
        self._predict = Predictor().of_preset
        self._told = told

    def look(self) -> Snapshot:
        """Everything known now.

        Raises:
            SourceFailed: the source can say nothing.
        """
        sample = self._source.read()
        self._history.add(sample)
        matched = self._matcher.match(sample, {})
        return take_snapshot(sample, self._history, matched, self._predict, {}, told=self._told)
