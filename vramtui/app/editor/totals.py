"""The estimate of the draft, as a panel and as one line."""

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from vramtui.app.editor.open_draft import EditorView
from vramtui.app.state.view import View
from vramtui.app.themes import FIT_COLOURS, Palette
from vramtui.app.ui.lines import Framed, Lines, Piece, fit, right, strip, wrap
from vramtui.app.ui.lists import delta_colour
from vramtui.app.ui.parts import bar_of, size_of
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_column, format_percent, unit_of
from vramtui.core.estimate.estimate import LEAVES, PHASE_TITLES, TOTALS, Estimate, Line, title_of
from vramtui.core.estimate.fits import compare_ledgers
from vramtui.monitor.predictor import verdict
from vramtui.presets.reader import PresetProblem

NAME, SIZE, CHANGE, DELTA = 14, 10, 12, 9
NOTHING_YET = "No estimate yet: it appears as soon as the text is a valid preset."


class Totals(Framed[View], can_focus=True):
    """The estimate of the last valid text; grey while the text is not valid."""

    def __init__(self) -> None:
        super().__init__(id="totals")
        self._look: EditorView | None = None

    def read(self, look: EditorView) -> None:
        self._look = look
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    def titles(self, view: View) -> tuple[str, str]:
        del view
        look = self._look
        if look is None or look.estimate is None:
            return "Estimate", ""
        unit = unit_of(look.estimate.process or 0)[1]
        method = look.estimate.method
        title = f"Estimate · {printable(look.card.name)} · in {unit}"
        return title, method if look.is_current else f"{method} · last valid"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """Draw the first two errors, the parts, the totals, the verdict, and the phase of the peak."""
        del view
        look = self._look
        if look is None:
            return []
        errors = [
            f" {' ' if n else '✗'} {part}"
            for problem in look.problems[:2]
            for n, part in enumerate(wrap(sentence_of(problem), width - 4))
        ]
        errors += [f"   and {len(look.problems) - 2} more"] if len(look.problems) > 2 else []
        lines = [strip([(line, palette.ink("error", bold=True))], width, palette.text) for line in errors]
        estimate = look.estimate
        if estimate is None:
            return [*lines, *_wrapped(NOTHING_YET, palette.dim, palette, width)][:height]
        sentence, colour = verdict_of(look, estimate)
        closing = _wrapped(sentence, palette.ink(colour, bold=True) if look.is_current else palette.dim, palette, width)
        peak = f"peak: {PHASE_TITLES.get(estimate.peak_phase, estimate.peak_phase)}"
        closing += _wrapped(peak, palette.dim, palette, width)
        if look.observed is not None:
            heading = right("predicted", width - SIZE - CHANGE - DELTA - 1) + right("change", CHANGE)
            heading += right("observed", SIZE) + right("Δ", DELTA)
            lines.append(strip([(heading, palette.dim)], width, palette.text))
        # The smallest parts are left out if there is not enough room.
        parts = [line for line in LEAVES if estimate.ledger.bytes_of(line) or _moved(look, line)]
        while parts and len(parts) + len(TOTALS) > height - len(lines) - len(closing):
            parts.remove(min(parts, key=lambda line: (estimate.ledger.bytes_of(line) or 0) + abs(_moved(look, line))))
        rows: list[Line] = [part for part in parts if part not in {"cached", "context", "other"}]
        rows += ["allocated", *(part for part in parts if part == "cached"), "reserved"]
        rows += [*(part for part in parts if part in {"context", "other"}), "process"]
        largest = max((estimate.ledger.bytes_of(part) or 0 for part in parts), default=0)
        lines += [_row(row, look, estimate, largest, palette, width) for row in rows]
        return [*lines, *closing][:height]


