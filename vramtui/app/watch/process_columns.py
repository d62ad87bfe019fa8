"""The columns of the process table: what each shows, how wide it is, and in which colours."""

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter

from rich.cells import cell_len
from rich.style import Style
from textual.strip import Strip

from vramtui.app.state.rows import BRANCH, TREE, worth_a_row
from vramtui.app.state.view import ProcessRow, SortColumn
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, Columns, cell, delta_colour, delta_text, filled, narrowed, under_cursor
from vramtui.app.ui.lines import Piece, fit, strip
from vramtui.core.base.text import brief_command, printable, printable_line
from vramtui.core.base.units import UNKNOWN, format_duration, format_gib_narrow
from vramtui.core.observation.readings import STATE_MARKS, gpu_name

FULL = 84
EXACT = "="  # before a peak that was told, not sampled
# What is left for the command before another column comes: a part of the table, more of a wide one, between two bounds.
COMMAND_PART, COMMAND_PART_WIDE, COMMAND_LEAST, COMMAND_ENOUGH = 0.3, 0.4, 28, 48
COMMAND_BESIDE_JOB = 36  # columns that the command has at least before JOB comes, where there are no predictions
GIVEN_TO_CPU = 2  # columns of the command, so that long names of users do not take CPU % away at 80 columns
MOST_JOB = 30  # columns of a pod with its namespace, where the command has more than enough
ROOMY = 100  # columns below which the command has a narrow table's part, where there are no predictions
WHOLE_COMMAND = 64
PREDICTED: tuple[SortColumn, ...] = ("predicted", "delta")
# Those that come as the width allows, the first first.
OPTIONAL: tuple[SortColumn, ...] = ("sm", "time", "cpu", "host", "job", "type")
# Without predictions: whose job it is, or which container, is asked before what it takes of the host.
OPTIONAL_ALONE: tuple[SortColumn, ...] = ("sm", "time", "cpu", "job", "host", "type")
# Those that come only where a process has told them: few drivers, and not every host.
RARE: tuple[SortColumn, ...] = ("sm", "job")
_WIDE: Columns[SortColumn] = (
    Column("pid", "PID", 8, numeric=True),
    Column("gpu", "GPU", 5, numeric=True),
    Column("user", "USER", 10),
    Column("type", "TYPE", 6),
    Column("now", "NOW GiB", 9, numeric=True),
    Column("peak", "PEAK", 8, numeric=True),
    Column("predicted", "PREDICTED", 10, numeric=True),
    Column("delta", "Δ", 10, numeric=True),
    Column("sm", "SM %", 6, numeric=True),
    Column("cpu", "CPU %", 7, numeric=True),
    Column("host", "RAM GiB", 9, numeric=True),
    Column("time", "TIME", 8, numeric=True),
    Column("job", "JOB", 20),
    Column("command", "COMMAND", 0),
)
_NARROW = narrowed(
    _WIDE,
    {column.name: column.width for column in _WIDE}
    | {"pid": 7, "user": 7, "now": 8, "peak": 7, "predicted": 8, "delta": 8, "cpu": 6, "host": 8, "job": 13},
    {"predicted": "PREDICT"},
)
# What columns may lose where the command would be short otherwise: a unit that the foot says too, and what no user's
# name needs.
_SHORT_NOW, _LEAST_USER = 6, 5


