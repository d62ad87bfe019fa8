"""The estimate of the draft, as a panel and as one line."""

from rich.cells import cell_len
from textual.strip import Strip

from vramtui.app.editor.editor_view import EditorView
from vramtui.app.state.view import View
from vramtui.app.themes import FIT_COLOURS, Palette
from vramtui.app.ui.lines import Lines, Piece, fit, right, strip, wrap
from vramtui.app.ui.parts_tree import EIGHTHS, size_of
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_column, unit_of
from vramtui.core.estimate.estimate import PHASE_TITLES, Estimate
from vramtui.core.estimate.fits import Fit
from vramtui.core.estimate.ledger import LEAVES, TOTALS, Line, title_of
from vramtui.monitor.predictor import verdict

NAME, SIZE, CHANGE = 14, 10, 12
NOTHING_YET = "No estimate yet: it appears as soon as the text is a valid preset."


class Totals(Lines[View], can_focus=True):
    """The estimate of the last text that was right; grey while the present one is not."""

    DEFAULT_CSS = """
    Totals { border: round $line; border-title-color: $muted; border-subtitle-color: $muted; }
    Totals:focus { border: round $primary; border-title-color: $primary; }
    """

    def __init__(self) -> None:
        super().__init__(id="totals")
        self._look: EditorView | None = None

    def read(self, look: EditorView) -> None:
        self._look = look
        if self.view is not None and self.palette is not None:
            self.take(self.view, self.palette)

    def titles(self, view: View) -> tuple[str, str]:
        """The card, the method, and that it is an older text's."""
        del view
        look = self._look
        if look is None:
            return "Estimate", ""
        method = look.estimate.method if look.estimate is not None else ""
        in_unit = f" · in {_unit(look.estimate)[1]}" if look.estimate is not None else ""
        title = f"Estimate · {printable(look.card.name)}{in_unit}"
        return title, method if look.is_current else f"{method} · last valid"

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        """What is wrong, the parts, the totals, the verdict."""
        del view
        look = self._look
        if look is None:
            return []
        lines = _wrong(look, palette, width)
        if look.estimate is None:
            hint = wrap(NOTHING_YET, width - 2)
            return [*lines, *(strip([(f" {line}", palette.dim)], width, palette.text) for line in hint)][:height]
        closing = _closing(look, look.estimate, palette, width)
        rows = _rows(look, look.estimate, height - len(lines) - len(closing))
        largest = max((look.estimate.ledger.bytes_of(row) or 0 for row in rows if row not in TOTALS), default=0)
        lines += [_row(row, look, largest, palette, width) for row in rows]
        return [*lines, *closing][:height]


class TotalLine(Lines[View]):
    """Total and verdict in one line, for terminals that show one page at a time."""

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
        bar = palette.ink("muted", "bar")
        pieces: list[Piece] = []
        if look.problems:
            pieces.append(
                (
                    f" ✗ {len(look.problems)} error{'s' if len(look.problems) > 1 else ''} ",
                    palette.ink("background", "error", bold=True),
                )
            )
        first = look.problems[0] if look.problems else None
        if look.estimate is None or (first is not None and not first.key):
            sentence = _sentence(first.line, first.sentence) if first is not None else NOTHING_YET
            room = width - sum(cell_len(text) for text, _ in pieces)
            return [strip([*pieces, (fit(f" {sentence}", room), bar)], width, bar)]
        total = f" {size_of(look.estimate.process)} "
        pieces.append((total, palette.ink("foreground" if look.is_current else "muted", "bar", bold=look.is_current)))
        change = _change(look, "process")
        if change:
            pieces.append((f"({change}) ", palette.ink("accent", "bar")))
        verdict = _verdict(look, look.estimate)
        line = _line(look, verdict)
        sentence = line if look.is_current else f"last valid: {line}"
        name = FIT_COLOURS[verdict.verdict] if look.is_current else "muted"
        room = width - sum(cell_len(text) for text, _ in pieces)
        pieces.append((fit(sentence, room), palette.ink(name, "bar")))
        return [strip(pieces, width, bar)]


def _wrong(look: EditorView, palette: Palette, width: int) -> list[Strip]:
    """The first two things that are wrong, and how many more there are."""
    style = palette.ink("error", bold=True)
    lines = [
        f"{'✗' if n == 0 else ' '} {part}"
        for problem in look.problems[:2]
        for n, part in enumerate(wrap(_sentence(problem.line, problem.sentence), width - 4))
    ]
    if len(look.problems) > 2:
        lines.append(f"  and {len(look.problems) - 2} more")
    return [strip([(f" {line}", style)], width, palette.text) for line in lines]


