"""One past run: its memory over time, both sides of its Ledger, and the exact values of its preset."""

from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll

from vramtui.app.history.run_parts import RunFacts, RunLedger, RunValues
from vramtui.app.state.memory_series import ceiling
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.dialog import Window
from vramtui.app.ui.graph.memory_graph import MemoryGraph
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_duration
from vramtui.core.runs.run import Run, StoredRun

WIDE = 112


class RunWindow(Window[None]):
    """A run as the history keeps it; nothing in it moves.

    Args:
        kept: the run.
        palette: the colours it is drawn in.
        now: seconds since the epoch.
        report: writes it to files.
        forget: asks whether it is to be removed from the history.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    DEFAULT_CSS = """
    RunWindow > #window {
        width: 96%; max-width: 180; height: 94%; padding: 0; background: $background;
        #all { height: 1fr; background: $background; }
        #story, #figures { height: auto; }
        RunFacts, RunLedger, RunValues { height: auto; }
        MemoryGraph { height: 10; }
    }
    RunWindow.-wide > #window {
        #columns { layout: horizontal; height: auto; }
        #story { width: 1fr; }
        #figures { width: 56; }
        MemoryGraph { height: 14; }
    }
    """
    BINDINGS = [
        Binding("s", "report", "Write a report", id="run.report", show=False),
        Binding("d", "forget", "Delete it from the history", id="run.forget", show=False),
        Binding("up,k", "scroll(-1)", "Line up", id="run.up", show=False),
        Binding("down,j", "scroll(1)", "Down", id="run.down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", id="run.page_up", show=False),
        Binding("pagedown", "scroll(10)", "Page down", id="run.page_down", show=False),
    ]

    def __init__(
        self,
        kept: StoredRun,
        palette: Palette,
        now: float,
        report: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        run = kept.run
        title = f"Run {kept.id} · {printable(run.preset or run.command) or 'no preset'} · {printable(run.host)}"
        super().__init__(title, "arrows scroll · s report · d delete · Esc close")
        self._run = run
        self._palette = palette
        self._now = now
        self._report = report
        self._forget = forget

    def inside(self) -> ComposeResult:
        """Story at the left, figures at the right; one below the other where there is no room."""
        with VerticalScroll(id="all"), Container(id="columns"):
            with Vertical(id="story"):
                yield RunFacts(self._run, self._now)
                yield MemoryGraph()
            with Vertical(id="figures"):
                yield RunLedger(self._run)
                yield RunValues(self._run)

    def on_mount(self) -> None:
        """Draw it, once."""
        self.query_one("#all").focus()
        view = View(series=series_of(self._run))
        for kind in (RunFacts, MemoryGraph, RunLedger, RunValues):
            self.query_one(kind).take(view, self._palette)

    async def action_forget(self) -> None:
        """Ask, with the list in sight."""
        self.dismiss(None)
        self.app.call_later(self._forget)

    def action_report(self) -> None:
        """Write it to files."""
        self._report()

    def action_scroll(self, lines: int) -> None:
        """Up and down."""
        self.query_one("#all", VerticalScroll).scroll_relative(y=lines, animate=False)


def series_of(run: Run) -> Series | None:
    """The run's memory as the graph draws it; None where nobody looked while it ran."""
    if not run.times:
        return None
    start, end = run.started_at + run.times[0], max(run.last_known, run.started_at + run.times[-1] + 1)
    highest = max(*run.values, run.predicted.process or 0, run.observed.process or 0)
    return Series(
        title=f"pid {run.pid}",
        times=tuple(run.started_at + at for at in run.times),
        values=run.values,
        start=start,
        end=end,
        ceiling=ceiling(highest, None),
        predicted=run.predicted.process,
        ends=(format_duration(run.times[0]), f"{format_duration(end - run.started_at)} after its start"),
    )
