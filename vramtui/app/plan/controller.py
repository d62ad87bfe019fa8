"""The Plan screen's model, and the thread that fills its maps; both outlive the screen."""

from functools import partial
from typing import TYPE_CHECKING

from vramtui.app.context import AppContext, Feature
from vramtui.app.terminal.closed_screens import collect_garbage
from vramtui.app.terminal.textual_private import call_after

if TYPE_CHECKING:
    from vramtui.app.plan.each_card import CardRunner
    from vramtui.app.plan.model import PlanModel, PlanView
    from vramtui.app.plan.screen import PlanScreen
    from vramtui.app.plan.worker import GridWorker

FORGET_AFTER = 20.0  # seconds after leaving Plan until its results are dropped; they are computed again on return


class PlanController(Feature):
    """Makes the screen and its view. The thread works only while the screen is shown.

    Args:
        shared: the dashboard's shared parts.
        runner: runs a script on simulated GPUs; None if nothing can.
    """

    __slots__ = ("_left", "_model", "_shared", "_worker", "runner")

    def __init__(self, shared: AppContext, runner: "CardRunner | None") -> None:
        self._shared, self.runner = shared, runner
        self._model: PlanModel | None = None
        self._worker: GridWorker | None = None
        self._left = 0

    @property
    def model(self) -> "PlanModel":
        if self._model is None:
            from vramtui.app.plan.model import PlanModel

            self._model = PlanModel()
        return self._model

    @property
    def worker(self) -> "GridWorker":
        if self._worker is None:
            from vramtui.app.plan.worker import GridWorker

            later = self._shared.app.call_later
            self._worker = GridWorker(
                lambda: later(self._progressed), lambda error: later(self._failed, f"{type(error).__name__}: {error}")
            )
        return self._worker

    @property
    def busy(self) -> bool:
        return self._worker is not None and self._worker.is_busy

    def close(self) -> None:
        if self._worker is not None:
            self._worker.stop()

    def put_away(self) -> None:
        """Another screen is shown: stop working, and drop the results after a while."""
        self.close()
        self._left += 1
        call_after(self._shared.app, FORGET_AFTER, partial(self._forget, self._left))

    def _forget(self, left: int) -> None:
        """Drop maps and estimates, unless the screen was shown again since."""
        current = self._shared.screens.current
        if left != self._left or (current is not None and current.PLACE == "plan"):
            return
        from vramtui.estimators.analytic import forget_estimates

        self.model.forget_answers()
        forget_estimates()
        collect_garbage()

    def screen(self) -> "PlanScreen":
        from vramtui.app.plan.screen import PlanScreen

        return PlanScreen(self._shared, self)

    def view(self) -> "PlanView":
        """The view of now; the worker goes on with what is unknown."""
        state = self._shared.state
        shown = self.model.view(state)
        self.worker.want(self.model.jobs, state.predictor.estimator)
        return shown

    def _progressed(self) -> None:
        current = self._shared.screens.current
        if current is not None and current.PLACE == "plan":
            self._shared.redraw.now()

    def _failed(self, problem: str) -> None:
        self._shared.app.notify(f"Heatmap incomplete: {problem}", severity="error", markup=False)
        self._progressed()
