"""Bars for each phase of each step: what every method predicts, beside what the job reports."""

from textual.binding import Binding
from textual.strip import Strip

from vramtui.app.themes import Palette
from vramtui.app.timeline.view import TimelineView
from vramtui.app.ui.bars import legend, stack
from vramtui.app.ui.lines import Piece, Wheeled, fit, paragraph, right, strip
from vramtui.core.base.units import format_in, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate, Moment

NAME, BY, FIGURE = 17, 10, 8
RESERVED_FROM = 110
NOTHING = "No preset selected. Press p to choose one: what it should hold at the end of each phase appears here."
Lane = tuple[str, tuple[Moment, ...]]
Line = tuple[str, str, Moment, bool]


def lanes(view: TimelineView) -> list[Lane]:
    """Every side that knows phases, by its name: predictions first, the observation last."""
    panel = view.panel
    if panel is None:
        return [("observed", view.observed)] if view.observed else []
    estimates: dict[str, Estimate] = {}
    for estimate in (panel.estimate, panel.traced):
        if estimate is not None and estimate.timeline:
            estimates[estimate.method] = estimate
    rows: list[Lane] = [(method, estimate.timeline) for method, estimate in estimates.items()]
    if view.observed:
        rows.append(("observed", view.observed))
    elif view.alone:
        rows.append(("selected", view.alone))
    return rows


def lines_of(sides: list[Lane]) -> list[Line]:
    """The lines to draw: label, side, moment, and whether that side peaks there. A label stands at its first side."""
    peaks = {side: max((moment.peak_allocated for moment in moments), default=0) for side, moments in sides}
    places: dict[tuple[int, str, int], list[tuple[str, Moment]]] = {}
    for side, moments in sides:
        seen: dict[tuple[int, str], int] = {}
        for moment in moments:
            at = (moment.step, moment.phase)
            seen[at] = seen.get(at, 0) + 1
            places.setdefault((*at, seen[at]), []).append((side, moment))
    lines: list[Line] = []
    marked: set[str] = set()
    for here in places.values():
        for nth, (side, moment) in enumerate(here):
            peaks_here = side not in marked and moment.peak_allocated == peaks[side] > 0
            if peaks_here:
                marked.add(side)
            lines.append(("" if nth else _label(moment), side, moment, peaks_here))
    return lines


def _key(lines: list[Line], width: int, palette: Palette) -> list[list[Piece]]:
    """What the letters and shades of these bars mean."""
    moments = [moment for _, _, moment, _ in lines]
    present = {name for moment in moments for name, count in moment.categories.items() if count}
    undivided = any(moment.allocated > sum(moment.categories.values()) for moment in moments)
    return legend(present, width, palette, undivided=undivided)


def _label(moment: Moment) -> str:
    title = PHASE_TITLES[moment.phase]
    return title if moment.phase in {"build", "serve"} else f"{moment.step + 1} {title}"


class PhaseBars(Wheeled[TimelineView], can_focus=True):
    """A bar for each phase and side; scrolls where there are more than lines."""

    BINDINGS = [
        Binding("up,k", "move(-1)", "Up", id="phases.up", show=False, tooltip="Scroll the phases up"),
        Binding("down,j", "move(1)", "Down", id="phases.down", show=False, tooltip="Scroll the phases down"),
        Binding("pageup", "move(-8)", "Page up", id="phases.page_up", show=False, tooltip="Eight phases up"),
        Binding("pagedown", "move(8)", "Page down", id="phases.page_down", show=False, tooltip="Eight phases down"),
    ]

    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        super().__init__(id=id)
        self._top = 0

    def build(self, view: TimelineView, palette: Palette, width: int, height: int) -> list[Strip]:
        """A heading, the bars that fit, and what their letters mean."""
        sides = lanes(view)
        if not sides:
            words = NOTHING if view.panel is None else view.panel.problem or "This method does not report phases."
            return paragraph(words, palette, width)[:height]
        lines = lines_of(sides)
        key = _key(lines, width, palette)
        room = max(1, height - 1 - len(key))
        self._top = max(0, min(self._top, len(lines) - room))
        shown = lines[self._top : self._top + room]
        self.border_subtitle = (
            f"{self._top + 1}–{self._top + len(shown)} of {len(lines)}, arrows scroll" if len(lines) > room else ""
        )
        top = max(max(moment.peak_allocated, moment.allocated) for _, _, moment, _ in lines)
        several = len(sides) > 1
        strips = [_heading(unit_of(top)[1], palette, width, several=several)]
        strips += [_line(line, top, palette, width, several=several) for line in shown]
        return [*strips, *(strip(pieces, width, palette.text) for pieces in key)][:height]

    def rows(self, view: TimelineView, width: int) -> int:
        """How many rows it takes to show all, its frame included; 0 where there is nothing to draw."""
        lines = lines_of(lanes(view))
        if not lines or self.palette is None:
            return 0
        return len(lines) + len(_key(lines, width - 2, self.palette)) + 3

    def titles(self, view: TimelineView) -> tuple[str, str]:
        """What the bars are of; the subtitle is `build`'s."""
        sides = " and ".join(side for side, _ in lanes(view))
        return f"Phases{f' · {sides}' if sides else ''} · allocated by category at the end of each", ""

    def action_move(self, lines: int) -> None:
        self._top = max(0, self._top + lines)
        self.redraw()

    def wheel(self, direction: int) -> None:
        self.action_move(2 * direction)


def _bar_width(width: int, *, several: bool) -> int:
    figures = 3 if width >= RESERVED_FROM else 2
    return max(4, width - 1 - NAME - (BY if several else 0) - figures * (FIGURE + 1) - 2)


def _heading(unit: str, palette: Palette, width: int, *, several: bool) -> Strip:
    names = ("held", "peak", "reserved") if width >= RESERVED_FROM else ("held", "peak")
    start = " " + fit("step, phase", NAME) + (fit("", BY) if several else "")
    figures = "".join(right(name, FIGURE + 1) for name in names)
    middle = right(unit, _bar_width(width, several=several))
    return strip([(start + fit(middle, _bar_width(width, several=several)) + figures, palette.dim)], width, palette.dim)


def _line(line: Line, top: int, palette: Palette, width: int, *, several: bool) -> Strip:
    label, side, moment, peaks = line
    bar = _bar_width(width, several=several)
    unit, _ = unit_of(top)
    pieces = stack(moment.categories, moment.allocated, moment.peak_allocated, top, bar, palette=palette)
    filled = sum(len(text) for text, _ in pieces)
    observed = side in {"observed", "selected"}
    start: list[Piece] = [(" " + fit(label, NAME), palette.text)]
    if several:
        start.append((fit(side, BY), palette.strong if observed else palette.dim))
    peak = palette.ink("prediction", bold=True) if peaks else palette.dim
    end: list[Piece] = [
        (" " * (bar - filled), palette.text),
        (right(format_in(moment.allocated, unit), FIGURE + 1), palette.text),
        (right(format_in(moment.peak_allocated, unit), FIGURE + 1), peak),
    ]
    if width >= RESERVED_FROM:
        end.append((right(format_in(moment.reserved, unit), FIGURE + 1), palette.dim))
    end.append((" ◂" if peaks else "", peak))
    return strip([*start, *pieces, *end], width, palette.text)
