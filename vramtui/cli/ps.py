"""`vramtui ps`: the processes and their memory, on one host or several, once or again and again."""

import io
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from vramtui.cli.common.console import print_json, print_table, print_wrapped, table_width
from vramtui.cli.common.exit_codes import NO_SOURCE, say
from vramtui.cli.common.open_source import OpenedSource, open_hosts, open_source, session_of, snapshots_of, with_gpus
from vramtui.cli.common.option_groups import SourceOptions
from vramtui.core.base.errors import SourceFailed, UserError, nearest
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import MIB, UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.core.observation import readings
from vramtui.core.observation.snapshot import Holding, Snapshot

if TYPE_CHECKING:
    from vramtui.app.state.view import ProcessRow
    from vramtui.core.observation.matcher import Matcher
    from vramtui.monitor.predictor import Predictor
    from vramtui.records.export.plain import Cell

By = Literal["user", "job"]
MEMORY = ("memory", "mem")  # other names of the column NOW
HEADINGS = ("GPU", "PID", "TYPE", "USER", "NOW", "PEAK", "PREDICTED", "Δ", "JOB", "COMMAND")
NUMBERS = (1, 4, 5, 6, 7)
TYPE, NOW, PEAK, JOB = map(HEADINGS.index, ("TYPE", "NOW", "PEAK", "JOB"))
ROOMY = 100  # columns of the terminal
LEGEND = "NOW, PEAK and PREDICTED in GiB; PEAK is the largest sample since this command started."
GROUP_LEGEND = "NOW and PREDICTED in GiB."
GROUP_HEADINGS = ("NOW", "PREDICTED", "PROCESSES", "GPUS", "USER", "COMMAND")
GROUP_CSV_COLUMNS = ("used_bytes", "predicted_bytes", "processes", "gpus", "user", "command")
CSV_COLUMNS = (
    *("gpu", "pid", "type", "user", "used_bytes", "peak_bytes", "predicted_bytes", "difference"),
    *("command", "job", "uuid"),
)
CLEAR_SCREEN = "\x1b[H\x1b[2J"
WORTH_NAMING = 256 * MIB  # unattributed bytes of one GPU, as on Watch
LONGEST_TRAFFIC = 0.5  # seconds for one GPU; a driver that takes longer hangs
FIRST = 40.0  # seconds for all hosts to connect
SCHEMA = 1


class PsOptions(NamedTuple):
    json: bool = False
    watch: bool = False
    interval: float = 1.0
    source: SourceOptions = SourceOptions()
    feed: str | None = None
    gpu: str | None = None
    user: str | None = None
    sort: str = ""
    top: int | None = None
    filter: str = ""
    by: By | None = None
    csv: bool = False
    traffic: bool = False


DEFAULTS = PsOptions()


