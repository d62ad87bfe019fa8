"""The list of hosts and GPUs, and below it what each user holds on all of them."""

from collections.abc import Sequence
from functools import lru_cache

from rich.style import Style
from textual.strip import Strip

from vramtui.app.fleet.model import FleetRow, FleetView
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, Columns, cell, filled, narrowed, short_name, under_cursor
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import Lines, Piece, fit, strip, wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.core.base.text import printable
from vramtui.core.base.units import QUICK, UNKNOWN, format_gib
from vramtui.monitor.fleet import CONNECTING, FleetColumn, GpuSummary

WIDE = 100
BAR = 12  # cells of the bar of what is in use
_WIDE: Columns[FleetColumn] = (
    Column("host", "HOST", 20),
    Column("gpu", "GPU", 20),
    Column("used", "USED GiB", 28, numeric=True),
    Column("predicted", "PREDICTED", 11, numeric=True),
    Column("utilization", "UTIL", 7, numeric=True),
    Column("users", "USERS", 18),
    Column("state", "STATE", 0),
)
_NARROW = narrowed(
    _WIDE,
    {"host": 14, "gpu": 12, "used": 14, "predicted": 7, "utilization": 6, "state": 0},
    {"predicted": "PRED"},
)


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> Columns[FleetColumn]:
    """The columns of a list so wide, the last of which is left to a scroll bar."""
    return filled(_WIDE if breadth >= WIDE else _NARROW, breadth - 1, least=6)


@lru_cache(maxsize=16)
def _with_reason(columns: Columns[FleetColumn], *, has_gpu: bool) -> Columns[FleetColumn]:
    """The columns of a host that is down: its name, which GPU, and the reason in all that is left."""
    first = columns[: 2 if has_gpu else 1]
    return (*first, Column("state", "STATE", sum(column.width for column in columns[len(first) :])))


class FleetRows(CursorRows[FleetView, FleetRow]):
    """A row for each GPU; the cursor is what Enter watches."""

    BINDINGS = moving_keys("fleet_rows")
    OPENS = "screen.watch_host"

    def rows_of(self, view: FleetView) -> Sequence[FleetRow]:
        return view.rows

    def cursor_of(self, view: FleetView) -> int:
        return next((at for at, row in enumerate(view.rows) if row.id == view.chosen), 0)

    def line_of(self, row: FleetRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        on = cursor or "background"
        current = self.view is not None and self.view.current == row.host.name
        pieces: list[Piece] = []
        columns = columns_for(self.breadth)
        for column in columns if row.host.is_up else _with_reason(columns, has_gpu=row.gpu is not None):
            text = text_of(row, column.name, wide=self.breadth >= WIDE)
            pieces.append((cell(text, column), _style(row, column.name, palette, on, current=current)))
        return strip(under_cursor(pieces, cursor), self.breadth, palette.ink("foreground", on)).crop(0, width)

    def sentences(self, view: FleetView, width: int) -> Sequence[str]:
        if view.filter:
            return wrap(f"No GPU matches “{printable(view.filter)}”. Esc clears the filter.", width)
        return ["Connecting …"]


class UserTotals(Lines[FleetView]):
    """What each user holds on all hosts that are up."""

    DEFAULT_CSS = "UserTotals { height: 1; }"

    def build(self, view: FleetView, palette: Palette, width: int, height: int) -> list[Strip]:
        """One line; who holds most first, as many as fit."""
        del height
        text = f" all {format_gib(view.used)} GiB "
        for user, size in view.totals:
            more = f" {printable(user)} {format_gib(size)} "
            if len(text) + len(more) > width:
                break
            text += more
        return [strip([(fit(text, width), palette.dim)], width, palette.text)]


class FleetTable(ListFrame[FleetView, FleetColumn, FleetRow]):
    """Heading, rows and totals in a frame."""

    def __init__(self) -> None:
        heading = SortHeading[FleetView, FleetColumn](
            lambda _, width: columns_for(width), lambda view: (view.sort, view.falls)
        )
        super().__init__(heading, FleetRows(id="fleet"), UserTotals())

    def titles(self, view: FleetView) -> tuple[str, str]:
        """How many hosts are up; what the filter is."""
        shown = sum(row.gpu is not None for row in view.rows)
        count = f"{shown} of {view.total} GPUs" if view.filter else f"{view.total} GPUs"
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else ""
        memory = f" · {format_gib(view.used)} of {format_gib(view.capacity)} GiB" if view.capacity else ""
        users = f" · {len(view.totals)} user{'s' if len(view.totals) > 1 else ''}" if view.totals else ""
        return f"Fleet · {view.up} of {view.hosts} hosts up · {count}, {view.free} free{memory}{users}", below


def text_of(row: FleetRow, column: FleetColumn, *, wide: bool) -> str:
    if column == "host":
        return printable(row.host.name)
    if column == "state":
        return printable(row.state)
    return "" if row.gpu is None else _of_gpu(row.gpu, row, column, wide=wide)


def _of_gpu(gpu: GpuSummary, row: FleetRow, column: FleetColumn, *, wide: bool) -> str:
    if column == "gpu":
        return f"{gpu.label or gpu.index} {short_name(printable(gpu.name))}"
    if column == "users":
        return printable(row.users)
    if not row.host.is_up:
        return UNKNOWN
    if column == "utilization":
        return UNKNOWN if gpu.utilization is None else f"{gpu.utilization} %"
    if column == "predicted":
        return (QUICK if gpu.is_quick else "") + format_gib(gpu.predicted)
    sizes = f"{format_gib(gpu.used)}/{format_gib(gpu.total)}"
    return f"{_bar(gpu.used, gpu.total)} {sizes:>14}" if wide else sizes


def _bar(used: int | None, total: int | None) -> str:
    """How full it is; the figures beside it say the same."""
    full = 0 if used is None or not total else round(BAR * min(used, total) / total)
    return "█" * full + "░" * (BAR - full)


def _style(row: FleetRow, column: FleetColumn, palette: Palette, on: str, *, current: bool) -> Style:
    colour = "foreground"
    if not row.host.is_up:
        colour = "error" if column == "state" and row.state != CONNECTING else "muted"
    elif column == "host" and current:
        colour = "primary"
    elif column == "predicted" and row.gpu is not None and row.gpu.predicted:
        colour = "prediction"
    elif column == "state":
        colour = "success" if row.state == "up" else "warning"
    elif column == "users":
        colour = "muted"
    return palette.ink(colour, on)
