"""The Timeline screen: the panel's preset phase by phase, and its fine trace."""

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.keys import FIRST, TIMELINE_BINDINGS
from vramtui.app.state.view import View
from vramtui.app.timeline.panels import FineTrace, Largest, PhaseBars, TraceLines, at_peak
from vramtui.app.timeline.trace_jobs import TimelineView, TraceJobs
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.schema.models import TorchModel

WIDE = 112
FRAME_ROWS = 5  # header, three lines of status, keys
# Rows that the panels keep if there is not enough room.
LEAST_PHASES, LEAST_PARTS, LEAST_TRACE, LEAST_TRACE_TALL = 6, 9, 14, 18


class TimelineScreen(ViewScreen):
    """Bars above, the fine trace and the largest allocations below; in narrow terminals `v` turns pages."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    CSS_PATH = "timeline.tcss"
    BINDINGS = TIMELINE_BINDINGS
    PLACE = "timeline"
    PAGES = ("phases", "trace", "largest")
    FIRST_FOCUS = "PhaseBars"

    def __init__(self, shared: AppContext, traces: TraceJobs) -> None:
        super().__init__()
        self._shared, self._traces = shared, traces

    def compose(self) -> ComposeResult:
        yield Header("Timeline")
        yield TraceLines()
        yield PhaseBars(id="phases")
        with Container(id="lower"):
            yield FineTrace(id="fine")
            yield Largest(id="largest")
        yield KeyBar()

    def panels_view(self, view: View) -> TimelineView:
        """The view of now. In a wide terminal the phases take the rows that they need, and the panels below the rest;
        without a trace, its panels are small.
        """
        shown = self._traces.view(view.panel, self._shared.state.jobs, view.chosen)
        untraced = shown.result is None and not shown.running
        self.set_class(untraced, "-untraced")
        self.set_class(untraced and (view.panel is None or view.panel.estimate is None), "-unpredicted")
        phases = self.query_one("#phases", PhaseBars)
        wanted = phases.rows(shown, self.size.width) if self.has_class("-wide") else 0
        if not wanted or self.has_class("-unpredicted"):
            phases.styles.height = "1fr"
            return shown
        if untraced:
            estimate = None if shown.panel is None else shown.panel.estimate
            least = min(LEAST_PARTS, len(at_peak(estimate)) + 3) if estimate is not None else 0
        else:
            least = LEAST_TRACE if self.has_class("-low") else LEAST_TRACE_TALL
        phases.styles.height = max(LEAST_PHASES, min(wanted, self.size.height - FRAME_ROWS - least))
        return shown

    def action_trace(self) -> None:
        """Trace the panel's workload. Code that a preset names runs only here, and only after a yes."""
        panel = self._shared.state.view().panel
        if panel is None:
            self.notify(why_no_preset(self._shared.state), markup=False)
            return
        job = (panel.workload, panel.device)

        def start(yes: bool | None = True) -> None:
            if yes:
                self._traces.start(job)
                self._shared.redraw.now()

        if self._traces.busy:
            self.notify("A dry run is already running (x cancels it).", markup=False)
            return
        refusal = self._traces.refusal(job)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
            return
        model = job[0].model
        if not isinstance(model, TorchModel):
            start()
            return
        from vramtui.app.ui.dialog import Confirm

        part = f", its function {model.function}" if model.function else ""
        question = (
            f"The preset names Python code: {printable(model.file)}{printable(part)}. A dry run"
            " executes it on this machine, as you. Run it?"
        )
        self.app.push_screen(Confirm("Run this file?", question), start)

    def action_cancel_trace(self) -> None:
        if not self._traces.cancel():
            self.notify("No dry run is running.", timeout=2, markup=False)
        self._shared.redraw.now()

    def action_leave_timeline(self) -> None:
        """Cancel the trace, else leave the screen."""
        if self._traces.cancel():
            self._shared.redraw.now()
        else:
            self._shared.screens.show(FIRST)
