"""The Timeline and the traces that it starts."""

import msgspec

from vramtui.app import messages
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.app.screen_registry import FIRST
from vramtui.app.state import View
from vramtui.app.timeline.trace_jobs import timeline_of
from vramtui.app.timeline.tracer import Job
from vramtui.core.base.text import printable
from vramtui.core.schema.decoder_models import TorchModel


class TraceController(DashboardBase):
    """What the Timeline's keys ask for. Code that a preset names runs only here, and only after a yes."""

    @property
    def is_busy(self) -> bool:
        """While a trace runs."""
        return self.traces.running is not None or super().is_busy

    def complete(self, view: View, place: str) -> View:
        """The Timeline's part."""
        view = super().complete(view, place)
        if place != "timeline":
            return view
        return msgspec.structs.replace(view, timeline=timeline_of(self.traces, view.panel, self.desk.jobs))

    def action_trace(self) -> None:
        """Trace the panel's workload; code that a preset names is asked about first."""
        job = self._job()
        if job is None:
            self.notify("Choose a preset first: p", markup=False)
            return
        if self.traces.running is not None:
            self.notify("A trace is already running (x cancels it).", markup=False)
            return
        refusal = self.traces.refusal(job)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
            return
        model = job[0].model
        if not isinstance(model, TorchModel):
            self._start(job)
            return
        from vramtui.app.ui.confirm import Confirm  # noqa: PLC0415 - as above

        part = f", its function {model.function}" if model.function else ""
        question = (
            f"The preset names Python code: {printable(model.file)}{printable(part)}. Tracing executes it on this"
            " machine, as you. Run it?"
        )
        self.push_screen(Confirm("Run this file?", question), lambda yes: self._start(job) if yes else None)

    def _start(self, job: Job) -> None:
        self.traces.start(job)
        self.draw()

    def _job(self) -> Job | None:
        panel = self.desk.view().panel
        return None if panel is None else (panel.workload, panel.device)

    def action_cancel_trace(self) -> None:
        """Cancel the trace."""
        if not self.traces.cancel():
            self.notify("No trace is running.", timeout=2, markup=False)
        self.draw()

    def action_leave_timeline(self) -> None:
        """Escape: first the trace, then the screen."""
        if self.traces.cancel():
            self.draw()
        else:
            self.action_show(FIRST)

    def on_trace_progressed(self, message: messages.TraceProgressed) -> None:
        """A phase has ended."""
        self.traces.progressed(message)
        self.draw_soon()

    def on_trace_ended(self, message: messages.TraceEnded) -> None:
        """The trace takes its place beside the other methods."""
        self.traces.ended(message)
        self.draw()
