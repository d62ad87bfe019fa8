"""Experiments in the background: at most one runs, on a thread of its own, with PyTorch in a child of that."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from vramtui.app.context import AppContext
from vramtui.app.feature import Feature
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import ARTICLE_CARD, CARDS, Device

if TYPE_CHECKING:
    from vramtui.app.lab.model import LabJob, LabModel, LabView
    from vramtui.app.ui.view_screen import ViewScreen
    from vramtui.estimators.lab.catalogue import Experiment
    from vramtui.estimators.lab.runner import Outcome

RunExperiment = Callable[["Experiment", Device, bool, threading.Event], "Outcome | None"]
"""Experiment, card, whether to measure too, and what cancels it: what came of it, or None where it was cancelled."""
NO_LAB = "experiments cannot be traced here"


class LabController(Feature):
    """Takes what came of an experiment between two turns of the app.

    Args:
        shared: the dashboard's own parts.
        run: runs one; None where nothing does.
    """

    def __init__(self, shared: AppContext, run: RunExperiment | None) -> None:
        self._shared = shared
        self._run = run
        self._model: LabModel | None = None
        self._running: tuple[LabJob, threading.Event] | None = None
        self._on_own_card = False

    @property
    def model(self) -> "LabModel":
        """The experiments and what was chosen among them."""
        if self._model is None:
            from vramtui.app.lab.model import LabModel  # noqa: PLC0415 - not needed for the first paint

            self._model = LabModel()
        return self._model

    @property
    def busy(self) -> bool:
        """While an experiment runs."""
        return self._running is not None

    @property
    def device(self) -> Device:
        """The card that is predicted for."""
        if self._on_own_card:
            return self._shared.state.device()
        return CARDS[ARTICLE_CARD]

    def screen(self) -> "ViewScreen":
        """A new Lab."""
        from vramtui.app.lab.screen import LabScreen  # noqa: PLC0415 - not needed for the first paint

        return LabScreen(self._shared, self)

    def view(self) -> "LabView":
        """What the screen shows."""
        running = "" if self._running is None else f"{self._running[0][0]} on {self._running[0][1].name}"
        return self.model.view(self.device, running)

    def switch_card(self) -> None:
        """The article's kind of card, or the selected GPU's."""
        self._on_own_card = not self._on_own_card
        self._shared.redraw.now()

    def start(self, *, measured: bool = False) -> str:
        """Run the selected experiment; the sentence that says why it cannot be, empty where it runs."""
        if self._run is None:
            return NO_LAB
        if self._running is not None:
            return "An experiment is already running (x cancels it)."
        job, cancelled = (self.model.experiment.key, self.device), threading.Event()
        self._running = (job, cancelled)
        self.model.problems.pop(job, None)
        work = (self._run, self.model.experiment, job, cancelled, measured)
        threading.Thread(target=self._work, args=work, name="experiment", daemon=True).start()
        self._shared.redraw.now()
        return ""

    def cancel(self) -> bool:
        """End the running one; False when none runs."""
        if self._running is None:
            return False
        self._running[1].set()
        return True

    def close(self) -> None:
        """The child ends with this process, or now."""
        self.cancel()

    def _work(
        self, run: RunExperiment, experiment: "Experiment", job: "LabJob", cancelled: threading.Event, measured: bool
    ) -> None:
        try:
            outcome, problem = run(experiment, job[1], measured, cancelled), ""
        except (UserError, OSError, ValueError) as error:
            outcome, problem = None, str(error)
        self._shared.app.call_later(self._take, job, outcome, problem)

    def _take(self, job: "LabJob", outcome: "Outcome | None", problem: str) -> None:
        if outcome is not None:
            self.model.outcomes[job] = outcome
        elif problem:
            self.model.problems[job] = problem
        self._running = None
        self._shared.redraw.now()
