"""The options of `vramtui ps` that select rows: the sorting, filter and groups of the dashboard."""

import csv
import io
from collections.abc import Sequence

from vramtui.app.state.rows import FROM_THE_SMALLEST, SORT_KEYS, conditions, doubt, groups_of, holds, together
from vramtui.app.state.view import ProcessRow
from vramtui.cli.common.console import print_table
from vramtui.cli.ps.tables import Selection, print_below, print_rows, print_tables, process_row
from vramtui.core.base.errors import UserError, nearest
from vramtui.core.base.text import printable
from vramtui.core.base.units import UNKNOWN, format_gib
from vramtui.core.observation.readings import Gpu, gpu_name, instance_names
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.tables import Cell, safe_cell

GROUP_HEADINGS = ("NOW", "PREDICTED", "PROCESSES", "GPUS", "USER", "COMMAND")
GROUP_NUMBERS = (0, 1, 2)
GROUP_LEGEND = "NOW and PREDICTED in GiB."
GROUP_CSV_COLUMNS = ("used_bytes", "predicted_bytes", "processes", "gpus", "user", "command")
CSV_COLUMNS = (
    *("gpu", "pid", "type", "user", "used_bytes", "peak_bytes", "predicted_bytes", "difference"),
    *("command", "job", "uuid"),
)


def check(selection: Selection) -> None:
    """See that it can be answered.

    Raises:
        UserError: there is no such column, or the filter cannot mean anything.
    """
    if selection.sort and selection.sort not in SORT_KEYS:
        names = ", ".join(SORT_KEYS)
        near = nearest(selection.sort, SORT_KEYS)
        raise UserError(f"there is no column {selection.sort!r}{near}; --sort takes {names}")
    why = doubt(selection.words)
    if why:
        raise UserError(f"--filter: {why[:1].lower()}{why[1:].rstrip('.')}")


def print_picked(snapshot: Snapshot, selection: Selection) -> None:
    """The table of one host, with what belongs to no process below it."""
    if selection == Selection():
        print_tables(snapshot)
        return
    rows = picked(snapshot, selection)
    holdings: dict[object, Holding] = {holding.key: holding for holding in snapshot.holdings}
    legend = GROUP_LEGEND
    if selection.by is None:
        names = instance_names(snapshot.sample.gpus)
        legend = print_rows([process_row(gpu_name(row.gpu, names), holdings[row.id]) for row in rows])
    else:
        groups = grouped(rows, selection)
        print_table(GROUP_HEADINGS, [_group_row(members) for members in groups], right=GROUP_NUMBERS)
        rows = [row for members in groups for row in members]
    print_below(snapshot, [holdings[row.id] for row in rows], legend)


def csv_of(snapshot: Snapshot, selection: Selection) -> str:
    """The processes, or what they add up to, as comma-separated values with a heading; an empty cell is an unknown
    value, never a zero.
    """
    rows = picked(snapshot, selection)
    lines: list[tuple[Cell, ...]] = [CSV_COLUMNS if selection.by is None else GROUP_CSV_COLUMNS]
    if selection.by is not None:
        lines += [_group_of(members) for members in grouped(rows, selection)]
    for row in rows if selection.by is None else ():
        process = row.process
        if process is not None:
            sizes = (row.now, row.peak, row.predicted, row.fraction)
            lines.append(
                (
                    row.gpu.index,
                    process.pid,
                    process.type,
                    process.user,
                    *sizes,
                    process.command_or_name,
                    process.job,
                    row.gpu.uuid,
                )
            )
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows(["" if cell is None else safe_cell(cell) for cell in line] for line in lines)
    return out.getvalue()


def picked(snapshot: Snapshot, selection: Selection) -> list[ProcessRow]:
    """The processes that are asked for, in order; what is not known comes last."""
    gpus = {gpu.uuid: gpu for gpu in snapshot.sample.gpus}
    now = snapshot.sample.taken_at
    rows = [
        _process(holding, gpus[holding.key.gpu_uuid], now) for holding in snapshot.holdings if holding.gone_at is None
    ]
    words = conditions(selection.words)
    rows = [row for row in rows if holds(row, words)]
    if selection.sort:
        key = SORT_KEYS[selection.sort]  # type: ignore[index]  # checked
        falls = selection.sort not in FROM_THE_SMALLEST
        known = sorted((row for row in rows if key(row) is not None), key=key, reverse=falls)
        rows = known + [row for row in rows if key(row) is None]
    return rows if selection.by is not None else rows[: selection.top]


def grouped(rows: Sequence[ProcessRow], selection: Selection) -> list[list[ProcessRow]]:
    """The rows of each user or job, the one that holds the most first."""
    return [members for _, members in groups_of(rows, selection.by or "user", largest_first=True)][: selection.top]


def _process(holding: Holding, gpu: Gpu, now: float) -> ProcessRow:
    process, comparison = holding.process, holding.comparison
    started = process.started_at
    return ProcessRow(
        "process",
        holding.key,
        gpu,
        process.used_memory,
        holding.peak.bytes if holding.peak else None,
        process,
        predicted=comparison.predicted if comparison else None,
        fraction=comparison.fraction if comparison else None,
        preset=holding.preset,
        minutes=None if started is None else max(0, int(now - started) // 60),
    )


def _group_row(members: Sequence[ProcessRow]) -> tuple[str, ...]:
    memory, predicted, count, gpus, user, command = _group_of(members)
    return format_gib(memory), format_gib(predicted), str(count), gpus, printable(user or UNKNOWN), command


def _group_of(members: Sequence[ProcessRow]) -> tuple[int | None, int | None, int, str, str | None, str]:
    """Bytes held and predicted, how many processes on which GPUs, whose, and the first one's command."""
    processes = [row.process for row in members if row.process is not None]
    memory, predicted = together(members)
    commands = dict.fromkeys(printable(process.command_or_name or UNKNOWN) for process in processes)
    first, *others = commands
    return (
        memory,
        predicted,
        len(processes),
        ",".join(str(index) for index in sorted({row.gpu.index for row in members})),
        processes[0].user,
        f"{first} and {len(others)} more" if others else first,
    )
