"""The Fleet screen: several hosts, the lists of their GPUs and of jobs of several ranks, and their model."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar, get_args

import msgspec
from textual.app import ComposeResult
from textual.strip import Strip

from vramtui.app.context import AppContext, Feature, FeedStatus, ListScreen
from vramtui.app.keys import FIRST, FLEET, FLEET_BINDINGS
from vramtui.app.state.rows import where_of, worst_of
from vramtui.app.state.view import View
from vramtui.app.themes import Palette
from vramtui.app.ui import lines as ui
from vramtui.app.ui.view_screen import Header, KeyBar, ViewScreen
from vramtui.core.base.text import printable
from vramtui.core.base.units import QUICK, UNKNOWN, format_duration, format_gib, format_percent
from vramtui.core.observation.readings import Sample
from vramtui.core.runs.ranked_jobs import Rank, RankedJob, ranked_jobs
from vramtui.monitor import fleet as fleets
from vramtui.monitor.jobs import Presets

One = TypeVar("One")
IDLE = 0.02  # of a GPU's memory, which the driver may use without reserving it


class JobRow(msgspec.Struct, frozen=True):
    """A job or, with `rank`, one rank of it."""

    job: RankedJob
    rank: Rank | None = None
    is_open: bool = False

    @property
    def id(self) -> tuple[str, str]:
        """The part that stays the same from sample to sample."""
        return (f"{self.job.job} {self.job.user} {self.job.size}", "" if self.rank is None else str(self.rank.rank))


class FleetRow(msgspec.Struct, frozen=True):
    """A GPU of a host; `gpu` is None if none of the host's is known."""

    host: fleets.HostSummary
    gpu: fleets.GpuSummary | None

    @property
    def id(self) -> tuple[str, str]:
        """The part that stays the same from sample to sample."""
        return self.host.name, "" if self.gpu is None else self.gpu.uuid

    @property
    def state(self) -> str:
        """The host's state in words; a host without a recent sample is never up."""
        if not self.host.is_up:
            age = "" if self.host.age is None else f" for {format_duration(self.host.age)}"
            words = self.host.failure.removeprefix(self.host.name).lstrip(": ").rstrip(".")
            return f"down{age}: {words}" if words != fleets.CONNECTING else words
        if self.gpu is None:
            return "no GPU"
        if self.gpu.state != "ok":
            return f"{self.gpu.state}: {self.gpu.reason}" if self.gpu.reason else self.gpu.state
        return f"{self.host.alerts} alert{'s' if self.host.alerts > 1 else ''}" if self.host.alerts else "up"

    @property
    def users(self) -> str:
        """The users that hold memory there, the largest first."""
        return "" if self.gpu is None else " ".join(self.gpu.users)


class FleetView(msgspec.Struct, frozen=True):
    """The rows, of GPUs or of jobs; `totals` by user, the number of hosts and of those that are up, and the number of
    GPUs without users.
    """

    rows: tuple[FleetRow, ...] = ()
    chosen: tuple[str, str] | None = None
    current: str = ""
    sort: fleets.FleetColumn = "host"
    falls: bool = False
    filter: str = ""
    total: int = 0
    hosts: int = 0
    up: int = 0
    used: int = 0
    capacity: int = 0
    free: int = 0
    totals: tuple[tuple[str, int], ...] = ()
    jobs: tuple[JobRow, ...] = ()
    chosen_job: tuple[str, str] | None = None
    job_sort: fleets.JobColumn = "used"
    jobs_fall: bool = True


def in_order(items: Iterable[One], key: Callable[[One], Any], *, falls: bool) -> list[One]:
    """The items by a key; those without one come last."""
    keyed = [(key(item), item) for item in items]
    known = sorted((one for one in keyed if one[0] is not None), key=lambda one: one[0], reverse=falls)
    return [item for _, item in known] + [item for value, item in keyed if value is None]


_JOB_KEYS: dict[fleets.JobColumn, Callable[[RankedJob], Any]] = {
    "job": lambda job: job.job,
    "ranks": lambda job: job.size,
    "used": lambda job: job.used,
    "predicted": lambda job: job.predicted,
    "worst": lambda job: job.worst.fraction,
    "imbalance": lambda job: job.imbalance,
    "user": lambda job: job.user,
}


