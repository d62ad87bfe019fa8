"""What the dashboard would draw, without a terminal: the lines of its panels."""

from collections.abc import Iterator, Sequence
from functools import cache

from vramtui.app.state.dashboard_state import DashboardState
from vramtui.app.state.view import View
from vramtui.app.themes import INKS, Palette, palette_variables
from vramtui.app.ui.graph import MemoryGraph
from vramtui.app.ui.lines import Lines
from vramtui.app.ui.view_screen import Banner, Header
from vramtui.app.watch.estimate_panel import EstimatePanel
from vramtui.app.watch.gpu_panel import GpuPanel
from vramtui.app.watch.process_table import columns_for, row_strip
from vramtui.app.watch.windows import Details
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Sample
from vramtui.monitor.predictor import Predictor
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary

WIDTH, HEIGHT = 120, 12
COLOURS = dict.fromkeys(INKS, "#4488ff") | {"foreground": "#dddddd", "background": "#101010"}
MOST_ROWS = 20


def pictures(samples: Sequence[Sample], jobs: tuple[ObservedJob, ...] = ()) -> Iterator[str]:
    """The lines of every panel after these samples; titles, and the details of the chosen row, are among them."""
    view = view_of(samples, jobs)
    for panel in (GpuPanel(), EstimatePanel(), MemoryGraph(), Header(), Banner()):
        yield from panel.titles(view)
        yield from lines_of(panel, view)
    yield from rows_of(view)
    yield from Details(view).text().plain.split("\n")


def view_of(samples: Sequence[Sample], jobs: tuple[ObservedJob, ...] = ()) -> View:
    state = DashboardState(MonitorSession(predictor=Predictor()))
    state.take_presets(_presets())
    state.session.jobs = lambda: jobs
    for sample in samples:
        state.take(sample)
    return state.view()


def lines_of(panel: Lines[View], view: View) -> Iterator[str]:
    return (strip.text for strip in panel.build(view, palette(), WIDTH, HEIGHT))


def rows_of(view: View) -> Iterator[str]:
    columns = columns_for(WIDTH, WIDTH, view.columns, predicts=view.predicts)
    return (row_strip(columns, row, palette(), WIDTH, cursor=None).text for row in view.rows[:MOST_ROWS])


@cache
def palette() -> Palette:
    return Palette(palette_variables(COLOURS, dark=True))


_presets = cache(lambda: PresetLibrary().all())
