"""What is known of a watched host: each sample goes through here, whoever reads it and whatever shows it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Prediction, prediction_of
from vramtui.core.observation.alerts import Alert, Alerts
from vramtui.core.observation.history import History
from vramtui.core.observation.matcher import MatchBasis
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import RecordedTick, Snapshot, device_of, estimates_of, take_snapshot
from vramtui.core.observation.track import Peak
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.settings import AlertRules
from vramtui.core.schema.workload import Workload
from vramtui.monitor.derived_presets import DerivedPresets
from vramtui.monitor.fast_sampler import FastSampler, FastTargets, heaviest
from vramtui.monitor.guesses import Guesses
from vramtui.monitor.job_memory import EarlierSamples, JobMemory, oom_alerts
from vramtui.monitor.job_presets import JobPresets, matcher_of
from vramtui.monitor.predictor import LazyDefault, Predictor
from vramtui.monitor.probes import Jobs, find_job, no_jobs, observed_beside, on_known_cards

if TYPE_CHECKING:
    from vramtui.core.runs.run_tracker import RunTracker
    from vramtui.monitor.run_writer import RunWriter


RecordedPeaks = Callable[[float], Iterable[tuple[ProcessKey, Peak]]]


class Presets(Protocol):
    """A library of presets."""

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that is no preset."""
        ...

    def all(self) -> tuple[PresetFile, ...]: ...


class ProcessMatcher(Protocol):
    """Says which preset each process of a sample runs."""

    def match(self, sample: Sample, by_hand: Mapping[ProcessKey, str | None]) -> Mapping[ProcessKey, PresetFile]:
        """The preset of every process that has one; `by_hand` are choices that go before its own."""
        ...


class JobMatcher:
    """Every process that reports runs the one preset; `vramtui run` knows that of its job.

    Args:
        jobs: what reports.
        preset: what it runs; None where that is not known.
    """

    __slots__ = ("_jobs", "_preset")

    def __init__(self, jobs: Jobs, preset: PresetFile | None) -> None:
        self._jobs = jobs
        self._preset = preset

    def match(self, sample: Sample, by_hand: Mapping[ProcessKey, str | None]) -> Mapping[ProcessKey, PresetFile]:
        """The preset for each process with the pid of a job."""
        del by_hand
        if self._preset is None:
            return {}
        pids = {job.pid for job in self._jobs()}
        return dict.fromkeys(_keys_with(pids, sample), self._preset)


