"""Estimates and largest batches, kept until the workload or the card changes, and never an exception.

The analytic estimate answers at once; a refiner simulates what stays selected on a thread of its own.
"""

import threading
import time
from collections.abc import Callable
from functools import cached_property, partial
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.base.latest import Latest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.fits import CEILING, search_largest
from vramtui.core.observation.history import History
from vramtui.core.observation.matcher import Matched
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.core.estimate.assumptions import Range
    from vramtui.core.estimate.fits import Fit
    from vramtui.dryrun.traces import Traces

range_of: "Callable[..., Range]" = late("vramtui.core.estimate.assumptions:range_of")
fit_of: "Callable[..., Fit]" = late("vramtui.core.estimate.fits:Fit")
fit_beside_others: "Callable[..., Fit]" = late("vramtui.core.estimate.fits:fit_beside_others")
unknown_of: Callable[..., str] = late("vramtui.core.estimate.fits:unknown_of")

# An estimate takes some ten kilobytes, the rules of a job twenty, a number almost nothing. The panel shows the rules of
# one job at a time.
KEPT = 128
KEPT_RULES = 16
KEPT_NUMBERS = 1024
MOST_BATCH = 1 << 20
TRACED, SIMULATED = "traced", "simulated"
DEBOUNCE_SECONDS = 0.3  # a job is simulated after so long: values that a slider passes by are not
BUDGET = 0.01  # seconds of work in one turn of a search; an estimate under way is finished
Job = tuple[Workload, Device]


class MaxBatchSearch:
    """One search for the largest batch, which continues whenever `go_on` is called.

    Attributes:
        largest: the largest batch that fits; 0 if none does, None while the search goes on.
    """

    __slots__ = ("_asked", "_needs", "_search", "largest")

    def __init__(self, needs: Callable[[int], int | None], room: int, start: int = 1, *, most: int = CEILING) -> None:
        self.largest: int | None = None
        self._needs = needs
        self._search = search_largest(room, start, most=most)
        self._asked = next(self._search)

    def go_on(self, budget: float = BUDGET) -> None:
        """Search for `budget` seconds of processor time, at least one estimate."""
        over = time.thread_time() + budget
        while self.largest is None:
            try:
                self._asked = self._search.send(self._needs(self._asked))
            except StopIteration as ended:
                self.largest = int(ended.value)
            if time.thread_time() >= over:
                return


class Refiner:
    """Simulates one job at a time on a thread of its own: the one that was asked about last.

    Attributes:
        tell: called on the thread when something was found.
        wanted: the job that is to be estimated next, if any.
    """

    def __init__(self, load: Callable[[], Estimator], settled: float = DEBOUNCE_SECONDS) -> None:
        self._load, self._settled = load, settled
        self._lock = threading.Condition()
        self.wanted: Job | None = None
        self._estimates: Latest[Job, Estimate | None] = Latest(KEPT)
        self._question: Job | None = None
        self._search: MaxBatchSearch | None = None
        self._batches: Latest[Job, int] = Latest(KEPT)
        self._thread: threading.Thread | None = None
        self.tell: Callable[[], object] = lambda: None

    def simulated(self, job: Job) -> Estimate | None:
        """Return the simulated estimate; None until it is there, and asking begins it."""
        with self._lock:
            if job in self._estimates:
                self._estimates.move_to_end(job)
                return self._estimates[job]
            self.wanted = job
            self._work()
            return None

    def largest_batch(self, question: Job, start: int) -> int | None:
        """Return the largest batch that fits by simulated estimates; 0 if none does, None until it is found.

        Asking begins the search near `start`, and ends the search for another job.
        """
        with self._lock:
            if question in self._batches:
                return self._batches[question]
            if self._question != question:
                self._question = question
                self._search = MaxBatchSearch(partial(self._size, question), question[1].total_memory, start)
                self._work()
            return None

    def wait(self, timeout: float) -> bool:
        """Return whether everything asked for is found within so many seconds; for tests and programs."""
        with self._lock:
            return self._lock.wait_for(lambda: self.wanted is None and self._search is None, timeout)

    def _work(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="refine", daemon=True)
            self._thread.start()

    @cached_property
    def _estimator(self) -> Estimator:
        return self._load()

    def _run(self) -> None:
        while True:
            with self._lock:
                job, question, search = self.wanted, self._question, self._search
                if job is None and search is None:
                    self._thread = None
                    return
            if job is not None:
                time.sleep(self._settled)
                if job != self.wanted:
                    continue
                estimate = self._simulated(job)
                with self._lock:
                    self._estimates[job] = estimate
                    if self.wanted == job:
                        self.wanted = None
                    self._lock.notify_all()
                self.tell()
            elif question is not None and search is not None:
                while search.largest is None and self.wanted is None and self._search is search:
                    search.go_on(0)
                if search.largest is None:
                    continue  # another question goes first
                with self._lock:
                    self._batches[question] = search.largest
                    if self._search is search:
                        self._question = self._search = None
                    self._lock.notify_all()
                self.tell()

    def _size(self, asked: Job, batch: int) -> int | None:
        workload, device = asked
        estimate = self._simulated((workload.with_run(batch_size=batch), device))
        return None if estimate is None else estimate.process

    def _simulated(self, job: Job) -> Estimate | None:
        try:
            return self._estimator.estimate(*job)
        except UserError:
            return None