class JobModel(ui.ListModel[fleets.JobColumn, JobRow]):
    """Order and selection of the jobs, and which are opened."""

    __slots__ = ("_opened",)

    COLUMNS = get_args(fleets.JobColumn)
    FROM_THE_LARGEST = ("ranks", "used", "predicted", "worst", "imbalance")

    def __init__(self) -> None:
        super().__init__("used")
        self._opened: set[tuple[str, str]] = set()

    def toggle(self) -> Rank | None:
        """Open or close the selected job; if a rank is selected, return it instead."""
        row = self.selected
        if row is None or row.rank is not None:
            return None if row is None else row.rank
        self._opened ^= {row.id}
        return None

    def rows(self, jobs: Sequence[RankedJob], wanted: str) -> tuple[JobRow, ...]:
        """The rows of the jobs that contain every word: anywhere, or in the column of `host:`, `user:` or `job:`."""

        def matches(job: RankedJob) -> bool:
            hosts = " ".join(sorted({rank.host for rank in job.ranks}))
            texts = {"host": hosts, "user": job.user or "", "job": job.job}
            every = " ".join((*texts.values(), printable(job.command or ""))).lower()
            return all(_has(word, texts, every) for word in wanted.lower().split())

        rows: list[JobRow] = []
        shown = filter(matches, jobs) if wanted.strip() else jobs
        for job in in_order(shown, _JOB_KEYS[self.sort], falls=self.falls):
            heading = JobRow(job)
            is_open = heading.id in self._opened
            rows.append(msgspec.structs.replace(heading, is_open=is_open))
            rows += [JobRow(job, rank) for rank in job.ranks] if is_open else []
        self._rows = tuple(rows)
        return tuple(rows)


def _has(word: str, texts: Mapping[str, str], every: str) -> bool:
    """Return whether a word is in the text that it names, else in `every`."""
    form, colon, value = word.partition(":")
    return value in texts[form].lower() if colon and form in texts else word in every


_KEYS: dict[fleets.FleetColumn, Callable[[FleetRow], Any]] = {
    "gpu": lambda row: None if row.gpu is None else (row.gpu.name, row.gpu.index),
    "used": lambda row: None if row.gpu is None else row.gpu.used,
    "predicted": lambda row: None if row.gpu is None else row.gpu.predicted,
    "utilization": lambda row: None if row.gpu is None else row.gpu.utilization,
    "state": lambda row: row.state,
    "users": lambda row: row.users or None,
}


class FleetModel(ui.ListModel[fleets.FleetColumn, FleetRow]):
    """The user's choices: order, filter, row, and whether jobs are listed."""

    __slots__ = ("by_job", "jobs")

    COLUMNS = get_args(fleets.FleetColumn)
    FROM_THE_LARGEST = ("used", "predicted", "utilization")

    def __init__(self) -> None:
        super().__init__("host")
        self.by_job = False
        self.jobs = JobModel()

    def view(self, hosts: Sequence[fleets.HostSummary], current: str) -> FleetView:
        empty = FleetView(current=current, filter=self.filter, hosts=len(hosts), up=sum(host.is_up for host in hosts))
        if self.by_job:
            ranks = (msgspec.structs.replace(rank, host=one.name) for one in hosts if one.is_up for rank in one.ranks)
            jobs, rows = self.jobs, self.jobs.rows(ranked_jobs(ranks), self.filter)
            job = jobs.selected
            chosen_job = None if job is None else job.id
            return msgspec.structs.replace(
                empty, jobs=rows, chosen_job=chosen_job, job_sort=jobs.sort, jobs_fall=jobs.falls
            )
        every = [FleetRow(host, gpu) for host in hosts for gpu in (host.gpus or (None,))]
        matching = [row for row in every if holds(row, self.filter)] if self.filter.strip() else every
        if self.sort == "host":
            self._rows = tuple(matching[::-1] if self.reverse else matching)
        else:
            self._rows = tuple(in_order(matching, _KEYS[self.sort], falls=self.falls))
        gpus = [gpu for host in hosts if host.is_up for gpu in host.gpus]
        chosen = self.selected
        return msgspec.structs.replace(
            empty,
            rows=tuple(self._rows),
            chosen=None if chosen is None else chosen.id,
            sort=self.sort,
            falls=self.falls,
            total=sum(row.gpu is not None for row in every),
            used=sum(gpu.used or 0 for gpu in gpus),
            capacity=sum(gpu.total or 0 for gpu in gpus),
            free=sum(gpu.state == "ok" and not gpu.users and (gpu.used or 0) < IDLE * (gpu.total or 0) for gpu in gpus),
            totals=tuple(fleets.user_totals(hosts).items()),
        )


