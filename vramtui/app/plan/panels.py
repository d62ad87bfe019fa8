"""The panels around the map: the bar above, the parts of the selected cell, and the planner's advice about it."""

from typing import Literal

from rich.cells import cell_len
from rich.style import Style
from textual import events
from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.plan.model import PlanSide, PlanView
from vramtui.app.terminal.colours import key_shown
from vramtui.app.themes import Palette
from vramtui.app.ui.lines import Framed, Lines, Piece, fit, paragraph, right, strip, wrap
from vramtui.app.ui.parts import bar_of
from vramtui.core.base.text import printable
from vramtui.core.base.units import GIB, KIB, MIB, UNKNOWN, format_bytes, format_column, format_gib, unit_of
from vramtui.core.estimate.devices import COMPARED
from vramtui.core.estimate.estimate import LINES, TITLES, TOTALS, Line, title_of
from vramtui.core.estimate.fits import Fit, FitVerdict, unknown_of

LONG = 112
ASKS = {
    "plan.across": "choose_axis(True)",
    "plan.down": "choose_axis(False)",
    "plan.card": "choose_card",
    "plan.beside": "choose_beside",
}


class PlanBar(Lines[PlanView]):
    """Columns, rows, card and comparison of the map, each with its key; each can be clicked."""

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._spots: list[tuple[int, int, str]] = []

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        del height
        self._spots = []
        if not plan.maps or plan.device is None:
            return [strip([], width, palette.text)]
        shown = plan.maps[0]
        long = width >= LONG
        card = f"{plan.where} {format_bytes(plan.device.total_memory)}" if long else plan.where.partition(",")[0]
        compared = plan.other.what if plan.other is not None else UNKNOWN
        compare = "compare with" if long else "compare"
        settings = (("columns", shown.x.name), ("rows", shown.y.name), ("card", card), (compare, compared))
        keys = {
            active.binding.id: key_shown(self.app, active.binding) for active in self.screen.active_bindings.values()
        }
        pieces: list[Piece] = [(" ", palette.text)]
        x = 1
        for (name, text), identity in zip(settings, ASKS, strict=True):
            part: list[Piece] = [
                (f"{name}: ", palette.dim),
                (text, palette.strong),
                (" (", palette.dim),
                (keys.get(identity, ""), palette.ink("primary", bold=True)),
                (")", palette.dim),
                (" · ", palette.dim),
            ]
            length = sum(cell_len(piece) for piece, _ in part)
            self._spots.append((x, x + length - 3, ASKS[identity]))
            pieces += part
            x += length
        return [strip(pieces[:-1], width, palette.text)]

    async def on_click(self, event: events.Click) -> None:
        for start, stop, action in self._spots:
            if start <= event.x < stop:
                await self.screen.run_action(action)


NAME, SIDE = 15, 10
UNITS = {GIB: "GiB", MIB: "MiB", KIB: "KiB"}
NOT_YET = "Parts are shown for possible cells only."


class PlanParts(Framed[PlanView]):
    """A line for each part, and the totals; in a comparison also the other side and the difference."""

    def titles(self, plan: PlanView) -> tuple[str, str]:
        if plan.side is None:
            return "Cell", ""
        other_title = f"{plan.other.what}: {plan.other.how}" if plan.other is not None else ""
        return f"Cell · {plan.side.how}", other_title

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
        if plan.side is None or plan.side.estimate is None:
            return paragraph(NOT_YET, palette, width)
        side, other = plan.side, plan.other
        lines = shown_lines(plan, height - (other is not None))
        unit, _ = unit_of(max((_at(one, line) or 0 for one in (side, other) for line in lines), default=0))
        most = max((_at(side, line) or 0 for line in lines if line not in TOTALS), default=0)
        bar = max(0, min(30, width - 2 - NAME - SIDE * (1 if other is None else 3)))
        strips: list[Strip] = []
        if other is not None:
            text = " " + fit(f"in {UNITS[unit]}", NAME + bar) + right("cell", SIDE)
            text += right(fit(other.what, SIDE - 1).rstrip(), SIDE) + right("Δ", SIDE)
            strips.append(strip([(text, palette.dim)], width, palette.text))
        for line in lines:
            title = TITLES[line] if plan.device is None else title_of(line, plan.device.vendor)
            count, total = _at(side, line), line in TOTALS
            style = palette.strong if total else palette.text
            figure = format_column(count, unit)
            pieces: list[Piece] = [
                (" " + fit(f"── {title}" if total else title, NAME), style),
                (fit(bar_of(0 if total else count, most, bar), bar), palette.ink(line.replace("_", "-"))),
                (right(figure if other is not None else f"{figure} {UNITS[unit]}", SIDE), style),
            ]
            if other is not None:
                compared = _at(other, line)
                pieces.append((right(format_column(compared, unit), SIDE), style))
                more = None if count is None or compared is None else count - compared
                if not more:
                    pieces.append((right(UNKNOWN if more is None else "same", SIDE), palette.dim))
                else:
                    sign, ink = ("+", "warning") if more > 0 else ("−", "success")
                    pieces.append((right(sign + format_column(abs(more), unit), SIDE), palette.ink(ink)))
            strips.append(strip(pieces, width, palette.text))
        return strips[:height]