def ps(options: PsOptions = DEFAULTS) -> None:
    """Processes on the GPUs with their memory now, at its peak, and as predicted.

    Example: vramtui ps --by user · vramtui ps --sort now --top 5 · vramtui ps --gpu 0,1 --user anna --csv
    """
    words = " ".join(filter(None, (options.filter, f"user:{options.user}" if options.user else "")))
    if options.json and (options.sort or options.top or words or options.by or options.csv):
        raise UserError(
            "--json has every process; --sort, --top, --filter, --user, --by and --csv choose what is printed"
        )
    if options.traffic and options.csv:
        raise UserError("--traffic is for the table and --json; --csv has only processes")
    sort = options.sort.lower()
    sort = "now" if sort in MEMORY or (options.top and not sort) else sort
    options = options._replace(sort=sort, filter=words)
    if is_selection(options):
        from vramtui.app.state.rows import SORT_KEYS, doubt

        if sort and sort not in SORT_KEYS:
            near = nearest(sort, SORT_KEYS)
            raise UserError(f"there is no column {sort!r}{near}; --sort takes {', '.join(SORT_KEYS)}")
        if why := doubt(words):
            raise UserError(f"--filter: {why[:1].lower()}{why[1:].rstrip('.')}")
    source = options.source
    hosts = open_hosts(source.hosts, options.interval, source.demo or source.replay or options.feed)
    if options.traffic and hosts:
        raise UserError("--traffic is measured only on this machine: run vramtui ps --traffic there")
    if len(hosts) > 1:  # one without an answer holds up no other, and ends the command with exit code 3
        watches = watches_of({name: with_gpus(one, options.gpu) for name, one in hosts.items()}, options.interval)
        try:
            seconds = FIRST
            while True:
                answers = {name: one.answer(seconds) for name, one in watches.items()}
                _print(answers, options)
                if not options.watch:
                    break
                seconds = 2 * options.interval + 1
        finally:
            for one in watches.values():
                one.source.close()
        if any(isinstance(answer, SourceFailed) for answer in answers.values()):
            raise SystemExit(NO_SOURCE)
        return
    wants_torch = options.json or options.watch
    here = hosts.popitem()[1] if hosts else open_source(source.demo, source.replay, options.feed, torch=wants_torch)
    opened = with_gpus(here, options.gpu)
    if options.traffic:
        opened = msgspec.structs.replace(opened, source=MeasuredTraffic(opened.source))
    if opened.banner:
        say(opened.banner)
    with closing(snapshots_of(opened, options.interval, wait=not options.watch)) as snapshots:
        for snapshot in snapshots:
            _print({"": snapshot}, options)
            if not options.watch:
                break
    if not snapshot.sample.gpus:
        raise SystemExit(NO_SOURCE)


class HostWatch:
    """One of several hosts: its session, and the results of its reads, which begin at once on a thread of their own."""

    def __init__(self, opened: OpenedSource, matcher: "Matcher", interval: float, predictor: "Predictor") -> None:
        from vramtui.monitor.poller import ReadQueue

        self.source = opened.source
        self._session = session_of(opened, matcher, predictor=predictor)
        self.jobs = opened.jobs or tuple
        self._reads = ReadQueue(opened.source, interval)
        self._reads.begin()

    def answer(self, seconds: float) -> Snapshot | SourceFailed:
        """Wait up to so many seconds for the snapshot."""
        from vramtui.sources.ssh import TOO_MANY

        until = time.monotonic() + seconds
        result = self._reads.next(seconds)
        while result is not None and not isinstance(result, readings.Sample) and time.monotonic() < until:
            if isinstance(result, SourceFailed) and TOO_MANY not in result.message:
                break
            # A read is overdue, or a busy server has closed the connection: an answer may come yet.
            result = self._reads.next(until - time.monotonic())
        if isinstance(result, readings.Sample):
            self._session.ingest(result)
            return self._session.snapshot()
        return result if isinstance(result, SourceFailed) else SourceFailed("no answer.")


def watches_of(hosts: Mapping[str, OpenedSource], interval: float) -> dict[str, HostWatch]:
    """Begin to read each host; all share one matcher and one predictor."""
    from vramtui.monitor.jobs import matcher_of_library
    from vramtui.monitor.predictor import LazyDefault, Predictor
    from vramtui.presets import PresetLibrary

    matcher, predictor = matcher_of_library(PresetLibrary()), Predictor(LazyDefault())
    return {name: HostWatch(opened, matcher, interval, predictor) for name, opened in hosts.items()}


def why_not(name: str, failure: SourceFailed) -> str:
    """The sentence that says why a host shows nothing."""
    sentence = failure.sentence
    return sentence if sentence.startswith(name) else f"{name}: {sentence}"


def is_selection(options: PsOptions) -> bool:
    """Return whether only some processes are asked for, or these in another order or added up."""
    return bool(options.sort or options.top or options.filter or options.by)


