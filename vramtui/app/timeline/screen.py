"""The Timeline screen: the panel's preset phase by phase, and the fine trace of it."""

from typing import Protocol

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.containers import Container
from textual.strip import Strip

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.keys import FIRST, TIMELINE_BINDINGS
from vramtui.app.state.run_fields import fields_of, value_of
from vramtui.app.state.view import Panel, ProcessRow, View
from vramtui.app.themes import Palette
from vramtui.app.timeline.allocations import FineTrace, Largest, at_peak
from vramtui.app.timeline.phases import PhaseBars
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import Lines, Piece, fit, paragraph, strip, wrap
from vramtui.app.ui.view_screen import ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.schema.decoder_models import TorchModel
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.result import JobCommand
from vramtui.dryrun.traces import Job
from vramtui.monitor.job_reports import Jobs

UNOBSERVED = "Nothing observed: a job started with `vramtui run` reports its phases."
NO_PRESET = "The selected process reports its phases and has no preset: p chooses one to stand beside them."
OFFER = "Press t to trace it: PyTorch runs it on fake tensors in the background, no GPU needed."


class TraceLines(Lines[TimelineView]):
    """Three lines under the header: the workload, the trace, the observation. What there is to say of a trace has two
    of them where nothing was observed.
    """

    DEFAULT_CSS = "TraceLines { height: 3; }"

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        panel = view.panel
        if panel is None:
            return paragraph(NO_PRESET, palette, width)[:height] if view.observed else []
        pieces = [_workload(panel, palette), _trace(view, palette), _observed(view, palette)]
        if not (view.observed or view.alone):
            pieces[1:] = [*_wrapped(pieces[1], width - 2), pieces[2]]
        return [strip([(" ", palette.text), *_cut(line, width - 1)], width, palette.text) for line in pieces][:height]


def _wrapped(pieces: list[Piece], width: int) -> list[list[Piece]]:
    """The pieces on two lines where they need them; the first keeps its style."""
    words = "".join(text for text, _ in pieces)
    if cell_len(words) <= width or len(pieces) == 1:
        return [pieces]
    (mark, style), (_, plain) = pieces[:2]
    first, *rest = wrap(words, width)
    mark = mark.rstrip()
    return [[(mark, style), (first.removeprefix(mark), plain)], [(" ".join(rest), plain)]]


def _cut(pieces: list[Piece], width: int) -> list[Piece]:
    """The pieces in at most `width` columns, with an ellipsis where the last of them is cut."""
    cut: list[Piece] = []
    for text, style in pieces:
        cut.append((text if cell_len(text) <= width else fit(text, width), style))
        width = max(0, width - cell_len(text))
    return cut


def _workload(panel: Panel, palette: Palette) -> list[Piece]:
    fields = [field for field in fields_of(panel.workload) if not field.choices]
    facts = [f"{field.label} {value}" for field in fields if (value := value_of(panel.workload, field)) is not None]
    changed = "  * changed, u undoes" if panel.changed else ""
    return [
        (printable(panel.preset.key), palette.ink("primary", bold=True)),
        (f" on {printable(panel.device.name)} · {_kind(panel.workload)}", palette.text),
        ("".join(f" · {fact}" for fact in facts), palette.dim),
        (changed, palette.ink("accent")),
    ]


def _kind(workload: Workload) -> str:
    """Return `train`, `infer` or `serve`."""
    return str(type(workload.run).__struct_config__.tag)


def _trace(view: TimelineView, palette: Palette) -> list[Piece]:
    state = view
    if state.running:
        return [
            ("tracing  ", palette.ink("accent", bold=True)),
            (state.running, palette.text),
            (" · x cancels", palette.dim),
        ]
    if state.problem:
        return [("trace ended early: ", palette.ink("error", bold=True)), (printable(state.problem), palette.text)]
    if state.result is not None:
        stopped = state.result.out_of_memory
        if stopped is not None:
            return [("traced  ", palette.ink("warning", bold=True)), (printable(stopped), palette.text)]
        peaks = (
            f"peaks: allocated {format_bytes(state.result.peak_allocated)} · reserved"
            f" {format_bytes(state.result.peak_reserved)} · process {format_bytes(state.result.process)}"
        )
        return [("traced  ", palette.ink("success", bold=True)), (peaks, palette.text)]
    if state.refusal:
        return [("no trace: ", palette.ink("warning", bold=True)), (printable(state.refusal), palette.text)]
    return [(OFFER, palette.dim)]


def _observed(view: TimelineView, palette: Palette) -> list[Piece]:
    if view.observed:
        return [(f"observed: {len(view.observed)} phases that the job reported", palette.text)]
    if view.alone:
        return [(f"selected: {len(view.alone)} phases that a process without this preset reported", palette.text)]
    return [(UNOBSERVED, palette.dim)]


