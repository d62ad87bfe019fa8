"""Where the dashboard gets its presets from."""

from typing import Protocol

from vramtui.core.schema.preset import PresetFile


class Presets(Protocol):
    """A library of presets."""

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that is no preset."""
        ...

    def all(self) -> tuple[PresetFile, ...]:
        """Every preset there is."""
        ...

    def get(self, name_or_path: str) -> PresetFile:
        """One of them.

        Raises:
            UserError: there is none of that name.
        """
        ...