class MonitorSession:
    """Takes samples one after another and knows what follows from them. One thread at a time may use it.

    Args:
        predictor: makes estimates and keeps them; by default what `vramtui estimate` answers, without a screen to wait.
        jobs: what the jobs' own probes report by now.
        sampler: looks at a few processes between samples, and says at which; None where the source cannot.
        alert_rules: what is worth an alert; None where nothing is.
        run_writer: takes the runs of processes that run a preset; None where they are not kept.
        derived: finds a preset for a process that none matches; None where no process is looked into.

    Attributes:
        guesses: of which jobs there is but a guess.
        sample: the latest.
        history: every process seen. It has taken `sample`.
        job_memory: what jobs told of their memory over time.
        matched: the preset of each process in `sample` that has one.
        presets: those that are known, by key.
        by_hand: the preset that somebody has assigned to a process (None: none).
        recorded: the preset that a process had when a recording was made; `by_hand` goes before it.
        recorded_peaks: the peaks that a recording noted at a time, beside its samples.
        variants: workloads that are tried out, by the preset's key. They stand beside what runs: no process, alert,
            export or run is compared with one.
        is_matching: whether presets, or what matches processes with them, have been given.
        new_alerts: what `sample` is the first to show.
    """

    __slots__ = (
        "_alert_rules", "_alerts", "_basis", "_derived", "_is_quiet", "_is_told", "_job_presets", "_matcher", "_past",
        "_predictions", "_sampler", "_selected", "_tracker", "by_hand", "guesses", "history", "is_matching",
        "job_memory", "jobs", "matched", "new_alerts", "predictor", "presets", "recorded", "recorded_peaks",
        "run_writer", "sample", "variants",
    )  # fmt: skip

    def __init__(
        self,
        *,
        predictor: Predictor | None = None,
        jobs: Jobs = no_jobs,
        sampler: FastSampler | None = None,
        alert_rules: AlertRules | None = None,
        run_writer: "RunWriter | None" = None,
        derived: DerivedPresets | None = None,
    ) -> None:
        self.predictor = predictor or Predictor(LazyDefault())
        self.guesses = Guesses(self.predictor)
        self.jobs: Jobs = lambda: on_known_cards(jobs(), self.sample)
        self.run_writer = run_writer
        self.sample: Sample | None = None
        self.history = History()
        self.job_memory = JobMemory()
        self.matched: Mapping[ProcessKey, PresetFile] = {}
        self.presets: dict[str, PresetFile] = {}
        self.by_hand: dict[ProcessKey, str | None] = {}
        self.recorded: dict[ProcessKey, str | None] = {}
        self.recorded_peaks: RecordedPeaks | None = None
        self.variants: dict[str, Workload] = {}
        self.new_alerts: tuple[Alert, ...] = ()
        self._matcher: ProcessMatcher = matcher_of(())
        self._derived, self._basis = derived, MatchBasis()
        self._past: EarlierSamples | None = None
        self._job_presets = JobPresets(self.predictor.traces)
        self.is_matching = self._is_told = False
        self._sampler = sampler
        self._selected: ProcessKey | None = None
        self._alert_rules = alert_rules
        self._alerts = None if alert_rules is None else Alerts(alert_rules)
        self._is_quiet = False
        self._tracker: RunTracker | None = None
        self._predictions: dict[tuple[str, Workload, Device], tuple[PresetFile, Prediction | None]] = {}

    # --- what comes in -------------------------------------------------------------------------------------------

    def ingest(self, sample: Sample) -> None:
        """Take one sample: what was seen since the one before, then history, matches, alerts and runs."""
        if self._sampler is not None:
            self.history.add_looks(self._sampler.pop_until(sample.taken_at), sample)
        self.history.add(sample)
        self.note_recorded_peaks(self.history, sample.taken_at)
        self.sample = sample
        was_told, self._is_told = self._is_told, self.is_matching and bool(self.jobs())
        may_say_more = was_told or self._is_told or (self._derived is not None and self._derived.has_news)
        if self._basis.has_changed(sample, self.history, self.recorded) or may_say_more:
            self.rematch()
        if self._derived is not None and self._derived.problems:
            self.sample = msgspec.structs.replace(sample, problems=(*sample.problems, *self._derived.problems))
        self.guesses.refute(sample, self.matched, self.history)
        if self.is_matching:  # the demo's jobs cost it the analytic estimator, which the first paint does without
            self.job_memory.take(sample.taken_at, self.jobs())
        self.sample_fast()
        if self._alerts is not None:
            failed = oom_alerts(sample, self.jobs()) if self.is_matching else ()
            alerts = self._alerts.update(sample, self.history, self.stated_estimates(), failed)
            self.new_alerts = () if self._is_quiet else tuple(alerts)
            self._is_quiet = False
        if self.run_writer is not None:
            due = self._runs().update(sample, self.history, self.guesses.without(sample, self.matched))
            if due:
                self.run_writer.keep(due)

    def take_fast_samples(self) -> None:
        """Take what was seen since the latest sample, after which none comes any more."""
        if self._sampler is not None and self.sample is not None:
            self.history.add_looks(self._sampler.pop_until(float("inf")), self.sample)

    def note_recorded_peaks(self, history: History, when: float) -> None:
        """Give the processes of the sample of `when`, which `history` has, the recorded peaks that no sample shows."""
        for key, peak in () if self.recorded_peaks is None else self.recorded_peaks(when):
            track = history.tracks.get(key)
            if track is not None:
                track.note_peak(peak)

    def restart_alerts(self) -> None:
        """Forget which alerts stand. Those that the next sample shows stand from then on, and are not new."""
        if self._alert_rules is not None:
            self._alerts = Alerts(self._alert_rules)
        self.new_alerts = ()
        self._is_quiet = True

    def backfill(self, past: EarlierSamples) -> None:
        """Know what was seen before the first sample: no alert, run or recording is made of it."""
        self._past = past
        for sample in past.samples():
            self.history.add(sample)

    # --- presets -------------------------------------------------------------------------------------------------

    def match_by(self, matcher: ProcessMatcher) -> None:
        """Match processes with this from now on."""
        self._matcher, self.is_matching = matcher, True
        self.rematch()
        self.sample_fast()

    def take_presets(self, presets: Iterable[PresetFile]) -> None:
        """Know these presets from now on, beside one that was chosen by its path."""
        for preset_file in presets:
            self.presets.setdefault(preset_file.key, preset_file)
        for at, jobs in self._past.jobs() if self._past is not None else ():
            self.job_memory.take(at, jobs)
        self._past = None
        self.match_by(matcher_of(self.presets.values()))

    def add_preset(self, preset_file: PresetFile) -> None:
        """Know one more preset; it stands in for another of the same key."""
        self.presets[preset_file.key] = preset_file
        self.match_by(matcher_of(self.presets.values()))

    def assign(self, key: ProcessKey, preset: str | None, *, automatic: bool = False) -> None:
        """Say which preset a process runs (None: none), or leave it to the presets' own `[match]` again."""
        if automatic:
            self.by_hand.pop(key, None)
        else:
            self.by_hand[key] = preset
        self.rematch()

    def rematch(self) -> None:
        """Match the latest sample again: presets or choices have changed."""
        self.matched = {} if self.sample is None else self.match(self.sample)

    def match(self, sample: Sample) -> Mapping[ProcessKey, PresetFile]:
        """The preset of each process in `sample` that has one."""
        presets = self._job_presets.of(sample, self.jobs()) if self.is_matching else {}
        for preset_file in presets.values():
            self.presets.setdefault(preset_file.key, preset_file)
        matched = self._matcher.match(sample, {**self.recorded, **self.by_hand})
        if presets:
            # What somebody gave to `vramtui run` goes before a pattern, and what was said by hand before that.
            matched = {
                **matched,
                **{key: preset_file for key, preset_file in presets.items() if key not in self.by_hand},
            }
        if self._derived is None or not self.is_matching:
            return matched
        return self._derived.with_derived(sample, matched, self.by_hand)

    # --- fast sampling -------------------------------------------------------------------------------------------

    def select(self, key: ProcessKey | None) -> None:
        """Look at this process closely too, whatever it runs."""
        if key != self._selected:
            self._selected = key
            self.sample_fast()

    def sample_fast(self) -> None:
        """Aim the fast sampler at what the latest sample shows; of many targets at those that hold most."""
        if self._sampler is None or self.sample is None:
            return
        tracks = self.history.tracks
        wanted = self._wanted(self.sample, self._sampler.targets)
        aims = heaviest((key, tracks[key].last_used or 0) for key in wanted if key in tracks)
        if self._selected is not None and self._selected not in aims:
            aims.append(self._selected)
        self._sampler.aim(aims)
        if self._sampler.ident is None:  # a thread starts once; after `close` a last sample may still come
            self._sampler.start()

    def _wanted(self, sample: Sample, targets: FastTargets) -> Collection[ProcessKey]:
        if isinstance(targets, frozenset):
            return _keys_with(targets, sample)
        if targets == "none":
            return ()
        if targets == "matched":
            return self.matched.keys()
        return self.matched.keys() | set(_keys_with({job.pid for job in self.jobs()}, sample))

    def pause_sampling(self) -> None:
        """The driver does not answer: ask it nothing more until there is a sample."""
        if self._sampler is not None:
            self._sampler.aim(())

    def close(self) -> None:
        """Look no more; nothing is waited for."""
        if self._sampler is not None:
            self._sampler.stop()

    # --- what is known -------------------------------------------------------------------------------------------

    def workload(self, preset_file: PresetFile) -> Workload:
        """What is tried out in place of the preset's workload, or that itself."""
        return self.variants.get(preset_file.key, preset_file.preset.workload)

    def estimate(self, preset_file: PresetFile, device: Device) -> Estimate | None:
        """The estimate of a preset as it was matched; no variant is in it. None
        where what is assumed of the job could move it far, or what runs has refuted it: a guess is no prediction.
        """
        if preset_file.assumed and self.guesses.range_of(preset_file, device) is not None:
            return None
        return self.predictor.ask(preset_file.preset.workload, device).estimate

    def is_quick(self, preset_file: PresetFile, device: Device) -> bool:
        """Whether a nearer estimate will replace that of a preset as it was matched."""
        return self.predictor.is_quick(preset_file.preset.workload, device)

    def estimates(self) -> dict[ProcessKey, Estimate | None]:
        """The estimate for each process that runs a preset, on the card that it runs on."""
        return estimates_of(self.sample, self.matched, self.estimate)

    def stated_estimates(self) -> dict[ProcessKey, Estimate | None]:
        """The estimates that may raise an alert: no quick ones, and not those that what is assumed can explain."""
        return estimates_of(self.sample, self.matched, self._stated_estimate)

    def _stated_estimate(self, preset_file: PresetFile, device: Device) -> Estimate | None:
        may = self.guesses.may_alert(preset_file, device) and not self.is_quick(preset_file, device)
        return self.estimate(preset_file, device) if may else None

    @property
    def alerts(self) -> tuple[Alert, ...]:
        return () if self._alerts is None else self._alerts.standing

    def peaks(self) -> dict[ProcessKey, Peak]:
        """The lifetime peak of each process in the latest sample."""
        if self.sample is None:
            return {}
        host = self.sample.host.name
        here = (self.history.here(host, gpu.uuid).values() for gpu in self.sample.gpus)
        return {track.key: track.peak for tracks in here for track in tracks if track.peak is not None}

    def predictions(self) -> dict[ProcessKey, Prediction]:
        """What is predicted for each process by its preset as the file has it: what is tried out is not what runs."""
        devices = {} if self.sample is None else {gpu.uuid: device_of(gpu) for gpu in self.sample.gpus}
        matched = self.guesses.without(self.sample, self.matched).items()
        estimates = {
            key: self._prediction(preset, devices[key.gpu_uuid]) for key, preset in matched if key.gpu_uuid in devices
        }
        return {key: prediction for key, prediction in estimates.items() if prediction is not None}

    def _prediction(self, preset: PresetFile, device: Device) -> Prediction | None:
        """The very same value as long as nothing changes, so that a recording has it once."""
        known = self._predictions.get((preset.key, preset.preset.workload, device))
        if known is None or known[0] is not preset:
            prediction = prediction_of(preset, device, self.predictor.of_preset(preset, device))
            known = self._predictions[preset.key, preset.preset.workload, device] = preset, prediction
        return known[1]

    def recorded_tick(self) -> RecordedTick:
        """What a recording has of the latest sample; there has to be one."""
        return RecordedTick(_latest(self.sample), self.jobs(), self.predictions(), self.peaks())

    def snapshot(self) -> Snapshot:
        """Everything known at the latest sample, without versions; there has to be one."""
        return self.snapshot_of(_latest(self.sample), self.matched)

    def snapshot_of(self, sample: Sample, matched: Mapping[ProcessKey, PresetFile]) -> Snapshot:
        """The snapshot of an earlier sample that is still shown, whose processes run these presets."""
        observed = partial(observed_beside, self.jobs)
        return take_snapshot(sample, self.history, matched, self.estimate, {}, observed=observed)

    @property
    def run_problem(self) -> str:
        """What stands in the way of keeping runs; empty where nothing does."""
        return "" if self.run_writer is None else self.run_writer.problem

    def finish_runs(self, patience: float) -> None:
        """Hand over the last word on every run, and wait at most `patience` seconds until it is kept."""
        if self.run_writer is not None and self._tracker is not None:
            self.run_writer.finish(self._tracker.last_runs(self.history), patience)

    def _runs(self) -> "RunTracker":
        if self._tracker is None:
            self._tracker = self.run_tracker()
        return self._tracker

    def run_tracker(self) -> "RunTracker":
        """One that describes runs by what this session knows, and has seen none yet."""
        from vramtui.core.runs.run_tracker import RunTracker  # noqa: PLC0415 - not needed for the first paint

        return RunTracker(self.predictor.of_preset, lambda pid, uuid: find_job(self.jobs, pid, uuid), self.is_quick)


def _latest(sample: Sample | None) -> Sample:
    if sample is None:
        raise ValueError("no sample was taken yet")
    return sample


def _keys_with(pids: Collection[int], sample: Sample) -> list[ProcessKey]:
    """The processes of `sample` with these pids."""
    host = sample.host.name
    return [
        ProcessKey(host, gpu.uuid, process.pid, process.started_at)
        for gpu in sample.gpus
        for process in gpu.processes
        if process.pid in pids
    ]
