"""The dashboard as a picture without a terminal: for snapshots from the command line and for the documentation."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from textual.pilot import Pilot

from vramtui.app.app import Dashboard
from vramtui.app.services import Services, StartOptions
from vramtui.core.observation.readings import Sample
from vramtui.monitor.predictor import LazyDefault, Refiner
from vramtui.monitor.session import Presets

PAUSE, STILL = 0.1, 3  # seconds between looks, and how many have to be alike once nothing goes on any more


class Look(NamedTuple):
    """How the screen is looked at: columns and rows, a theme in place of its own, keys as Textual names them."""

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

    def close(self) -> None:
        """Close; there is nothing to release."""


def picture(
    samples: Sequence[Sample],
    presets: Presets,
    *,
    banner: str | None = None,
    look: Look = USUAL_LOOK,
    services: Services | None = None,
) -> str:
    """SVG of the screen after `samples`, with the look's keys pressed and everything done that they began.

    Args:
        samples: what was seen, in order; at least one.
        presets: where presets come from.
        banner: a sentence above everything.
        look: how it is looked at.
        services: what the dashboard uses of the outside world.
    """
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
    app.state.take_presets(presets.all())
    for sample in samples:
        app.state.take(sample)
    return asyncio.run(_draw(app, look, services.refiner))


async def _draw(app: Dashboard, look: Look, refiner: Refiner | None) -> str:
    async with app.run_test(size=look.size) as pilot:
        if look.theme is not None:
            app.theme = look.theme
        await pilot.pause()
        for key in look.keys:
            await pilot.press(key)
            await pilot.pause()
        await _settle(app, pilot, refiner, patient=bool(look.keys))
        return app.parts.export.picture()


async def _settle(app: Dashboard, pilot: Pilot[None], refiner: Refiner | None, *, patient: bool) -> None:
    """Wait until no background work runs, and then until the screen stays as it is."""
    former, same = "", 0
    while same < STILL:
        app.draw()
        await pilot.pause(PAUSE if patient else None)
        busy = app.parts.busy or (refiner is not None and not refiner.wait(0.0))
        shown = "" if busy else app.parts.export.picture()
        same = same + 1 if shown and shown == former else 0
        former = shown
