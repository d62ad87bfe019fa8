"""The data of the memory graph: the chosen process's memory over time, its parts, and its prediction."""

from bisect import bisect_right
from collections.abc import Sequence

from vramtui.app.state.view import Layers, Panel, ProcessRow, Series
from vramtui.core.base.text import printable_line
from vramtui.core.base.units import GIB, MIB, QUICK, format_duration
from vramtui.core.estimate.estimate import Estimate, Line
from vramtui.core.observation.history import Curve, Track
from vramtui.core.observation.probe_messages import FIRST_STEPS
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.monitor.jobs import PARTS, find_job
from vramtui.monitor.session import MonitorSession

HEADROOM = 1.08
_CEILINGS = tuple(size * MIB for size in (64, 128, 256, 512, 768)) + tuple(
    size * GIB for size in (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192, 256, 384, 512)
)
# The parts that a process holds from its first step to its end.
LASTING: tuple[Line, ...] = ("weights", "optimizer", "master_weights", "kv_cache")


def series(
    session: MonitorSession, sample: Sample, chosen: ProcessRow | None, shown: Panel | None, span: int
) -> Series | None:
    """Return the chosen process's memory over the last `span` seconds (0: since it was first seen), with its predicted
    peak and that of the changes in the panel `shown`.
    """
    track = session.history.tracks.get(chosen.id) if chosen is not None and isinstance(chosen.id, ProcessKey) else None
    if chosen is None or track is None:
        return None
    age, what_if, estimate = chosen.age or 0.0, None, None
    end = sample.taken_at - age if track.gone_at is None else min(sample.taken_at, track.gone_at)
    start = end - span if span else track.first_seen
    seen = _between(track.times, start, end)
    if shown is not None and chosen.preset == shown.preset.key:
        estimate = shown.matched or shown.traced or shown.estimate
        if shown.matched is not None and shown.estimate is not None:
            what_if = shown.estimate.process
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
        mark=QUICK if shown is not None and shown.is_rough else "",
        ends=(f"{format_duration(end - start + age)} ago", f"{format_duration(age)} ago") if age else None,
        layers=_layers(session.job_memory.of(track.process, chosen.gpu), estimate, track, start, end),
        expected=_expected(session, track, chosen, estimate),
        busy=None if busy is None else _within(busy, start, end),
    )


def ceiling(highest: int, total: int | None) -> int:
    """Return the top of the graph's scale in bytes: a round size above `highest`, or the card's total if that is near;
    never more than twice the card.

    It depends only on the peak and the prediction, so the scale does not move while the memory goes up and down.
    """
    wanted = highest * HEADROOM
    least = next((int(size) for size in _CEILINGS if size >= wanted), int(wanted))
    if total is None:
        return least
    return total if highest <= total < least else min(least, 2 * total)


def _between(times: Sequence[float], start: float, end: float) -> slice:
    """Return the changes from `start` to `end`, and the one before them, which still held at `start`."""
    return slice(max(0, bisect_right(times, start) - 1), bisect_right(times, end))


def _within(curve: Curve, start: float, end: float) -> tuple[Sequence[float], tuple[Sequence[int], ...]]:
    there = _between(curve.times, start, end)
    return curve.times[there], tuple(values[there] for values in curve.values)


def _layers(curve: Curve | None, estimate: Estimate | None, track: Track, start: float, end: float) -> Layers | None:
    """Return the parts that the job reported while it was this process (pids are used again), or else the lasting parts
    of an estimate.
    """
    if curve is not None:
        times, values = _within(curve, max(start, track.first_seen), end)
        if len(times):
            return Layers(PARTS, times, values, "context", "as the job reports")
    if estimate is None:
        return None
    lasting = [(line, size) for line in LASTING if (size := estimate.ledger.bytes_of(line) or 0)]
    if not lasting:
        return None
    names, sizes = tuple(line for line, _ in lasting), tuple((size,) for _, size in lasting)
    by = "dry run" if estimate.method == "traced" else "estimated"
    return Layers(names, (track.first_seen,), sizes, "used", f"as {by}")


def _expected(
    session: MonitorSession, track: Track, chosen: ProcessRow, estimate: Estimate | None
) -> tuple[tuple[float, int], ...]:
    """Return the predicted bytes with the time from which they hold, for each phase of the first steps that the job
    reported; what the allocator reserved does not go back to the driver.
    """
    owner = find_job(session.jobs, track.process.pid, chosen.gpu.uuid)
    if owner is None or estimate is None or not estimate.timeline or not estimate.allocated:
        return ()
    (job, device), reserved = owner, estimate.reserved or estimate.allocated
    outside = estimate.process - reserved
    by_phase: dict[tuple[int, str], int] = {}
    for moment in estimate.timeline:
        peak = moment.peak_reserved
        if peak is None:
            peak = moment.peak_allocated * reserved // estimate.allocated
        key = moment.step, moment.phase
        by_phase[key] = max(by_phase.get(key, 0), peak + outside)
    began, most, steps = track.first_seen, 0, []
    for end in job.moments:
        if end.device != device or end.step >= FIRST_STEPS:
            continue
        most = max(most, by_phase.get((end.step, end.phase), 0))
        steps.append((began, most))
        began = end.at
    return (*steps, (began, estimate.process)) if steps else ()