def holds(row: FleetRow, wanted: str) -> bool:
    """Return whether a row contains every word: anywhere, or in the column of `host:`, `user:`, `gpu:` or `state:`."""
    name = "" if row.gpu is None else f"{row.gpu.index} {row.gpu.name}"
    texts = {"host": row.host.name, "state": row.state}
    every = f"{row.host.name} {row.users} {name} {row.state}".lower()
    for word in wanted.lower().split():
        form, colon, value = word.partition(":")
        if colon and form == "user":  # the beginning of a user's name
            matches = not value or any(user.startswith(value) for user in row.users.lower().split())
        elif colon and form == "gpu":  # the index, or a whole word of the name
            matches = not value or value in name.lower().split()
        else:
            matches = _has(word, texts, every)
        if not matches:
            return False
    return True


class FleetController(Feature):
    """Gives each host's samples to its own session; those of the current host go through the dashboard."""

    __slots__ = ("_feed", "_fleet", "_shared", "is_current", "model")

    def __init__(self, shared: AppContext, fleet: fleets.Fleet, feed: FeedStatus) -> None:
        self.model = FleetModel()
        self._shared, self._fleet, self._feed, self.is_current = shared, fleet, feed, fleet.is_current

    def screen(self) -> ViewScreen:
        return FleetScreen(self._shared, self)

    def view(self) -> "FleetView":
        return self.model.view(self._fleet.summaries(), self._fleet.current)

    @property
    def down(self) -> tuple[str, ...]:
        """The hosts that do not answer; every screen names them."""
        return tuple(one.name for one in self._fleet.summaries() if not one.is_up and one.failure != fleets.CONNECTING)

    def on_sample(self, sample: Sample) -> None:
        self._fleet.note_sample()

    def take_library(self, presets: Presets) -> None:
        """Match the other hosts' processes too."""
        self._fleet.take_library(presets)

    def finish_runs(self, patience: float) -> None:
        """Record the end of the other hosts' runs, in at most `patience` seconds."""
        self._fleet.finish_runs(patience)

    def watch_chosen(self) -> None:
        """Watch the host of the selected row, or open or close the selected job."""
        if self.model.by_job:
            rank = self.model.jobs.toggle()
            name = None if rank is None else rank.host
        else:
            row = self.model.selected
            name = None if row is None else row.host.name
        if name is None:
            self._shared.redraw.now()
            return
        if name != self._fleet.current:
            self._shared.state.watch(self._fleet.switch(name))
            self._feed.begin_again(name)
        self._shared.screens.show(FIRST)
        self._shared.redraw.now()

    def close(self) -> None:
        self._fleet.close()


WIDE = 100
BAR = 12  # cells of the bar of used memory
_WIDE: ui.Columns[fleets.FleetColumn] = (
    ui.Column("host", "HOST", 20),
    ui.Column("gpu", "GPU", 20),
    ui.Column("used", "USED GiB", 28, numeric=True),
    ui.Column("predicted", "PREDICTED", 11, numeric=True),
    ui.Column("utilization", "UTIL", 7, numeric=True),
    ui.Column("users", "USERS", 18),
    ui.Column("state", "STATE", 0),
)
_NARROW = ui.narrowed(
    _WIDE, {"host": 14, "gpu": 12, "used": 14, "predicted": 7, "utilization": 6, "state": 0}, {"predicted": "PRED"}
)


@lru_cache(maxsize=16)
def columns_for(breadth: int) -> ui.Columns[fleets.FleetColumn]:
    """The columns of a list `breadth` columns wide, the last of them for a scroll bar."""
    return ui.filled(_WIDE if breadth >= WIDE else _NARROW, breadth - 1, least=6)


@lru_cache(maxsize=16)
def _with_reason(columns: ui.Columns[fleets.FleetColumn], *, has_gpu: bool) -> ui.Columns[fleets.FleetColumn]:
    """The columns of a host that is down: its name, which GPU, and the reason in all that is left."""
    first = columns[: 2 if has_gpu else 1]
    return (*first, ui.Column("state", "STATE", sum(column.width for column in columns[len(first) :])))


