"""Decides which watched jobs the history of runs keeps, when, and what is known of each."""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.observation.history import History, Track
from vramtui.core.observation.probe_messages import Hello, ObservedJob
from vramtui.core.observation.readings import Gpu, Host, ProcessKey, Sample
from vramtui.core.observation.snapshot import EstimateFor, device_of
from vramtui.core.runs.run import Ending, Run, run_key
from vramtui.core.schema.preset import PresetFile

EVERY = 60.0  # seconds between two entries of a running job
REFINED_EVERY = 5.0  # seconds between checks for a nearer estimate, which is stored at once
MOST_POINTS = 600
# The report of the job with a pid on a GPU with a uuid, and its own number for the GPU; None without a report.
ReportOf = Callable[[int, str], "tuple[ObservedJob, int] | None"]
IsQuick = Callable[[PresetFile, Device], bool]


class _Entry(msgspec.Struct):
    """A job to keep: when it was stored last, with a prediction by `method`, and when the method was checked last."""

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
        report_of: finds what a job itself reports.
        is_quick: a nearer estimate will replace that one. Until then a running job is kept without a prediction, as the
            history cannot mark a figure as quick.
    """

    def __init__(self, predict: EstimateFor, report_of: ReportOf, is_quick: IsQuick = lambda _, __: False) -> None:
        self._predict = predict
        self._report_of = report_of
        self._is_quick = is_quick
        self._entries: dict[ProcessKey, _Entry] = {}

    def update(self, sample: Sample, history: History, matched: Mapping[ProcessKey, PresetFile]) -> list[Run]:
        """Runs to keep after `sample`, which `history` has taken: each job when it is first seen, once a minute while
        it goes on, when it gets another preset or a nearer estimate, and when it is gone.

        `matched` has the preset of each process in `sample` that has one.
        """
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
        due: list[Run] = []
        methods: dict[tuple[int, str], str] = {}  # many jobs have one preset
        for key, entry in list(self._entries.items()):
            track = history.tracks.get(key)
            # A running process without a preset any more was given up, or its preset was removed.
            if track is None or (key not in matched and track.gone_at is None and track.last_seen >= sample.taken_at):
                del self._entries[key]
                continue
            if track.gone_at is not None:
                due.append(self._run(track, entry, self._predict(entry.preset, device_of(entry.gpu))))
                del self._entries[key]
                continue
            is_due = not 0 <= sample.taken_at - entry.stored_at < EVERY
            if not is_due and not 0 <= sample.taken_at - entry.asked_at < REFINED_EVERY:
                # The first answer may be a quick one, which another method replaces.
                entry.asked_at = sample.taken_at
                at = (id(entry.preset), entry.gpu.uuid)
                if at not in methods:
                    estimate = self._settled(entry)
                    methods[at] = "" if estimate is None else estimate.method
                is_due = methods[at] not in ("", entry.method)
            if is_due:
                due.append(self._run(track, entry, self._settled(entry)))
                entry.stored_at = entry.asked_at = sample.taken_at
                entry.method = due[-1].method
        return due

    def _settled(self, entry: _Entry) -> Estimate | None:
        """The estimate for a running job; None while it is a quick one."""
        device = device_of(entry.gpu)
        return None if self._is_quick(entry.preset, device) else self._predict(entry.preset, device)

    def last_runs(self, history: History) -> list[Run]:
        """The state of every running job when the watching ends."""
        tracks = ((history.tracks.get(key), entry) for key, entry in self._entries.items())
        return [
            self._run(track, entry, self._predict(entry.preset, device_of(entry.gpu)))
            for track, entry in tracks
            if track is not None
        ]

    def _run(self, track: Track, entry: _Entry, estimate: Estimate | None) -> Run:
        key, preset, host = track.key, entry.preset, entry.host
        started_at = track.first_seen if key.started_at is None else key.started_at
        job, device = self._report_of(key.pid, key.gpu_uuid) or (None, 0)
        hello, end = (None, None) if job is None else (job.hello, job.end)
        workload = msgspec.to_builtins(preset.preset.workload)
        times, values = thinned(track.times, track.values)
        ending: Ending = "running" if track.gone_at is None else "exited"
        if track.gone_at is not None and end is not None and (end.out_of_memory or end.error):
            ending = "out_of_memory" if end.out_of_memory else "failed"
        peak = None if track.peak is None else track.peak.bytes
        how = "sampled" if track.peak is None else track.peak.how
        if job is not None and job.ledger(device).reserved is not None:
            how = "probe"
        return Run(
            key=run_key(key.host, key.gpu_uuid, key.pid, started_at),
            source="watched",
            host=key.host,
            gpu_uuid=key.gpu_uuid,
            gpu_name=entry.gpu.name,
            pid=key.pid,
            command=track.process.command_or_name or "",
            started_at=started_at,
            # The clock may have been set back since it started.
            ended_at=None if track.gone_at is None else max(started_at, track.gone_at),
            seen_until=max(started_at, track.last_seen),
            ending=ending,
            preset=preset.key,
            model_kind=str(workload["model"].get("kind", "")),
            run_kind=str(workload["run"].get("kind", "")),
            workload=workload,
            method="" if estimate is None else estimate.method,
            peak_phase="" if estimate is None else estimate.peak_phase,
            predicted=Ledger() if estimate is None else estimate.ledger,
            peak_how=how,
            observed=Ledger(process=peak) if job is None else job.ledger_beside(device, peak),
            times=tuple(max(0.0, at - started_at) for at in times),
            values=tuple(values),
            versions=versions_of(host, hello),
        )


def versions_of(host: Host | None, hello: Hello | None) -> dict[str, str]:
    """The known versions behind a run: of its host's driver, and those that the job reported."""
    known = {} if host is None else {"driver": host.driver_version, "cuda": host.cuda_version}
    known |= {} if hello is None else {"torch": hello.torch, "python": hello.python}
    return {name: version for name, version in known.items() if version}


def thinned(times: Sequence[float], values: Sequence[int], most: int = MOST_POINTS) -> tuple[list[float], list[int]]:
    """At most `most` points of a series: of two neighbours the larger value stays, so that no peak is lost."""
    points = list(zip(times, values, strict=True))
    while len(points) > most:
        pairs = (points[i : i + 2] for i in range(0, len(points), 2))
        points = [max(pair, key=lambda point: point[1]) for pair in pairs]
    return [at for at, _ in points], [value for _, value in points]
