"""The process table: its columns, the processes that hold memory now, and unattributed memory."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import attrgetter

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from vramtui.app.state.rows import BRANCH, FROM_THE_SMALLEST, REMAINDERS, TREE, RowGroups, doubt
from vramtui.app.state.view import ProcessRow, SortColumn, View
from vramtui.app.themes import Palette
from vramtui.app.ui import lines as ui
from vramtui.core.base.text import brief_command, printable, printable_line
from vramtui.core.base.units import GIB, UNKNOWN, format_bytes, format_duration, format_gib, format_gib_narrow
from vramtui.core.observation.readings import STATE_MARKS, gpu_name

FULL, ALONE = 84, 76  # columns of a wide table; at 120 columns the estimate leaves it fewer than 76
EXACT = "="  # before a peak that was reported, not sampled
# The room for the command before another column is shown: a fraction of the table, within two limits.
COMMAND_PART, COMMAND_PART_WIDE, COMMAND_LEAST, COMMAND_ENOUGH = 0.3, 0.4, 28, 48
COMMAND_BESIDE_JOB, COMMAND_BESIDE_ESTIMATE = 36, 33  # least columns of the command: with JOB, without predictions
GIVEN_TO_CPU = 2  # columns of the command, so that long user names do not remove CPU % at 80 columns
MOST_JOB = 30  # columns of a pod with its namespace, if the command has more than enough
ROOMY = 100  # columns below which the command has a narrow table's part, without predictions
WHOLE_COMMAND = 64
AROUND_FOOT = 4  # rules and blanks on its line
PREDICTED: tuple[SortColumn, ...] = ("predicted", "delta")
# Columns that are shown as the width allows, in this order; without predictions, the job or container comes before its
# use of the host.
OPTIONAL: tuple[SortColumn, ...] = ("sm", "time", "cpu", "host", "job", "type")
OPTIONAL_ALONE: tuple[SortColumn, ...] = ("sm", "time", "cpu", "job", "host", "type")
RARE: tuple[SortColumn, ...] = ("sm", "job")  # shown once a process has a value: few drivers and hosts report them
_WIDE: ui.Columns[SortColumn] = (
    ui.Column("pid", "PID", 8, numeric=True),
    ui.Column("gpu", "GPU", 5, numeric=True),
    ui.Column("user", "USER", 10),
    ui.Column("type", "TYPE", 6),
    ui.Column("now", "NOW GiB", 9, numeric=True),
    ui.Column("peak", "PEAK", 8, numeric=True),
    ui.Column("predicted", "PREDICTED", 10, numeric=True),
    ui.Column("delta", "Δ", 10, numeric=True),
    ui.Column("sm", "SM %", 6, numeric=True),
    ui.Column("cpu", "CPU %", 7, numeric=True),
    ui.Column("host", "RAM GiB", 9, numeric=True),
    ui.Column("time", "TIME", 8, numeric=True),
    ui.Column("job", "JOB", 20),
    ui.Column("command", "COMMAND", 0),
)
_NARROW = ui.narrowed(
    _WIDE,
    {column.name: column.width for column in _WIDE}
    | {"pid": 7, "user": 7, "now": 8, "peak": 7, "predicted": 8, "delta": 8, "cpu": 6, "host": 8, "job": 13},
    {"predicted": "PREDICT"},
)
# Widths for a short command: NOW without the unit, which the foot has too, and USER for the longest name.
_SHORT_NOW, _LEAST_USER = 6, 5
NAME_MOST = 10
SORTED_BY: dict[SortColumn, str] = {  # if it is not its name
    "gpu": "GPU", "now": "memory", "predicted": "prediction", "delta": "difference", "sm": "SM %", "cpu": "CPU %",
    "host": "host memory",
}  # fmt: skip
GROUP_TITLES = {"job": "job", "user": "user", "gpu": "GPU", "tree": "process tree"}


@lru_cache(maxsize=16)
def columns_for(
    breadth: int,
    width: int,
    wanted: tuple[SortColumn, ...] = (),
    *,
    predicts: bool = True,
    rare: frozenset[SortColumn] = frozenset(),
    user: int = 6,
) -> ui.Columns[SortColumn]:
    every = _WIDE if breadth >= FULL else _NARROW
    if wanted:
        by_name = {column.name: column for column in every}
        return ui.filled([by_name[name] for name in wanted], width)
    optional = OPTIONAL if predicts else OPTIONAL_ALONE
    left_out = optional if predicts else optional + PREDICTED
    shown = {column.name for column in every if column.name not in left_out}
    spare = breadth - sum(column.width for column in every if column.name in shown)
    part = COMMAND_PART_WIDE if breadth >= (FULL if predicts else ROOMY) else COMMAND_PART
    command_width = round(min(COMMAND_ENOUGH, max(COMMAND_LEAST, part * breadth)))
    spare -= command_width
    if spare < 0:
        every = _shortened(every, user)
        shown -= set() if user else {"user"}
        left = breadth - sum(column.width for column in every if column.name in shown)
        if breadth < ALONE and left < COMMAND_BESIDE_ESTIMATE:
            shown.remove("peak")  # the panel and the graph have that of the chosen process
    widths = {column.name: column.width for column in every}
    # TIME and CPU % are worth shorter columns.
    saved = 0 if predicts else sum(widths.values()) - sum(column.width for column in _shortened(every, user))
    given = {
        "time": saved,
        "cpu": saved + (0 if predicts else GIVEN_TO_CPU),
        "job": 0 if predicts else max(0, command_width - COMMAND_BESIDE_JOB),
    }
    for name in (name for name in optional if name not in RARE or name in rare):
        spare -= widths[name]
        if spare + given.get(name, 0) < 0:
            break
        shown.add(name)
        if spare < 0:
            every = _shortened(every, user)
    if "job" in shown:  # JOB gets what the command does not need
        left = width - sum(column.width for column in every if column.name in shown)
        widths = {column.name: column.width for column in every}
        widths["job"] = min(max(widths["job"], MOST_JOB), widths["job"] + max(0, left - COMMAND_ENOUGH))
        every = ui.narrowed(every, widths)
    return ui.filled([column for column in every if column.name in shown], width)


def _shortened(every: ui.Columns[SortColumn], user: int) -> ui.Columns[SortColumn]:
    """Return the columns with shorter USER and NOW; `user` as in `columns_for`."""
    widths = {column.name: column.width for column in every}
    widths["user"] = min(widths["user"], max(_LEAST_USER, user + 1))
    widths["now"] = _SHORT_NOW
    return ui.narrowed(every, widths, {"now": "NOW"})


def row_strip(
    columns: ui.Columns[SortColumn], row: ProcessRow, palette: Palette, width: int, cursor: str | None
) -> Strip:
    """Return one row; `cursor` is the colour under the chosen one."""
    on = cursor or "background"
    exited = row.process is not None and row.process.state == "exited"
    faded = row.kind not in ("process", "group") or row.age is not None or exited
    base = palette.ink("muted" if faded else "foreground", on)
    pieces: list[ui.Piece] = []
    spilt = 0
    for column in columns:
        text, style = _CELLS[column.name](row, palette, on)
        if row.process is None and column.name in _PROCESS_ONLY:
            # A remainder has neither peak nor prediction: its words begin at their place.
            text, style = _command(row, palette, on)
            taken = sum(before.width for before in columns[: columns.index(column)])
            pieces.append(("  " + ui.fit(text, width - taken - 2), style or base))
            break
        # In a narrow column all commands are brief: a mixed list is hard to read.
        narrow = column.name == "command" and (column.width < WHOLE_COMMAND or cell_len(text) >= column.width)
        if narrow and row.process is not None and not row.process.label:
            whole = printable_line(row.process.command_or_name or "")
            text = text.removesuffix(whole) + brief_command(whole)
        piece = ui.cell(text, column)[spilt:]
        spilt = 0
        if column.name == "pid" and len(text) >= column.width:
            # Seven digits and the cursor's mark take one column of the next cell, whose text is at its right.
            piece, spilt = f" {text}", len(text) + 1 - column.width
        pieces.append((piece, style or base))
    return ui.strip(ui.under_cursor(pieces, cursor), width, base)


# What is drawn of a row: only number and profile of its GPU.
_of_row: Callable[[ProcessRow], tuple[object, ...]] = attrgetter(
    *(name for name in ProcessRow.__struct_fields__ if name != "gpu"), "gpu.index", "gpu.mig_profile"
)


def running_time(minutes: int) -> str:
    hours, days = minutes // 60, minutes // 1440
    if not hours:
        return f"{minutes} m"
    return f"{hours}h {minutes % 60:02}m" if hours < 100 else f"{days}d {hours % 24:02}h"


_Made = tuple[str, Style | None]


def _plain(text: Callable[[ProcessRow], str]) -> Callable[[ProcessRow, Palette, str], _Made]:
    return lambda row, _palette, _on: (text(row), None)


def _pid(row: ProcessRow) -> str:
    if isinstance(row.id, tuple) and row.id[0] == TREE:
        return row.id[1]
    return UNKNOWN if row.process is None or row.process.pid < 0 else str(row.process.pid)


def _percent(percent: float | None) -> str:
    return UNKNOWN if percent is None else f"{percent:.0f}"


def _now(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.kind == "process" and row.now is None:
        return ("N/A", palette.ink("warning", on))
    is_bold = row.kind in ("process", "group") and row.age is None
    # A row that keeps its place keeps its digits: `0.09` and `0.10`, or `0.1`.
    text = format_gib_narrow(row.now, round((row.order or 0) * GIB))
    return (text, palette.ink("foreground", on, bold=True) if is_bold else None)


def _peak(row: ProcessRow) -> str:
    exact = row.learned is not None and row.learned.how != "sampled"
    return (EXACT if exact else "") + format_gib_narrow(row.peak)


def _predicted(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.predicted is None:
        return (UNKNOWN, None)
    return (row.mark + format_gib_narrow(row.predicted), palette.ink("prediction", on))


def _delta(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.fraction is None or row.is_quick:
        return ("" if row.preset is None else "…" if row.is_quick else UNKNOWN, None)
    return (ui.delta_text(row.fraction), palette.ink(ui.delta_colour(row.fraction), on))


def _command(row: ProcessRow, palette: Palette, on: str) -> _Made:
    process, age = row.process, "" if row.age is None else f"({format_duration(row.age)} ago) "
    if process is None:
        if row.kind in ("note", "group"):
            text = printable(row.note)
        elif row.kind == "unattributed" and row.note:
            text = f"unattributed: {row.note}"
        else:
            text = _REMAINDERS[row.kind] + row.note
        return (age + text, palette.ink("warning", on) if row.kind == "note" else None)
    state = "(exited) " if row.kind == "exited" else STATE_MARKS.get(process.state, "")
    branch = "  " * (row.depth - 1) + BRANCH if row.depth else ""
    words = printable_line(process.command_or_name or "")
    words = f"{process.label} · {brief_command(words)}" if process.label else words
    return (branch + age + state + words, None)


_REMAINDERS = {
    "instances": "held by its MIG instances, listed separately",
    "unattributed": "unattributed: driver, exited pids, managed memory",
    "reserved": "driver and firmware",
}
# In a row without a process, the first of these gives its place and all beyond it to the words.
_PROCESS_ONLY = ("peak", *PREDICTED, "sm", "cpu", "host", "time", "job", "command")
_CELLS: dict[SortColumn, Callable[[ProcessRow, Palette, str], _Made]] = {
    "pid": _plain(_pid),
    "gpu": _plain(lambda row: row.gpus if row.kind == "group" or row.gpus else gpu_name(row.gpu, {})),
    "user": _plain(lambda row: printable((row.process.user if row.process is not None else row.user) or UNKNOWN)),
    "now": _now,
    "peak": _plain(_peak),
    "predicted": _predicted,
    "delta": _delta,
    "type": _plain(lambda row: row.process.type if row.process is not None else UNKNOWN),
    "sm": _plain(lambda row: _percent(row.process.sm_percent if row.process is not None else None)),
    "job": _plain(lambda row: printable((row.process.job if row.process is not None else None) or UNKNOWN)),
    "cpu": _plain(lambda row: _percent(row.process.cpu_percent if row.process is not None else None)),
    "host": _plain(lambda row: format_gib_narrow(row.process.host_memory if row.process is not None else None)),
    "time": _plain(lambda row: UNKNOWN if row.minutes is None else running_time(row.minutes)),
    "command": _command,
}


class Rows(ui.CursorRows[View, ProcessRow]):
    """The rows. The cursor is on the chosen row; moving it by hand freezes the order."""

    BINDINGS = ui.moving_keys("table")

    def rows_of(self, view: View) -> tuple[Sequence[ProcessRow], int]:
        return view.rows, view.chosen_at

    def line_of(self, row: ProcessRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        return row_strip(_columns(self.view, self.breadth, width), row, palette, width, cursor)

    def alike(self, one: ProcessRow, other: ProcessRow) -> bool:
        return one is other or _of_row(one) == _of_row(other)

    def layout_of(self, view: View) -> object:
        return view.columns, view.predicts, view.rare, _longest_user(view)

    def sentences(self, view: View, width: int) -> Sequence[str]:
        if view.sample is None:
            return ()
        if view.filter:
            words = (f"No row matches “{view.filter}”.", doubt(view.filter), "Esc clears the filter.")
            return ui.wrap(printable(" ".join(filter(None, words))), width)
        if not view.sample.gpus:
            text = "No GPUs, so no processes. Press p to choose a preset: Plan (2) says which card it needs."
        else:
            text = (
                "No process uses a GPU now. Press p to choose a preset and see what a job would need before it starts."
            )
        return ui.wrap(text, width)

    def by_hand(self, view: View) -> bool:
        return view.by_hand

    def choose(self, at: int) -> None:
        """Choose a row; memory that no process holds is passed over."""
        at = max(0, min(len(self.rows) - 1, at))
        on, back = range(at, len(self.rows)), range(min(at, len(self.rows) - 1), -1, -1)
        near = (*on, *back) if at >= self._cursor else (*back, *on)
        super().choose(next((place for place in near if self.rows[place].kind not in REMAINDERS), at))

    def _cursor_style(self, at: int) -> str | None:
        is_frozen = at == self._cursor and self.view is not None and self.view.is_frozen
        return "cursor" if is_frozen else super()._cursor_style(at)


def _columns(view: View | None, breadth: int, width: int) -> ui.Columns[SortColumn]:
    if view is None:
        return columns_for(breadth, width, predicts=False)
    return columns_for(breadth, width, view.columns, predicts=view.predicts, rare=view.rare, user=_longest_user(view))


def _longest_user(view: View) -> int:
    """Return the columns of the longest user's name; 0 for a single user."""
    users = view.totals.users
    return max(cell_len(fit_name(user)) for user, _ in users) if len(users) > 1 else 0


