"""What the editor needs of the dashboard."""

from typing import Protocol

from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile
from vramtui.presets.library import PresetLibrary


class EditorHost(Protocol):
    """What the editor needs of the dashboard."""

    def preset_saved(self, preset_file: PresetFile) -> None: ...

    def preset_deleted(self, key: str) -> None:
        """A preset's file has gone."""
        ...

    def running(self) -> tuple[int, str] | None:
        """Pid and command of the chosen process; None where there is none."""
        ...

    def preset_closed(self) -> None: ...

    def runs_of(self, key: str) -> tuple[Run, ...]:
        """The runs of a preset that are known: the chosen process's first, then those of the history."""
        ...

    @property
    def known_presets(self) -> PresetLibrary:
        """The presets that a new one can begin with."""
        ...