@lru_cache(maxsize=16)
def columns_for(
    breadth: int,
    width: int,
    wanted: tuple[SortColumn, ...] = (),
    *,
    predicts: bool = True,
    rare: frozenset[SortColumn] = frozenset(),
    user: int = 6,
) -> Columns[SortColumn]:
    """The columns of a table.

    Args:
        breadth: how wide it is.
        width: what a scroll bar leaves of that.
        wanted: the columns that a person asked for; those that the width allows where there are none.
        predicts: there are predictions to show.
        rare: those of `RARE` that a process has told.
        user: columns of the longest user's name; 0 where all processes are of one, and USER gives way to the command.
    """
    every = _WIDE if breadth >= FULL else _NARROW
    if wanted:
        by_name = {column.name: column for column in every}
        return filled([by_name[name] for name in wanted], width)
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
    widths = {column.name: column.width for column in every}
    # How busy a process is, and since when, is worth a unit that the foot says too.
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
    if "job" in shown:
        every = _with_long_jobs(every, width - sum(column.width for column in every if column.name in shown))
    return filled([column for column in every if column.name in shown], width)


def _with_long_jobs(every: Columns[SortColumn], command_width: int) -> Columns[SortColumn]:
    """The columns, JOB with what the command does not need of its `command_width`."""
    widths = {column.name: column.width for column in every}
    widths["job"] = min(max(widths["job"], MOST_JOB), widths["job"] + max(0, command_width - COMMAND_ENOUGH))
    return narrowed(every, widths, {})


def _shortened(every: Columns[SortColumn], user: int) -> Columns[SortColumn]:
    """The columns where the command needs what they can spare; `user` as in `columns_for`."""
    widths = {column.name: column.width for column in every}
    widths["user"] = min(widths["user"], max(_LEAST_USER, user + 1))
    widths["now"] = _SHORT_NOW
    return narrowed(every, widths, {"now": "NOW"})


def row_strip(columns: Columns[SortColumn], row: ProcessRow, palette: Palette, width: int, cursor: str | None) -> Strip:
    """One row; `cursor` is the colour under it when it is the chosen one."""
    on = cursor or "background"
    exited = row.process is not None and row.process.state == "exited"
    faded = row.kind not in ("process", "group") or row.age is not None or exited
    base = palette.ink("muted" if faded else "foreground", on)
    pieces: list[Piece] = []
    spilt = 0
    for column in columns:
        text, style = _CELLS[column.name](row, palette, on)
        if row.process is None and column.name in _PROCESS_ONLY:
            # A remainder has neither peak nor prediction: its words begin where theirs would stand.
            text, style = _command(row, palette, on)
            taken = sum(before.width for before in columns[: columns.index(column)])
            pieces.append(("  " + fit(text, width - taken - 2), style or base))
            break
        # In a column that has no room for most whole commands all are brief: a list that mixes both is hard to read.
        narrow = column.name == "command" and (column.width < WHOLE_COMMAND or cell_len(text) >= column.width)
        if narrow and row.process is not None:
            whole = printable_line(row.process.command_or_name or "")
            text = text.removesuffix(whole) + brief_command(whole)
        piece = cell(text, column)[spilt:]
        spilt = 0
        if column.name == "pid" and len(text) >= column.width:
            # Seven digits and the cursor's mark: one column of the next cell, whose text stands at its right.
            piece, spilt = f" {text}", len(text) + 1 - column.width
        pieces.append((piece, style or base))
    return strip(under_cursor(pieces, cursor), width, base)


_of_row: Callable[[ProcessRow], tuple[object, ...]] = attrgetter(
    *(name for name in ProcessRow.__struct_fields__ if name != "gpu"), "gpu.index", "gpu.mig_profile"
)


def look_alike(one: ProcessRow, other: ProcessRow) -> bool:
    """Whether two rows are drawn the same; of a row's GPU the table shows no more than its number and profile."""
    return one is other or _of_row(one) == _of_row(other)


_Made = tuple[str, Style | None]


