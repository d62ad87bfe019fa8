"""The dashboard as a picture without a terminal: for snapshots from the command line and for the documentation."""

import asyncio
from collections.abc import Sequence

from vramtui.app.app import Dashboard
from vramtui.app.library import Presets
from vramtui.app.tracer import Tracer
from vramtui.core.readings import Sample

SIZE = (160, 48)


class _Still:
    """A source that always shows the same moment."""

    name = "picture"

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def read(self) -> Sample:
        return self._sample

    def close(self) -> None:
        """Nothing is held."""


def picture(
    samples: Sequence[Sample],
    presets: Presets,
    *,
    banner: str | None = None,
    size: tuple[int, int] = SIZE,
    theme: str | None = None,
    keys: Sequence[str] = (),
    tracer: Tracer | None = None,
) -> str:
    """SVG of the screen after `samples`, with these keys pressed and their traces done; `size` in columns and rows."""
    last = samples[-1]
    app = Dashboard(source=_Still(last), presets=presets, banner=banner, now=lambda: last.taken_at, tracer=tracer)
    app.desk.take_presets(presets.all())
    for sample in samples:
        app.desk.take(sample)
    return asyncio.run(_draw(app, size, theme, keys))


async def _draw(app: Dashboard, size: tuple[int, int], theme: str | None, keys: Sequence[str]) -> str:
    async with app.run_test(size=size) as pilot:
        if theme is not None:
            app.theme = theme
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        while app.traces.running is not None:
            await pilot.pause(0.05)
        app.draw()
        await pilot.pause()
        return app.picture()
