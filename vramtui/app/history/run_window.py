"""One past run: its memory over time, its predicted and observed parts, and the values of its preset."""

import time
from collections.abc import Callable

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.geometry import Size
from textual.strip import Strip

from vramtui.app.history.panels import HistoryView
from vramtui.app.state.memory_series import ceiling
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.dialog import Window
from vramtui.app.ui.graph import MemoryGraph
from vramtui.app.ui.lines import Framed, Piece, fit, right, strip, wrap
from vramtui.app.ui.lists import delta_colour
from vramtui.app.ui.parts import title_of
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_column, format_duration, format_percent, unit_of
from vramtui.core.estimate.devices import vendor_of
from vramtui.core.estimate.estimate import TOTALS
from vramtui.core.estimate.fits import compare_ledgers, shown_rows
from vramtui.core.runs.run import Run, StoredRun
from vramtui.core.runs.run_list import FAILED, facts_of, preset_values

LABEL, SIDE, DELTA = 11, 12, 9
WIDE = 112


class RunLines(Framed[View]):
    """Lines about one run, as many as `lines` makes for a palette and a width."""

    def __init__(self, title: str, lines: Callable[[Palette, int], list[Strip]]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        del view, height
        return self._lines(palette, width)

    def titles(self, view: View) -> tuple[str, str]:
        del view
        return self._title, ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        del container, viewport
        return len(self._lines(self.palette, width)) if self.palette is not None else 1

    def take(self, view: View, palette: Palette) -> None:
        super().take(view, palette)
        self.refresh(layout=True)


def fact_lines(run: Run, now: float, palette: Palette, width: int) -> list[Strip]:
    """Names and sentences: where, when and how."""
    lines: list[Strip] = []
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at))
    for name, words in facts_of(run, now, started).items():
        style = palette.ink("error") if name == "ended" and run.ending in FAILED else palette.text
        for at, line in enumerate(wrap(printable(words), max(8, width - LABEL - 1)) or [UNKNOWN]):
            pieces: list[Piece] = [(" " + fit("" if at else name, LABEL - 1), palette.dim), (line, style)]
            lines.append(strip(pieces, width, palette.text))
    return lines


def ledger_lines(run: Run, palette: Palette, width: int) -> list[Strip]:
    """Predicted and observed: every line that either side has."""
    name = max(8, width - 2 * SIDE - DELTA - 1)
    rows = shown_rows(compare_ledgers(run.predicted, run.observed), vendor_of(run.gpu_name))
    unit, called = unit_of(max((row.predicted or row.observed or 0 for row in rows), default=0))
    text = " " + fit(f"in {called}", name) + right("predicted", SIDE) + right("observed", SIDE) + right("Δ", DELTA)
    lines = [strip([(text, palette.dim)], width, palette.text)]
    for row in rows:
        total = row.line in TOTALS
        style = palette.strong if total else palette.text
        observed = "" if row.is_part else format_column(row.observed, unit)
        delta = format_percent(row.fraction) if row.fraction is not None else ""
        pieces: list[Piece] = [
            (
                " " + fit(f"── {row.title}" if total else title_of(row), name),
                style if total else palette.ink(row.line.replace("_", "-")),
            ),
            (right(format_column(row.predicted, unit), SIDE), style),
            (right(observed, SIDE), style if row.observed is not None else palette.dim),
            (right(delta, DELTA), palette.dim if row.fraction is None else palette.ink(delta_colour(row.fraction))),
        ]
        lines.append(strip(pieces, width, palette.text))
    return lines


def value_lines(run: Run, palette: Palette, width: int) -> list[Strip]:
    """The values of the preset, table by table."""
    lines: list[Strip] = []
    for name, value in preset_values(run):
        lines.append(strip([(f" [{name}]", palette.ink("primary"))], width, palette.text))
        wrapped = wrap(printable(value), max(8, width - 4))
        lines += [strip([(f"   {line}", palette.text)], width, palette.text) for line in wrapped]
    return lines or [strip([(" No preset was used.", palette.dim)], width, palette.text)]


class RunPreview(Framed[HistoryView]):
    """The selected run next to the list: predicted and observed, then where, when and how."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        if view.chosen is None:
            return []
        run = view.chosen.run
        lines = ledger_lines(run, palette, width)
        return [*lines, strip([], width, palette.text), *fact_lines(run, view.now, palette, width)][:height]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        return ("Run", "") if view.chosen is None else (f"Run {view.chosen.id}", "enter opens it with its graph")


class RunWindow(Window[None]):
    """A run as the history has it; it does not change while it is shown. `forget` asks whether to delete it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    BINDINGS = [
        Binding(keys, action, name, id=f"run.{identity}", show=False)
        for keys, action, name, identity in (
            ("s", "report", "Write a report", "report"),
            ("d", "forget", "Delete it from the history", "forget"),
            ("up,k", "scroll(-1)", "Line up", "up"),
            ("down,j", "scroll(1)", "Down", "down"),
            ("pageup", "scroll(-10)", "Page up", "page_up"),
            ("pagedown", "scroll(10)", "Page down", "page_down"),
        )
    ]

    def __init__(
        self,
        stored: StoredRun,
        palette: Palette,
        now: float,
        report: Callable[[], None],
        forget: Callable[[], None],
    ) -> None:
        run = stored.run
        title = f"Run {stored.id} · {printable(run.preset or run.command) or 'no preset'} · {printable(run.host)}"
        super().__init__(title, "arrows scroll · s report · d delete · Esc close")
        self._run, self._palette, self._now = run, palette, now
        self._report, self._forget = report, forget

    def inside(self) -> ComposeResult:
        """Facts and graph at the left, figures at the right; one below the other in a narrow terminal."""
        run = self._run
        with VerticalScroll(id="all"), Container(id="columns"):
            with Vertical(id="story"):
                yield RunLines("Run", lambda palette, width: fact_lines(run, self._now, palette, width))
                yield MemoryGraph()
            with Vertical(id="figures"):
                yield RunLines("Predicted and observed", lambda palette, width: ledger_lines(run, palette, width))
                yield RunLines("Preset values", lambda palette, width: value_lines(run, palette, width))

    def on_mount(self) -> None:
        self.query_one("#all").focus()
        view = View(series=series_of(self._run))
        for panel in (*self.query(RunLines), self.query_one(MemoryGraph)):
            panel.take(view, self._palette)

    async def action_forget(self) -> None:
        """Ask, with the list in sight."""
        self.dismiss(None)
        self.app.call_later(self._forget)

    def action_report(self) -> None:
        self._report()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#all", VerticalScroll).scroll_relative(y=lines, animate=False)


def series_of(run: Run) -> Series | None:
    """The run's memory as the graph draws it; None if it was not recorded over time."""
    if not run.times:
        return None
    start, end = run.started_at + run.times[0], max(run.last_known, run.started_at + run.times[-1] + 1)
    highest = max(*run.values, run.predicted.process or 0, run.observed.process or 0)
    return Series(
        title=f"pid {run.pid}",
        times=tuple(run.started_at + at for at in run.times),
        values=run.values,
        start=start,
        end=end,
        ceiling=ceiling(highest, None),
        predicted=run.predicted.process,
        ends=(format_duration(run.times[0]), f"{format_duration(end - run.started_at)} after its start"),
    )
