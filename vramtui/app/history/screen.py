"""The History screen: the list of past runs, the errors of their predictions, and the window of one run."""

import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import msgspec
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Container, Vertical, VerticalScroll
from textual.geometry import Size
from textual.strip import Strip

from vramtui.app.context import AppContext, ListScreen, ask
from vramtui.app.keys import HISTORY_BINDINGS
from vramtui.app.state.dashboard_state import ceiling
from vramtui.app.state.view import Series, View
from vramtui.app.themes import Palette
from vramtui.app.ui import lines as ui
from vramtui.app.ui.chooser import Confirm, Window
from vramtui.app.ui.graph import DOTS, MemoryGraph, braille_rows
from vramtui.app.ui.parts import compared, part_lines, sizes
from vramtui.app.ui.view_screen import Header, KeyBar
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_duration, format_gib, format_percent
from vramtui.core.estimate.devices import vendor_of
from vramtui.core.estimate.fits import compare_ledgers, shown_rows
from vramtui.core.runs import run as recorded

if TYPE_CHECKING:
    from vramtui.app.history.controller import HistoryController

FULL, ROOMY = 100, 125
LEAST_PRESET = 18
_WIDE: ui.Columns[recorded.RunColumn] = (
    ui.Column("when", "WHEN", 18),
    ui.Column("host", "HOST", 12),
    ui.Column("gpu", "GPU", 15),
    ui.Column("preset", "PRESET", 0),
    ui.Column("predicted", "PREDICTED", 10, numeric=True),
    ui.Column("observed", "OBSERVED", 9, numeric=True),
    ui.Column("error", "Δ", 10, numeric=True),
    ui.Column("lasted", "LASTED", 11, numeric=True),
    ui.Column("ended", "ENDED", 20),
)
_FULL = tuple(column for column in _WIDE if column.name != "lasted")
_NARROW = ui.narrowed(
    _WIDE,
    {"when": 13, "host": 8, "gpu": 7, "preset": 0, "predicted": 8, "observed": 7, "error": 9, "ended": 15},
    {"predicted": "PREDICT", "observed": "SEEN"},
)
_TEXTS: dict[recorded.RunColumn, Callable[[recorded.Run], str]] = {
    "host": lambda run: printable(run.host),
    "gpu": lambda run: ui.short_name(printable(run.gpu_name)),
    "preset": lambda run: printable(run.preset or run.command),
    "predicted": lambda run: format_gib(run.predicted.process),
    "observed": lambda run: format_gib(run.observed.process),
    "error": lambda run: format_percent(run.error),
    "lasted": recorded.lasted_words,
}
EMPTY = (
    "No runs recorded yet.",
    "The dashboard records every job that is matched to a preset.",
    "A preset's [match] matches its jobs; on the Watch screen m assigns a preset to the selected process.",
    "vramtui run --preset NAME -- COMMAND records a job with the driver's figures and PyTorch's own.",
)


class RunStore(Protocol):
    """The past runs. Everything but `note` may take time or raise UserError, and is called on threads."""

    @property
    def note(self) -> str:
        """A note on all runs; empty for real ones."""

    def stamp(self) -> object:
        """A value that changes whenever a run is added, changed or deleted."""

    def runs(self) -> tuple[recorded.StoredRun, ...]:
        """All runs, the latest first."""

    def forget(self, number: int) -> None: ...

    def report(self, stored: recorded.StoredRun) -> list[str]:
        """Write a run to files and return their paths."""


class Errors(msgspec.Struct, frozen=True):
    """The errors of one kind of predictions, and the number of runs in each bar of a histogram."""

    spread: recorded.Spread
    counts: tuple[int, ...]


