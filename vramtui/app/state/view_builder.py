"""The parts of a View, each made from what is known by a function of nothing else."""

from collections.abc import Iterable, Mapping

from vramtui.app.state.view import GpuBar, Panel, ProcessRow
from vramtui.core.estimate.comparison import compare
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.readings import Gpu, Sample
from vramtui.core.observation.snapshot import device_of, observed_ledger
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor.job_reports import Jobs, find_job, observed_beside
from vramtui.monitor.predictor import MaxBatchSearch, Predictor
from vramtui.monitor.session import MonitorSession


def bars(
    sample: Sample,
    rows: Iterable[ProcessRow],
    chosen: Gpu | None,
    panel: Panel | None,
    answered: Mapping[str, tuple[float, Gpu]],
) -> tuple[GpuBar, ...]:
    """A bar for every GPU and MIG instance.

    Args:
        sample: what is shown.
        rows: all rows with their predictions.
        chosen: the GPU of the chosen row.
        panel: the estimate panel; a preset that nobody runs yet is marked on the GPU it is estimated for.
        answered: by uuid, when each GPU answered last and what it said.
    """
    growth: dict[str, int] = {}
    running: set[tuple[str | None, str]] = set()
    for row in rows:
        if row.predicted is not None and row.kind == "process":
            growth[row.gpu.uuid] = growth.get(row.gpu.uuid, 0) + max(0, row.predicted - (row.now or 0))
            running.add((row.preset, row.gpu.uuid))
    if panel is not None and panel.estimate is not None and panel.process is None and panel.gpu is not None:
        uuid = panel.gpu.uuid
        if (panel.preset.key, uuid) not in running:
            growth[uuid] = growth.get(uuid, 0) + panel.estimate.process
    return tuple(_bar(sample, gpu, growth, chosen, answered) for gpu in sample.gpus)


def _bar(
    sample: Sample, gpu: Gpu, growth: Mapping[str, int], chosen: Gpu | None, answered: Mapping[str, tuple[float, Gpu]]
) -> GpuBar:
    used = gpu.memory.used
    predicted = used + growth[gpu.uuid] if used is not None and gpu.uuid in growth else None
    is_chosen = chosen is not None and chosen.uuid == gpu.uuid
    if gpu.state == "ok" or gpu.uuid not in answered:
        return GpuBar(gpu, predicted, is_chosen)
    at, last = answered[gpu.uuid]
    return GpuBar(gpu, None, is_chosen, last, sample.taken_at - at)


def row_for_panel(preset: str, chosen: ProcessRow | None, every: Iterable[ProcessRow]) -> ProcessRow | None:
    """The row that a preset is set beside: the chosen one, or another on the same GPU that does run the preset."""
    if chosen is None or chosen.preset == preset:
        return chosen
    same = (row for row in every if row.preset == preset and row.gpu.uuid == chosen.gpu.uuid and row.kind == "process")
    return next(same, chosen)


def panel(
    preset_file: PresetFile,
    workload: Workload,
    *,
    row: ProcessRow | None,
    sample: Sample | None,
    session: MonitorSession,
    changed: frozenset[str],
) -> Panel:
    """The estimate panel for a preset, on the GPU of `row` and beside its process where that runs the preset.

    Args:
        preset_file: the preset, with what is known of the process.
        workload: that of the preset, or what is tried out in its place.
        row: what it is set beside.
        sample: what is shown.
        session: makes the estimates, tells them from guesses, and knows what the jobs' probes report.
        changed: names of the fields in which `workload` differs.
    """
    gpu = row.gpu if row is not None else _first_gpu(sample)
    device = device_for(row, sample)
    runs = row is not None and row.preset == preset_file.key
    process = row.process if row is not None and runs else None
    predictor = session.predictor
    guess = None if process is None else session.guesses.range_of(preset_file, device)
    if guess is not None and not changed:
        return Panel(preset_file, workload, gpu, device, process=process, guess=guess, peak=row.peak if row else None)
    answer = predictor.ask(workload, device)
    estimate = _estimate(predictor, workload, device)
    batch, search, is_quick = _largest_batch(predictor, workload, device)
    traced = predictor.traced(workload, device)
    now = row.now if row is not None and runs else None
    comparison = None
    matched = _estimate(predictor, preset_file.preset.workload, device) if changed and guess is None else None
    if estimate is not None:
        observed = row_ledger(session.jobs, row) if row is not None and runs else Ledger()
        comparison = compare(preset_file.key, matched or estimate, observed, now)
    return Panel(
        preset=preset_file,
        workload=workload,
        gpu=gpu,
        device=device,
        estimate=estimate,
        comparison=comparison,
        process=process,
        changed=changed,
        room=_room(gpu, now),
        batch=batch,
        search=search,
        is_quick=is_quick,
        problem=answer.problem,
        traced=traced,
        rules=predictor.rules(workload, device),
        matched=matched,
        guess=guess,
        is_rough=estimate is not None and predictor.is_quick(workload, device),
    )


def _largest_batch(
    predictor: Predictor, workload: Workload, device: Device
) -> tuple[int | None, MaxBatchSearch | None, bool]:
    """The largest batch, the search that goes on for it, and whether a nearer estimate may still move it."""
    search = predictor.largest_batch(workload, device)
    if search is None or search.largest is None:
        return None, search, False
    batch, is_quick = predictor.nearer_batch(workload, device, search.largest)
    return batch, None, is_quick


def _estimate(predictor: Predictor, workload: Workload, device: Device) -> Estimate | None:
    """What is answered at once, or what a trace said."""
    return predictor.ask(workload, device).estimate or predictor.traced(workload, device)


def row_ledger(jobs: Jobs, row: ProcessRow) -> Ledger:
    """The observed side of a row's process: its peak as the driver shows it, and what the job itself reports."""
    return observed_ledger(row.peak) if row.process is None else observed_beside(jobs, row.gpu, row.process, row.peak)


def reported_alone(jobs: Jobs, row: ProcessRow | None) -> Ledger | None:
    """What a row's job reports of itself where no preset is set beside it; None where it reports nothing."""
    if row is None or row.process is None or row.kind != "process" or row.preset is not None:
        return None
    return None if find_job(jobs, row.process.pid, row.gpu.uuid) is None else row_ledger(jobs, row)


def device_for(chosen: ProcessRow | None, sample: Sample | None) -> Device:
    """The chosen row's card, or the first that answers, or a usual one where there is none."""
    gpu = chosen.gpu if chosen is not None else _first_gpu(sample)
    return device_of(gpu) if gpu is not None else CARDS[DEFAULT_CARD]


def _first_gpu(sample: Sample | None) -> Gpu | None:
    gpus = sample.gpus if sample is not None else ()
    return next((gpu for gpu in gpus if gpu.state == "ok"), gpus[0] if gpus else None)


def _room(gpu: Gpu | None, own: int | None) -> int | None:
    """Bytes that `gpu` has for a process that holds `own` of them now."""
    if gpu is None or gpu.memory.total is None or gpu.memory.used is None:
        return None
    return gpu.memory.total - (gpu.memory.reserved or 0) - gpu.memory.used + (own or 0)
