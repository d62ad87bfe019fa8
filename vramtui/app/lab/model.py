"""Which experiment and which of its steps is selected, and what is known of each."""

import msgspec

from vramtui.core.estimate.devices import Device
from vramtui.estimators.lab import formulas
from vramtui.estimators.lab.catalogue import EXPERIMENTS, Experiment
from vramtui.estimators.lab.runner import HeldSegment, LabRow, Outcome

# The articles' figures are from cards with the smaller workspace of cuBLAS.
LabJob = tuple[str, Device]


class LabStep(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of an experiment: bytes allocated by whoever says so, and None where nobody does."""

    run: str
    label: str
    printed: int | None = None
    predicted: int | None = None
    row: LabRow | None = None

    @property
    def traced(self) -> int | None:
        """By PyTorch on fake tensors."""
        return None if self.row is None else self.row.predicted.allocated

    @property
    def measured(self) -> int | None:
        """On a card."""
        return None if self.row is None or self.row.measured is None else self.row.measured.allocated

    @property
    def difference(self) -> int | None:
        """The best figure here less what it is compared with: the article's, or else the formula's."""
        here = self.predicted if self.traced is None else self.traced
        other = self.predicted if self.printed is None else self.printed
        return None if here is None or other is None else here - other

    @property
    def segments(self) -> tuple[HeldSegment, ...]:
        """The allocator's, of the trace."""
        return () if self.row is None else self.row.predicted.segments


class LabView(msgspec.Struct, frozen=True, eq=False):
    """What the screen shows.

    Attributes:
        experiments: every one, in order.
        chosen: the place of the one that is shown.
        device: the card it is for.
        steps: its moments.
        at: the place of the selected one.
        outcome: its trace; None before there is one.
        running: what is being traced now.
        problem: why the last trace ended early.
    """

    experiments: tuple[Experiment, ...]
    chosen: int
    device: Device
    steps: tuple[LabStep, ...]
    at: int = 0
    outcome: Outcome | None = None
    running: str = ""
    problem: str = ""

    @property
    def experiment(self) -> Experiment:
        """The one that is shown."""
        return self.experiments[self.chosen]

    @property
    def step(self) -> LabStep | None:
        """The selected moment."""
        return self.steps[self.at] if self.steps else None

    @property
    def before(self) -> LabStep | None:
        """The moment before it in the same run."""
        if not 0 < self.at < len(self.steps) or self.steps[self.at - 1].run != self.steps[self.at].run:
            return None
        return self.steps[self.at - 1]


class LabModel:
    """The choice, and the outcomes by experiment and card."""

    def __init__(self) -> None:
        self.experiments = tuple(EXPERIMENTS.values())
        self.outcomes: dict[LabJob, Outcome] = {}
        self.problems: dict[LabJob, str] = {}
        self._chosen = next(at for at, one in enumerate(self.experiments) if one.key == "linear")
        self._at = 0
        self._steps: dict[LabJob, tuple[Outcome | None, tuple[LabStep, ...]]] = {}

    @property
    def experiment(self) -> Experiment:
        """The selected one."""
        return self.experiments[self._chosen]

    def choose(self, direction: int) -> None:
        """Another experiment, at its first step."""
        self._chosen = (self._chosen + direction) % len(self.experiments)
        self._at = 0

    def move(self, steps: int) -> None:
        """Another step; the view holds it within the experiment."""
        self._at = max(0, self._at + steps)

    def view(self, device: Device, running: str) -> LabView:
        """As it is now, for `device`."""
        job = (self.experiment.key, device)
        steps = self._steps_of(job, device)
        self._at = min(self._at, max(0, len(steps) - 1))
        return LabView(
            self.experiments,
            self._chosen,
            device,
            steps,
            self._at,
            self.outcomes.get(job),
            running,
            self.problems.get(job, ""),
        )

    def _steps_of(self, job: LabJob, device: Device) -> tuple[LabStep, ...]:
        outcome = self.outcomes.get(job)
        known = self._steps.get(job)
        if known is None or known[0] is not outcome:
            made = steps_of(outcome) if outcome is not None else untraced(self.experiment, device)
            known = self._steps[job] = (outcome, made)
        return known[1]


def steps_of(outcome: Outcome) -> tuple[LabStep, ...]:
    """Every moment of a finished trace."""
    return tuple(
        LabStep(run=row.run, label=row.label, printed=row.printed, predicted=row.formula, row=row)
        for row in outcome.rows
    )


def untraced(experiment: Experiment, device: Device) -> tuple[LabStep, ...]:
    """What is known without a trace: the moments that a formula or an article has."""
    made: list[LabStep] = []
    for run in experiment.runs:
        predicted = formulas.predicted(experiment, run, device)
        labels = dict.fromkeys((*predicted, *run.printed))
        made += [
            LabStep(run=run.title, label=label, printed=run.printed.get(label), predicted=predicted.get(label))
            for label in labels
        ]
    return tuple(made)
