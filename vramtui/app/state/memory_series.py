"""What the memory graph draws of the chosen process: memory over time, what it is made of, what was predicted."""

from bisect import bisect_right
from collections.abc import Sequence

from vramtui.app.state.view import Layers, Panel, ProcessRow, Series
from vramtui.core.base.curves import Curve
from vramtui.core.base.text import printable_line
from vramtui.core.base.units import GIB, MIB, QUICK, format_duration
from vramtui.core.estimate.estimate import Estimate, Moment
from vramtui.core.estimate.ledger import Line
from vramtui.core.observation.probe_messages import FIRST_STEPS
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.track import Track
from vramtui.monitor.job_reports import PARTS, find_job
from vramtui.monitor.session import MonitorSession

HEADROOM = 1.08
_CEILINGS = tuple(size * MIB for size in (64, 128, 256, 512, 768)) + tuple(
    size * GIB for size in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
)
# What a process holds from its first step to its end; the rest comes and goes.
LASTING: tuple[Line, ...] = ("weights", "optimizer", "master_weights", "kv_cache")


def series(
    session: MonitorSession, sample: Sample, chosen: ProcessRow | None, shown: Panel | None, span: int
) -> Series | None:
    """The chosen process's memory over the last `span` seconds (0: since it was first seen), under its predicted peak
    and the one of what is tried out in the panel that is `shown`.
    """
    track = session.history.tracks.get(chosen.id) if chosen is not None and isinstance(chosen.id, ProcessKey) else None
    if chosen is None or track is None:
        return None
    age = chosen.age or 0.0
    end = sample.taken_at - age if track.gone_at is None else min(sample.taken_at, track.gone_at)
    start = end - span if span else track.first_seen
    seen = _between(track.times, start, end)
    what_if = what_if_of(shown, chosen)
    estimate = _matched(shown, chosen)
    busy = session.history.gauge(chosen.gpu.uuid, "utilization")
    who = "pod" if track.process.pid < 0 else f"pid {track.process.pid}"
    return Series(
        title=f"{who} · {printable_line(track.process.command_or_name or '')}",
        times=track.times[seen],
        values=track.values[seen],
        start=start,
        end=max(end, start + 1),
        ceiling=ceiling(max(chosen.peak or 0, chosen.predicted or 0, what_if or 0), chosen.gpu.memory.total),
        predicted=chosen.predicted,
        what_if=what_if,
        marks=(chosen.mark, QUICK if shown is not None and shown.is_rough else ""),
        ends=(f"{format_duration(end - start + age)} ago", f"{format_duration(age)} ago") if age else None,
        layers=_job_layers(session.job_memory.of(track.process, chosen.gpu), track, start, end)
        or _split(estimate, track),
        expected=_expected(session, track, chosen, estimate),
        busy=None if busy is None else _within(busy, start, end),
    )


def ceiling(highest: int, total: int | None) -> int:
    """The top of the graph's scale in bytes: a round size above `highest`, or the card's total where that is near.

    It depends on the peak and the prediction only, so the scale stands still while the memory goes up and down.
    """
    wanted = highest * HEADROOM
    least = next((int(size) for size in _CEILINGS if size >= wanted), int(wanted))
    if total is not None and highest <= total < least:
        return total
    return least


def what_if_of(shown: Panel | None, chosen: ProcessRow | None) -> int | None:
    """The process's peak with the changes made in the panel, where the chosen row is the process that it is set beside;
    None where nothing is changed.
    """
    if shown is None or shown.matched is None or shown.estimate is None or chosen is None:
        return None
    return shown.estimate.process if chosen.preset == shown.preset.key else None


def _matched(shown: Panel | None, chosen: ProcessRow) -> Estimate | None:
    """The estimate of what the chosen process runs, a trace's where there is one; None where it runs something else."""
    if shown is None or chosen.preset != shown.preset.key:
        return None
    return shown.matched or shown.traced or shown.estimate


def _between(times: Sequence[float], start: float, end: float) -> slice:
    """The changes from `start` to `end`, and the one before them, which still held at `start`."""
    return slice(max(0, bisect_right(times, start) - 1), bisect_right(times, end))


def _within(curve: Curve, start: float, end: float) -> tuple[Sequence[float], tuple[Sequence[int], ...]]:
    there = _between(curve.times, start, end)
    return curve.times[there], tuple(values[there] for values in curve.values)


def _job_layers(curve: Curve | None, track: Track, start: float, end: float) -> Layers | None:
    """What the job itself told of its parts while it was this process: pids come again."""
    if curve is None:
        return None
    times, values = _within(curve, max(start, track.first_seen), end)
    return Layers(PARTS, times, values, "context", "as the job reports") if len(times) else None


def _split(estimate: Estimate | None, track: Track) -> Layers | None:
    """What lasts as an estimate has it, under whatever else was seen."""
    if estimate is None:
        return None
    sizes = [(line, estimate.ledger.bytes_of(line) or 0) for line in LASTING]
    lasting = [(line, size) for line, size in sizes if size]
    if not lasting:
        return None
    by = "traced" if estimate.method == "traced" else "estimated"
    return Layers(
        tuple(line for line, _ in lasting),
        (track.first_seen,),
        tuple((size,) for _, size in lasting),
        "used",
        f"as {by}",
    )


def _expected(
    session: MonitorSession, track: Track, chosen: ProcessRow, estimate: Estimate | None
) -> tuple[tuple[float, int], ...]:
    """The predicted bytes with the time from which they hold, for each phase of the first steps that the job went
    through; empty where it reported no phases.
    """
    observed_job = find_job(session.jobs, track.process.pid, chosen.gpu.uuid)
    if observed_job is None or estimate is None or not estimate.timeline or not estimate.allocated:
        return ()
    job, device = observed_job
    by_phase = _held_by(estimate)
    began, most, steps = track.first_seen, 0, []
    for end in job.moments:
        if end.device != device or end.step >= FIRST_STEPS:
            continue
        most = max(most, by_phase.get((end.step, end.phase), 0))
        steps.append((began, most))
        began = end.at
    return (*steps, (began, estimate.process)) if steps else ()


def _held_by(estimate: Estimate) -> dict[tuple[int, str], int]:
    """What the process holds in each phase of each step: what the allocator reserved does not go back to the driver."""

    def bytes_at(moment: Moment) -> int:
        if moment.peak_reserved is not None:
            return moment.peak_reserved + outside
        return moment.peak_allocated * (estimate.reserved or estimate.allocated) // estimate.allocated + outside

    outside = estimate.process - (estimate.reserved or estimate.allocated)
    bytes_by_process: dict[tuple[int, str], int] = {}
    for moment in estimate.timeline:
        key = moment.step, moment.phase
        bytes_by_process[key] = max(bytes_by_process.get(key, 0), bytes_at(moment))
    return bytes_by_process