def fit_name(user: str) -> str:
    name = printable(user or UNKNOWN)
    return name if cell_len(name) <= NAME_MOST else ui.fit(name, NAME_MOST)


class Foot(ui.Lines[View]):
    """The memory of all processes, of each user's as they fit, and of no process, below the rows."""

    def part(self, view: View) -> object:
        return view.totals

    def build(self, view: View, palette: Palette, width: int, height: int) -> list[Strip]:
        if view.sample is None:
            return []
        totals = view.totals
        driver = f"driver {format_bytes(totals.driver)}" if totals.driver else ""
        unattributed = f"unattributed {format_bytes(totals.unattributed)}" if totals.unattributed else ""
        rest = " · ".join(filter(None, (driver, unattributed)))
        end: list[ui.Piece] = [(rest + " ", palette.dim)] if rest else []
        start: list[ui.Piece] = [(" all ", palette.dim), (f"{format_gib(totals.of_processes)} GiB", palette.text)]
        room = width - sum(cell_len(text) for text, _ in [*start, *end]) - 1
        for user, of_user in totals.users if len(totals.users) > 1 else ():
            name, size = f"  {fit_name(user)} ", format_gib(of_user)
            room -= cell_len(name) + len(size)
            if room < 0:
                break
            start += [(name, palette.dim), (size, palette.text)]
        return [ui.between(start, end, width, palette.text)]


