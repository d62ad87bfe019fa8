"""What `vramtui ps` prints of one host, and what may be picked of it."""

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from vramtui.cli.common.console import print_table, print_wrapped, table_width
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import MIB, UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.core.observation.readings import (
    STATE_MARKS,
    Absence,
    Gpu,
    Host,
    causes,
    gpu_name,
    instance_names,
    overlap,
    usable_gpus,
)
from vramtui.core.observation.snapshot import Holding, Snapshot

By = Literal["user", "job"]
HEADINGS = ("GPU", "PID", "TYPE", "USER", "NOW", "PEAK", "PREDICTED", "Δ", "JOB", "COMMAND")
NUMBERS = (1, 4, 5, 6, 7)
TYPE, NOW, PEAK, JOB = map(HEADINGS.index, ("TYPE", "NOW", "PEAK", "JOB"))
ROOMY = 100  # columns of the terminal
LEGEND = "NOW, PEAK and PREDICTED in GiB; PEAK is the largest sample since this command started."
CLEAR_SCREEN = "\x1b[H\x1b[2J"
WORTH_NAMING = 256 * MIB  # of what nobody accounts for on one GPU, as on Watch


class Selection(NamedTuple):
    """What is asked for; plain values, so that `--help` waits for nothing.

    Attributes:
        sort: the column of the process table that rows are sorted by, numbers from the largest; empty: by GPU.
        top: how many rows at most; None: all.
        words: a filter as in the dashboard.
        by: what is added up; None: every process is a row.
        as_csv: comma-separated, in bytes.
    """

    sort: str = ""
    top: int | None = None
    words: str = ""
    by: By | None = None
    as_csv: bool = False


def print_tables(snapshot: Snapshot) -> None:
    """All of one host."""
    by_gpu: dict[str, list[Holding]] = {}
    for holding in snapshot.holdings:
        by_gpu.setdefault(holding.key.gpu_uuid, []).append(holding)
    gpus = snapshot.sample.gpus
    names = instance_names(gpus)
    rows = [row for gpu in gpus for row in _gpu_rows(gpu, gpu_name(gpu, names), by_gpu.get(gpu.uuid, []))]
    legend = print_rows(rows)
    print_below(snapshot, snapshot.holdings, legend)


