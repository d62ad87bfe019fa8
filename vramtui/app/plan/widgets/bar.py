"""The line above the map: its columns and rows, on which card, compared with what, and the keys that change each."""

from rich.cells import cell_len
from textual import events
from textual.strip import Strip

from vramtui.app.plan.view import PlanView
from vramtui.app.terminal.colours import key_shown
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, strip
from vramtui.core.base.units import UNKNOWN, format_bytes

LONG = 112
ASKS = {
    "plan.across": "choose_axis(True)",
    "plan.down": "choose_axis(False)",
    "plan.card": "choose_card",
    "plan.beside": "choose_beside",
}


class PlanBar(Lines[PlanView]):
    """Each part can be clicked."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._spots: list[tuple[int, int, str]] = []

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        del height
        self._spots = []
        if not plan.maps or plan.device is None:
            return [strip([], width, palette.text)]
        shown = plan.maps[0]
        compared = plan.other.what if plan.other is not None else UNKNOWN
        long = width >= LONG
        card = f"{plan.where} {format_bytes(plan.device.total_memory)}" if long else plan.where.partition(",")[0]
        compare = "compare with" if long else "compare"
        settings = (("columns", shown.x.name), ("rows", shown.y.name), ("card", card), (compare, compared))
        pieces: list[Piece] = [(" ", palette.text)]
        x = 1
        for (name, text), identity in zip(settings, ASKS, strict=True):
            part: list[Piece] = [
                (f"{name}: ", palette.dim),
                (text, palette.strong),
                (" (", palette.dim),
                (self._key(identity), palette.ink("primary", bold=True)),
                (")", palette.dim),
                (" · ", palette.dim),
            ]
            length = sum(cell_len(piece) for piece, _ in part)
            self._spots.append((x, x + length - 3, ASKS[identity]))
            pieces += part
            x += length
        return [strip(pieces[:-1], width, palette.text)]

    def _key(self, identity: str) -> str:
        """The key as it is mapped now."""
        for active in self.screen.active_bindings.values():
            if active.binding.id == identity:
                return key_shown(self.app, active.binding)
        return ""

    async def on_click(self, event: events.Click) -> None:
        """Ask for the part under the pointer."""
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)
