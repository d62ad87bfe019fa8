"""The Lab screen: the list of experiments where the terminal is wide, an experiment's steps, and the allocator's blocks
at the selected one.
"""

from textual import events
from textual.app import ComposeResult
from textual.containers import Container
from textual.strip import Strip

from vramtui.app.context import AppContext
from vramtui.app.keys import FIRST, LAB_BINDINGS
from vramtui.app.lab.blocks import LabBlocks
from vramtui.app.lab.controller import LabController
from vramtui.app.lab.model import LabView
from vramtui.app.lab.steps import LabSteps
from vramtui.app.messages import ExperimentChosen, ExperimentStepped
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui.header import Header
from vramtui.app.ui.keybar import KeyBar
from vramtui.app.ui.lines import Framed, fit, strip
from vramtui.app.ui.view_screen import ViewScreen

WIDE = 112


class ExperimentList(Framed[LabView]):
    """A line for each, the selected one marked; a click selects another."""

    def build(self, view: LabView, palette: Palette, width: int, height: int) -> list[Strip]:
        """All of them, by the name that `vramtui lab` has for each."""
        made = []
        for at, one in enumerate(view.experiments):
            style = palette.ink("foreground", "cursor", bold=True) if at == view.chosen else palette.text
            mark = "▸ " if at == view.chosen else "  "
            made.append(strip([(fit(f"{mark}{one.key}", width), style)], width, style))
        return made[:height]

    def titles(self, view: LabView) -> tuple[str, str]:
        """How to get to another one."""
        del view
        return "Experiments", "arrows select"

    def on_click(self, event: events.Click) -> None:
        """Select the one under the pointer."""
        at = event.get_content_offset(self)
        if at is not None and self.view is not None and at.y < len(self.view.experiments):
            self.post_message(ExperimentChosen(at.y - self.view.chosen))


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
