"""Everything known about a watched host: each sample goes through here, whatever reads or shows it."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from heapq import nlargest
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.late import late
from vramtui.core.base.latest import Latest
from vramtui.core.base.text import brief_command, printable_line
from vramtui.core.estimate.devices import Device, on_card
from vramtui.core.estimate.estimate import Estimate, Prediction, prediction_of
from vramtui.core.observation.history import History, Peak
from vramtui.core.observation.matcher import ByHand, MatchBasis, Matched
from vramtui.core.observation.readings import Gpu, Process, ProcessKey, Sample, process_key
from vramtui.core.observation.snapshot import RecordedTick, Snapshot, WhatIf, device_of, estimates_of, take_snapshot
from vramtui.core.schema.models import Runtime
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.monitor import jobs as run_jobs
from vramtui.monitor.poller import MOST_LOOKED_AT, FastSampler
from vramtui.monitor.predictor import KEPT, Guesses, LazyDefault, Predictor

if TYPE_CHECKING:
    from vramtui.core.observation.alerts import Alert, Alerts
    from vramtui.core.runs.run_tracker import RunTracker
    from vramtui.core.schema.settings import AlertRules
    from vramtui.monitor.derived_presets import DerivedPresets
    from vramtui.monitor.writers import HistoryRunWriter

# `ps` and `snapshot` have no alerts and mostly no ranks.
alerts_by: "Callable[[AlertRules], Alerts]" = late("vramtui.core.observation.alerts:Alerts")
is_one_job: Callable[[Process, Process], bool] = late("vramtui.core.runs.ranked_jobs:is_one_job")

RecordedPeaks = Callable[[float], Iterable[tuple[ProcessKey, Peak]]]


# Returns the preset of every process that has one; choices by hand, the second argument, come first.
ProcessMatcher = Callable[[Sample, ByHand], Matched]


def job_matcher(jobs: run_jobs.Jobs, preset: PresetFile | None) -> ProcessMatcher:
    """Return a matcher that gives every process that reports `preset`, which `vramtui run` knows of its job."""

    def match(sample: Sample, _by_hand: ByHand) -> Matched:
        return {} if preset is None else dict.fromkeys(_keys_with({job.pid for job in jobs()}, sample), preset)

    return match


class MonitorSession:
    """Takes samples one after another and keeps what follows from them. Only one thread at a time may use it.

    Attributes:
        guesses: separates guesses from predictions.
        sample: the latest sample, which `history` has too.
        job_memory: the jobs' reported memory over time.
        matched: the preset of each process in `sample` that has one.
        presets: all known presets, by key; those of a library are read when somebody asks for them.
        by_hand: the preset that the user assigned to a process (None: none); of those in `whole`, no value of the job
            replaces the preset's.
        recorded: the preset that a process had when a recording was made; `by_hand` comes first.
        recorded_peaks: the peaks that a recording has besides its samples, by time.
        variants: workloads that the user tries out, by the preset's key. No process, alert, export or run is compared
            with one.
        is_matching: presets or a matcher were given.
        new_alerts: alerts that `sample` is the first to show.
    """

    __slots__ = (
        "_alert_rules", "_alerts", "_basis", "_derived", "_is_quiet", "_is_told", "_job_presets", "_matcher", "_past",
        "_predictions", "_sampler", "_selected", "_shared", "_torch_of", "_tracker", "by_hand", "guesses", "history",
        "is_matching", "job_memory", "jobs", "matched", "new_alerts", "predictor", "presets", "recorded",
        "recorded_peaks", "run_writer", "sample", "variants", "whole",
    )  # fmt: skip

    def __init__(
        self,
        *,
        predictor: Predictor | None = None,
        jobs: run_jobs.Jobs = run_jobs.no_jobs,
        sampler: FastSampler | None = None,
        alert_rules: "AlertRules | None" = None,
        run_writer: "HistoryRunWriter | None" = None,
        derived: "DerivedPresets | None" = None,
        torch_of: Callable[[int], str | None] | None = None,
    ) -> None:
        self.predictor = predictor or Predictor(LazyDefault())
        self.guesses = Guesses(self.predictor)
        self.jobs: run_jobs.Jobs = lambda: run_jobs.on_known_cards(jobs(), self.sample)
        self.run_writer = run_writer
        self.sample: Sample | None = None
        self.history, self.job_memory = History(), run_jobs.JobMemory()
        self.matched: Matched = {}
        self.presets = run_jobs.KnownPresets()
        self.by_hand: dict[ProcessKey, str | None] = {}
        self.whole: set[ProcessKey] = set()
        self.recorded: dict[ProcessKey, str | None] = {}
        self.recorded_peaks: RecordedPeaks | None = None
        self.variants: dict[str, Workload] = {}
        self.new_alerts: tuple[Alert, ...] = ()
        self._matcher: ProcessMatcher = self.presets.matcher().match
        self._derived, self._torch_of, self._basis = derived, torch_of, MatchBasis()
        self._past: run_jobs.EarlierSamples | None = None
        self._job_presets = run_jobs.JobPresets(lambda: self.predictor.traces)
        self._shared: Latest[tuple[int, int], tuple[PresetFile, PresetFile]] = Latest(KEPT)
        self.is_matching = self._is_told = False
        self._sampler = sampler
        self._selected: ProcessKey | None = None
        self._alert_rules = alert_rules
        self._alerts = None if alert_rules is None else alerts_by(alert_rules)
        self._is_quiet = False
        self._tracker: RunTracker | None = None
        self._predictions: dict[tuple[str, Workload, Device], tuple[PresetFile, Prediction | None]] = {}

    def ingest(self, sample: Sample) -> None:
        """Take one sample: first the fast samples before it, then history, matches, alerts and runs."""
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
        if self.is_matching:  # the demo's jobs load the analytic estimator, which the first paint does without
            self.job_memory.take(sample.taken_at, self.jobs())
        self.sample_fast()
        if self._alerts is not None:
            failed = run_jobs.oom_alerts(sample, self.jobs()) if self.is_matching else ()
            alerts = self._alerts.update(sample, self.history, self.stated_estimates(), failed)
            self.new_alerts = () if self._is_quiet else tuple(alerts)
            self._is_quiet = False
        if self.run_writer is not None:
            self._tracker = self._tracker or self.run_tracker()
            due = self._tracker.update(sample, self.history, self.guesses.without(sample, self.matched))
            if due:
                self.run_writer.keep(due)

    def take_fast_samples(self) -> None:
        """Take the fast samples since the latest sample, if no other sample follows."""
        if self._sampler is not None and self.sample is not None:
            self.history.add_looks(self._sampler.pop_until(float("inf")), self.sample)

    def note_recorded_peaks(self, history: History, when: float) -> None:
        """Give the processes of the sample of `when` in `history` the recorded peaks that no sample shows."""
        for key, peak in () if self.recorded_peaks is None else self.recorded_peaks(when):
            track = history.tracks.get(key)
            if track is not None:
                track.note_peak(peak)

    def restart_alerts(self) -> None:
        """Forget the present alerts; those of the next sample do not count as new."""
        if self._alert_rules is not None:
            self._alerts = alerts_by(self._alert_rules)
        self.new_alerts, self._is_quiet = (), True

    def backfill(self, past: run_jobs.EarlierSamples) -> None:
        """Add samples from before the first one to the history; they make no alert, run or recording."""
        self._past = past
        for sample in past.samples:
            self.history.add(sample)

    def match_by(self, matcher: ProcessMatcher) -> None:
        self._matcher, self.is_matching = matcher, True
        self.rematch()
        self.sample_fast()

    def take_presets(self, presets: Iterable[PresetFile], library: run_jobs.Presets | None = None) -> None:
        """Add these presets and those of `library`; a preset chosen by its path stays."""
        self.presets.library = library or self.presets.library
        for preset_file in presets:
            self.presets.setdefault(preset_file.key, preset_file)
        for at, jobs in self._past.jobs if self._past is not None else ():
            self.job_memory.take(at, jobs)
        self._past = None
        self.match_by(self.presets.matcher().match)

    def add_preset(self, preset_file: PresetFile) -> None:
        """Add one preset; it replaces another of the same key."""
        self.presets[preset_file.key] = preset_file
        self.match_by(self.presets.matcher().match)

    def assign(self, key: ProcessKey, preset: str | None, *, automatic: bool = False, whole: bool = False) -> None:
        """Assign a preset to a process and the other ranks of its job (None: none), or leave it to `[match]` again."""
        rows = self._processes(self.sample) if self.sample is not None else {}
        own = rows.get(key)
        for one in [key] if own is None else [one for one, row in rows.items() if is_one_job(own, row)]:
            (self.whole.add if whole else self.whole.discard)(one)
            if automatic:
                self.by_hand.pop(one, None)
            else:
                self.by_hand[one] = preset
        self.rematch()

    def as_assigned(self, gpu: Gpu, process: Process, preset: PresetFile) -> PresetFile:
        """Return the preset with the values of a process's job, as it would be if it were assigned to that."""
        sample = _latest(self.sample)
        key = process_key(sample.host.name, gpu, process)
        alone = msgspec.structs.replace(sample, gpus=(msgspec.structs.replace(gpu, processes=(process,)),))
        matched = run_jobs.KnownPresets((preset,)).matcher().match(alone, {key: preset.key})
        return self._over_ranks_seen(sample, matched).get(key, preset)

    def rematch(self) -> None:
        self.matched = {} if self.sample is None else self.match(self.sample)

    def match(self, sample: Sample) -> Matched:
        """Return the preset of each process in `sample` that has one.

        The preset given to `vramtui run` comes before a pattern, and an assigned preset before that.
        """
        presets = self._job_presets.of(sample, self.jobs()) if self.is_matching else {}
        for preset_file in presets.values():
            self.presets.setdefault(preset_file.key, preset_file)
        presets |= {key: self.presets[name] for key, name in self.recorded.items() if name and name in self.presets}
        matched = self._matcher(sample, {**self.recorded, **self.by_hand})
        whole = {key: self.presets.get(self.by_hand[key] or "") for key in self.whole & matched.keys()}
        matched = {**matched, **{key: one for key, one in whole.items() if one is not None}} if whole else matched
        if presets:
            matched = {**matched, **{key: one for key, one in presets.items() if key not in self.by_hand}}
        if self._derived is not None and self.is_matching:
            matched = self._derived.with_derived(sample, matched, self.by_hand)
        if self._torch_of is not None:  # the samples do not have it
            matched = {key: one.as_run_under(Runtime(torch=self._torch_of(key.pid))) for key, one in matched.items()}
        on = {gpu.uuid: device_of(gpu) for gpu in sample.gpus}  # a recording's presets stay as they are
        matched = {key: one if key in self.recorded else on_card(one, on[key.gpu_uuid]) for key, one in matched.items()}
        return self._over_ranks_seen(sample, matched)

    def _over_ranks_seen(self, sample: Sample, matched: Matched) -> Matched:
        """Return `matched` with the ranks counted of jobs whose presets share their state and that state no number."""
        keys = {
            key
            for key, one in matched.items()
            if one.preset.parallel is not None
            and (key in self.by_hand or key not in self.recorded)
            and key not in self.whole
            and all(known.key != "parallel.data" for known in one.known)
        }
        rows = self._processes(sample) if keys else {}
        shared = {}
        for key in keys & rows.keys():
            gpus = {other.gpu_uuid for other, row in rows.items() if is_one_job(rows[key], row)}
            at = (id(matched[key]), len(gpus))
            known = self._shared.get(at)
            if known is None or known[0] is not matched[key]:
                counted = matched[key].as_run_under(Runtime(ranks=(len(gpus), "")))
                known = self._shared[at] = matched[key], counted
            shared[key] = known[1] if len(gpus) > 1 else matched[key]
        return {**matched, **shared} if shared else matched

    def why_unmatched(self, process: Process) -> str:
        """Return why a process has no preset; if none has one, also why the models of others are not known."""
        if not self.is_matching:
            return "the presets are being read"
        waiting, reasons = ({}, {}) if self._derived is None else (self._derived.waiting, self._derived.reasons)
        if _job(process) in waiting:
            return f"{_name(process)}: looking for its model"
        why = reasons.get(_job(process)) or ("model unknown" if process.command_or_name else "command unknown")
        words = [f"{_name(process)}: {why} · m assigns"]  # first, as the line may be cut
        for gpu in self.sample.gpus if self.sample is not None and reasons and not self.matched else ():
            others = {_job(it): it for it in gpu.facts if it.pid != process.pid}
            words += [f"{_name(others[job])}: {reasons[job]}" for job in others if job in reasons]
        return " · ".join(words[:3])

    def _processes(self, sample: Sample) -> dict[ProcessKey, Process]:
        host = sample.host.name
        return {process_key(host, gpu, process): process for gpu in sample.gpus for process in gpu.facts}

    def select(self, key: ProcessKey | None) -> None:
        if key != self._selected:
            self._selected = key
            self.sample_fast()

    def sample_fast(self) -> None:
        """Aim the fast sampler at its targets in the latest sample; of many, at those that hold most."""
        if self._sampler is None or self.sample is None:
            return
        tracks, targets = self.history.tracks, self._sampler.targets
        wanted: Collection[ProcessKey] = ()
        if isinstance(targets, frozenset):
            wanted = _keys_with(targets, self.sample)
        elif targets != "none":
            wanted = self.matched.keys()
            if targets != "matched":
                wanted = self.matched.keys() | set(_keys_with({job.pid for job in self.jobs()}, self.sample))
        known = (key for key in wanted if key in tracks)
        aims = nlargest(MOST_LOOKED_AT, known, key=lambda key: tracks[key].last_used or 0)
        if self._selected is not None and self._selected not in aims:
            aims.append(self._selected)
        self._sampler.aim(aims)
        if self._sampler.ident is None:  # a thread starts once; after `close` a last sample may still come
            self._sampler.start()

    def pause_sampling(self) -> None:
        """Ask a driver that does not answer nothing more until there is a sample."""
        if self._sampler is not None:
            self._sampler.aim(())

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.stop()

    def workload(self, preset_file: PresetFile) -> Workload:
        return self.variants.get(preset_file.key, preset_file.preset.workload)

    def estimate(self, preset_file: PresetFile, device: Device) -> Estimate | None:
        """Return the estimate of a preset as matched, without a variant; None if there is only a guess."""
        if preset_file.assumed and self.guesses.range_of(preset_file, device) is not None:
            return None
        return self.predictor.ask(preset_file.preset.workload, device).estimate

    def is_quick(self, preset_file: PresetFile, device: Device) -> bool:
        """Return whether a nearer estimate will replace that of a preset as matched."""
        return self.predictor.is_quick(preset_file.preset.workload, device)

    def estimates(self) -> dict[ProcessKey, Estimate | None]:
        """Return the estimate for each process with a preset, on its own card."""
        return estimates_of(self.sample, self.matched, self.estimate)

    def stated_estimates(self) -> dict[ProcessKey, Estimate | None]:
        """Return the estimates that may raise an alert: not quick ones or guesses."""

        def stated(preset_file: PresetFile, device: Device) -> Estimate | None:
            may = self.guesses.may_alert(preset_file, device) and not self.is_quick(preset_file, device)
            return self.estimate(preset_file, device) if may else None

        return estimates_of(self.sample, self.matched, stated)

    @property
    def alerts(self) -> "tuple[Alert, ...]":
        return () if self._alerts is None else self._alerts.standing

    def peaks(self) -> dict[ProcessKey, Peak]:
        if self.sample is None:
            return {}
        host = self.sample.host.name
        here = (self.history.here(host, gpu.uuid).values() for gpu in self.sample.gpus)
        return {track.key: track.peak for tracks in here for track in tracks if track.peak is not None}

    def predictions(self) -> dict[ProcessKey, Prediction]:
        """Return the prediction for each process, by its preset as saved: a variant is not what runs.

        The values stay identical as long as nothing changes, so that a recording has each once.
        """
        devices = {} if self.sample is None else {gpu.uuid: device_of(gpu) for gpu in self.sample.gpus}
        predictions = {}
        for key, preset in self.guesses.without(self.sample, self.matched).items():
            device = devices.get(key.gpu_uuid)
            if device is None:
                continue
            known = self._predictions.get((preset.key, preset.preset.workload, device))
            if known is None or known[0] is not preset:
                prediction = prediction_of(preset, device, self.predictor.of_preset(preset, device))
                known = self._predictions[preset.key, preset.preset.workload, device] = preset, prediction
            if known[1] is not None:
                predictions[key] = known[1]
        return predictions

    def recorded_tick(self) -> RecordedTick:
        """Return what a recording keeps of the latest sample, which must exist."""
        return RecordedTick(_latest(self.sample), self.jobs(), self.predictions(), self.peaks())

    def snapshot(self) -> Snapshot:
        """Return everything known at the latest sample, which must exist, without versions."""
        return self.snapshot_of(_latest(self.sample), self.matched)

    def snapshot_of(self, sample: Sample, matched: Matched) -> Snapshot:
        """Return the snapshot of an earlier sample that is still shown, whose processes run these presets."""
        observed = partial(run_jobs.observed_beside, self.jobs)
        taken = take_snapshot(sample, self.history, matched, self.estimate, {}, observed=observed)
        gpus, holdings = {gpu.uuid: gpu for gpu in sample.gpus}, []
        for one in taken.holdings:
            preset_file = matched.get(one.key)
            if preset_file is None:
                holdings.append(one)
                continue
            device, variant = device_of(gpus[one.key.gpu_uuid]), self.variants.get(preset_file.key)
            span = self.guesses.range_of(preset_file, device)
            what_if = None
            if variant is not None and (answer := self.predictor.ask(variant, device).estimate) is not None:
                from vramtui.presets.draft import differences  # noqa: PLC0415 - few snapshots have one

                what_if = WhatIf(changes=differences(preset_file.preset.workload, variant), process=answer.process)
            limits = None if span is None else (span.lowest, span.highest)
            holdings.append(msgspec.structs.replace(one, span=limits, what_if=what_if))
        return msgspec.structs.replace(taken, holdings=tuple(holdings))

    def finish_runs(self, patience: float) -> None:
        """Hand over the final state of every run, and wait up to `patience` seconds until it is kept."""
        if self.run_writer is not None and self._tracker is not None:
            self.run_writer.finish(self._tracker.last_runs(self.history), patience)

    def run_tracker(self) -> "RunTracker":
        from vramtui.core.runs.run_tracker import RunTracker  # noqa: PLC0415 - not needed for the first paint

        return RunTracker(
            self.predictor.of_preset, lambda pid, uuid: run_jobs.find_job(self.jobs, pid, uuid), self.is_quick
        )


def _latest(sample: Sample | None) -> Sample:
    if sample is None:
        raise ValueError("no sample was taken yet")
    return sample


def _keys_with(pids: Collection[int], sample: Sample) -> list[ProcessKey]:
    return [
        process_key(sample.host.name, gpu, process)
        for gpu in sample.gpus
        for process in gpu.facts
        if process.pid in pids
    ]


def _job(process: Process) -> tuple[int, float | None, str]:
    return process.pid, process.started_at, process.command or ""


def _name(process: Process) -> str:
    name = brief_command(printable_line(process.command_or_name or "")).partition(" ")[0]
    return process.label or name.rpartition("/")[2] or f"pid {process.pid}"