def _print(answers: "Mapping[str, Snapshot | SourceFailed]", options: PsOptions) -> None:
    """Print a moment of each host; the only one has an empty name."""
    seen = {name: one for name, one in answers.items() if not isinstance(one, SourceFailed)}
    if options.csv:
        import csv

        from vramtui.records.export.plain import safe_cell

        out = io.StringIO()
        lines: list[tuple[Cell, ...]] = []
        for name, snapshot in seen.items():
            groups = _picked(snapshot, options)
            cells: list[tuple[Cell, ...]] = [] if options.by is None else [*map(_group_of, groups)]
            for row in (one for (one,) in groups) if options.by is None else ():
                process = row.process
                if process is not None:
                    sizes = (row.now, row.peak, row.predicted, row.fraction)
                    who = (row.gpu.index, process.pid, process.type, process.user)
                    cells.append((*who, *sizes, process.command_or_name, process.job, row.gpu.uuid))
            heading = CSV_COLUMNS if options.by is None else GROUP_CSV_COLUMNS
            lines += [] if lines else [("host", *heading) if name else heading]
            lines += [(name, *line) if name else line for line in cells]
        writer = csv.writer(out, lineterminator="\n")
        writer.writerows(["" if cell is None else safe_cell(cell) for cell in line] for line in lines)
        sys.stdout.write(out.getvalue())
    elif options.json:
        from vramtui.records.export.plain import ps_document

        document = ps_document(seen[""]) if "" in seen else document_of(answers)
        print_json(document, single=not options.watch)
    else:
        if options.watch and sys.stdout.isatty():
            sys.stdout.write(CLEAR_SCREEN)
        for name, snapshot in seen.items():
            sys.stdout.write(f"{name}\n" if name else "")
            if not is_selection(options):
                print_tables(snapshot)
            else:
                groups = _picked(snapshot, options)
                holdings: dict[object, Holding] = {holding.key: holding for holding in snapshot.holdings}
                rows = [row for members in groups for row in members]
                if options.by is None:
                    names = readings.instance_names(snapshot.sample.gpus)
                    legend = print_rows(
                        [process_row(readings.gpu_name(row.gpu, names), holdings[row.id]) for row in rows]
                    )
                else:
                    legend = GROUP_LEGEND
                    texts = [
                        (format_gib(now), format_gib(predicted), str(count), gpus, printable(user or UNKNOWN), command)
                        for now, predicted, count, gpus, user, command in map(_group_of, groups)
                    ]
                    print_table(GROUP_HEADINGS, texts, right=(0, 1, 2))
                _print_below(snapshot, [holdings[row.id] for row in rows], legend)
            if options.traffic:
                print_traffic(snapshot.sample.gpus)
            print_problems(snapshot, name)
    sys.stdout.flush()
    for name, one in answers.items():
        if isinstance(one, SourceFailed):
            say(why_not(name, one))


def document_of(answers: "Mapping[str, Snapshot | SourceFailed]") -> dict[str, Any]:
    from vramtui.records.export.plain import ps_document

    documents = (
        {"error": answer.message, "hint": answer.hint} if isinstance(answer, SourceFailed) else ps_document(answer)
        for answer in answers.values()
    )
    return {"schema": SCHEMA, "hosts": [{"target": name, **one} for name, one in zip(answers, documents, strict=True)]}


def _picked(snapshot: Snapshot, options: PsOptions) -> "list[list[ProcessRow]]":
    """The selected processes in order, unknown values last: those of each user or job together, or each by itself."""
    from vramtui.app.state.rows import SORT_KEYS, conditions, groups_of, holds, minutes_since, sorted_places
    from vramtui.app.state.view import ProcessRow

    gpus = {gpu.uuid: gpu for gpu in snapshot.sample.gpus}
    rows, words = [], conditions(options.filter)
    for holding in snapshot.holdings:
        key, process, comparison = holding.key, holding.process, holding.comparison
        peak, minutes = holding.peak.bytes if holding.peak else None, minutes_since(process, snapshot.sample.taken_at)
        size, off = (comparison.predicted, comparison.fraction) if comparison else (None, None)
        gpu, now, preset = gpus[key.gpu_uuid], process.used_memory, holding.preset
        row = ProcessRow("process", key, gpu, now, peak, process, size, off, preset, minutes=minutes)
        if holding.gone_at is None and holds(row, words):
            rows.append(row)
    if options.sort:
        column: Any = options.sort
        places = sorted_places(range(len(rows)), list(map(SORT_KEYS[column], rows)), column)
        rows = [rows[at] for at in places]
    if options.by is None:
        return [[row] for row in rows[: options.top]]
    return [members for _, members in groups_of(rows, options.by, largest_first=True)][: options.top]


