"""The last hour of a GPU, drawn: how busy, how full, how hot and how much power, for the window of details."""

from collections.abc import Callable, Mapping

from vramtui.app.ui.graph.braille import braille_rows, fullest, levels
from vramtui.core.base.curves import Curve
from vramtui.core.base.units import format_bytes
from vramtui.core.observation.readings import Gpu

SPANS = (300, 900, 1800, 3600)  # seconds
ROWS = 2  # of braille for each
LEAST_COLUMNS = 8
WATTS, CELSIUS = 100, 100  # where a scale ends at least, without a limit that is known
FORMATS: Mapping[str, Callable[[int], str]] = {
    "utilization": lambda value: f"{value} %",
    "memory": format_bytes,
    "power": lambda value: f"{value} W",
    "temperature": lambda value: f"{value} °C",
}


def gauge_rows(gauges: Mapping[str, Curve], gpu: Gpu, end: float, span: int, width: int) -> list[tuple[str, list[str]]]:
    """The name and lines of each gauge that was ever read: its highest and present value, then the graph.

    Args:
        gauges: those of `core.observation.history.History` for this GPU.
        gpu: where scales end.
        end: of the graph, in seconds since the epoch.
        span: seconds from its beginning to its end; what lies before the first look stays empty.
        width: columns of each line.
    """
    return [
        (name, _lines(name, gauges[name], _ceiling(name, gauges[name], gpu), (end - span, end), width))
        for name in FORMATS
        if name in gauges and len(gauges[name].times)
    ]


def span_words(span: int) -> str:
    """What a graph of that many seconds is called."""
    return "the last hour" if span == SPANS[-1] else f"the last {span // 60} minutes"


def _lines(name: str, curve: Curve, ceiling: int, times: tuple[float, float], width: int) -> list[str]:
    form, (start, end), values = FORMATS[name], times, curve.values[0]
    places = fullest(curve.times, values, start, end, 2 * max(LEAST_COLUMNS, width))
    drawn = [None if place is None else values[place] for place in places]
    known = [value for value in drawn if value is not None]
    most = f", at most {form(max(known))}" if known else ""
    return [f"{form(values[-1])}{most}", *braille_rows(levels(drawn, ceiling, ROWS), ROWS)]


def _ceiling(name: str, curve: Curve, gpu: Gpu) -> int:
    highest = max(curve.values[0])
    match name:
        case "memory":
            return max(gpu.memory.total or 1, highest)
        case "power":
            return max(round(gpu.power_limit_watts or WATTS), highest)
        case _:
            return max(CELSIUS, highest)