class EstimateResult(msgspec.Struct, frozen=True):
    """An estimate, or the sentence that says why there is none."""

    estimate: Estimate | None
    problem: str = ""


class LazyAnalytic:
    """The analytic estimator, loaded when it is first asked."""

    name = "analytic"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        from vramtui.estimators.analytic import ANALYTIC  # noqa: PLC0415 - not needed for the first paint

        return ANALYTIC.estimate(workload, device)


class LazyDefault:
    """The estimator of `vramtui estimate`, loaded when it is first asked: it takes a tenth of a second for a job."""

    name = "usual"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        from vramtui.estimators.methods import estimates_by  # noqa: PLC0415 - not needed for the first paint

        return estimates_by(None, workload, device)[0]


class Predictor:
    """Asks `estimator` once for each workload and card."""

    __slots__ = ("_answers", "_batches", "_ranges", "_rules", "_totals", "_traces", "estimator", "refiner")

    def __init__(
        self, estimator: Estimator | None = None, traces: "Traces | None" = None, refiner: Refiner | None = None
    ) -> None:
        self.estimator = estimator or LazyAnalytic()
        self.refiner = refiner
        self._traces = traces
        self._rules: Latest[Job, tuple[Estimate, ...]] = Latest(KEPT_RULES)
        self._answers: Latest[Job, EstimateResult] = Latest(KEPT)
        self._totals: Latest[Job, Fit | None] = Latest(KEPT_NUMBERS)
        self._batches: Latest[Job, MaxBatchSearch] = Latest(KEPT_NUMBERS)
        self._ranges: Latest[tuple[int, Device], tuple[PresetFile, Range | None]] = Latest(KEPT_NUMBERS)

    def answer_by(self, estimator: Estimator) -> None:
        """Ask this estimator from now on, without a refiner; forget all answers."""
        self.estimator, self.refiner = estimator, None
        for cache in (self._answers, self._ranges, self._totals, self._batches):
            cache.clear()

    @property
    def traces(self) -> "Traces":
        """Finished dry runs, which come before `estimator`."""
        if self._traces is None:
            from vramtui.dryrun.traces import Traces  # noqa: PLC0415 - most sessions have no dry run

            self._traces = Traces()
        return self._traces

    @property
    def exact(self) -> Estimator | None:
        """The estimator that simulates the allocator; None without a refiner."""
        return None if self.refiner is None else LazyDefault()

    def ask(self, workload: Workload, device: Device) -> EstimateResult:
        wanted = (workload, device)
        answer = self._answers.get(wanted)
        if answer is None:
            answer = self._answers[wanted] = self._make(workload, device)
        if self.refiner is not None and answer.estimate is not None and answer.estimate.method == LazyAnalytic.name:
            nearer = self.refiner.simulated(wanted)
            if nearer is not None and nearer.method != answer.estimate.method:
                answer = self._answers[wanted] = EstimateResult(nearer)
                self._totals.pop(wanted, None)
        if answer.estimate is None:
            traced = self.traced(workload, device)
            return answer if traced is None else EstimateResult(traced)
        return answer

    def of_preset(self, preset_file: PresetFile, device: Device) -> Estimate | None:
        """Return the estimate of a preset as saved; None if there can be none."""
        return self.ask(preset_file.preset.workload, device).estimate

    def traced(self, workload: Workload, device: Device) -> Estimate | None:
        """Return the estimate of a finished trace, if there is one."""
        known = None if self._traces is None else self._traces.get((workload, device))
        return None if known is None else known.estimate

    def rules(self, workload: Workload, device: Device) -> tuple[Estimate, ...]:

        def make() -> tuple[Estimate, ...]:
            from vramtui.estimators.rules import estimate_rules  # noqa: PLC0415 - not needed for the first paint

            try:
                return tuple(estimate_rules(workload, device))
            except UserError:
                return ()

        return self._rules.get_or_make((workload, device), make)

    def range_of(self, preset_file: PresetFile, device: Device) -> "Range | None":
        """Return the range that a matched job may need, by the quick estimator; None if nothing is assumed."""
        if not preset_file.assumed:
            return None
        at = (id(preset_file), device)
        if at not in self._ranges or self._ranges[at][0] is not preset_file:
            self._ranges[at] = preset_file, range_of(preset_file, device, self.quick)
        return self._ranges[at][1]

    def quick(self, workload: Workload, device: Device) -> Estimate | None:
        """Return the estimate that takes no time to speak of; None if there is none."""
        estimator = LazyAnalytic() if self.estimator.name == LazyDefault.name else self.estimator
        try:
            return estimator.estimate(workload, device)
        except UserError:
            return None

    def total(self, workload: Workload, device: Device) -> int | None:
        """Return the process total of `ask` in bytes; None without an estimate. Only the number is kept."""
        answer = self.fit(workload, device)
        return answer.needs if answer is not None else None

    def fit(self, workload: Workload, device: Device) -> "Fit | None":
        """Return whether the process fits the empty card; None without an estimate. Nothing else is kept."""
        wanted = (workload, device)
        if wanted not in self._totals:
            known = wanted in self._answers
            estimate = self.ask(workload, device).estimate if known else self._make(workload, device).estimate
            has = device.total_memory
            self._totals[wanted] = None
            if estimate is not None:
                unknown = unknown_of(workload.model)
                self._totals[wanted] = fit_of(needs=estimate.process, has=has, error=estimate.error, unknown=unknown)
        return self._totals[wanted]

    def is_quick(self, workload: Workload, device: Device) -> bool:
        """Return whether a nearer estimate will replace that of `ask` and `fit`; the screen marks it with `≈`."""
        if self.refiner is None:
            return False
        known = self._answers.get((workload, device))
        if known is not None and (known.estimate is None or known.estimate.method != LazyAnalytic.name):
            return False
        from vramtui.estimators.analytic.simulated import unfollowed  # noqa: PLC0415 - not needed for the first paint

        return not unfollowed(workload)

    def knows_total(self, workload: Workload, device: Device) -> bool:
        return (workload, device) in self._totals

    def largest_batch(self, workload: Workload, device: Device) -> MaxBatchSearch | None:
        """Return the search for the largest batch that fits the empty card; None without a batch size.

        The search has had one turn, which often ends it.
        """
        estimate = self.ask(workload, device).estimate
        if not hasattr(workload.run, "batch_size") or estimate is None or estimate.method == TRACED:
            return None
        single = workload.with_run(batch_size=1)  # the answer does not depend on the present batch

        def size(batch: int) -> int | None:
            estimate = self._make(single.with_run(batch_size=batch), device).estimate
            return None if estimate is None else estimate.process

        search = self._batches.get((single, device))
        if search is None:
            search = self._batches[single, device] = MaxBatchSearch(size, device.total_memory, most=MOST_BATCH)
            search.go_on()
        return search

    def nearer_batch(self, workload: Workload, device: Device, batch: int) -> tuple[int, bool]:
        """Return the largest batch by the nearest estimate so far, and whether a nearer one is still searched.

        `batch` is the largest batch by the quick estimate; the workload's own batch does not matter.
        """
        estimate = self.ask(workload, device).estimate
        if self.refiner is None or estimate is None or batch >= MOST_BATCH:
            return batch, False
        if estimate.method != SIMULATED:
            return batch, self.refiner.wanted == (workload, device)
        nearer = self.refiner.largest_batch((workload.with_run(batch_size=1), device), batch)
        return (batch, True) if nearer is None else (nearer, False)

    def _make(self, workload: Workload, device: Device) -> EstimateResult:
        try:
            return EstimateResult(self.estimator.estimate(workload, device))
        except UserError as error:
            return EstimateResult(None, str(error))


