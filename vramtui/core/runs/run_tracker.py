"""What the history of runs is told of the jobs that somebody watches: which, when, and what is known of each."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import Ledger
from vramtui.core.observation.history import History
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import Gpu, Host, ProcessKey, Sample
from vramtui.core.observation.snapshot import EstimateFor, device_of
from vramtui.core.observation.track import Track
from vramtui.core.runs.run import Ending, Run, run_key
from vramtui.core.schema.preset import PresetFile

EVERY = 60.0  # seconds between two words on a job that goes on
REFINED_EVERY = 5.0  # seconds between two looks whether a nearer estimate has come, which is said at once
MOST_POINTS = 600
# The job that runs as a pid on a GPU with that uuid, and its own number for the GPU; None where none tells anything.
ReportOf = Callable[[int, str], "tuple[ObservedJob, int] | None"]
IsQuick = Callable[[PresetFile, Device], bool]


class _Entry(msgspec.Struct):
    """A job that is being kept. `stored_at` is when the latest word on it went out, `method` by what it was predicted
    then, and `asked_at` when that was looked at last.
    """

    gpu: Gpu
    host: Host
    preset: PresetFile
    stored_at: float
    asked_at: float = 0.0
    method: str = ""


class RunTracker:
    """Follows the processes that run a preset and says when there is something to keep of them.

    Args:
        predict: the estimate for a preset's own values on a card.
        report_of: finds what a job itself tells.
        is_quick: whether a nearer estimate will replace that one. A job that goes on is kept without a prediction until
            then: the history has no mark for a figure that is none yet.
    """

    def __init__(self, predict: EstimateFor, report_of: ReportOf, is_quick: IsQuick = lambda _, __: False) -> None:
        self._predict = predict
        self._report_of = report_of
        self._is_quick = is_quick
        self._entries: dict[ProcessKey, _Entry] = {}

    def update(self, sample: Sample, history: History, matched: Mapping[ProcessKey, PresetFile]) -> list[Run]:
        """What to keep after `sample`, which `history` has taken: each job when it is first seen, once a minute while
        it goes on, when it gets another preset or a nearer estimate, and when it is gone.

        `matched` has the preset of each process in `sample` that has one.
        """
        self._arrive(sample, history, matched)
        due: list[Run] = []
        asked: dict[tuple[int, str], str] = {}  # many jobs have one preset
        for key, entry in list(self._entries.items()):
            track = history.tracks.get(key)
            if track is None or _is_let_go(track, key, sample, matched):
                del self._entries[key]
            elif track.gone_at is not None:
                due.append(self._run(track, entry, self._predict(entry.preset, device_of(entry.gpu))))
                del self._entries[key]
            elif not 0 <= sample.taken_at - entry.stored_at < EVERY or self._is_refined(entry, sample.taken_at, asked):
                due.append(self._run(track, entry, self._settled(entry)))
                entry.stored_at = entry.asked_at = sample.taken_at
                entry.method = due[-1].method
        return due

    def _is_refined(self, entry: _Entry, now: float, asked: dict[tuple[int, str], str]) -> bool:
        """Whether another method answers for the job than when it was said last: a first answer may be a quick one."""
        if 0 <= now - entry.asked_at < REFINED_EVERY:
            return False
        entry.asked_at = now
        at = (id(entry.preset), entry.gpu.uuid)
        if at not in asked:
            estimate = self._settled(entry)
            asked[at] = "" if estimate is None else estimate.method
        return bool(asked[at]) and asked[at] != entry.method

    def _settled(self, entry: _Entry) -> Estimate | None:
        """The estimate for a job that goes on; None while it is a quick one."""
        device = device_of(entry.gpu)
        return None if self._is_quick(entry.preset, device) else self._predict(entry.preset, device)

    def last_runs(self, history: History) -> list[Run]:
        """The last word on every job that goes on while the watching ends."""
        tracks = ((history.tracks.get(key), entry) for key, entry in self._entries.items())
        return [
            self._run(track, entry, self._predict(entry.preset, device_of(entry.gpu)))
            for track, entry in tracks
            if track is not None
        ]

    def _arrive(self, sample: Sample, history: History, matched: Mapping[ProcessKey, PresetFile]) -> None:
        gpus = {gpu.uuid: gpu for gpu in sample.gpus}
        for key, preset in matched.items():
            gpu, entry = gpus.get(key.gpu_uuid), self._entries.get(key)
            if gpu is None or key not in history.tracks:
                continue
            if entry is None:
                self._entries[key] = _Entry(gpu, sample.host, preset, float("-inf"))
                continue
            entry.gpu = gpu
            if entry.preset != preset:
                entry.preset, entry.stored_at = preset, float("-inf")

    def _run(self, track: Track, entry: _Entry, estimate: Estimate | None) -> Run:
        key, process, preset = track.key, track.process, entry.preset
        started_at = track.first_seen if key.started_at is None else key.started_at
        report = self._report_of(key.pid, key.gpu_uuid)
        workload = msgspec.to_builtins(preset.preset.workload)
        times, values = thinned(track.times, track.values)
        return Run(
            key=run_key(key.host, key.gpu_uuid, key.pid, started_at),
            source="watched",
            host=key.host,
            gpu_uuid=key.gpu_uuid,
            gpu_name=entry.gpu.name,
            pid=key.pid,
            command=process.command_or_name or "",
            started_at=started_at,
            # The clock may have been set back since it started.
            ended_at=None if track.gone_at is None else max(started_at, track.gone_at),
            seen_until=max(started_at, track.last_seen),
            ending=_ending(track, report),
            preset=preset.key,
            model_kind=str(workload["model"].get("kind", "")),
            run_kind=str(workload["run"].get("kind", "")),
            workload=workload,
            method="" if estimate is None else estimate.method,
            peak_phase="" if estimate is None else estimate.peak_phase,
            predicted=Ledger() if estimate is None else estimate.ledger,
            peak_how=_how(track, report),
            observed=_observed(track, report),
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions=_versions(entry.host, report),
        )


def thinned(times: Sequence[float], values: Sequence[int], most: int = MOST_POINTS) -> tuple[list[float], list[int]]:
    """At most `most` points of a series: of two neighbours the larger value stays, so that no peak is lost."""
    points = list(zip(times, values, strict=True))
    while len(points) > most:
        pairs = (points[i : i + 2] for i in range(0, len(points), 2))
        points = [max(pair, key=lambda point: point[1]) for pair in pairs]
    return [at for at, _ in points], [value for _, value in points]


def _is_let_go(track: Track, key: ProcessKey, sample: Sample, matched: Mapping[ProcessKey, PresetFile]) -> bool:
    """Whether a process that is there runs no preset any more: somebody has said so, or its preset has gone."""
    return key not in matched and track.gone_at is None and track.last_seen >= sample.taken_at


def _observed(track: Track, report: tuple[ObservedJob, int] | None) -> Ledger:
    """The process as the driver shows it, and what the job itself tells."""
    peak = track.peak.bytes if track.peak is not None else None
    if report is None:
        return Ledger(process=peak)
    return report[0].ledger_beside(report[1], peak)


def _how(track: Track, report: tuple[ObservedJob, int] | None) -> str:
    if report is not None and report[0].ledger(report[1]).reserved is not None:
        return "probe"
    return track.peak.how if track.peak is not None else "sampled"


def _ending(track: Track, report: tuple[ObservedJob, int] | None) -> Ending:
    if track.gone_at is None:
        return "running"
    end = None if report is None else report[0].end
    if end is not None and end.out_of_memory:
        return "out_of_memory"
    return "failed" if end is not None and end.error else "exited"


def _versions(host: Host, report: tuple[ObservedJob, int] | None) -> dict[str, str]:
    hello = None if report is None else report[0].hello
    known = {
        "driver": host.driver_version,
        "cuda": host.cuda_version,
        "torch": hello.torch if hello is not None else None,
        "python": hello.python if hello is not None else None,
    }
    return {name: value for name, value in known.items() if value}
