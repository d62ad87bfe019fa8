"""A GPU's last hour in the window of details."""

import msgspec
from textual.widgets import Static

from tests.app import scenes
from tests.app.driver import climbing, dashboard, settle
from vramtui.app.app import Dashboard
from vramtui.app.watch.windows import SPANS, gauge_rows, span_words
from vramtui.core.base.units import GIB
from vramtui.core.observation.history import Curve, History

HOUR = 3600


def _hour() -> History:
    """A card that is idle for half an hour and full for the other."""
    history = History()
    for at in range(0, HOUR, 10):
        busy = at >= HOUR // 2
        card = msgspec.structs.replace(
            scenes.gpu(0, scenes.process(5, 60 * GIB if busy else GIB, "python x.py")),
            utilization=100 if busy else 0,
            power_watts=650.4 if busy else 70.0,
            power_limit_watts=700.0,
            temperature_celsius=None,
        )
        history.add(msgspec.structs.replace(scenes.sample(card), taken_at=float(at)))
    return history


def test_each_gauge_says_what_it_is_and_was_and_draws_the_hour() -> None:
    history = _hour()
    _, card = next(iter(history.answered.values()))
    rows = dict(gauge_rows(history.gauges[card.uuid], card, HOUR, HOUR, 20))
    assert list(rows) == ["utilization", "memory", "power"]  # nobody told of a temperature
    words, top, bottom = rows["utilization"]
    assert words == "100 %, at most 100 %"
    assert (len(top), top.strip(), bottom[10:]) == (20, "⣿" * 10, "⣿" * 10)
    assert rows["power"][0] == "650 W, at most 650 W"


def test_what_lies_before_the_first_look_stays_empty() -> None:
    curve = Curve()
    curve.add(100.0, (50,))
    ((_, (_, *drawn)),) = gauge_rows({"utilization": curve}, scenes.gpu(0), 110.0, 1000, 20)
    assert all(not line[:15].strip() for line in drawn)
    assert any(line[-1:].strip() for line in drawn)


async def test_plus_shows_less_of_the_past_and_minus_more() -> None:
    async with dashboard(climbing(), size=(100, 60)) as (app, pilot):
        await pilot.press("i")
        await settle(app, pilot)
        spans = [_span(app)]
        for key in ("plus", "plus", "minus", "plus", "plus", "plus"):
            await pilot.press(key)
            await settle(app, pilot)
            spans.append(_span(app))
        whole, half, quarter, least = map(span_words, reversed(SPANS))
        assert spans == [whole, half, quarter, half, quarter, least, least]


def _span(app: Dashboard) -> str:
    text = str(app.screen.query_one("#window Static", Static).render())
    return next(f"the last {line.split('the last ')[1]}" for line in text.split("\n") if "the last" in line)