def shown_lines(plan: PlanView, height: int) -> list[Line]:
    """The lines that either side has; if there are too many, the smallest go, but not the totals."""
    lines = [line for line in LINES if _at(plan.side, line) or _at(plan.other, line)]
    while len(lines) > max(1, height):
        parts = [line for line in lines if line not in TOTALS] or lines[:-1]
        lines.remove(min(parts, key=lambda line: max(_at(plan.side, line) or 0, _at(plan.other, line) or 0)))
    return lines


def _at(side: PlanSide | None, line: Line) -> int | None:
    return None if side is None or side.estimate is None else side.estimate.ledger.bytes_of(line)


NAMES, SIZE, COST = (14, 46), 11, 24
NAME_COLUMNS = 30  # names are cut to this for their costs
Row = tuple[Strip, int | None]


def change_lines(plan: PlanView, palette: Palette, width: int, height: int, *, chosen: bool) -> list[Row]:
    """At most `height` lines, each with the index of its change. If `chosen`, one is marked, and what its line has no
    room for is shown below.
    """
    changes = plan.advice.changes
    if height < 1 or not changes:
        return []
    least, most = NAMES
    names = max(least, min(most, max(len(change.mitigation) for change in changes)))
    rest = width - 3 - 2 * SIZE - 3
    narrow = min(names, NAME_COLUMNS)
    names, costs = next(
        ((wide, rest - wide) for wide in (names, narrow) if rest - wide >= COST), (max(1, min(names, rest)), 0)
    )
    rows: list[Row] = []
    if chosen or height > 2:
        then = "then up to" if any(change.largest is not None for change in changes) else "then"
        text = f"   {fit('one change', names)}{right('frees', SIZE)}{right(then, SIZE)}  "
        rows.append((strip([(text + ("  cost" if costs else ""), palette.dim)], width, palette.text), None))
    cost_lines: list[Row] = []
    change = changes[plan.change]
    if chosen and len(change.cost) >= costs:
        text = change.cost if len(change.mitigation) <= names else f"{change.mitigation}: {change.cost}"
        cost_lines = [
            (strip([(f"   {line}", palette.dim)], width, palette.text), None) for line in wrap(text, width - 4)
        ]
    cost_lines = cost_lines[: max(0, height - len(rows) - 1)]
    room = height - len(rows) - len(cost_lines)
    first = max(0, min(plan.change - room // 2, len(changes) - room)) if chosen else 0
    for at, change in enumerate(changes[first : first + room], first):
        ink = palette.text + Style(reverse=True) if chosen and at == plan.change else None
        then = f"{change.largest:,}" if change.largest is not None else f"{format_gib(change.process)} GiB"
        # Below a tenth of a GiB, more digits.
        freed = format_gib(change.frees) if change.frees >= GIB // 10 else format_column(change.frees, GIB)
        pieces: list[Piece] = [
            (" › " if ink else "   ", ink or palette.ink("primary")),
            (fit(change.mitigation, names), ink or palette.text),
            (right(f"−{freed} GiB" if change.frees > 0 else "–", SIZE), ink or palette.strong),
            (right(then, SIZE), ink or palette.text),
            (" ✓" if change.fits else " ✗", ink or palette.ink("success" if change.fits else "error")),
        ]
        if costs:
            pieces.append(("  " + fit(change.cost, costs - 1), ink or palette.dim))
        rows.append((strip(pieces, width, ink or palette.text), at))
    return [*rows, *cost_lines]


Tone = Literal["good", "tight", "bad", "plain", "dim"]
TONES: dict[FitVerdict, Tone] = {"fits": "good", "tight": "tight", "does not fit": "bad", "unknown": "tight"}
INK: dict[Tone, str] = {"good": "success", "tight": "warning", "bad": "error", "plain": "foreground", "dim": "muted"}
SIZES = {
    "run.batch_size": "batch",
    "run.sequence_length": "sequence",
    "run.max_num_seqs": "number of sequences",
    "run.max_model_len": "context",
}
NAMED = 4


def sentences(plan: PlanView) -> list[tuple[Tone, str]]:
    """Return whether the selected cell fits, the largest sizes, what would make it fit, and which cards hold it."""
    side, advice = plan.side, plan.advice
    if side is None or plan.device is None:
        return []
    texts: list[tuple[Tone, str]] = [("tight", f"assumed: {plan.assumed}")] if plan.assumed else []
    answer, estimate, where = side.answer, side.estimate, plan.where.partition(",")[0]
    if answer is not None and answer.process is None:
        return [*texts, ("bad", f"– not possible: {printable(answer.reason)}")]
    if side.process is None:
        return [*texts, ("dim", "… calculating")]
    if answer is not None and answer.reason:
        texts.append(("bad", f"✗ does not start on {where}: {printable(answer.reason)}"))
    else:
        error = estimate.error if estimate is not None else answer and answer.error
        unknown = "" if side.workload is None else unknown_of(side.workload.model)
        verdict = Fit(needs=side.process, has=plan.device.total_memory, error=error, unknown=unknown)
        texts.append((TONES[verdict.verdict], verdict.line(where)))
    for edge in advice.edges:
        text = f"none, {edge.reason}"
        if edge.largest is not None:
            text = f"{edge.largest:,} ({format_bytes(edge.process)}); {printable(edge.reason)}"
        texts.append(("plain", f"largest {SIZES.get(edge.key, edge.key)}: {text}"))
    if advice.mitigations:
        names = " and ".join(name for name, _ in advice.mitigations)
        several = len(advice.mitigations) > 1
        costs = "; ".join(f"{name}: {cost}" if several else cost for name, cost in advice.mitigations)
        texts.append(("plain", f"cheapest to make it fit: {names}, then {format_bytes(advice.with_them)} ({costs})"))
    elif advice.mitigations is not None:
        texts.append(("plain", "no set of changes makes it fit this card"))
    if advice.cards:
        first = (f"{one.card.name} {format_bytes(one.card.total_memory)}" for one in advice.cards[:NAMED])
        more = f" and {len(advice.cards) - NAMED} more" if len(advice.cards) > NAMED else ""
        texts.append(("plain", f"cards that fit it, smallest first: {', '.join(first)}{more}"))
    elif advice.is_whole:
        texts.append(("plain", f"none of the {len(COMPARED)} known cards fits it"))
    else:
        texts.append(("dim", "checking which cards fit it …"))
    return texts


LOW = 9  # lines; with fewer, focused changes take them all


class PlanWords(Framed[PlanView], can_focus=True):
    """The planner's sentences, and each change that frees memory below. With focus, the changes take the room."""

    BINDINGS = [
        Binding(keys, f"screen.{action}", name, id=f"changes.{identity}", show=False, tooltip=tooltip)
        for keys, action, name, identity, tooltip in (
            ("up,k", "move_change(-1)", "Up", "up", "Previous change"),
            ("down,j", "move_change(1)", "Down", "down", "Next change"),
            ("pageup", "move_change(-5)", "Page up", "page_up", "Five changes up"),
            ("pagedown", "move_change(5)", "Page down", "page_down", "Five changes down"),
            ("enter", "take_change", "Take", "take", "Apply the change to the cell"),
            ("escape", "changes", "Map", "leave", "Back to the map"),
        )
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._places: list[int | None] = []

    def titles(self, plan: PlanView) -> tuple[str, str]:
        if plan.side is None:
            return "Planner", ""
        title = f"Planner · {plan.side.how}"
        if self.has_focus:
            save = "" if plan.view_only else "w save the cell · "
            return title, f"Enter apply the change · {save}Esc map"
        if plan.side.workload is None:
            return title, ""
        changes = "t changes · " if plan.advice.changes else ""
        return title, f"{changes}Enter apply the cell{'' if plan.view_only else ' · w save'}"

    def build(self, plan: PlanView, palette: Palette, width: int, height: int) -> list[Strip]:
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
