"""The tables of `vramtui ps` for one host, and the options that select rows."""

import sys
import threading
from collections.abc import Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import msgspec

from vramtui.cli.common.console import print_table, print_wrapped, table_width
from vramtui.core.base.text import brief_command, printable
from vramtui.core.base.units import MIB, UNKNOWN, format_bytes, format_gib, format_percent
from vramtui.core.observation.readings import (
    STATE_MARKS,
    Absence,
    Gpu,
    Host,
    Sample,
    causes,
    gpu_name,
    instance_names,
    overlap,
    usable_gpus,
)
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.core.observation.source import PcieTraffic, Source, TrafficSource, with_traffic

By = Literal["user", "job"]
HEADINGS = ("GPU", "PID", "TYPE", "USER", "NOW", "PEAK", "PREDICTED", "Δ", "JOB", "COMMAND")
NUMBERS = (1, 4, 5, 6, 7)
TYPE, NOW, PEAK, JOB = map(HEADINGS.index, ("TYPE", "NOW", "PEAK", "JOB"))
ROOMY = 100  # columns of the terminal
LEGEND = "NOW, PEAK and PREDICTED in GiB; PEAK is the largest sample since this command started."
CLEAR_SCREEN = "\x1b[H\x1b[2J"
WORTH_NAMING = 256 * MIB  # unattributed bytes of one GPU, as on Watch
LONGEST_TRAFFIC = 1.0  # seconds for all GPUs at once; a driver that takes longer hangs


class Selection(NamedTuple):
    """The selection of rows.

    Attributes:
        sort: the column that rows are sorted by, numbers from the largest; empty: by GPU.
        top: the largest number of rows; None: all.
        words: a filter as in the dashboard.
        by: adds up processes by this; None: every process is a row.
        as_csv: comma-separated, in bytes.
    """

    sort: str = ""
    top: int | None = None
    words: str = ""
    by: By | None = None
    as_csv: bool = False


def print_tables(snapshot: Snapshot) -> None:
    """Print all of one host."""
    by_gpu: dict[str, list[Holding]] = {}
    for holding in snapshot.holdings:
        by_gpu.setdefault(holding.key.gpu_uuid, []).append(holding)
    gpus = snapshot.sample.gpus
    names = instance_names(gpus)
    rows: list[tuple[str, ...]] = []
    for gpu in gpus:
        name = gpu_name(gpu, names)
        if gpu.state != "ok":
            gone = printable(f"{gpu.name}: {gpu.reason}")
            rows.append((name, UNKNOWN, "", UNKNOWN, format_gib(None), "", "", "", "", gone))
        else:
            rows += [process_row(name, holding) for holding in by_gpu.get(gpu.uuid, [])]
    legend = print_rows(rows)
    print_below(snapshot, snapshot.holdings, legend)


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
    return LEGEND if PEAK in columns else "NOW and PREDICTED in GiB."


def print_below(snapshot: Snapshot, shown: Sequence[Holding], legend: str) -> None:
    """Print the lines below the processes: their memory, unattributed and, if none is left out, free memory."""
    gpus, width = snapshot.sample.gpus, table_width()  # whole lines in a pipe, as the table above has them
    every = sum(holding.gone_at is None for holding in snapshot.holdings)
    part, free = "", ""
    if len(shown) < every:
        sizes = [holding.process.used_memory for holding in shown]
        least = "at least " if None in sizes else ""
        total = format_bytes(sum(size or 0 for size in sizes))
        part = f"shown {least}{total} ({len(shown)} of {every} processes) · "
    else:
        names = instance_names(gpus)
        facts = []
        for name, alike in groupby((gpu for gpu in usable_gpus(gpus) if gpu.state == "ok"), key=_free_of):
            places = ", ".join(f"GPU {gpu_name(gpu, names)} {format_gib(gpu.memory.free)}" for gpu in alike)
            facts.append(f"{places} {name}")
        free = "free: " + "; ".join(facts) if facts else ""
    for line in (part + _foot(gpus, snapshot.sample.host), free, legend):
        print_wrapped(line, width)
    if any(holding.is_assumed and holding.estimate is not None for holding in shown):
        sys.stdout.write("~ not all settings of the job are known.\n")