class TotalLine(Lines[View]):
    """Total and verdict in one line, for narrow terminals."""

    def __init__(self) -> None:
        super().__init__(id="total")
        self._look: EditorView | None = None

    def read(self, look: EditorView) -> None:
        self._look = look
        self.redraw()

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        del view, height
        look = self._look
        if look is None:
            return []
        bar, count = palette.ink("muted", "bar"), len(look.problems)
        pieces: list[Piece] = []
        if count:
            error = f" ✗ {count} error{'s' if count > 1 else ''} "
            pieces.append((error, palette.ink("background", "error", bold=True)))
        colour = "muted"
        if look.estimate is None or (count and not look.problems[0].key):
            sentence = f" {sentence_of(look.problems[0]) if count else NOTHING_YET}"
        else:
            ink = palette.ink("foreground" if look.is_current else "muted", "bar", bold=look.is_current)
            pieces.append((f" {size_of(look.estimate.process)} ", ink))
            moved = _moved(look, "process")
            if moved:
                pieces.append((f"({_signed(moved, size_of(abs(moved)))}) ", palette.ink("accent", "bar")))
            if look.observed is not None and look.observed.process:
                off = format_percent(look.observed.process / (look.estimate.process or 1) - 1)
                pieces.append((f"observed {size_of(look.observed.process)} ({off}) ", palette.ink("accent", "bar")))
            sentence, colour = verdict_of(look, look.estimate)
            if not look.is_current:
                sentence, colour = f"last valid: {sentence}", "muted"
        room = width - sum(cell_len(text) for text, _ in pieces)
        return [strip([*pieces, (fit(sentence, room), palette.ink(colour, "bar"))], width, bar)]


def sentence_of(problem: PresetProblem) -> str:
    return printable(problem.sentence if problem.line is None else f"line {problem.line}: {problem.sentence}")


def verdict_of(look: EditorView, estimate: Estimate) -> tuple[str, str]:
    """Return whether it fits, with ≈ while a simulation runs, and the colour."""
    name = printable(look.card.name)
    fits = verdict(estimate, look.workload, look.card.device, look.card.room, name)
    return f"{'≈ ' if look.is_quick else ''}{fits.line(name)}", FIT_COLOURS[fits.verdict]


def _wrapped(text: str, style: Style, palette: Palette, width: int) -> list[Strip]:
    return [strip([(f" {line}", style)], width, palette.text) for line in wrap(text, width - 2)]


def _row(line: Line, look: EditorView, estimate: Estimate, largest: int, palette: Palette, width: int) -> Strip:
    total, title = line in TOTALS, title_of(line, look.card.device.vendor)
    count, moved = estimate.ledger.bytes_of(line), _moved(look, line)
    room = max(0, min(24, width - NAME - SIZE - CHANGE - 3 - (SIZE + DELTA if look.observed is not None else 0)))
    bar = bar_of(0 if total else count, largest, room)
    style, colour = palette.strong if total else palette.text, palette.ink(line.replace("_", "-"))
    changed = palette.ink("error" if moved > 0 else "success")
    if not look.is_current:
        style, colour, changed = palette.dim, palette.ink("line"), palette.dim
    unit = unit_of(estimate.process or 0)[0]
    pieces: list[Piece] = [
        (" " + fit(f"── {title}" if total else title, NAME + 1), style),
        (fit(bar, room), colour),
        (right(format_column(count, unit), SIZE), style),
        (right(_signed(moved, format_column(abs(moved), unit)) if moved else "", CHANGE), changed),
    ]
    if look.observed is not None:
        compared = compare_ledgers(estimate.ledger, look.observed)
        # What is observed only together with other lines is in the totals.
        seen = next((one for one in compared if one.line == line and one.observed is not None), None)
        seen = None if any(one.within == line for one in compared) else seen
        fraction = None if seen is None else seen.fraction
        ink = palette.dim if fraction is None or not look.is_current else palette.ink(delta_colour(fraction))
        pieces.append((right("" if seen is None else format_column(seen.observed, unit), SIZE), style))
        pieces.append((right("" if fraction is None else format_percent(fraction), DELTA), ink))
    return strip(pieces, width, palette.text)


def _moved(look: EditorView, line: Line) -> int:
    """Return by how many bytes a part is larger than in the saved text."""
    if look.before is None or look.estimate is None:
        return 0
    return (look.estimate.ledger.bytes_of(line) or 0) - (look.before.ledger.bytes_of(line) or 0)


def _signed(moved: int, size: str) -> str:
    return f"{'+' if moved > 0 else '−'}{size}"