def verdict(estimate: Estimate, workload: Workload | None, device: Device, room: int | None, where: str) -> "Fit":
    """Return whether the process fits a card that others may use too."""
    fit = fit_beside_others(estimate.process, device.total_memory, room, estimate.error, where)
    unknown = "" if workload is None else unknown_of(workload.model)
    return msgspec.structs.replace(fit, unknown=unknown) if unknown else fit


class Guesses:
    """Separates guesses from predictions: of some jobs so much is assumed that the estimate could be far off, or their
    memory refutes it. Jobs without assumptions cost nothing.
    """

    __slots__ = ("_predictor", "_refuted")

    def __init__(self, predictor: Predictor) -> None:
        self._predictor = predictor
        self._refuted: set[tuple[str, Workload, Device]] = set()

    def range_of(self, preset_file: PresetFile, device: Device) -> "Range | None":
        """Return the range that a matched job may need, if it is too wide for a prediction or refuted; else None."""
        span = self._predictor.range_of(preset_file, device)
        if span is None or (
            span.is_prediction and (preset_file.key, preset_file.preset.workload, device) not in self._refuted
        ):
            return None
        return span

    def may_alert(self, preset_file: PresetFile, device: Device) -> bool:
        """Return whether no assumption could explain that a job holds more than predicted."""
        span = self._predictor.range_of(preset_file, device)
        return span is None or span.may_alert

    def without(self, sample: Sample | None, matched: Matched) -> Matched:
        """Return `matched` without the processes of `sample` that have only a guess."""
        guessed = {key for key, device in _assumed(sample, matched) if self.range_of(matched[key], device) is not None}
        return {key: preset_file for key, preset_file in matched.items() if key not in guessed} if guessed else matched

    def refute(self, sample: Sample, matched: Matched, history: History) -> None:
        """Note the guesses that processes of `sample` exceed by their peaks in `history`."""
        for key, device in _assumed(sample, matched):
            preset_file, track = matched[key], history.tracks.get(key)
            span = self._predictor.range_of(preset_file, device)
            peak = None if track is None else track.peak
            if span is not None and peak is not None and span.is_refuted_by(peak.bytes):
                self._refuted.add((preset_file.key, preset_file.preset.workload, device))


def _assumed(sample: Sample | None, matched: Matched) -> list[tuple[ProcessKey, Device]]:
    keys = [key for key, preset_file in matched.items() if preset_file.assumed]
    if not keys or sample is None:
        return []
    devices = {gpu.uuid: device_of(gpu) for gpu in sample.gpus}
    return [(key, devices[key.gpu_uuid]) for key in keys if key.gpu_uuid in devices]