def print_rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Print the table, and give what its columns are: without those that say nothing; a narrow one has no JOB, and
    commands without interpreter and folder.
    """
    columns = list(range(len(HEADINGS)))
    narrow = table_width() < ROOMY
    if narrow:
        rows = [row if row[1] == UNKNOWN else (*row[:-1], brief_command(row[-1])) for row in rows]
        if all(row[TYPE] in {"", "C"} for row in rows):
            columns.remove(TYPE)
        if all(row[PEAK] in {"", row[NOW]} for row in rows):
            columns.remove(PEAK)
    if narrow or all(row[JOB] in {"", UNKNOWN} for row in rows):
        columns.remove(JOB)
    right = [columns.index(at) for at in NUMBERS if at in columns]
    print_table([HEADINGS[at] for at in columns], [[row[at] for at in columns] for row in rows], right=right)
    return LEGEND if PEAK in columns else "NOW and PREDICTED in GiB."


def print_below(snapshot: Snapshot, shown: Sequence[Holding], legend: str) -> None:
    """What stands below the processes: what they hold, what belongs to none of them, what is free.

    Args:
        snapshot: the host.
        shown: the processes above; where some are left out nothing is said of what is free.
        legend: what the columns are.
    """
    gpus, width = snapshot.sample.gpus, table_width()  # whole lines in a pipe, as the table above has them
    every = sum(holding.gone_at is None for holding in snapshot.holdings)
    is_part = len(shown) < every
    part = _part(shown, every) if is_part else ""
    for line in (part + _foot(gpus, snapshot.sample.host), "" if is_part else _free(gpus), legend):
        print_wrapped(line, width)
    if any(holding.is_assumed and holding.estimate is not None for holding in shown):
        sys.stdout.write("~ not all settings of the job are known.\n")


def print_problems(snapshot: Snapshot, host: str = "") -> None:
    """What the source could not do, on standard error; with the name of the `host` where there are several."""
    sys.stdout.flush()
    for problem in snapshot.sample.problems:
        where = ": ".join(filter(None, (host, problem.where)))
        sys.stderr.write(printable(f"vramtui: {where}: {problem.message} {problem.hint}") + "\n")


def _gpu_rows(gpu: Gpu, index: str, holdings: list[Holding]) -> list[tuple[str, ...]]:
    """A row for each process of a GPU, or one that says why there are none. `index` is the first column."""
    if gpu.state != "ok":
        gone = printable(f"{gpu.name}: {gpu.reason}")
        return [(index, UNKNOWN, "", UNKNOWN, format_gib(None), "", "", "", "", gone)]
    return [process_row(index, holding) for holding in holdings]


def _part(shown: Sequence[Holding], every: int) -> str:
    """What the processes hold that are shown, of so many."""
    sizes = [holding.process.used_memory for holding in shown]
    least = "at least " if None in sizes else ""
    return f"shown {least}{format_bytes(sum(size or 0 for size in sizes))} ({len(shown)} of {every} processes) · "


def _foot(gpus: Sequence[Gpu], host: Host) -> str:
    """What all processes hold, and what belongs to none: where it lies, and what it may be."""
    answer = [gpu for gpu in gpus if gpu.state == "ok"]
    driver = sum(gpu.memory.reserved or 0 for gpu in answer)
    unattributed = sum(gpu.unattributed or 0 for gpu in answer)
    processes = sum(sum(gpu.held_by_user.values()) for gpu in answer)
    untold = any("processes" in gpu.absent or None in (one.used_memory for one in gpu.processes) for gpu in answer)
    least = f"at least {format_bytes(processes)}" if processes else UNKNOWN
    facts = [f"all processes {least if untold else format_bytes(processes)}"]
    facts += [f"driver {format_bytes(driver)}"] if driver else []
    places = _unattributed_places(gpus, host)
    if unattributed or places:
        facts.append(f"unattributed {format_bytes(unattributed)}" + (f": {places}" if places else ""))
    return " · ".join(facts)


def _unattributed_places(gpus: Sequence[Gpu], host: Host) -> str:
    """`GPU 0 2.0, GPU 1 1.0 (driver, exited pids)` in GiB, those of one cause together."""
    names = instance_names(gpus)
    causes_of: dict[str, list[str]] = {}
    for gpu in gpus:
        count = gpu.unattributed or 0
        if gpu.state == "ok" and abs(count) >= WORTH_NAMING:
            causes_of.setdefault(_whose(gpu, host), []).append(f"GPU {gpu_name(gpu, names)} {format_gib(count)}")
    return "; ".join(f"{', '.join(places)} ({cause})" for cause, places in causes_of.items())


def _free(gpus: Sequence[Gpu]) -> str:
    """What is free of each GPU that answers; those that are alike stand behind their name once."""
    facts = []
    names = instance_names(gpus)
    for name, alike in groupby((gpu for gpu in usable_gpus(gpus) if gpu.state == "ok"), key=_free_of):
        facts.append(
            ", ".join(f"GPU {gpu_name(gpu, names)} {format_gib(gpu.memory.free)}" for gpu in alike) + f" {name}"
        )
    return "free: " + "; ".join(facts) if facts else ""


def _whose(gpu: Gpu, host: Host) -> str:
    """What the unattributed bytes may be."""
    if (gpu.unattributed or 0) < 0:
        return overlap(gpu, None)
    return ", ".join(causes(gpu, host)) or "driver, exited pids"


def _free_of(gpu: Gpu) -> str:
    name = printable(gpu.name)
    if gpu.memory.unified:
        return f"of the host's memory, shared by {name}"
    if gpu.memory.total is None:
        reason = gpu.absent.get("memory", Absence.FAILED).value.replace("_", " ")
        return f"({name}: the driver does not report its memory, {reason})"
    return f"of {format_gib(gpu.memory.total)} GiB {name}"


def process_row(index: str, holding: Holding) -> tuple[str, ...]:
    """The cells of a process on the GPU called `index`."""
    process, comparison = holding.process, holding.comparison
    return (
        index,
        str(process.pid) if process.pid >= 0 else UNKNOWN,
        process.type,
        printable(process.user or UNKNOWN),
        "N/A" if process.used_memory is None else format_gib(process.used_memory),
        format_gib(holding.peak.bytes if holding.peak else None),
        _predicted(holding),
        format_percent(comparison.fraction if comparison else None),
        printable(process.job or UNKNOWN),
        printable(f"{STATE_MARKS.get(process.state, '')}{process.command_or_name or ''}" or UNKNOWN),
    )


def _predicted(holding: Holding) -> str:
    """The predicted peak; with a mark where it is by a preset that nobody wrote."""
    if holding.comparison is None:
        return format_gib(None)
    mark = "~" if holding.is_assumed and holding.estimate is not None else ""
    return mark + format_gib(holding.comparison.predicted)
