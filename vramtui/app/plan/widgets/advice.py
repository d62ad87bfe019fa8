"""The planner's words about the cell under the cursor, and the changes that would free memory."""

from collections.abc import Sequence
from typing import Literal

from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.plan.grid import Holds
from vramtui.app.plan.view import AdviceView, PlanSide, PlanView
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Lines, Piece, fit, right, strip, wrap
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, format_bytes, format_column, format_gib
from vramtui.core.estimate.fits import Fit, FitVerdict, unknown_of
from vramtui.estimators.planner.planner import Edge, Effect

NAMES, SIZE, COST = (14, 46), 11, 24
# Names give way to their prices down to so many columns.
NAME_COLUMNS = 30
Row = tuple[Strip, int | None]


def change_lines(plan: PlanView, palette: Palette, width: int, height: int, *, chosen: bool) -> list[Row]:
    """At most `height` lines, each with the place of its change; with `chosen` one is marked, and what its line has no
    room for is shown below.
    """
    changes = plan.advice.changes
    if height < 1 or not changes:
        return []
    names, costs = _columns(changes, width)
    heading: list[Row] = [(_heading(changes, palette, width, names, costs), None)] if chosen or height > 2 else []
    at = plan.change if chosen else -1
    cost_lines = _full_cost(changes[plan.change], palette, width, names, costs) if chosen else []
    cost_lines = cost_lines[: max(0, height - len(heading) - 1)]
    room = height - len(heading) - len(cost_lines)
    first = max(0, min(at - room // 2, len(changes) - room)) if chosen else 0
    rows: list[Row] = [
        (_line(change, palette, width, names, costs, chosen=number == at), number)
        for number, change in enumerate(changes[first : first + room], first)
    ]
    return [*heading, *rows, *cost_lines]


def _columns(changes: tuple[Effect, ...], width: int) -> tuple[int, int]:
    """Columns of the names and of the prices; none of the latter where there is no room for them."""
    least, most = NAMES
    names = max(least, min(most, max(len(change.mitigation) for change in changes)))
    rest = width - 3 - 2 * SIZE - 3
    if rest - names >= COST:
        return names, rest - names
    if rest - min(names, NAME_COLUMNS) >= COST:
        return min(names, NAME_COLUMNS), rest - min(names, NAME_COLUMNS)
    return max(1, min(names, rest)), 0


def _heading(changes: tuple[Effect, ...], palette: Palette, width: int, names: int, costs: int) -> Strip:
    served = any(change.largest is not None for change in changes)
    text = (
        "   " + fit("one change", names) + right("frees", SIZE) + right("then up to" if served else "then", SIZE) + "  "
    )
    return strip([(text + ("  cost" if costs else ""), palette.dim)], width, palette.text)


def _line(change: Effect, palette: Palette, width: int, names: int, costs: int, *, chosen: bool) -> Strip:
    ink = palette.text + Style(reverse=True) if chosen else None
    style = ink or palette.text
    fits = ink or palette.ink("success" if change.fits else "error")
    then = f"{change.largest:,}" if change.largest is not None else f"{format_gib(change.process)} GiB"
    pieces: list[Piece] = [
        (" › " if chosen else "   ", ink or palette.ink("primary")),
        (fit(change.mitigation, names), ink or palette.text),
        (right(f"−{_freed(change.frees)} GiB" if change.frees > 0 else "–", SIZE), ink or palette.strong),
        (right(then, SIZE), style),
        (" ✓" if change.fits else " ✗", fits),
    ]
    if costs:
        pieces.append(("  " + fit(change.cost, costs - 1), ink or palette.dim))
    return strip(pieces, width, style)


def _freed(count: int) -> str:
    """Tenths of a GiB, and more of what is less than one."""
    return format_gib(count) if count >= GIB // 10 else format_column(count, GIB)


def _full_cost(change: Effect, palette: Palette, width: int, names: int, costs: int) -> list[Row]:
    """The price of the chosen one, and its name, where they are cut."""
    if len(change.cost) < costs:
        return []
    text = change.cost if len(change.mitigation) <= names else f"{change.mitigation}: {change.cost}"
    return [(strip([(f"   {line}", palette.dim)], width, palette.text), None) for line in wrap(text, width - 4)]


Tone = Literal["good", "tight", "bad", "plain", "dim"]
TONES: dict[FitVerdict, Tone] = {"fits": "good", "tight": "tight", "does not fit": "bad", "unknown": "tight"}
Sentence = tuple[Tone, str]
SIZES = {
    "run.batch_size": "batch",
    "run.sequence_length": "sequence",
    "run.max_num_seqs": "number of sequences",
    "run.max_model_len": "context",
}
NAMED = 4


def sentences(plan: PlanView) -> list[Sentence]:
    """Whether the cell under the cursor fits, how far one could go, what would make it fit, and which cards do."""
    side = plan.side
    if side is None or plan.device is None:
        return []
    answer: list[Sentence] = []
    if plan.assumed:
        answer.append(("tight", f"assumed, not known of the job: {plan.assumed}"))
    answer.append(_verdict(side, plan.where.partition(",")[0], plan.device.total_memory))
    if side.process is None or (side.answer is not None and side.answer.process is None):
        return answer
    advice = plan.advice
    answer += [("plain", _edge(edge)) for edge in advice.edges]
    answer += [("plain", text) for text in _enough(advice)]
    answer.append(_cards(advice, plan.tried))
    return answer


def _verdict(side: PlanSide, where: str, room: int) -> Sentence:
    answer = side.answer
    if answer is not None and answer.process is None:
        return "bad", f"– not possible: {printable(answer.reason)}"
    process = side.process
    if process is None:
        return "dim", "… calculating"
    if answer is not None and answer.reason:
        return "bad", f"✗ does not start on {where}: {printable(answer.reason)}"
    estimate = side.estimate
    unknown = "" if side.workload is None else unknown_of(side.workload.model)
    error = estimate.error if estimate is not None else answer and answer.error
    fit = Fit(needs=process, has=room, error=error, unknown=unknown)
    return TONES[fit.verdict], fit.line(where)


def _edge(edge: Edge) -> str:
    name = SIZES.get(edge.key, edge.key)
    if edge.largest is None:
        return f"largest {name}: none, {edge.reason}"
    return f"largest {name}: {edge.largest:,} ({format_bytes(edge.process)}); {printable(edge.reason)}"


def _enough(advice: AdviceView) -> list[str]:
    """The cheapest changes that make it fit."""
    if advice.mitigations is None:
        return []
    if not advice.mitigations:
        return ["no set of changes makes it fit this card"]
    names = " and ".join(name for name, _ in advice.mitigations)
    several = len(advice.mitigations) > 1
    costs = "; ".join(f"{name}: {cost}" if several else cost for name, cost in advice.mitigations)
    return [f"cheapest to make it fit: {names}, then {format_bytes(advice.with_them)} ({costs})"]


def _cards(advice: AdviceView, tried: int) -> Sentence:
    if not advice.cards:
        if not advice.is_whole:
            return "dim", "checking which cards fit it …"
        return "plain", f"none of the {tried} known cards fits it"
    return "plain", f"cards that fit it, smallest first: {shortened_names(advice.cards)}"


def shortened_names(cards: Sequence[Holds], most: int = NAMED) -> str:
    """The first of some cards, and how many more there are."""
    named = ", ".join(f"{holds.card.name} {format_bytes(holds.card.total_memory)}" for holds in cards[:most])
    return f"{named} and {len(cards) - most} more" if len(cards) > most else named


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
        strips: list[Strip] = []
        chosen = self.has_focus and bool(plan.advice.changes)
        for tone, text in sentences(plan)[: int(height > LOW) if chosen else None]:
            style = palette.ink(INK[tone], bold=tone in {"good", "tight", "bad"})
            for at, line in enumerate(wrap(text, width - 4)):
                strips.append(strip([("   " if at else " ", style), (line, style)], width, palette.text))
        rows = change_lines(plan, palette, width, height - len(strips), chosen=chosen)
        self._places = [*(None for _ in strips), *(place for _, place in rows)]
        return [*strips, *(line for line, _ in rows)][:height]

    def on_focus(self) -> None:
        self._again()

    def on_blur(self) -> None:
        self._again()

    def _again(self) -> None:
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    async def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and at.y < len(self._places) and self._places[at.y] is not None:
            await self.run_action(f"screen.choose_change({self._places[at.y]})")
