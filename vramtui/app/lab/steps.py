"""An experiment's steps: what the article prints, what arithmetic and a trace say, and how far they are apart."""

from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.lab.model import LabStep, LabView
from vramtui.app.messages import ExperimentChosen, ExperimentStepped
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Piece, Wheeled, fit, paragraph, right, scrolled, strip
from vramtui.core.base.text import printable
from vramtui.estimators.lab.formulas import apart

FIGURE, LEAST_NAME, MOST_NAME = 12, 14, 34
RESERVED_FROM = 95
OFFER = "t traces it: PyTorch runs it on fake tensors in the background, no GPU needed."


class LabSteps(Wheeled[LabView], can_focus=True):
    """A line for each step; up and down select one, left and right another experiment."""

    BINDINGS = [
        Binding("up,k", "step(-1)", "Previous step", id="experiment.up", show=False),
        Binding("down,j", "step(1)", "Next step", id="experiment.down", show=False),
        Binding("pageup", "step(-10)", "Ten steps back", id="experiment.page_up", show=False),
        Binding("pagedown", "step(10)", "Ten steps on", id="experiment.page_down", show=False),
        Binding("home", "step(-1000000)", "First step", id="experiment.first", show=False),
        Binding("end", "step(1000000)", "Last step", id="experiment.last", show=False),
        Binding("left,h", "choose(-1)", "Previous experiment", id="experiment.before", show=False),
        Binding("right,l", "choose(1)", "Next experiment", id="experiment.next", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._top = 0
        self._first_line = 0

    def build(self, view: LabView, palette: Palette, width: int, height: int) -> list[Strip]:
        """What to see, the steps around the selected one, and a word on that one."""
        lesson = paragraph(view.experiment.lesson, palette, width)
        closing = _closing(view, palette, width)
        head = [*lesson, _heading(view, palette, width)]
        room = max(1, height - len(head) - len(closing))
        self._top = scrolled(self._top, view.at, room, len(view.steps))
        self._first_line = len(head)
        shown = range(self._top, min(len(view.steps), self._top + room))
        return [*head, *(_line(view, at, palette, width) for at in shown), *closing][:height]

    def titles(self, view: LabView) -> tuple[str, str]:
        """The experiment, its place among the others, and the card."""
        place = f"‹ {view.chosen + 1} of {len(view.experiments)} › "
        torch = "" if view.outcome is None else f" · torch {printable(view.outcome.torch)}"
        major, minor = view.device.capability
        card = f"{printable(view.device.name)}, capability {major}.{minor}"
        return f"{place}{view.experiment.title}", f"bytes allocated · {card}{torch}"

    def action_step(self, steps: int) -> None:
        """Another step."""
        self.post_message(ExperimentStepped(steps))

    def action_choose(self, direction: int) -> None:
        """Another experiment."""
        self.post_message(ExperimentChosen(direction))

    def wheel(self, direction: int) -> None:
        """A step a notch."""
        self.action_step(direction)

    def on_click(self, event: events.Click) -> None:
        """Select the step under the pointer."""
        at = event.get_content_offset(self)
        if at is not None and self.view is not None:
            self.action_step(self._top + at.y - self._first_line - self.view.at)


def _name_width(view: LabView, width: int) -> int:
    return max(LEAST_NAME, min(MOST_NAME, width - 2 - len(_columns(view, width)) * FIGURE))


def _columns(view: LabView, width: int) -> list[str]:
    names = ["printed", "predicted", "traced"]
    if any(step.measured is not None for step in view.steps):
        names.append("measured")
    names.append("Δ")
    return [*names, "reserved", "peak"] if width >= RESERVED_FROM else names


def _heading(view: LabView, palette: Palette, width: int) -> Strip:
    figures = "".join(right(name, FIGURE) for name in _columns(view, width))
    return strip([("  " + fit("after", _name_width(view, width)) + figures, palette.dim)], width, palette.text)


def _line(view: LabView, at: int, palette: Palette, width: int) -> Strip:
    step = view.steps[at]
    selected = at == view.at
    ground = "cursor" if selected else "background"
    plain, quiet = palette.ink("foreground", ground), palette.ink("muted", ground)
    figures = {
        "printed": step.printed,
        "predicted": step.predicted,
        "traced": step.traced,
        "measured": step.measured,
        "reserved": None if step.row is None else step.row.predicted.reserved,
        "peak": None if step.row is None else step.row.predicted.peak_allocated,
    }
    name = f"{step.run} · {step.label}" if step.run else step.label
    pieces: list[Piece] = [("▸ " if selected else "  ", plain), (fit(name, _name_width(view, width)), plain)]
    for column in _columns(view, width):
        if column == "Δ":
            pieces.append((right(_apart(step), FIGURE), palette.ink(_colour(step), ground)))
        else:
            told = figures[column]
            pieces.append((right("–" if told is None else f"{told:,}", FIGURE), quiet if told is None else plain))
    return strip(pieces, width, plain)


def _apart(step: LabStep) -> str:
    if step.difference is None:
        return ""
    return f"{step.difference:+,}".replace("-", "−") if step.difference else "0"


def _colour(step: LabStep) -> str:
    if step.difference is None:
        return "muted"
    return "warning" if step.difference else "success"


def _closing(view: LabView, palette: Palette, width: int) -> list[Strip]:
    """Why the selected step is not as printed; how far the trace is."""
    step = view.step
    lines: list[Strip] = []
    here = None if step is None else step.predicted if step.traced is None else step.traced
    if step is not None and step.printed is not None and here is not None:
        lines += paragraph(apart(step.printed, here, view.device), palette, width, palette.ink("warning"))
    if view.running:
        lines += paragraph(f"tracing {printable(view.running)} … x cancels", palette, width, palette.ink("accent"))
    elif view.problem:
        lines += paragraph(f"not traced: {printable(view.problem)}", palette, width, palette.ink("warning"))
    elif view.outcome is None:
        lines += paragraph(OFFER, palette, width)
    return lines
