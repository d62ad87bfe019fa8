"""Estimates, made when a workload or a card changes, kept, and never an exception; and the largest batch that fits."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.latest import Latest
from vramtui.core.estimate.assumptions import Range, range_of
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.estimate.fits import Fit, fit_beside_others, unknown_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.traces import Traces
from vramtui.monitor.refiner import MaxBatchSearch, Refiner

# An estimate takes some ten kilobytes, what the rules say of a job twenty, a number almost nothing. Of rules the panel
# shows those of one job at a time.
KEPT = 128
KEPT_RULES = 16
KEPT_NUMBERS = 1024
MOST_BATCH = 1 << 20
TRACED, SIMULATED = "traced", "simulated"


class EstimateResult(msgspec.Struct, frozen=True):
    """An estimate, or the sentence that says why there is none."""

    estimate: Estimate | None
    problem: str = ""


class LazyAnalytic:
    """The analytic estimator, loaded when it is first asked."""

    name = "analytic"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Estimate with `ANALYTIC`, loaded here."""
        from vramtui.estimators.analytic import ANALYTIC  # noqa: PLC0415 - not needed for the first paint

        return ANALYTIC.estimate(workload, device)


class LazyDefault:
    """What `vramtui estimate` answers with, loaded when it is first asked: a tenth of a second a job, for those
    without a screen to keep alive.
    """

    name = "usual"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Estimate with `DEFAULT`, loaded here."""
        from vramtui.estimators.methods import estimates_by  # noqa: PLC0415 - not needed for the first paint

        return estimates_by(None, workload, device)[0]


class Predictor:
    """Asks `estimator` once for each workload and card.

    Args:
        estimator: what answers at once; the analytic one by default.
        traces: finished traces, which answer where no estimator does: of somebody's own code.
        refiner: makes a nearer estimate of what is asked about, beside the screen; none of them where it is None.
    """

    __slots__ = (
        "_answers", "_batches", "_ranges", "_rules", "_totals", "estimator", "refiner",
        "traces",
    )  # fmt: skip

    def __init__(
        self,
        estimator: Estimator | None = None,
        traces: Traces | None = None,
        refiner: Refiner | None = None,
    ) -> None:
        self.estimator = estimator or LazyAnalytic()
        self.refiner = refiner
        self.traces = traces or Traces()
        self._rules: Latest[tuple[Workload, Device], tuple[Estimate, ...]] = Latest(KEPT_RULES)
        self._answers: Latest[tuple[Workload, Device], EstimateResult] = Latest(KEPT)
        self._totals: Latest[tuple[Workload, Device], Fit | None] = Latest(KEPT_NUMBERS)
        self._batches: Latest[tuple[Workload, Device], MaxBatchSearch] = Latest(KEPT_NUMBERS)
        self._ranges: Latest[tuple[int, Device], tuple[PresetFile, Range | None]] = Latest(KEPT_NUMBERS)

    def answer_by(self, estimator: Estimator) -> None:
        """Ask this from now on, about what was answered already too; nothing makes its answers nearer."""
        self.estimator, self.refiner = estimator, None
        self._answers.clear()
        self._ranges.clear()
        self._totals.clear()
        self._batches.clear()

    @property
    def exact(self) -> Estimator | None:
        """The estimator that simulates the allocator; None without a refiner."""
        return None if self.refiner is None else LazyDefault()

    def ask(self, workload: Workload, device: Device) -> EstimateResult:
        """Return the estimate of `workload` on `device`."""
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
            traced = self.traces.estimate(wanted)
            return answer if traced is None else EstimateResult(traced)
        return answer

    def of_preset(self, preset_file: PresetFile, device: Device) -> Estimate | None:
        """Return the estimate of a preset as saved; None if there can be none."""
        return self.ask(preset_file.preset.workload, device).estimate

    def traced(self, workload: Workload, device: Device) -> Estimate | None:
        """What a trace said, if there was one."""
        return self.traces.estimate((workload, device))

    def rules(self, workload: Workload, device: Device) -> tuple[Estimate, ...]:
        """What each published rule that fits says; nothing where the workload is about a rule alone."""
        return self._rules.get_or_make((workload, device), lambda: _rules(workload, device))

    def range_of(self, preset_file: PresetFile, device: Device) -> Range | None:
        """What a matched job may need by all that is known of it; None where nothing of it is assumed.

        Always by what answers at once: of a range the ends are nobody's answer.
        """
        if not preset_file.assumed:
            return None
        at = (id(preset_file), device)
        if at not in self._ranges or self._ranges[at][0] is not preset_file:
            self._ranges[at] = preset_file, range_of(preset_file, device, self.quick)
        return self._ranges[at][1]

    def quick(self, workload: Workload, device: Device) -> Estimate | None:
        """What answers at once; None where nothing does."""
        estimator = LazyAnalytic() if self.estimator.name == LazyDefault.name else self.estimator
        try:
            return estimator.estimate(workload, device)
        except UserError:
            return None

    def total(self, workload: Workload, device: Device) -> int | None:
        """The process total of `ask` in bytes; None where there is no estimate. Only the number is kept."""
        answer = self.fit(workload, device)
        return answer.needs if answer is not None else None

    def fit(self, workload: Workload, device: Device) -> Fit | None:
        """Whether the process fits the empty card; None where there is no estimate. No more than that is kept."""
        wanted = (workload, device)
        if wanted not in self._totals:
            known = wanted in self._answers
            estimate = self.ask(workload, device).estimate if known else self._make(workload, device).estimate
            has = device.total_memory
            self._totals[wanted] = None
            if estimate is not None:
                unknown = unknown_of(workload.model)
                self._totals[wanted] = Fit(needs=estimate.process, has=has, error=estimate.error, unknown=unknown)
        return self._totals[wanted]

    def is_quick(self, workload: Workload, device: Device) -> bool:
        """Whether `ask` and `fit` answer by a method that a nearer one will replace: such a figure is written `≈`."""
        if self.refiner is None:
            return False
        known = self._answers.get((workload, device))
        if known is not None and (known.estimate is None or known.estimate.method != LazyAnalytic.name):
            return False
        from vramtui.estimators.analytic.simulated import unfollowed  # noqa: PLC0415 - not needed for the first paint

        return not unfollowed(workload)

    def knows_total(self, workload: Workload, device: Device) -> bool:
        """Whether `total` and `fit` cost nothing."""
        return (workload, device) in self._totals

    def largest_batch(self, workload: Workload, device: Device) -> MaxBatchSearch | None:
        """The search for the largest batch whose process fits the empty card, at its end where that takes no time to
        speak of; None when there is no telling.
        """
        estimate = self.ask(workload, device).estimate
        if not hasattr(workload.run, "batch_size") or estimate is None or estimate.method == TRACED:
            return None
        single = workload.with_run(batch_size=1)  # of whatever size the batch is now: the answer is the same
        search = self._batches.get((single, device))
        if search is None:
            search = MaxBatchSearch(
                lambda batch: self._size_with(single, device, batch), device.total_memory, most=MOST_BATCH
            )
            self._batches[single, device] = search
            search.go_on()
        return search

    def nearer_batch(self, workload: Workload, device: Device, batch: int) -> tuple[int, bool]:
        """The largest batch by what answers nearest, and whether that is still being looked for.

        Args:
            workload: the job; its own batch does not count.
            device: the card.
            batch: the largest batch by what answers at once.
        """
        estimate = self.ask(workload, device).estimate
        if self.refiner is None or estimate is None or batch >= MOST_BATCH:
            return batch, False
        if estimate.method != SIMULATED:
            return batch, self.refiner.is_wanted((workload, device))
        nearer = self.refiner.largest_batch((workload.with_run(batch_size=1), device), batch)
        return (batch, True) if nearer is None else (nearer, False)

    def _make(self, workload: Workload, device: Device) -> EstimateResult:
        try:
            return EstimateResult(self.estimator.estimate(workload, device))
        except UserError as error:
            return EstimateResult(None, str(error))

    def _size_with(self, workload: Workload, device: Device, batch: int) -> int | None:
        estimate = self._make(workload.with_run(batch_size=batch), device).estimate
        return None if estimate is None else estimate.process


def _rules(workload: Workload, device: Device) -> tuple[Estimate, ...]:
    from vramtui.estimators.rules import estimate_rules  # noqa: PLC0415 - not needed for the first paint

    try:
        return tuple(estimate_rules(workload, device))
    except UserError:
        return ()


def verdict(estimate: Estimate, workload: Workload | None, device: Device, room: int | None, where: str) -> Fit:
    """Whether the process fits a card that others may hold some of.

    Args:
        estimate: the prediction.
        workload: the job, of which not all may be known; None where it is not at hand.
        device: the card.
        room: bytes of the card that others do not hold now; None when not known.
        where: the card as people call it, `GPU 0`.
    """
    fit = fit_beside_others(estimate.process, device.total_memory, room, estimate.error, where)
    unknown = "" if workload is None else unknown_of(workload.model)
    return msgspec.structs.replace(fit, unknown=unknown) if unknown else fit
