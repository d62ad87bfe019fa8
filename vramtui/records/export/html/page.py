"""The page: the host, its GPUs to the byte, its processes, and every prediction beside what was observed."""

from collections.abc import Iterator

from vramtui.core.base.units import GIB, format_gib, format_percent
from vramtui.core.observation.readings import Gpu
from vramtui.core.observation.snapshot import Holding, Snapshot
from vramtui.records.export.html.drawings import BarDrawing, BarPiece, over_time, stacked
from vramtui.records.export.html.parts import (
    bullet_list,
    categories,
    document,
    legend,
    sides,
    size,
    timeline,
    two_sides,
)
from vramtui.records.export.sanitize import iso_time, table, tag, text


def html_page(snapshot: Snapshot) -> str:
    sample = snapshot.sample
    title = f"GPU memory on {text(sample.host.name)}"
    body = [
        tag("h1", title),
        tag(
            "p", f"Taken {text(iso_time(sample.taken_at))} from {text(sample.source)}. {_host(snapshot)}", class_="dim"
        ),
        tag("h2", "GPUs"),
        *_gpus(snapshot),
        tag("h2", "Processes"),
        _processes(snapshot),
        *(
            tag("section", *_predicted(holding, snapshot.vendor_of(holding)))
            for holding in snapshot.holdings
            if holding.comparison
        ),
        *bullet_list("Problems", (f"{p.where}: {p.message} {p.hint}" for p in sample.problems)),
        *bullet_list("Versions", (f"{name} {known}" for name, known in snapshot.versions.items())),
    ]
    return document(title, body)


def _host(snapshot: Snapshot) -> str:
    host = snapshot.sample.host
    known = (
        f"Driver {host.driver_version}" if host.driver_version else "",
        f"CUDA {host.cuda_version}" if host.cuda_version else "",
    )
    return text(", ".join(filter(None, known)))


def _gpus(snapshot: Snapshot) -> Iterator[str]:
    gpus = snapshot.sample.gpus
    if not gpus:
        yield tag("p", "None seen.")
        return
    most = max((gpu.memory.total or 0 for gpu in gpus), default=0)
    yield stacked([_gpu_bar(gpu) for gpu in gpus], most)
    yield legend(
        (("processes", "used"), ("unattributed", "other"), ("driver and firmware", "driver"), ("free", "free"))
    )
    sizes = (f"{name} (GiB)" for name in ("Processes", "Unattributed", "Driver", "Free", "Total"))
    headings = ("GPU", "Name", *sizes, "State")
    yield table(headings, map(_gpu_row, gpus), numbers=range(2, 7))


def _gpu_bar(gpu: Gpu) -> BarDrawing:
    memory = gpu.memory
    if memory.total is None or memory.used is None:
        return BarDrawing(f"GPU {gpu.index}", (), gpu.state if gpu.state != "ok" else "memory not known")
    pieces = (
        BarPiece("processes", "used", min(gpu.attributed, memory.used)),
        BarPiece("unattributed", "other", max(0, gpu.unattributed or 0)),
        BarPiece("driver and firmware", "driver", memory.reserved or 0),
        BarPiece("free", "free", memory.free or 0),
    )
    return BarDrawing(f"GPU {gpu.index}", pieces, f"{format_gib(memory.used)}/{format_gib(memory.total)} GiB")


def _gpu_row(gpu: Gpu) -> tuple[str, ...]:
    memory = gpu.memory
    in_processes = gpu.attributed if memory.used is not None else None
    sizes = (in_processes, gpu.unattributed, memory.reserved, memory.free, memory.total)
    state = gpu.state if gpu.state == "ok" else f"{gpu.state}: {gpu.reason}"
    return (str(gpu.index), text(gpu.name), *(size(one, GIB) for one in sizes), text(state))


def _processes(snapshot: Snapshot) -> str:
    if not snapshot.holdings:
        return tag("p", "None on these GPUs.")
    headings = ("GPU", "PID", "User", "Now (GiB)", "Peak (GiB)", "Predicted (GiB)", "Δ", "Preset", "Command")
    return table(headings, map(_process_row, snapshot.holdings), numbers=(1, 3, 4, 5, 6))


def _process_row(holding: Holding) -> tuple[str, ...]:
    process, comparison = holding.process, holding.comparison
    return (
        str(holding.gpu_index),
        str(process.pid),
        text(process.user),
        "N/A" if process.used_memory is None else size(process.used_memory, GIB),
        size(holding.peak.bytes if holding.peak else None, GIB),
        size(comparison.predicted if comparison else None, GIB),
        format_percent(comparison.fraction if comparison else None),
        text(holding.preset),
        tag("code", text(process.command_or_name)),
    )


def _predicted(holding: Holding, vendor: str) -> Iterator[str]:
    comparison, estimate = holding.comparison, holding.estimate
    if comparison is None or estimate is None:
        return
    yield tag("h2", f"Pid {holding.process.pid} against {text(holding.preset)}")
    mood = {"over": "over", "as predicted": "good"}.get(comparison.verdict)
    yield tag("p", f"{text(comparison.sentence)}. By {text(comparison.method)}.", class_=mood)
    yield sides(estimate.ledger, comparison.rows, comparison.peak, vendor)
    yield legend(categories(estimate.ledger, vendor))
    yield two_sides(comparison.rows, vendor)
    if holding.times and holding.times[-1] > holding.times[0]:
        yield tag("h3", "Memory over time")
        yield over_time(holding.times, holding.values, estimate.process)
    if estimate.timeline:
        yield tag("h3", "Phase by phase, as predicted")
        yield timeline(estimate)
    yield from bullet_list(
        "How it is counted", (f"{part.name}: {part.formula} ({part.source})" for part in estimate.parts), 3
    )
    yield from bullet_list("Assumed", estimate.assumptions, 3)