def _pid(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    if isinstance(row.id, tuple) and row.id[0] == TREE:
        return (row.id[1], None)
    return (UNKNOWN if row.process is None or row.process.pid < 0 else str(row.process.pid), None)


def _gpu(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    if row.kind == "group" or row.gpus:
        return (row.gpus, None)
    return (gpu_name(row.gpu, {}), None)


def _type(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (row.process.type if row.process is not None else UNKNOWN, None)


def _sm(row: ProcessRow, palette: Palette, on: str) -> _Made:
    percent = row.process.sm_percent if row.process is not None else None
    return (UNKNOWN if percent is None else str(percent), palette.ink("muted", on) if percent == 0 else None)


def _job(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (printable((row.process.job if row.process is not None else None) or UNKNOWN), None)


def _cpu(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    percent = row.process.cpu_percent if row.process is not None else None
    return (UNKNOWN if percent is None else f"{percent:.0f}", None)


def _host(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (format_gib_narrow(row.process.host_memory if row.process is not None else None), None)


def _time(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    return (UNKNOWN if row.minutes is None else running_time(row.minutes), None)


def running_time(minutes: int) -> str:
    """How long something runs, in at most seven columns."""
    hours, days = minutes // 60, minutes // 1440
    if not hours:
        return f"{minutes} m"
    return f"{hours}h {minutes % 60:02}m" if hours < 100 else f"{days}d {hours % 24:02}h"


def _user(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    user = row.process.user if row.process is not None else row.user
    return (printable(user or UNKNOWN), None)


def _now(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.kind == "unattributed" and worth_a_row(row):
        return (format_gib_narrow(row.now), palette.ink("warning", on, bold=True))
    if row.kind == "process" and row.now is None:
        return ("N/A", palette.ink("warning", on))
    return (
        format_gib_narrow(row.now),
        palette.ink("foreground", on, bold=True) if row.kind in ("process", "group") and row.age is None else None,
    )


def _peak(row: ProcessRow, palette: Palette, on: str) -> _Made:
    del palette, on
    exact = row.learned is not None and row.learned.how != "sampled"
    return ((EXACT if exact else "") + format_gib_narrow(row.peak), None)


def _predicted(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.predicted is None:
        return (UNKNOWN, None)
    return (row.mark + format_gib_narrow(row.predicted), palette.ink("prediction", on))


def _delta(row: ProcessRow, palette: Palette, on: str) -> _Made:
    if row.fraction is None:
        return ("" if row.preset is None else UNKNOWN, None)
    return (delta_text(row.fraction), palette.ink(delta_colour(row.fraction), on))


def _command(row: ProcessRow, palette: Palette, on: str) -> _Made:
    process = row.process
    if process is None:
        text = printable(row.note) if row.kind in ("note", "group") else _remainder(row)
        return (_aged(row) + text, palette.ink("warning", on) if worth_a_row(row) else None)
    state = "(exited) " if row.kind == "exited" else STATE_MARKS.get(process.state, "")
    branch = "  " * (row.depth - 1) + BRANCH if row.depth else ""
    return (branch + _aged(row) + state + printable_line(process.command_or_name or ""), None)


def _remainder(row: ProcessRow) -> str:
    if row.kind == "unattributed" and row.note:
        return f"unattributed: {row.note}"
    return _REMAINDERS[row.kind] + row.note


def _aged(row: ProcessRow) -> str:
    """How old the row is, where its GPU does not answer."""
    return "" if row.age is None else f"({format_duration(row.age)} ago) "


_REMAINDERS = {
    "instances": "held by its MIG instances, listed separately",
    "unattributed": "unattributed: driver, exited pids, managed memory",
    "reserved": "driver and firmware",
}
# In a row without a process, the first of these gives its place and all beyond it to the words.
_PROCESS_ONLY = ("peak", *PREDICTED, "sm", "cpu", "host", "time", "job", "command")
_CELLS: dict[SortColumn, Callable[[ProcessRow, Palette, str], _Made]] = {
    "pid": _pid,
    "gpu": _gpu,
    "user": _user,
    "now": _now,
    "peak": _peak,
    "predicted": _predicted,
    "delta": _delta,
    "type": _type,
    "sm": _sm,
    "job": _job,
    "cpu": _cpu,
    "host": _host,
    "time": _time,
    "command": _command,
}
