"""The screen as a picture, without a terminal."""

from textual.pilot import Pilot

from vramtui.app.app import Dashboard
from vramtui.app.library import Presets
from vramtui.core.readings import Sample

SIZE = (120, 35)


class _Given:
    """A source that has been asked already."""

    name = "given"

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def read(self) -> Sample:
        return self._sample

    def close(self) -> None:
        """Nothing is held."""


class _Still(Dashboard):
    """A dashboard that reads nothing by itself."""

    def start_reading(self) -> None:
        """There is nothing to read."""


def picture(
    sample: Sample,
    presets: Presets,
    *,
    banner: str | None = None,
    preset: str | None = None,
    size: tuple[int, int] = SIZE,
) -> str:
    """The Watch screen on `sample` as SVG, `size` columns and rows large. Runs an event loop of its own."""
    app = _Still(_Given(sample), presets, banner=banner, preset=preset)
    taken: list[str] = []

    async def look(pilot: Pilot[object]) -> None:
        app.desk.take_presets(presets.all())
        app.desk.take(sample)
        app.draw()
        await pilot.pause()
        app.draw()
        await pilot.pause()
        taken.append(app.picture())
        app.exit()

    app.run(headless=True, size=size, auto_pilot=look)
    return taken[0]