class FleetRows(ui.CursorRows[FleetView, FleetRow]):
    """A row for each GPU; Enter watches the one under the cursor."""

    BINDINGS = ui.moving_keys("fleet_rows")
    OPENS = "screen.watch_host"

    def rows_of(self, view: FleetView) -> tuple[Sequence[FleetRow], int]:
        return view.rows, next((at for at, row in enumerate(view.rows) if row.id == view.chosen), 0)

    def line_of(self, row: FleetRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        on, columns = cursor or "background", columns_for(self.breadth)
        current = self.view is not None and self.view.current == row.host.name
        pieces: list[ui.Piece] = []
        for column in columns if row.host.is_up else _with_reason(columns, has_gpu=row.gpu is not None):
            name, colour = column.name, "foreground"
            if not row.host.is_up:
                colour = "error" if name == "state" and row.state != fleets.CONNECTING else "muted"
            elif name == "host" and current:
                colour = "primary"
            elif name == "predicted" and row.gpu is not None and row.gpu.predicted:
                colour = "prediction"
            elif name == "state":
                colour = "success" if row.state == "up" else "warning"
            elif name == "users":
                colour = "muted"
            pieces.append((ui.cell(text_of(row, name, wide=self.breadth >= WIDE), column), palette.ink(colour, on)))
        return ui.strip(ui.under_cursor(pieces, cursor), self.breadth, palette.ink("foreground", on)).crop(0, width)

    def sentences(self, view: FleetView, width: int) -> Sequence[str]:
        if view.filter:
            return ui.wrap(f"No GPU matches “{printable(view.filter)}”. Esc clears the filter.", width)
        return ["Connecting …"]


def text_of(row: FleetRow, column: fleets.FleetColumn, *, wide: bool) -> str:
    gpu = row.gpu
    if column == "host":
        return printable(row.host.name)
    if column == "state":
        return printable(row.state)
    if gpu is None:
        return ""
    if column == "gpu":
        return f"{gpu.label or gpu.index} {ui.short_name(printable(gpu.name))}"
    if column == "users":
        return printable(row.users)
    if not row.host.is_up:
        return UNKNOWN
    if column == "utilization":
        return UNKNOWN if gpu.utilization is None else f"{gpu.utilization} %"
    if column == "predicted":
        return (QUICK if gpu.is_quick else "") + format_gib(gpu.predicted)
    sizes = f"{format_gib(gpu.used)}/{format_gib(gpu.total)}"
    if not wide:
        return sizes
    full = 0 if gpu.used is None or not gpu.total else round(BAR * min(gpu.used, gpu.total) / gpu.total)
    return f"{'█' * full}{'░' * (BAR - full)} {sizes:>14}"


class UserTotals(ui.Lines[FleetView]):
    """One line: what each user holds on all hosts that are up, the largest first, as many as fit."""

    def build(self, view: FleetView, palette: Palette, width: int, height: int) -> list[Strip]:
        text = f" all {format_gib(view.used)} GiB "
        for user, size in view.totals:
            more = f" {printable(user)} {format_gib(size)} "
            if len(text) + len(more) > width:
                break
            text += more
        return [ui.strip([(ui.fit(text, width), palette.dim)], width, palette.text)]


class FleetTable(ui.ListFrame[FleetView, fleets.FleetColumn, FleetRow]):
    def __init__(self) -> None:
        heading = ui.SortHeading[FleetView, fleets.FleetColumn](
            lambda _, width: columns_for(width), lambda view: (view.sort, view.falls)
        )
        super().__init__(heading, FleetRows(id="fleet"), UserTotals())

    def titles(self, view: FleetView) -> tuple[str, str]:
        shown = sum(row.gpu is not None for row in view.rows)
        count = f"{shown} of {view.total} GPUs" if view.filter else f"{view.total} GPUs"
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else ""
        memory = f" · {format_gib(view.used)} of {format_gib(view.capacity)} GiB" if view.capacity else ""
        users = f" · {len(view.totals)} user{'s' if len(view.totals) > 1 else ''}" if view.totals else ""
        return f"Fleet · {view.up} of {view.hosts} hosts up · {count}, {view.free} free{memory}{users}", below


_WIDE_JOBS: ui.Columns[fleets.JobColumn] = (
    ui.Column("job", "JOB", 28),
    ui.Column("user", "USER", 10),
    ui.Column("ranks", "RANKS", 9, numeric=True),
    ui.Column("used", "USED GiB", 10, numeric=True),
    ui.Column("predicted", "PREDICTED", 11, numeric=True),
    ui.Column("imbalance", "UNEVEN", 9, numeric=True),
    ui.Column("worst", "WORST RANK", 0),
)
_NARROW_JOBS = ui.narrowed(
    _WIDE_JOBS, {"job": 20, "ranks": 8, "used": 10, "predicted": 8, "imbalance": 8, "worst": 0}, {"predicted": "PRED"}
)
NONE = (
    "No job of several ranks is seen. A rank is known by its environment (RANK and WORLD_SIZE of torchrun and "
    "accelerate, SLURM_PROCID of srun, OMPI_COMM_WORLD_RANK of mpirun), which only its own user and root may read."
)


@lru_cache(maxsize=16)
def job_columns_for(breadth: int) -> ui.Columns[fleets.JobColumn]:
    return ui.filled(_WIDE_JOBS if breadth >= WIDE else _NARROW_JOBS, breadth - 1, least=6)


class JobRows(ui.CursorRows[FleetView, JobRow]):
    """A row for each job, and for each rank of an opened one."""

    BINDINGS = ui.moving_keys("fleet_jobs")
    OPENS = "screen.watch_host"

    def rows_of(self, view: FleetView) -> tuple[Sequence[JobRow], int]:
        return view.jobs, next((at for at, row in enumerate(view.jobs) if row.id == view.chosen_job), 0)

    def line_of(self, row: JobRow, palette: Palette, width: int, cursor: str | None) -> Strip:
        on = cursor or "background"
        one, rank = row.rank or row.job, row.rank or row.job.worst
        pieces: list[ui.Piece] = []
        for column in job_columns_for(self.breadth):
            name, colour = column.name, "foreground"
            if name == "predicted" and one.predicted:
                colour = "prediction"
            elif name == "worst" and rank.fraction is not None:
                colour = ui.delta_colour(rank.fraction)
            elif (name == "ranks" and row.job.missing) or (name == "job" and row.rank is row.job.worst):
                colour = "warning"
            elif name == "user":
                colour = "muted"
            pieces.append((ui.cell(job_text_of(row, name), column), palette.ink(colour, on)))
        return ui.strip(ui.under_cursor(pieces, cursor), self.breadth, palette.ink("foreground", on)).crop(0, width)

    def sentences(self, view: FleetView, width: int) -> Sequence[str]:
        if view.filter:
            return ui.wrap(f"No job matches “{printable(view.filter)}”. Esc clears the filter.", width)
        return ui.wrap(NONE, width)


def job_text_of(row: JobRow, column: fleets.JobColumn) -> str:
    job, rank = row.job, row.rank
    one = rank or job
    if column == "used":
        return format_gib(one.used)
    if column == "predicted":
        return (QUICK if one.is_quick and one.predicted else "") + format_gib(one.predicted)
    if rank is None:
        texts = {
            "job": f"{'▾' if row.is_open else '▸'} {printable(job.job)}",
            "user": printable(job.user or UNKNOWN),
            "ranks": f"{len(job.ranks)}/{job.size}",
            "imbalance": format_percent(job.imbalance),
        }
        return texts[column] if column in texts else worst_of(job)
    if column != "worst":
        return f"  rank {rank.rank}" if column == "job" else ""
    words = [where_of(rank), f"peak {format_gib(rank.peak)}"]
    if rank.fraction is not None:
        words.append(f"{format_percent(rank.fraction)} of predicted")
    return " · ".join(words)


class JobTable(ui.ListFrame[FleetView, fleets.JobColumn, JobRow]):
    def __init__(self) -> None:
        heading = ui.SortHeading[FleetView, fleets.JobColumn](
            lambda _, width: job_columns_for(width), lambda view: (view.job_sort, view.jobs_fall)
        )
        super().__init__(heading, JobRows(id="jobs"))

    def titles(self, view: FleetView) -> tuple[str, str]:
        count = sum(row.rank is None for row in view.jobs)
        below = f"filter: {printable(view.filter)}, Esc shows all" if view.filter else ""
        return f"Jobs of several ranks · {count} on {view.up} of {view.hosts} hosts", below


class FleetScreen(ListScreen):
    """A line for each GPU of each host."""

    CSS_PATH = "fleet.tcss"
    BINDINGS = FLEET_BINDINGS
    PLACE = FLEET.name
    FIRST_FOCUS = "FleetRows"
    FILTER = "filter: words, or host:gpu01 user:anna gpu:0 state:down"

    def __init__(self, shared: AppContext, fleet: "FleetController") -> None:
        super().__init__(shared, fleet.model)
        self._fleet, self._lists = fleet, fleet.model

    def compose(self) -> ComposeResult:
        yield Header(FLEET.title)
        yield FleetTable()
        yield JobTable()
        yield KeyBar()

    def panels_view(self, view: View) -> FleetView:
        return self._fleet.view()

    @property
    def present_list(self) -> tuple[ui.ListModel[Any, Any], str]:
        return (self._lists.jobs, "JobRows") if self._lists.by_job else super().present_list

    def action_fleet_jobs(self) -> None:
        """Show jobs instead of GPUs, or GPUs again."""
        self._lists.by_job = not self._lists.by_job
        self.set_class(self._lists.by_job, "-jobs")
        self.query_one(self.present_list[1]).focus()
        self._shared.redraw.now()

    def action_watch_host(self) -> None:
        self._fleet.watch_chosen()

    def action_leave_list(self) -> None:
        """Clear the filter, else leave the jobs, else the screen."""
        if self._lists.by_job and not self._lists.filter:
            self.action_fleet_jobs()
        else:
            super().action_leave_list()