class ProcessTable(ui.ListFrame[View, SortColumn, ProcessRow]):
    def __init__(self, *, id: str | None = None) -> None:  # noqa: A002 - Textual's name
        self._heading = ui.SortHeading[View, SortColumn](
            lambda view, width: _columns(view, width, width),
            lambda view: (view.sort, (view.sort not in FROM_THE_SMALLEST) != view.reverse),
        )
        super().__init__(self._heading, Rows(id="rows"), Foot(), id=id)

    def column_names(self) -> list[SortColumn]:
        width = self._heading.size.width
        return [column.name for column in _columns(self._heading.view, width, width)]

    def titles(self, view: View) -> tuple[str, str]:
        """Return the number of processes; grouping, filter, sort order and whether it is frozen."""
        rows = view.rows.rows if isinstance(view.rows, RowGroups) else view.rows
        count = sum(row.kind == "process" for row in rows) if view.filter else view.total
        title = f"Processes · {count} of {view.total}" if view.filter else f"Processes · {view.total}"
        states = [] if view.group == "none" else [f"by {GROUP_TITLES[view.group]} · b changes · Enter opens"]
        if view.filter:
            states.append(f"filter: {view.filter}")
        guess = view.panel.guess if view.panel is not None and view.panel.estimate is None else None
        why = guess.sentence if guess is not None else view.reason if view.reported is None else ""
        hides = self.screen.has_class("-folded") or (
            self.screen.has_class("-narrow") and not self.screen.has_class("-tall")
        )
        least = len(states) + 1
        if why and (hides or (view.panel is None and not view.predicts)):  # else the panel says it
            states += why.split(" · ")
        elif view.is_monitor and view.group == "none":
            states.append(f"by {SORTED_BY.get(view.sort, view.sort)}")
        frozen = ["sorting frozen · Esc resumes"] if view.is_frozen else []
        while len(states) > least and cell_len(" · ".join(states + frozen)) > self.size.width - AROUND_FOOT:
            states.pop()  # the reason of another process
        return title, " · ".join(states + frozen)
