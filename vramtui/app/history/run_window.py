"""One past run: its memory over time, both sides of its Ledger, and the exact values of its preset."""

import time
from collections.abc import Callable, Iterator

from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.geometry import Size
from textual.strip import Strip

from vramtui.app.history.model import HistoryView
from vramtui.app.state.memory_series import ceiling
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import delta_colour
from vramtui.app.ui.dialog import Window
from vramtui.app.ui.graph.memory_graph import MemoryGraph
from vramtui.app.ui.lines import Framed, Piece, fit, right, strip, wrap
from vramtui.app.ui.parts_tree import title_of
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_column, format_duration, format_percent, unit_of
from vramtui.core.estimate.comparison import ShownRow, compare_ledgers, shown_rows
from vramtui.core.estimate.devices import vendor_of
from vramtui.core.estimate.estimate import PHASE_TITLES
from vramtui.core.estimate.ledger import TOTALS
from vramtui.core.runs.run import Run, StoredRun
from vramtui.core.runs.run_list import ending_words, lasted_words, preset_values

LABEL, SIDE, DELTA = 11, 12, 9
HOW = {
    "sampled": "sampled: a short peak may have been missed",
    "accounting": "the driver's accounting of the process",
    "probe": "PyTorch's own counters, from a probe in the job",
}


class _Still(Framed[View]):
    """Lines about one run, as many as there are."""

    TITLE = ""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run

    def lines(self, palette: Palette, width: int) -> list[Strip]:
        raise NotImplementedError

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        del view, height
        return self.lines(palette, width)

    def titles(self, view: View) -> tuple[str, str]:
        del view
        return self.TITLE, ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """The number of lines that there are to show."""
        del container, viewport
        return len(self.lines(self.palette, width)) if self.palette is not None else 1

    def take(self, view: View, palette: Palette) -> None:
        """Show `view` from now on, in the height that it needs."""
        super().take(view, palette)
        self.refresh(layout=True)


class RunFacts(_Still):
    """Where, when and how."""

    TITLE = "Run"

    def __init__(self, run: Run, now: float) -> None:
        super().__init__(run)
        self._now = now

    def lines(self, palette: Palette, width: int) -> list[Strip]:
        """A name and a sentence each."""
        return _fact_lines(self._run, self._now, palette, width)


def _fact_lines(run: Run, now: float, palette: Palette, width: int) -> list[Strip]:
    lines: list[Strip] = []
    for name, words, style in _facts(run, now, palette):
        for at, line in enumerate(wrap(printable(words), max(8, width - LABEL - 1)) or [UNKNOWN]):
            label = name if at == 0 else ""
            pieces: list[Piece] = [(" " + fit(label, LABEL - 1), palette.dim), (line, style)]
            lines.append(strip(pieces, width, palette.text))
    return lines


def _facts(run: Run, now: float, palette: Palette) -> Iterator[tuple[str, str, Style]]:
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at))
    lasted = f", after {lasted_words(run)}" if run.ended_at is not None else ""
    failed = run.ending in {"failed", "out_of_memory", "killed"}
    yield "command", run.command, palette.text
    yield "where", f"{run.host}, {run.gpu_name} ({run.gpu_uuid}), pid {run.pid}", palette.text
    yield "started", started, palette.text
    yield "ended", f"{ending_words(run, now)}{lasted}", palette.ink("error") if failed else palette.text
    peak = next((title for phase, title in PHASE_TITLES.items() if phase == run.peak_phase), "")
    method = f"{run.method}{f', peak: {peak}' if peak else ''}" if run.method else "no prediction: no preset"
    yield "method", method, palette.text
    yield "observed", HOW.get(run.peak_how, run.peak_how), palette.text
    yield "versions", ", ".join(f"{name} {known}" for name, known in run.versions.items()), palette.text


class RunLedger(_Still):
    """Both sides of the tree, every line that either knows."""

    TITLE = "Predicted and observed"

    def lines(self, palette: Palette, width: int) -> list[Strip]:
        """A heading and a line each."""
        return _ledger_lines(self._run, palette, width)


def _ledger_lines(run: Run, palette: Palette, width: int) -> list[Strip]:
    name = max(8, width - 2 * SIDE - DELTA - 1)
    rows = shown_rows(compare_ledgers(run.predicted, run.observed), vendor_of(run.gpu_name))
    unit, called = unit_of(max((row.predicted or row.observed or 0 for row in rows), default=0))
    text = " " + fit(f"in {called}", name) + right("predicted", SIDE) + right("observed", SIDE) + right("Δ", DELTA)
    lines = [_row(row, unit, palette, width, name) for row in rows]
    return [strip([(text, palette.dim)], width, palette.text), *lines]


