"""The list of experiments, beside the steps where the terminal is wide."""

from textual import events
from textual.strip import Strip

from vramtui.app.lab.model import LabView
from vramtui.app.messages import ExperimentChosen
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Framed, fit, strip


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