def _sentence(line: int | None, sentence: str) -> str:
    return printable(sentence if line is None else f"line {line}: {sentence}")


def _rows(look: EditorView, estimate: Estimate, height: int) -> list[Line]:
    """The parts that there are or were, the smallest left out where there is no room, and the three totals."""
    parts = [line for line in LEAVES if estimate.ledger.bytes_of(line) or _moved(look, line)]
    while parts and len(parts) + len(TOTALS) > height:
        parts.remove(min(parts, key=lambda line: (estimate.ledger.bytes_of(line) or 0) + abs(_moved(look, line))))
    order: list[Line] = []
    for part in parts:
        if part in {"cached", "context", "other"}:
            continue
        order.append(part)
    order.append("allocated")
    order += [line for line in parts if line == "cached"]
    order.append("reserved")
    order += [line for line in parts if line in {"context", "other"}]
    order.append("process")
    return order


def _row(line: Line, look: EditorView, largest: int, palette: Palette, width: int) -> Strip:
    total, title = line in TOTALS, title_of(line, look.card.device.vendor)
    count = look.estimate.ledger.bytes_of(line) if look.estimate is not None else None
    bar = max(0, min(24, width - NAME - SIZE - CHANGE - 3))
    style = palette.strong if total else palette.text
    colour = palette.ink(line.replace("_", "-"))
    if not look.is_current:
        style, colour = palette.dim, palette.ink("line")
    change, unit = _change(look, line, of_column=True), _unit(look.estimate)[0]
    moved = palette.ink("error" if change.startswith("+") else "success") if look.is_current else palette.dim
    pieces: list[Piece] = [
        (" " + fit(f"── {title}" if total else title, NAME + 1), style),
        (fit("" if total else _bar(count or 0, largest, bar), bar), colour),
        (right(format_column(count, unit), SIZE), style),
        (right(change, CHANGE), moved),
    ]
    return strip(pieces, width, palette.text)


def _bar(count: int, largest: int, width: int) -> str:
    """A bar in eighths of a column; what there is at all shows as one of them at least."""
    if not count or not largest or not width:
        return ""
    whole, rest = divmod(max(1, round(count * width * 8 / largest)), 8)
    return "█" * whole + EIGHTHS[rest].strip()


def _moved(look: EditorView, line: Line) -> int:
    """Bytes by which a part is larger than the saved text's."""
    if look.before is None or look.estimate is None:
        return 0
    return (look.estimate.ledger.bytes_of(line) or 0) - (look.before.ledger.bytes_of(line) or 0)


def _unit(estimate: Estimate | None) -> tuple[int, str]:
    """The unit of the panel's columns, and its name."""
    return unit_of((estimate.process if estimate is not None else None) or 0)


def _change(look: EditorView, line: Line, *, of_column: bool = False) -> str:
    """How much larger a part is than the saved text's, in the column's unit, or in its own with the unit's name."""
    moved = _moved(look, line)
    size = format_column(abs(moved), _unit(look.estimate)[0]) if of_column else size_of(abs(moved))
    return f"{'+' if moved > 0 else '−'}{size}" if moved else ""


def _line(look: EditorView, fit: Fit) -> str:
    """The verdict, with a mark while a nearer estimate will replace it."""
    return f"{'≈ ' if look.is_quick else ''}{fit.line(printable(look.card.name))}"


def _verdict(look: EditorView, estimate: Estimate) -> Fit:
    return verdict(estimate, look.workload, look.card.device, look.card.room, printable(look.card.name))


def _closing(look: EditorView, estimate: Estimate, palette: Palette, width: int) -> list[Strip]:
    """Whether it fits, and when it peaks."""
    verdict = _verdict(look, estimate)
    colour = palette.ink(FIT_COLOURS[verdict.verdict], bold=True) if look.is_current else palette.dim
    lines = [strip([(f" {line}", colour)], width, palette.text) for line in wrap(_line(look, verdict), width - 2)]
    when = PHASE_TITLES.get(estimate.peak_phase, estimate.peak_phase)
    return [*lines, strip([(fit(f" peak: {when}", width), palette.dim)], width, palette.text)]
