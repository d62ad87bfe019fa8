"""Running the dashboard in a test: given samples, a frozen clock, and nothing left to chance."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from textual.pilot import Pilot
from textual.strip import Strip
from textual.widgets import OptionList

from tests.app import scenes
from tests.app.fakes import FixedPresets, RoundEstimator, Still
from tests.examples import Clock, Never
from vramtui.app.app import Dashboard
from vramtui.app.context import PresetsRead, SampleTaken
from vramtui.app.plan.dialogs import CardRunner
from vramtui.app.services import Services
from vramtui.app.timeline.trace_jobs import Tracer
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Estimator
from vramtui.core.observation.readings import Sample
from vramtui.core.observation.snapshot import Snapshot
from vramtui.core.schema.settings import Settings
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.jobs import Presets
from vramtui.monitor.poller import FastSampler
from vramtui.monitor.predictor import Refiner

Driver = tuple[Still, Pilot[None]]
T = TypeVar("T")


@asynccontextmanager
async def dashboard(
    samples: Sequence[Sample] = (),
    size: tuple[int, int] = (120, 35),
    *,
    presets: Presets | None = None,
    save: Callable[[Snapshot, str], list[str]] | None = None,
    clock: Clock | None = None,
    banner: str | None = None,
    preset: str | None = None,
    notifications: bool = False,
    settings: Settings | None = None,
    tracer: Tracer | None = None,
    estimator: Estimator | None = None,
    sampler: FastSampler | None = None,
    derived: DerivedPresets | None = None,
    keep_settings: Callable[[Mapping[str, object]], None] | None = None,
    view_only: bool = False,
    refiner: Refiner | None = None,
    card_runner: CardRunner | None = None,
) -> AsyncIterator[Driver]:
    library = FixedPresets() if presets is None else presets
    source = Never()
    app = Still(
        source,
        library,
        now=clock or Clock(scenes.START),
        banner=banner,
        preset=library.find(preset or ""),
        estimator=estimator or RoundEstimator(),
        settings=settings,
        services=Services(
            save=save,
            tracer=tracer,
            sampler=sampler,
            derived=derived,
            keep_settings=keep_settings,
            view_only=view_only,
            refiner=refiner,
            card_runner=card_runner,
        ),
    )
    async with app.run_test(size=size, notifications=notifications) as pilot:
        await give(app, pilot, *samples)
        app.post_message(PresetsRead(library, library.problems))
        await settle(app, pilot)
        yield app, pilot
        if app.is_running:
            screen_text(app)


async def give(app: Dashboard, pilot: Pilot[None], *samples: Sample) -> None:
    for sample in samples:
        app.post_message(SampleTaken(sample))
    await settle(app, pilot)


async def settle(app: Dashboard, pilot: Pilot[None]) -> None:
    await pilot.pause()
    app.draw()
    await pilot.pause()
    app.draw()
    await pilot.pause()


async def press(app: Dashboard, pilot: Pilot[None], *keys: str) -> str:
    """Press `keys`; returns the screen's text afterwards."""
    await pilot.press(*keys)
    await settle(app, pilot)
    return screen_text(app)


def known(value: T | None) -> T:
    assert value is not None
    return value


async def choose_process(driver: Driver, word: str) -> None:
    app = driver[0]
    row = next(row for row in app.state.view().rows if row.process is not None and word in (row.process.command or ""))
    app.state.choose(row.id)
    app.redraw.now()
    await settle(*driver)


def screen_text(app: Dashboard) -> str:
    return "\n".join(strip.text for strip in shown(app))


def shown(app: Dashboard) -> list[Strip]:
    return app.screen._compositor.render_strips()


def climbing(seconds: int = 60, to: int = 58) -> list[Sample]:
    return [
        scenes.usual(at - seconds + 1, trained=(10 + (to - 10) * (at + 1) // seconds) * GIB) for at in range(seconds)
    ]


async def lines_with_totals(app: Dashboard, pilot: Pilot[None]) -> list[str]:
    """The lines of the list of presets as soon as each that is seen has its total."""
    options = app.screen.query_one(OptionList)
    while True:
        await pilot.pause()
        lines, first = [str(option.prompt) for option in options.options], options.scroll_offset.y
        if options.size.height and not any("…" in line for line in lines[first : first + options.size.height]):
            return lines
