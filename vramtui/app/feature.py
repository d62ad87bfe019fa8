"""What every part of the dashboard offers it, beside what its own keys do."""

from typing import Protocol

from vramtui.core.observation.readings import Sample


class Feature(Protocol):
    """Owned by the dashboard, which asks its features in one order, written in one place.

    Who derives from it says only what it does: the rest is as it is here.
    """

    def on_sample(self, sample: Sample) -> None:
        """Take a sample that the state has taken already."""
        del sample

    @property
    def busy(self) -> bool:
        """Whether work runs in the background that the screen waits for."""
        return False

    def close(self) -> None:
        """The dashboard ends: leave everything at once, or within a second."""
        return
