"""The planner's words about the cell under the cursor."""

from textual.strip import Strip

from vramtui.app.plan.words import Tone, sentences
from vramtui.app.state import View
from vramtui.app.themes import Palette
from vramtui.app.widgets.lines import Lines, strip, wrap

INK: dict[Tone, str] = {"good": "success", "bad": "error", "plain": "foreground", "dim": "muted"}


class PlanWords(Lines):
    """Whether it fits, how far one could go, what would make it fit, and the cards on which it does."""

    DEFAULT_CSS = """
    PlanWords { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    """

    def titles(self, view: View) -> tuple[str, str]:
        """Which cell, and what can be done with it."""
        plan = view.plan
        if plan is None or plan.side is None:
            return "Planner", ""
        return f"Planner · {plan.side.how}", "" if plan.side.workload is None else "enter takes it · w saves it"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """A sentence after the other, with what is most important first."""
        made: list[Strip] = []
        for tone, text in sentences(view.plan) if view.plan is not None else ():
            style = palette.ink(INK[tone], bold=tone in {"good", "bad"})
            for at, line in enumerate(wrap(text, width - 4)):
                made.append(strip([("   " if at else " ", style), (line, style)], width, palette.text))
        return made[:height]
