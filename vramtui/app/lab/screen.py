"""The Lab screen: an experiment's steps, and the allocator's blocks at the selected one."""

from textual.app import ComposeResult
from textual.containers import Container

from vramtui.app.context import AppContext
from vramtui.app.keys import FIRST, LAB_BINDINGS
from vramtui.app.lab.blocks import LabBlocks
from vramtui.app.lab.controller import LabController
from vramtui.app.lab.experiment_list import ExperimentList
from vramtui.app.lab.model import LabView
from vramtui.app.lab.steps import LabSteps
from vramtui.app.messages import ExperimentChosen, ExperimentStepped
from vramtui.app.state.view import View
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.view_screen import ViewScreen

WIDE = 112


class LabScreen(ViewScreen):
    """Steps above, blocks below; the list of experiments beside them where there is room."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    DEFAULT_CSS = """
    LabScreen {
        layout: vertical; background: $background;
        Header, KeyBar { height: 1; }
        #lab { height: 1fr; layout: horizontal; }
        ExperimentList { width: 22; height: 100%; }
        #experiment { width: 1fr; height: 100%; layout: vertical; }
        LabSteps { height: 3fr; }
        LabBlocks { height: 2fr; }
        &.-narrow ExperimentList { display: none; }
    }
    """
    BINDINGS = LAB_BINDINGS
    PLACE = "lab"
    FIRST_FOCUS = "LabSteps"

    def __init__(self, shared: AppContext, lab: LabController) -> None:
        super().__init__()
        self._shared = shared
        self._lab = lab

    def compose(self) -> ComposeResult:
        """All panels."""
        yield Header("Lab")
        with Container(id="lab"):
            yield ExperimentList()
            with Container(id="experiment"):
                yield LabSteps()
                yield LabBlocks()
        yield KeyBar()

    def panels_view(self, view: View) -> LabView:
        """The experiment as it is now."""
        del view
        return self._lab.view()

    def on_experiment_chosen(self, message: ExperimentChosen) -> None:
        """Another experiment."""
        self._lab.model.choose(message.direction)
        self._shared.redraw.now()

    def on_experiment_stepped(self, message: ExperimentStepped) -> None:
        """Another step."""
        self._lab.model.move(message.steps)
        self._shared.redraw.for_key()

    def action_trace_experiment(self) -> None:
        """Run it on fake tensors."""
        self._start(measured=False)

    def action_measure_experiment(self) -> None:
        """Run it on a card too."""
        self._start(measured=True)

    def _start(self, *, measured: bool) -> None:
        refusal = self._lab.start(measured=measured)
        if refusal:
            self.notify(refusal, severity="warning", markup=False)

    def action_switch_card(self) -> None:
        """The other card."""
        self._lab.switch_card()

    def action_cancel_experiment(self) -> None:
        """End the running one."""
        if not self._lab.cancel():
            self.notify("No experiment is running.", timeout=2, markup=False)

    def action_leave_lab(self) -> None:
        """Escape: first the trace, then the screen."""
        if not self._lab.cancel():
            self._shared.screens.show(FIRST)
