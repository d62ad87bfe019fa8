"""The planner's words about the cell under the cursor, and the changes that would free memory."""

from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.plan.advice import Tone, sentences
from vramtui.app.plan.view import PlanView
from vramtui.app.plan.widgets.changes import change_lines
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, strip, wrap

# Lines with fewer of which the changes have all of them.
LOW = 9
INK: dict[Tone, str] = {"good": "success", "tight": "warning", "bad": "error", "plain": "foreground", "dim": "muted"}


class PlanWords(Lines[PlanView], can_focus=True):
    """Whether it fits, how far one could go, what would make it fit, the cards on which it does, and what each change
    alone would free. While it has the keys the changes have all of its room.
    """

    DEFAULT_CSS = """
    PlanWords { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    PlanWords:focus { border: round $primary; }
    """
    BINDINGS = [
        Binding("up,k", "screen.move_change(-1)", "Up", id="changes.up", show=False, tooltip="Previous change"),
        Binding("down,j", "screen.move_change(1)", "Down", id="changes.down", show=False, tooltip="Next change"),
        Binding(
            "pageup", "screen.move_change(-5)", "Page up", id="changes.page_up", show=False, tooltip="Five changes up"
        ),
        Binding(
            "pagedown",
            "screen.move_change(5)",
            "Page down",
            id="changes.page_down",
            show=False,
            tooltip="Five changes down",
        ),
        Binding(
            "enter", "screen.take_change", "Take", id="changes.take", show=False, tooltip="Apply the change to the cell"
        ),
        Binding("escape", "screen.changes", "Map", id="changes.leave", show=False, tooltip="Back to the map"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._places: list[int | None] = []

    def titles(self, plan: PlanView) -> tuple[str, str]:
        """Which cell, and what can be done with it."""
        if plan.side is None:
            return "Planner", ""
        title = f"Planner · {plan.side.how}"
        if self.has_focus:
            save = "" if plan.view_only else "w save the cell · "
            return title, f"Enter apply the change · {save}Esc map"
        if plan.side.workload is None:
            return title, ""
        changes = "t changes · " if plan.advice.changes else ""
        save = "" if plan.view_only else " · w save"
        return title, f"{changes}Enter apply the cell{save}"

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A sentence after the other, with what is most important first; then the changes."""
        made: list[Strip] = []
        chosen = self.has_focus and bool(plan.advice.changes)
        for tone, text in sentences(plan)[: int(height > LOW) if chosen else None]:
            style = palette.ink(INK[tone], bold=tone in {"good", "tight", "bad"})
            for at, line in enumerate(wrap(text, width - 4)):
                made.append(strip([("   " if at else " ", style), (line, style)], width, palette.text))
        rows = change_lines(plan, palette, width, height - len(made), chosen=chosen)
        self._places = [*(None for _ in made), *(place for _, place in rows)]
        return [*made, *(line for line, _ in rows)][:height]

    def on_focus(self) -> None:
        """The changes need the room."""
        self._again()

    def on_blur(self) -> None:
        """The sentences come back."""
        self._again()

    def _again(self) -> None:
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    async def on_click(self, event: events.Click) -> None:
        """The change under the pointer."""
        at = event.get_content_offset(self)
        if at is not None and at.y < len(self._places) and self._places[at.y] is not None:
            await self.run_action(f"screen.choose_change({self._places[at.y]})")