WIDE = 112
FRAME_ROWS = 5  # header, three lines of status, keys
# Rows that the panels keep where not everything fits.
LEAST_PHASES, LEAST_PARTS, LEAST_TRACE, LEAST_TRACE_TALL = 6, 9, 14, 18


class TimelineOwner(Protocol):
    """What the screen asks of the traces that it shows."""

    @property
    def running(self) -> Job | JobCommand | None: ...

    def view(self, panel: Panel | None, jobs: Jobs, chosen: ProcessRow | None) -> TimelineView:
        """What is known of the panel's workload phase by phase."""
        ...

    def refusal(self, job: Job) -> str:
        """Why it cannot be traced; empty where it can."""
        ...

    def start(self, job: Job) -> bool:
        """Trace in the background; False while another one runs."""
        ...

    def cancel(self) -> bool:
        """End the running trace; whether there was one."""
        ...


class TimelineScreen(ViewScreen):
    """Bars above, the fine trace and the largest allocations below; narrow terminals turn pages with `v`."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (42, "-tall")]
    DEFAULT_CSS = """
    TimelineScreen {
        layout: vertical; background: $background;
        Header, KeyBar { height: 1; }
        #phases { height: 1fr; }
        #lower { height: 1fr; layout: horizontal; }
        #fine, #largest { width: 1fr; height: 100%; }
        &.-wide.-untraced #fine { display: none; }
        &.-wide.-unpredicted #lower { display: none; }
        &.-narrow.page-phases #lower { display: none; }
        &.-narrow.page-trace #phases, &.-narrow.page-trace #largest { display: none; }
        &.-narrow.page-largest #phases, &.-narrow.page-largest #fine { display: none; }
    }
    """
    BINDINGS = TIMELINE_BINDINGS
    PLACE = "timeline"
    PAGES = ("phases", "trace", "largest")
    FIRST_FOCUS = "PhaseBars"

    def __init__(self, shared: AppContext, traces: TimelineOwner) -> None:
        super().__init__()
        self._shared = shared
        self._traces = traces

    def compose(self) -> ComposeResult:
        yield Header("Timeline")
        yield TraceLines()
        yield PhaseBars(id="phases")
        with Container(id="lower"):
            yield FineTrace(id="fine")
            yield Largest(id="largest")
        yield KeyBar()

    def panels_view(self, view: View) -> TimelineView:
        """What is known of the panel's preset; what a trace would show has little room until there is one."""
        shown = self._traces.view(view.panel, self._shared.state.jobs, view.chosen)
        untraced = shown.result is None and not shown.running
        self.set_class(untraced, "-untraced")
        self.set_class(untraced and (view.panel is None or view.panel.estimate is None), "-unpredicted")
        self._share_rows(shown)
        return shown

    def _share_rows(self, shown: TimelineView) -> None:
        """Share the rows: in a wide terminal the phases take what they need, and what stands below them the others."""
        phases = self.query_one("#phases", PhaseBars)
        wanted = phases.rows(shown, self.size.width) if self.has_class("-wide") else 0
        if not wanted or self.has_class("-unpredicted"):
            phases.styles.height = "1fr"
            return
        if self.has_class("-untraced"):
            estimate = None if shown.panel is None else shown.panel.estimate
            least = min(LEAST_PARTS, len(at_peak(estimate)) + 3) if estimate is not None else 0
        else:
            least = LEAST_TRACE if self.has_class("-low") else LEAST_TRACE_TALL
        phases.styles.height = max(LEAST_PHASES, min(wanted, self.size.height - FRAME_ROWS - least))

    # --- traces: code that a preset names runs only here, and only after a yes -----------------------------------

    def action_trace(self) -> None:
        """Trace the panel's workload; code that a preset names is asked about first."""
        panel = self._shared.state.view().panel
        if panel is None:
            self.notify(why_no_preset(self._shared.state), markup=False)
            return
        job = (panel.workload, panel.device)
        if self._traces.running is not None:
            self.notify("A trace is already running (x cancels it).", markup=False)
            return
        refusal = self._traces.refusal(job)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)
            return
        model = job[0].model
        if not isinstance(model, TorchModel):
            self._start(job)
            return
        from vramtui.app.ui.dialog import Confirm

        part = f", its function {model.function}" if model.function else ""
        question = (
            f"The preset names Python code: {printable(model.file)}{printable(part)}. Tracing executes it on this"
            " machine, as you. Run it?"
        )
        self.app.push_screen(Confirm("Run this file?", question), lambda yes: self._start(job) if yes else None)

    def _start(self, job: Job) -> None:
        self._traces.start(job)
        self._shared.redraw.now()

    def action_cancel_trace(self) -> None:
        if not self._traces.cancel():
            self.notify("No trace is running.", timeout=2, markup=False)
        self._shared.redraw.now()

    def action_leave_timeline(self) -> None:
        """Escape: first the trace, then the screen."""
        if self._traces.cancel():
            self._shared.redraw.now()
        else:
            self._shared.screens.show(FIRST)