def _group_of(members: "Sequence[ProcessRow]") -> tuple[int | None, int | None, int, str, str | None, str]:
    """Bytes held and predicted, the number of processes, their GPUs and user, and the first one's command."""
    from vramtui.app.state.rows import together

    processes = [row.process for row in members if row.process is not None]
    memory, predicted = together(members)
    commands = dict.fromkeys(printable(process.command_or_name or UNKNOWN) for process in processes)
    first, *others = commands
    gpus = ",".join(str(index) for index in sorted({row.gpu.index for row in members}))
    command = f"{first} and {len(others)} more" if others else first
    return memory, predicted, len(processes), gpus, processes[0].user, command


def print_tables(snapshot: Snapshot) -> None:
    by_gpu: dict[str, list[Holding]] = {}
    for holding in snapshot.holdings:
        by_gpu.setdefault(holding.key.gpu_uuid, []).append(holding)
    gpus = snapshot.sample.gpus
    names = readings.instance_names(gpus)
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        name = readings.gpu_name(gpu, names)
        if gpu.state != "ok":
            gone = printable(f"{gpu.name}: {gpu.reason}")
            rows.append((name, UNKNOWN, "", UNKNOWN, format_gib(None), "", "", "", "", gone))
        else:
            rows += [process_row(name, holding) for holding in by_gpu.get(gpu.uuid, [])]
    _print_below(snapshot, snapshot.holdings, print_rows(rows))


def print_rows(rows: Sequence[tuple[str, ...]]) -> str:
    """Print the table without its empty columns, and return the legend. A narrow table has no JOB, and commands without
    interpreter and folder.
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
    return LEGEND if PEAK in columns else GROUP_LEGEND


def _print_below(snapshot: Snapshot, shown: Sequence[Holding], legend: str) -> None:
    """Print the lines below the processes: their memory, unattributed memory with its GPUs and possible causes, and, if
    none is left out, free memory.
    """
    gpus, width = snapshot.sample.gpus, table_width()  # whole lines in a pipe, as the table above has them
    answer, names = [gpu for gpu in gpus if gpu.state == "ok"], readings.instance_names(gpus)
    every = sum(holding.gone_at is None for holding in snapshot.holdings)
    part, free = "", ""
    if len(shown) < every:
        sizes = [holding.process.used_memory for holding in shown]
        least = "at least " if None in sizes else ""
        total = format_bytes(sum(size or 0 for size in sizes))
        part = f"shown {least}{total} ({len(shown)} of {every} processes) · "
    else:
        frees = []

        def total_of(gpu: readings.Gpu) -> str:
            name = printable(gpu.name) + (" (simulated)" if snapshot.sample.source == readings.EMULATED else "")
            if gpu.memory.unified:
                return f"of the host's memory, shared by {name}"
            if gpu.memory.total is None:
                reason = gpu.absent.get("memory", readings.Absence.FAILED).value.replace("_", " ")
                return f"({name}: the driver does not report its memory, {reason})"
            return f"of {format_gib(gpu.memory.total)} GiB {name}"

        for total, alike in groupby((gpu for gpu in readings.usable_gpus(gpus) if gpu.state == "ok"), key=total_of):
            places = ", ".join(f"GPU {readings.gpu_name(gpu, names)} {format_gib(gpu.memory.free)}" for gpu in alike)
            frees.append(f"{places} {total}")
        free = "free: " + "; ".join(frees) if frees else ""
    driver = sum(gpu.memory.reserved or 0 for gpu in answer)
    unattributed = sum(gpu.unattributed or 0 for gpu in answer)
    processes = sum(sum(gpu.held_by_user.values()) for gpu in answer)
    untold = any("processes" in gpu.absent or None in gpu.sizes for gpu in answer)
    at_least = f"at least {format_bytes(processes)}" if processes else UNKNOWN
    facts = [f"all processes {at_least if untold else format_bytes(processes)}"]
    facts += [f"driver {format_bytes(driver)}"] if driver else []
    places_of: dict[str, list[str]] = {}
    for gpu in answer:
        count = gpu.unattributed or 0
        if abs(count) >= WORTH_NAMING:
            cause = readings.overlap(gpu, None) if count < 0 else ", ".join(readings.causes(gpu, snapshot.sample.host))
            cause = cause or "driver, exited pids"
            places_of.setdefault(cause, []).append(f"GPU {readings.gpu_name(gpu, names)} {format_gib(count)}")
    causes_shown = "; ".join(f"{', '.join(those)} ({cause})" for cause, those in places_of.items())
    if unattributed or causes_shown:
        facts.append(f"unattributed {format_bytes(unattributed)}" + (f": {causes_shown}" if causes_shown else ""))
    for line in (part + " · ".join(facts), free, legend):
        print_wrapped(line, width)
    if any(holding.is_assumed and holding.estimate is not None for holding in shown):
        sys.stdout.write("~ not all settings of the job are known.\n")


def print_problems(snapshot: Snapshot, host: str = "") -> None:
    """Print the source's problems on standard error, with the name of the `host` if there are several."""
    sys.stdout.flush()
    for problem in snapshot.sample.problems:
        say(f"{': '.join(filter(None, (host, problem.where)))}: {problem.message} {problem.hint}")


