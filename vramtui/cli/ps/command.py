"""`vramtui ps`: the processes and their memory, once or again and again."""

import sys
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated

import msgspec
import typer

from vramtui.cli.common.console import print_document
from vramtui.cli.common.exit_codes import exit_on_user_error
from vramtui.cli.common.hosts import open_hosts
from vramtui.cli.common.open_source import OpenedSource, open_source, say_overdue, with_gpus
from vramtui.cli.options import THIS_MACHINE, SourceOptions, command_of, sort_keys
from vramtui.cli.ps.tables import (
    CLEAR_SCREEN,
    By,
    MeasuredTraffic,
    Selection,
    print_problems,
    print_tables,
    print_traffic,
)
from vramtui.core.base.errors import UserError
from vramtui.core.observation.snapshot import Snapshot

MEMORY = ("memory", "mem")  # other names of the column NOW


@dataclass(frozen=True, kw_only=True)
class PsOptions:
    """Options of `vramtui ps`."""

    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Repeat every interval until Ctrl-C.")] = False
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between samples with --watch.")] = 1.0
    source: SourceOptions = THIS_MACHINE
    feed: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="Read what `vramtui record -` sends; - is standard input.")
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(metavar="GPUS", help="Only these GPUs: 0,2 or uuids; `visible` means CUDA_VISIBLE_DEVICES."),
    ] = None
    user: Annotated[str | None, typer.Option("--user", "-u", metavar="NAME", help="Only this user's processes.")] = None
    sort: Annotated[
        str,
        typer.Option(help="Sort by a column: now (memory), peak, user, time …", autocompletion=sort_keys),
    ] = ""
    top: Annotated[int | None, typer.Option("--top", "-n", min=1, help="Only the N largest (first by --sort).")] = None
    filter: Annotated[str, typer.Option(help="Only processes with these words: train, or user:anna gpu:0.")] = ""
    by: Annotated[By | None, typer.Option(help="Add up the processes of each user or job.")] = None
    csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values, sizes in bytes.")] = False
    traffic: Annotated[
        bool, typer.Option("--traffic", help="Also measure PCIe traffic; takes some hundredths of a second.")
    ] = False


@command_of(PsOptions)
def ps(options: PsOptions) -> None:
    """Processes on the GPUs with their memory now, at its peak, and as predicted.

    Example: vramtui ps --by user · vramtui ps --sort now --top 5 · vramtui ps --gpu 0,1 --user anna --csv
    """
    show_processes(options)


def show_processes(options: PsOptions) -> None:
    """Print the processes, once or again and again."""
    with exit_on_user_error():
        words = " ".join(filter(None, (options.filter, f"user:{options.user}" if options.user else "")))
        if options.json and (options.sort or options.top or words or options.by or options.csv):
            raise UserError(
                "--json has every process; --sort, --top, --filter, --user, --by and --csv choose what is printed"
            )
        if options.traffic and options.csv:
            raise UserError("--traffic is for the table and --json; --csv has only processes")
        from vramtui.cli.ps.selection import check

        sort = options.sort.lower()
        sort = "now" if sort in MEMORY or (options.top and not sort) else sort
        asked = Selection(sort=sort, top=options.top, words=words, by=options.by, as_csv=options.csv)
        check(asked)
        source = options.source
        other = source.demo or source.replay or options.feed
        hosts = open_hosts(source.hosts.elsewhere, options.interval, other)
        hosts = {name: with_gpus(one, options.gpu) for name, one in hosts.items()}
        if options.traffic and hosts:
            raise UserError("--traffic is measured only on this machine: run vramtui ps --traffic there")
        if len(hosts) > 1:
            from vramtui.cli.ps.hosts import show_hosts

            show_hosts(hosts, asked, json=options.json, watch=options.watch, interval=options.interval)
            return
        here = None if hosts else open_source(demo=source.demo, replay=source.replay, feed=options.feed)
        opened = hosts.popitem()[1] if here is None else with_gpus(here, options.gpu)
        if options.traffic:
            opened = msgspec.structs.replace(opened, source=MeasuredTraffic(opened.source))
        _show(opened, asked, options)


def _show(opened: OpenedSource, selection: Selection, options: PsOptions) -> None:
    """Print the selection of what `opened` shows, once, or with --watch again and again until somebody ends it."""
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.job_presets import matcher_of_library
    from vramtui.monitor.job_reports import no_jobs
    from vramtui.monitor.poller import ReadQueue
    from vramtui.monitor.session import MonitorSession
    from vramtui.presets import PresetLibrary

    if opened.banner:
        sys.stderr.write(f"vramtui: {opened.banner}\n")
    derived = DerivedPresets(wait=not options.watch) if opened.is_real else None
    session = MonitorSession(jobs=opened.jobs or no_jobs, derived=derived)
    session.recorded_peaks = opened.peaks
    session.match_by(matcher_of_library(PresetLibrary()))
    with closing(ReadQueue(opened.source, options.interval)) as reads:
        while True:
            session.ingest(reads.sample(lambda: say_overdue(opened.source)))
            _print(session.snapshot(), selection, options)
            if not options.watch:
                return


def _print(snapshot: Snapshot, selection: Selection, options: PsOptions) -> None:
    if selection.as_csv:
        from vramtui.cli.ps.selection import csv_of

        sys.stdout.write(csv_of(snapshot, selection))
    elif options.json:
        from vramtui.records.export.ps_json import ps_document

        print_document(ps_document(snapshot), single=not options.watch)
    else:
        if options.watch and sys.stdout.isatty():
            sys.stdout.write(CLEAR_SCREEN)
        if selection == Selection():
            print_tables(snapshot)
        else:
            from vramtui.cli.ps.selection import print_picked

            print_picked(snapshot, selection)
        if options.traffic:
            print_traffic(snapshot.sample.gpus)
        print_problems(snapshot)
    sys.stdout.flush()