class RunPreview(Framed[HistoryView]):
    """The selected run beside the list: both sides of its Ledger, then where, when and how."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        if view.chosen is None:
            return []
        run = view.chosen.run
        lines = _ledger_lines(run, palette, width)
        return [*lines, strip([], width, palette.text), *_fact_lines(run, view.now, palette, width)][:height]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        return ("Run", "") if view.chosen is None else (f"Run {view.chosen.id}", "enter opens it with its graph")


def _row(row: ShownRow, unit: int, palette: Palette, width: int, name: int) -> Strip:
    total = row.line in TOTALS
    style = palette.strong if total else palette.text
    title = f"── {row.title}" if total else title_of(row)
    ink = style if total else palette.ink(row.line.replace("_", "-"))
    delta = palette.dim if row.fraction is None else palette.ink(delta_colour(row.fraction))
    pieces: list[Piece] = [
        (" " + fit(title, name), ink),
        (right(format_column(row.predicted, unit), SIDE), style),
        (
            right("" if row.is_part else format_column(row.observed, unit), SIDE),
            style if row.observed is not None else palette.dim,
        ),
        (right(format_percent(row.fraction) if row.fraction is not None else "", DELTA), delta),
    ]
    return strip(pieces, width, palette.text)


class RunValues(_Still):
    """The preset's exact values, as its tables spell them."""

    TITLE = "Preset values"

    def lines(self, palette: Palette, width: int) -> list[Strip]:
        """A heading for each table and its values, one after the other."""
        lines: list[Strip] = []
        for name, value in preset_values(self._run):
            lines.append(strip([(f" [{name}]", palette.ink("primary"))], width, palette.text))
            wrapped = wrap(printable(value), max(8, width - 4))
            lines += [strip([(f"   {line}", palette.text)], width, palette.text) for line in wrapped]
        return lines or [strip([(" No preset was used.", palette.dim)], width, palette.text)]


WIDE = 112


class RunWindow(Window[None]):
    """A run as the history keeps it; nothing in it moves.

    Args:
        kept: the run.
        palette: the colours it is drawn in.
        now: seconds since the epoch.
        report: writes it to files.
        forget: asks whether it is to be removed from the history.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide")]
    DEFAULT_CSS = """
    RunWindow > #window {
        width: 96%; max-width: 180; height: 94%; padding: 0; background: $background;
        #all { height: 1fr; background: $background; }
        #story, #figures { height: auto; }
        RunFacts, RunLedger, RunValues { height: auto; }
        MemoryGraph { height: 10; }
    }
    RunWindow.-wide > #window {
        #columns { layout: horizontal; height: auto; }
        #story { width: 1fr; }
        #figures { width: 56; }
        MemoryGraph { height: 14; }
    }
    """
    BINDINGS = [
        Binding("s", "report", "Write a report", id="run.report", show=False),
        Binding("d", "forget", "Delete it from the history", id="run.forget", show=False),
        Binding("up,k", "scroll(-1)", "Line up", id="run.up", show=False),
        Binding("down,j", "scroll(1)", "Down", id="run.down", show=False),
        Binding("pageup", "scroll(-10)", "Page up", id="run.page_up", show=False),
        Binding("pagedown", "scroll(10)", "Page down", id="run.page_down", show=False),
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
        self._run = run
        self._palette = palette
        self._now = now
        self._report = report
        self._forget = forget

    def inside(self) -> ComposeResult:
        """Story at the left, figures at the right; one below the other where there is no room."""
        with VerticalScroll(id="all"), Container(id="columns"):
            with Vertical(id="story"):
                yield RunFacts(self._run, self._now)
                yield MemoryGraph()
            with Vertical(id="figures"):
                yield RunLedger(self._run)
                yield RunValues(self._run)

    def on_mount(self) -> None:
        self.query_one("#all").focus()
        view = View(series=series_of(self._run))
        for kind in (RunFacts, MemoryGraph, RunLedger, RunValues):
            self.query_one(kind).take(view, self._palette)

    async def action_forget(self) -> None:
        """Ask, with the list in sight."""
        self.dismiss(None)
        self.app.call_later(self._forget)

    def action_report(self) -> None:
        self._report()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#all", VerticalScroll).scroll_relative(y=lines, animate=False)


def series_of(run: Run) -> Series | None:
    """The run's memory as the graph draws it; None where nobody looked while it ran."""
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
