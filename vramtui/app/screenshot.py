"""Pictures of the dashboard without a terminal, for snapshots and the documentation."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from vramtui.app.app import Dashboard
from vramtui.app.services import Services, StartOptions
from vramtui.core.observation.readings import Sample
from vramtui.monitor.jobs import Presets
from vramtui.monitor.predictor import LazyDefault, Refiner

PAUSE, STILL = 0.1, 3  # seconds between pictures, and how many have to be equal once no work goes on


class Look(NamedTuple):
    """Columns and rows, another theme, and keys to press, as Textual names them."""

    size: tuple[int, int] = (160, 48)
    theme: str | None = None
    keys: tuple[str, ...] = ()


USUAL_LOOK = Look()


class _Still:
    """A source that always shows the same moment."""

    __slots__ = ("_sample",)

    name = "picture"

    def __init__(self, sample: Sample) -> None:
        self._sample = sample

    def read(self) -> Sample:
        return self._sample

    def close(self) -> None: ...


def picture(
    samples: Sequence[Sample],
    presets: Presets,
    *,
    banner: str | None = None,
    look: Look = USUAL_LOOK,
    services: Services | None = None,
) -> str:
    """Return an SVG of the screen after `samples` (at least one), with the look's keys pressed and their work done."""
    last = samples[-1]
    services = services or Services()
    if services.refiner is None:
        services = replace(services, refiner=Refiner(LazyDefault, settled=0.0))
    app = Dashboard(
        source=_Still(last),
        presets=presets,
        services=services,
        start=StartOptions(banner=banner, now=lambda: last.taken_at),
    )
    app.state.take_presets((), presets)
    for sample in samples:
        app.state.take(sample)
    refiner = services.refiner

    async def draw() -> str:
        async with app.run_test(size=look.size) as pilot:
            if look.theme is not None:
                app.theme = look.theme
            await pilot.pause()
            for key in look.keys:
                await pilot.press(key)
                await pilot.pause()
            former, same = "", 0
            while same < STILL:  # until no work runs in the background, and the screen stays the same
                app.draw()
                await pilot.pause(PAUSE if look.keys else None)
                busy = app.parts.busy or (refiner is not None and not refiner.wait(0.0))
                shown = "" if busy else app.parts.export.picture()
                same = same + 1 if shown and shown == former else 0
                former = shown
            return app.parts.export.picture()

    return asyncio.run(draw())
