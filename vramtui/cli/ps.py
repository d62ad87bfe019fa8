"""`vramtui ps`: who holds the memory, once or again and again."""

import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer

from vramtui.cli.common.console import print_json, print_table, print_wrapped, table_width, text_width
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.open_source import OpenedSource, open_source, say_overdue, with_gpus
from vramtui.cli.completion import sort_keys
from vramtui.cli.options.command_options import command_of
from vramtui.cli.remote.hosts import open_hosts
from vramtui.cli.remote.options import NO_HOSTS, HostOptions
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import MIB, UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.core.observation.attribution import causes, overlap
from vramtui.core.observation.readings import STATE_MARKS, Absence, Gpu, Host
from vramtui.core.observation.snapshot import Holding, Snapshot

By = Literal["user", "job"]
HEADINGS = ("GPU", "PID", "TYPE", "USER", "NOW", "PEAK", "PREDICTED", "Δ", "COMMAND")
NUMBERS = (1, 4, 5, 6, 7)
TYPE, NOW, PEAK = HEADINGS.index("TYPE"), HEADINGS.index("NOW"), HEADINGS.index("PEAK")
ROOMY = 100  # columns of the terminal
LEGEND = "NOW, PEAK and PREDICTED in GiB; PEAK is the largest sample since this command started."
WORTH_A_ROW = 256 * MIB  # of what nobody accounts for, as on Watch; less of it stands below
CLEAR_SCREEN = "\x1b[H\x1b[2J"


@dataclass(frozen=True, kw_only=True)
class PsOptions:
    """What `vramtui ps` takes."""

    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False
    watch: Annotated[bool, typer.Option("--watch", help="Repeat every interval until Ctrl-C.")] = False
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between samples with --watch.")] = 1.0
    demo: Annotated[bool, typer.Option("--demo", help="The built-in demo host.")] = False
    replay: Annotated[Path | None, typer.Option(help="A recording instead of this machine.")] = None
    hosts: HostOptions = NO_HOSTS
    feed: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="What `vramtui stream` sends; - is standard input.")
    ] = None
    gpu: Annotated[
        str | None, typer.Option(metavar="GPUS", help="Only these GPUs: 0,2 or uuids; visible: CUDA_VISIBLE_DEVICES.")
    ] = None
    user: Annotated[str | None, typer.Option(metavar="NAME", help="Only this user's processes.")] = None
    sort: Annotated[
        str,
        typer.Option(help="Sort by a column, as now, peak, user or time; numbers fall.", autocompletion=sort_keys),
    ] = ""
    top: Annotated[int | None, typer.Option(min=1, help="Maximum number of rows.")] = None
    filter: Annotated[str, typer.Option(help="Only processes with these words: train, or user:anna gpu:0.")] = ""
    by: Annotated[By | None, typer.Option(help="Add up the processes of each user or job.")] = None
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, sizes in bytes.")] = False


@command_of(PsOptions)
def ps(options: PsOptions) -> None:
    """Processes on the GPUs with their memory now, at its peak, and as predicted.

    Example: vramtui ps --by user · vramtui ps --sort now --top 5 · vramtui ps --gpu 0,1 --user anna --csv
    """
    show_processes(options)


def show_processes(options: PsOptions) -> None:
    """Print what is asked for, once or again and again."""
    with exit_on_user_error():
        words = " ".join(filter(None, (options.filter, f"user:{options.user}" if options.user else "")))
        if options.json and (options.sort or options.top or words or options.by or options.csv):
            raise UserError(
                "--json has every process; --sort, --top, --filter, --user, --by and --csv choose what is printed"
            )
        from vramtui.cli.ps_selection import check

        asked = Selection(sort=options.sort.lower(), top=options.top, words=words, by=options.by, as_csv=options.csv)
        check(asked)
        other = options.demo or options.replay or options.feed
        hosts = open_hosts(options.hosts.elsewhere, options.interval, other)
        hosts = {name: with_gpus(one, options.gpu) for name, one in hosts.items()}
        json, watch, interval = options.json, options.watch, options.interval
        if len(hosts) > 1:
            from vramtui.cli.remote.ps_hosts import show_hosts

            show_hosts(hosts, asked, json=json, watch=watch, interval=interval)
            return
        here = None if hosts else open_source(demo=options.demo, replay=options.replay, feed=options.feed)
        opened = hosts.popitem()[1] if here is None else with_gpus(here, options.gpu)
        _show(opened, asked, json=json, watch=watch, interval=interval)


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


def _show(opened: OpenedSource, selection: Selection, *, json: bool, watch: bool, interval: float) -> None:
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.job_presets import matcher_of_library
    from vramtui.monitor.poller import ReadQueue
    from vramtui.monitor.probes import no_jobs
    from vramtui.monitor.session import MonitorSession
    from vramtui.presets import PresetLibrary

    if opened.banner:
        sys.stderr.write(f"vramtui: {opened.banner}\n")
    derived = DerivedPresets(wait=not watch) if opened.is_real else None
    session = MonitorSession(jobs=opened.jobs or no_jobs, derived=derived)
    session.recorded_peaks = opened.peaks
    session.match_by(matcher_of_library(PresetLibrary()))
    with closing(ReadQueue(opened.source, interval)) as reads:
        while True:
            session.ingest(reads.sample(lambda: say_overdue(opened.source)))
            _print(session.snapshot(), selection, json=json, watch=watch)
            if not watch:
                return