def process_row(index: str, holding: Holding) -> tuple[str, ...]:
    """The cells of a process on the GPU called `index`."""
    process, comparison = holding.process, holding.comparison
    # A mark if the preset is derived, and not all settings of the job are known.
    mark = "~" if comparison is not None and holding.is_assumed and holding.estimate is not None else ""
    words = process.command_or_name or ""
    words = f"{process.label} · {brief_command(words)}" if process.label else words
    return (
        index,
        str(process.pid) if process.pid >= 0 else UNKNOWN,
        process.type,
        printable(process.user or UNKNOWN),
        "N/A" if process.used_memory is None else format_gib(process.used_memory),
        format_gib(holding.peak.bytes if holding.peak else None),
        mark + format_gib(comparison.predicted if comparison else None),
        format_percent(comparison.fraction if comparison else None),
        printable(process.job or UNKNOWN),
        printable(f"{readings.STATE_MARKS.get(process.state, '')}{words}" or UNKNOWN),
    )


class MeasuredTraffic:
    """A source's samples, with PCIe traffic measured for each GPU that has none: drivers that count it in 32 bits."""

    def __init__(self, source: readings.Source) -> None:
        self.name = source.name
        self._source = source

    def read(self) -> readings.Sample:
        source = self._source
        sample = source.read()
        if not isinstance(source, readings.TrafficSource):
            return sample
        from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck

        asked = {at: gpu.uuid for at, gpu in enumerate(sample.gpus) if gpu.state == "ok" and gpu.pcie_sent is None}
        worker: DeadlineWorker[readings.PcieTraffic | readings.Absence] = DeadlineWorker(LONGEST_TRAFFIC)
        answers = worker.run({at: partial(source.measure_traffic, uuid) for at, uuid in asked.items()})
        gpus = list(sample.gpus)
        for at, answer in answers.items():
            known = readings.Absence.NO_ANSWER if isinstance(answer, Stuck) else answer
            gpus[at] = readings.with_traffic(gpus[at], known)
        return msgspec.structs.replace(sample, gpus=tuple(gpus))

    def close(self) -> None:
        self._source.close()


def print_traffic(gpus: Sequence[readings.Gpu]) -> None:
    """Print a line below the table: what each GPU sends and receives, or why that is unknown."""
    names = readings.instance_names(gpus)
    facts = []
    for gpu in gpus:
        if gpu.pcie_sent is None or gpu.pcie_received is None:
            rates = gpu.absent.get("pcie_sent", readings.Absence.FAILED).value.replace("_", " ")
        else:
            rates = f"{format_bytes(gpu.pcie_sent)}/s and {format_bytes(gpu.pcie_received)}/s"
        facts += [f"GPU {readings.gpu_name(gpu, names)} {rates}"] if gpu.state == "ok" else []
    print_wrapped(f"over PCIe, sent and received: {', '.join(facts)}", table_width())
