"""The list of jobs of several ranks: observed beside predicted, the worst rank named, how uneven they are."""

from collections.abc import Sequence
from functools import lru_cache

from textual.strip import Strip

from vramtui.app.fleet.model import FleetView, JobRow
from vramtui.app.state.rows import where_of, worst_of
from vramtui.app.themes import Palette
from vramtui.app.ui.columns import Column, Columns, cell, delta_colour, filled, narrowed, under_cursor
from vramtui.app.ui.cursor_list import CursorRows, moving_keys
from vramtui.app.ui.lines import Piece, strip, wrap
from vramtui.app.ui.list_frame import ListFrame, SortHeading
from vramtui.core.base.text import printable
from vramtui.core.base.units import QUICK, UNKNOWN, format_gib, format_percent
from vramtui.monitor.fleet import JobColumn

WIDE = 100
_WIDE: Columns[JobColumn] = (
    Column("job", "JOB", 28),
    Column("user", "USER", 10),
    Column("ranks", "RANKS", 9, numeric=True),
    Column("used", "USED GiB", 10, numeric=True),
    Column("predicted", "PREDICTED", 11, numeric=True),
    Column("imbalance", "UNEVEN", 9, numeric=True),
    Column("worst", "WORST RANK", 0),
)
_NARROW = narrowed(
    _WIDE,
    {"job": 20, "ranks": 8, "used": 10, "predicted": 8, "imbalance": 8, "worst": 0},
    {"predicted": "PRED"},
)
NONE = (
    "No job of several ranks is seen. A rank is known by its environment (RANK and WORLD_SIZE of torchrun and "
    "accelerate, SLURM_PROCID of srun, OMPI_COMM_WORLD_RANK of mpirun), which only its own user and root may read."
)


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> Columns[JobColumn]:
    """The columns of a list so wide, the last of which is left to a scroll bar."""
    return filled(_WIDE if breadth >= WIDE else _NARROW, breadth - 1, least=6)


class JobRows(CursorRows[FleetView, JobRow]):
    """A row for each job, and for each rank of an opened one."""

    BINDINGS = moving_keys("fleet_jobs")
    OPENS = "screen.watch_host"

    def rows_of(self, view: FleetView) -> Sequence[JobRow]:
        return view.jobs

    def cursor_of(self, view: FleetView) -> int:
        return next((at for at, row in enumerate(view.jobs) if row.id == view.chosen_job), 0)

    def line_of(self, row: JobRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        on = cursor or "background"
        pieces: list[Piece] = [
            (cell(_text(row, column.name), column), palette.ink(_colour(row, column.name), on))
            for column in columns_for(self.breadth)
        ]
        return strip(under_cursor(pieces, cursor), self.breadth, palette.ink("foreground", on)).crop(0, width)

    def sentences(self, view: FleetView, width: int) -> Sequence[str]:
        if view.filter:
            return wrap(f"No job matches “{printable(view.filter)}”. Esc clears the filter.", width)
        return wrap(NONE, width)


class JobTable(ListFrame[FleetView, JobColumn, JobRow]):
    """Heading and rows in a frame."""

    def __init__(self) -> None:
        heading = SortHeading[FleetView, JobColumn](
            lambda _, width: columns_for(width), lambda view: (view.job_sort, view.jobs_fall)
        )
        super().__init__(heading, JobRows(id="jobs"))

    def titles(self, view: FleetView) -> tuple[str, str]:
        """How many jobs there are; what the filter is."""
        count = sum(row.rank is None for row in view.jobs)
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else ""
        return f"Jobs of several ranks · {count} on {view.up} of {view.hosts} hosts", below


def _text(row: JobRow, column: JobColumn) -> str:
    return _of_job(row, column) if row.rank is None else _of_rank(row, column)


def _of_job(row: JobRow, column: JobColumn) -> str:
    job = row.job
    if column == "job":
        return f"{'▾' if row.is_open else '▸'} {printable(job.job)}"
    if column == "user":
        return printable(job.user or UNKNOWN)
    if column == "ranks":
        return f"{len(job.ranks)}/{job.size}"
    if column == "used":
        return format_gib(job.used)
    if column == "predicted":
        return (QUICK if job.is_quick and job.predicted else "") + format_gib(job.predicted)
    return format_percent(job.imbalance) if column == "imbalance" else worst_of(job)


def _of_rank(row: JobRow, column: JobColumn) -> str:
    rank = row.rank
    assert rank is not None
    if column == "job":
        return f"  rank {rank.rank}"
    if column == "used":
        return format_gib(rank.used)
    if column == "predicted":
        return (QUICK if rank.is_quick and rank.predicted else "") + format_gib(rank.predicted)
    if column != "worst":
        return ""
    words = [where_of(rank), f"peak {format_gib(rank.peak)}"]
    if rank.fraction is not None:
        words.append(f"{format_percent(rank.fraction)} of predicted")
    return " · ".join(words)


def _colour(row: JobRow, column: JobColumn) -> str:
    rank = row.rank or row.job.worst
    if column == "predicted" and (row.job.predicted if row.rank is None else row.rank.predicted):
        return "prediction"
    if column == "worst" and rank.fraction is not None:
        return delta_colour(rank.fraction)
    if column == "ranks" and row.job.missing:
        return "warning"
    return "warning" if row.is_worst and column == "job" else "muted" if column == "user" else "foreground"