class HistoryView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the History screen. `runs` are filtered and in order; `total` counts all.

    `is_read` is False until the history was read for the first time; `problem` says why it could not be read. `now` is
    in seconds since the epoch.
    """

    runs: tuple[recorded.StoredRun, ...] = ()
    total: int = 0
    is_read: bool = False
    problem: str = ""
    note: str = ""
    chosen: recorded.StoredRun | None = None
    sort: recorded.RunColumn = "when"
    falls: bool = True
    filter: str = ""
    errors: tuple[Errors, ...] = ()
    now: float = 0.0


class HistoryModel(ui.ListModel[recorded.RunColumn, recorded.StoredRun]):
    """Takes past runs and the user's choices, and makes the view of them. It uses no widget, no clock and no file."""

    __slots__ = ("_errors", "_every", "_problem", "is_read")

    COLUMNS = recorded.RUN_COLUMNS
    FROM_THE_LARGEST = recorded.FROM_THE_LARGEST

    def __init__(self) -> None:
        super().__init__("when")
        self._problem, self.is_read = "", False
        self._every: tuple[recorded.StoredRun, ...] = ()
        self._errors: tuple[Errors, ...] = ()

    def take(self, runs: Sequence[recorded.StoredRun]) -> None:
        self._every, self.is_read, self._problem = tuple(runs), True, ""
        self._arrange()

    def fail(self, problem: str) -> None:
        """Show why they cannot be read; the known ones stay."""
        self.is_read, self._problem = True, problem

    def sort_by(self, column: recorded.RunColumn) -> None:
        super().sort_by(column)
        self._arrange()

    def set_filter(self, text: str) -> None:
        """Show only runs that contain every word of `text`."""
        super().set_filter(text)
        self._arrange()

    def view(self, now: float) -> HistoryView:
        return HistoryView(
            runs=tuple(self._rows),
            total=len(self._every),
            is_read=self.is_read,
            problem=self._problem,
            chosen=self.selected,
            sort=self.sort,
            falls=self.falls,
            filter=self.filter,
            errors=self._errors,
            now=now,
        )

    def _arrange(self) -> None:
        """Make the list and the errors of its runs, once per change."""
        some = recorded.filtered(self._every, recorded.RunFilter(words=self.filter))
        self._rows = tuple(recorded.in_order(some, self.sort, reverse=self.reverse))
        runs = tuple(stored.run for stored in some)
        self._errors = tuple(
            Errors(spread, recorded.histogram(recorded.errors_of(runs, spread.method, spread.model_kind)))
            for spread in recorded.spreads(runs)
        )


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> ui.Columns[recorded.RunColumn]:
    """The columns of a list `breadth` columns wide, the last of them for a scroll bar. The preset takes what is left;
    if that is too little, the host goes.
    """
    columns = _NARROW if breadth < FULL else _WIDE if breadth >= ROOMY else _FULL
    if breadth - 1 - sum(column.width for column in columns) < LEAST_PRESET:
        columns = tuple(column for column in columns if column.name != "host")
    return ui.filled(columns, breadth - 1, least=6)


class RunRows(ui.CursorRows[HistoryView, recorded.StoredRun]):
    BINDINGS = ui.moving_keys("runs")
    OPENS = "screen.open_run"

    def rows_of(self, view: HistoryView) -> tuple[Sequence[recorded.StoredRun], int]:
        return view.runs, next((at for at, stored in enumerate(view.runs) if stored is view.chosen), 0)

    def line_of(self, row: recorded.StoredRun, palette: Palette, width: int, cursor: str | None) -> Strip:
        run, on, short = row.run, cursor or "background", self.breadth < FULL
        now = self.view.now if self.view is not None else 0.0
        pieces: list[ui.Piece] = []
        for column in columns_for(self.breadth):
            colour = "foreground"
            if column.name == "when":
                local = time.localtime(run.started_at)
                form = "%Y-%m-%d %H:%M"
                if short:  # without the year if it is this one
                    form = "%d %b %H:%M" if local.tm_year == time.localtime(now).tm_year else "%Y-%m-%d"
                text = time.strftime(form, local)
            elif column.name == "ended":
                # If there is little room, only the run's own window has the exit code.
                text = recorded.ending_words(run, now).partition(" (" if short else "\n")[0]
                colour = "error" if run.ending in recorded.FAILED else "success" if run.ending == "running" else "muted"
            else:
                text = _TEXTS[column.name](run)
            if column.name == "predicted" and run.predicted.process:
                colour = "prediction"
            elif column.name == "error":
                colour = ui.delta_colour(run.error) if run.error is not None and run.finished else "muted"
            elif column.name == "lasted" or (column.name == "preset" and not run.preset):
                colour = "muted"
            pieces.append((ui.cell(text, column), palette.ink(colour, on)))
        return ui.strip(ui.under_cursor(pieces, cursor), self.breadth, palette.ink("foreground", on)).crop(0, width)

    def sentences(self, view: HistoryView, width: int) -> Sequence[str]:
        if view.problem:
            return ui.wrap(printable(view.problem), width)
        if not view.is_read:
            return ["Loading the history …"]
        if view.filter:
            return ui.wrap(f"No run matches “{printable(view.filter)}”. Esc clears the filter.", width)
        return [line for sentence in EMPTY for line in [*ui.wrap(sentence, width), ""]]