def _print(snapshot: Snapshot, selection: Selection, *, json: bool, watch: bool) -> None:
    if selection.as_csv:
        from vramtui.cli.ps_selection import csv_of

        sys.stdout.write(csv_of(snapshot, selection))
    elif json:
        _print_document(snapshot, single=not watch)
    else:
        if watch and sys.stdout.isatty():
            sys.stdout.write(CLEAR_SCREEN)
        print_tables(snapshot, selection)
    sys.stdout.flush()


def _print_document(snapshot: Snapshot, *, single: bool) -> None:
    from vramtui.records.export.ps_json import ps_document

    if single:
        print_json(ps_document(snapshot))
        return

    sys.stdout.write(msgspec.json.encode(ps_document(snapshot)).decode() + "\n")


def print_tables(snapshot: Snapshot, selection: Selection) -> None:
    """A table of one host; problems go to standard error."""
    if selection != Selection():
        from vramtui.cli.ps_selection import table

        headings, picked, numbers = table(snapshot, selection)
        print_table(headings, picked, right=numbers)
        return
    held: dict[str, list[Holding]] = {}
    for holding in snapshot.holdings:
        held.setdefault(holding.key.gpu_uuid, []).append(holding)
    host, gpus = snapshot.sample.host, snapshot.sample.gpus
    rows = [row for gpu in gpus for row in _gpu_rows(gpu, host, held.get(gpu.uuid, []))]
    legend = _print_rows(rows)
    width = text_width()
    for line in (_foot(gpus), _free(gpus), legend):
        print_wrapped(line, width)
    if any(holding.is_assumed and holding.estimate is not None for holding in snapshot.holdings):
        sys.stdout.write("~ not all settings of the job are known.\n")
    for problem in snapshot.sample.problems:
        sys.stderr.write(printable(f"vramtui: {problem.where}: {problem.message} {problem.hint}") + "\n")


def _print_rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Print the table, and give what its columns are: a narrow one has commands without interpreter and folder, and no
    column that says nothing.
    """
    kept = list(range(len(HEADINGS)))
    if table_width() < ROOMY:
        rows = [row if row[1] == UNKNOWN else (*row[:-1], brief_command(row[-1])) for row in rows]
        if all(row[TYPE] in {"", "C"} for row in rows):
            kept.remove(TYPE)
        if all(row[PEAK] in {"", row[NOW]} for row in rows):
            kept.remove(PEAK)
    right = [kept.index(at) for at in NUMBERS if at in kept]
    print_table([HEADINGS[at] for at in kept], [[row[at] for at in kept] for row in rows], right=right)
    return LEGEND if PEAK in kept else "NOW and PREDICTED in GiB."


def _gpu_rows(gpu: Gpu, host: Host, holdings: list[Holding]) -> list[tuple[str, ...]]:
    index = gpu_name(gpu)
    if gpu.state != "ok":
        return [_bare_row(index, None, printable(f"{gpu.name}: {gpu.reason}"))]
    rows = [process_row(index, holding) for holding in holdings]
    if abs(gpu.unattributed or 0) >= WORTH_A_ROW:
        rows.append(_bare_row(index, gpu.unattributed, f"unattributed ({_whose(gpu, host)})"))
    return rows


def gpu_name(gpu: Gpu) -> str:
    """Its index; of a MIG instance that of its card, with the instance's size: `0/3g`."""
    return f"{gpu.index}/{printable(gpu.mig_profile).partition('.')[0]}" if gpu.mig_profile else str(gpu.index)


def _foot(gpus: Sequence[Gpu]) -> str:
    """What all processes hold, and what no process does."""
    answer = [gpu for gpu in gpus if gpu.state == "ok"]
    driver = sum(gpu.memory.reserved or 0 for gpu in answer)
    unattributed = sum(gpu.unattributed or 0 for gpu in answer)
    processes = sum(sum(gpu.held_by_user.values()) for gpu in answer)
    untold = any("processes" in gpu.absent or None in (one.used_memory for one in gpu.processes) for gpu in answer)
    least = f"at least {format_bytes(processes)}" if processes else UNKNOWN
    facts = [f"all processes {least if untold else format_bytes(processes)}"]
    facts += [f"driver {format_bytes(driver)}"] if driver else []
    facts += [f"unattributed {format_bytes(unattributed)}"] if unattributed else []
    return " · ".join(facts)


def _free(gpus: Sequence[Gpu]) -> str:
    """What is free of each GPU that answers; those that are alike stand behind their name once."""
    facts = []
    for name, alike in groupby((gpu for gpu in gpus if gpu.state == "ok"), key=_free_of):
        facts.append(", ".join(f"GPU {gpu_name(gpu)} {format_gib(gpu.memory.free)}" for gpu in alike) + f" {name}")
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
        printable(f"{STATE_MARKS.get(process.state, '')}{process.command_or_name or ''}" or UNKNOWN),
    )


def _predicted(holding: Holding) -> str:
    """The predicted peak; with a mark where it is by a preset that nobody wrote."""
    if holding.comparison is None:
        return format_gib(None)
    mark = "~" if holding.is_assumed and holding.estimate is not None else ""
    return mark + format_gib(holding.comparison.predicted)


def _bare_row(index: str, held: int | None, what: str) -> tuple[str, ...]:
    return (index, UNKNOWN, "", UNKNOWN, format_gib(held), "", "", "", what)