def print_problems(snapshot: Snapshot, host: str = "") -> None:
    """Print the source's problems on standard error, with the name of the `host` if there are several."""
    sys.stdout.flush()
    for problem in snapshot.sample.problems:
        where = ": ".join(filter(None, (host, problem.where)))
        sys.stderr.write(printable(f"vramtui: {where}: {problem.message} {problem.hint}") + "\n")


def _foot(gpus: Sequence[Gpu], host: Host) -> str:
    """The memory of all processes, and unattributed memory with its GPUs and possible causes."""
    answer = [gpu for gpu in gpus if gpu.state == "ok"]
    driver = sum(gpu.memory.reserved or 0 for gpu in answer)
    unattributed = sum(gpu.unattributed or 0 for gpu in answer)
    processes = sum(sum(gpu.held_by_user.values()) for gpu in answer)
    untold = any("processes" in gpu.absent or None in (one.used_memory for one in gpu.processes) for gpu in answer)
    least = f"at least {format_bytes(processes)}" if processes else UNKNOWN
    facts = [f"all processes {least if untold else format_bytes(processes)}"]
    facts += [f"driver {format_bytes(driver)}"] if driver else []
    names = instance_names(gpus)
    places_of: dict[str, list[str]] = {}
    for gpu in answer:
        count = gpu.unattributed or 0
        if abs(count) >= WORTH_NAMING:
            cause = overlap(gpu, None) if count < 0 else ", ".join(causes(gpu, host)) or "driver, exited pids"
            places_of.setdefault(cause, []).append(f"GPU {gpu_name(gpu, names)} {format_gib(count)}")
    places = "; ".join(f"{', '.join(those)} ({cause})" for cause, those in places_of.items())
    if unattributed or places:
        facts.append(f"unattributed {format_bytes(unattributed)}" + (f": {places}" if places else ""))
    return " · ".join(facts)


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
    # A mark if the preset is derived, and not all settings of the job are known.
    mark = "~" if comparison is not None and holding.is_assumed and holding.estimate is not None else ""
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
        printable(
            f"{STATE_MARKS.get(process.state, '')}{process.label}{' · ' if process.label else ''}"
            f"{process.command_or_name or ''}"
            or UNKNOWN
        ),
    )


class MeasuredTraffic:
    """A source's samples, with PCIe traffic measured for each GPU that has none: drivers that count it in 32 bits."""

    def __init__(self, source: Source) -> None:
        self.name = source.name
        self._source = source

    def read(self) -> Sample:
        """A sample, with traffic."""
        source = self._source
        sample = source.read()
        if not isinstance(source, TrafficSource):
            return sample
        answers: dict[str, PcieTraffic | Absence] = {}
        asked = [gpu.uuid for gpu in sample.gpus if gpu.state == "ok" and gpu.pcie_sent is None]

        def ask(uuid: str) -> None:
            answers[uuid] = source.measure_traffic(uuid)

        threads = [threading.Thread(target=ask, args=(uuid,), daemon=True) for uuid in asked]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_TRAFFIC / len(threads))
        known = {uuid: answers.get(uuid, Absence.NO_ANSWER) for uuid in asked}
        gpus = tuple(with_traffic(gpu, known[gpu.uuid]) if gpu.uuid in known else gpu for gpu in sample.gpus)
        return msgspec.structs.replace(sample, gpus=gpus)

    def close(self) -> None:
        self._source.close()


def print_traffic(gpus: Sequence[Gpu]) -> None:
    """Print a line below the table: what each GPU sends and receives, or why that is unknown."""
    names = instance_names(gpus)
    facts = []
    for gpu in gpus:
        if gpu.pcie_sent is None or gpu.pcie_received is None:
            rates = gpu.absent.get("pcie_sent", Absence.FAILED).value.replace("_", " ")
        else:
            rates = f"{format_bytes(gpu.pcie_sent)}/s and {format_bytes(gpu.pcie_received)}/s"
        facts += [f"GPU {gpu_name(gpu, names)} {rates}"] if gpu.state == "ok" else []
    print_wrapped(f"over PCIe, sent and received: {', '.join(facts)}", table_width())
    sys.stdout.flush()