class RunTable(ui.ListFrame[HistoryView, recorded.RunColumn, recorded.StoredRun]):
    def __init__(self) -> None:
        heading = ui.SortHeading[HistoryView, recorded.RunColumn](
            lambda _, width: columns_for(width), lambda view: (view.sort, view.falls)
        )
        super().__init__(heading, RunRows(id="runs"))

    def titles(self, view: HistoryView) -> tuple[str, str]:
        count = f"{len(view.runs)} of {view.total}" if view.filter else str(view.total)
        unit = "memory in GiB" if view.runs else ""
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else unit
        return f"Runs · {count}{f' · {view.note}' if view.note else ''}", below


BAR, ROWS = 3, 2  # columns of a bar, without a gap of one; rows of a histogram
EACH = 2 + ROWS


class RunErrors(ui.Framed[HistoryView]):
    """The number of runs, the median, the extremes and a histogram for each method and kind of model."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        """The groups that fit, the largest first, and one axis below them."""
        if not view.errors:
            return ui.paragraph("No finished run has both a prediction and an observation yet.", palette, width)[
                :height
            ]
        lines: list[Strip] = []
        for group in sorted(view.errors, key=lambda group: -group.spread.runs):
            if lines and len(lines) + EACH + 1 > height:
                break
            spread = group.spread
            count = f"{spread.runs} run{'s' if spread.runs > 1 else ''} "
            name = f" {printable(spread.method)} · {printable(spread.model_kind) or 'any model'}"
            widest = f"{format_percent(spread.lowest)} to {format_percent(spread.highest)} "
            median: list[ui.Piece] = [("   median ", palette.dim), (format_percent(spread.median), palette.strong)]
            lines.append(ui.between([(name, palette.text)], [(count, palette.dim)], width, palette.text))
            lines.append(ui.between(median, [(widest, palette.dim)], width, palette.text))
            lines += [ui.strip([("  " + row, palette.ink("used"))], width, palette.text) for row in bars(group.counts)]
        # The edges in per cent, each under the gap between two bars.
        cells = [" "] * (len(recorded.EDGES) + 1) * (BAR + 1)
        for at, edge in enumerate(recorded.EDGES):
            label = f"{edge * 100:+.0f}".replace("-", "−")
            start = (at + 1) * (BAR + 1) - 1 - len(label) // 2
            cells[start : start + len(label)] = label
        axis = ui.strip([("  " + "".join(cells) + "%", palette.dim)], width, palette.text)
        return [*lines[: height - 1], axis]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        count = len(view.errors)
        room = (self.scrollable_content_region.height - 1) // EACH
        return ("Observed over predicted", f"{room} of {count} kinds" if 0 < room < count else "")


def bars(counts: tuple[int, ...]) -> list[str]:
    """A histogram in rows of braille: at least a dot for any run at all."""
    most = max(counts) or 1
    dots: list[int] = []
    for count in counts:
        level = max(1, round(count / most * ROWS * DOTS)) if count else 0
        dots += [level] * (2 * BAR) + [0, 0]
    return braille_rows(dots, ROWS)


LABEL, SIDE, DELTA = 11, 12, 9
TWO_COLUMNS = 112


class RunLines(ui.Framed[View]):
    """Lines about one run, as many as `lines` makes for a palette and a width."""

    def __init__(self, title: str, lines: Callable[[Palette, int], list[Strip]]) -> None:
        super().__init__()
        self._title, self._lines = title, lines

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        return self._lines(palette, width)

    def titles(self, view: View) -> tuple[str, str]:
        return self._title, ""

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(self.palette, width)) if self.palette is not None else 1

    def take(self, view: View, palette: Palette) -> None:
        super().take(view, palette)
        self.refresh(layout=True)


def fact_lines(run: recorded.Run, now: float, palette: Palette, width: int) -> list[Strip]:
    """Names and sentences: where, when and how."""
    lines: list[Strip] = []
    started = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started_at))
    for name, words in recorded.facts_of(run, now, started).items():
        style = palette.ink("error") if name == "ended" and run.ending in recorded.FAILED else palette.text
        for at, line in enumerate(ui.wrap(printable(words), max(8, width - LABEL - 1)) or [UNKNOWN]):
            pieces: list[ui.Piece] = [(" " + ui.fit("" if at else name, LABEL - 1), palette.dim), (line, style)]
            lines.append(ui.strip(pieces, width, palette.text))
    return lines


def ledger_lines(run: recorded.Run, palette: Palette, width: int) -> list[Strip]:
    """Predicted and observed: every line that either side has."""
    rows = shown_rows(compare_ledgers(run.predicted, run.observed), vendor_of(run.gpu_name))
    figures = (sizes("predicted", SIDE, lambda row: row.predicted), *compared(palette, SIDE, DELTA))
    return part_lines(rows, figures, palette, width)


def value_lines(run: recorded.Run, palette: Palette, width: int) -> list[Strip]:
    lines: list[Strip] = []
    for name, value in recorded.preset_values(run):
        lines.append(ui.strip([(f" [{name}]", palette.ink("primary"))], width, palette.text))
        wrapped = ui.wrap(printable(value), max(8, width - 4))
        lines += [ui.strip([(f"   {line}", palette.text)], width, palette.text) for line in wrapped]
    return lines or [ui.strip([(" No preset was used.", palette.dim)], width, palette.text)]


class RunPreview(ui.Framed[HistoryView]):
    """The selected run next to the list: predicted and observed, then where, when and how."""

    def build(self, view: HistoryView, palette: Palette, width: int, height: int) -> list[Strip]:
        if view.chosen is None:
            return []
        run = view.chosen.run
        lines = ledger_lines(run, palette, width)
        return [*lines, ui.strip([], width, palette.text), *fact_lines(run, view.now, palette, width)][:height]

    def titles(self, view: HistoryView) -> tuple[str, str]:
        return ("Run", "") if view.chosen is None else (f"Run {view.chosen.id}", "enter opens it with its graph")


class RunWindow(Window[None]):
    """A run as the history has it; it does not change while it is shown. `forget` asks whether to delete it."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (TWO_COLUMNS, "-wide")]
    BINDINGS = [
        Binding(keys, action, name, id=f"run.{identity}", show=False)
        for keys, action, name, identity in (
            ("s", "report_run", "Write a report", "report"),
            ("d", "forget_run", "Delete it from the history", "forget"),
            ("up,k", "scroll(-1)", "Line up", "up"),
            ("down,j", "scroll(1)", "Down", "down"),
            ("pageup", "scroll(-10)", "Page up", "page_up"),
            ("pagedown", "scroll(10)", "Page down", "page_down"),
        )
    ]

    def __init__(
        self,
        stored: recorded.StoredRun,
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

    async def action_forget_run(self) -> None:
        self.dismiss(None)
        self.app.call_later(self._forget)

    def action_report_run(self) -> None:
        self._report()

    def action_scroll(self, lines: int) -> None:
        self.query_one("#all", VerticalScroll).scroll_relative(y=lines, animate=False)


def series_of(run: recorded.Run) -> Series | None:
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


WIDE, VERY_WIDE, TALL = 112, 170, 46
NOTHING = "No run is selected: the list is empty."


class HistoryScreen(ListScreen):
    """Past runs, and the errors of their predictions: next to the list, or below it in a narrow terminal."""

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (VERY_WIDE, "-very-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-low"), (TALL, "-tall")]
    CSS_PATH = "history.tcss"
    BINDINGS = HISTORY_BINDINGS
    PLACE = "history"
    FIRST_FOCUS = "RunRows"
    FILTER = "filter: words in host, GPU, preset, method, command, pid or how it ended"

    def __init__(self, shared: AppContext, history: "HistoryController") -> None:
        super().__init__(shared, history.model)
        self._history = history
        self.shown = HistoryView()

    def compose(self) -> ComposeResult:
        yield Header("History")
        with Container(id="body"):
            yield RunTable()
            with Container(id="side"):
                yield RunPreview()
                yield RunErrors()
        yield KeyBar()

    def panels_view(self, view: View) -> HistoryView:
        self.shown = self._history.view()
        self.set_class(self.shown.chosen is not None, "-selected")
        return self.shown

    def action_open_run(self) -> None:
        run = self._chosen_run()
        if run is not None and self.palette is not None:
            window = RunWindow(run, self.palette, self._shared.clock(), self.action_report_run, self.action_forget_run)
            self.app.push_screen(window)

    def action_report_run(self) -> None:
        run = self._chosen_run()
        if run is not None:
            self._history.report(run)

    def action_forget_run(self) -> None:
        stored = self._chosen_run()
        if stored is None or self._history.store is None:
            return
        refused = recorded.why_not_deleted(stored, self._shared.clock())
        if refused:
            self.notify(f"Not deleted: {refused}.", severity="warning")
            return

        run = stored.run
        what = f"run {stored.id}, {printable(run.preset or run.command or 'without a preset')} on {printable(run.host)}"
        question = f"Remove {what}, from the history? This cannot be undone."

        window = Confirm("Delete this run?", question, "y delete · n or Esc cancel")
        ask(self.app, window, lambda _: self._history.forget(stored))

    def _chosen_run(self) -> recorded.StoredRun | None:
        run = self._history.model.selected
        if run is None:
            self.notify(NOTHING)
        return run
