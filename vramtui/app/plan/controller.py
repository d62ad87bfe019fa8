"""The Plan screen's model, and the thread that fills its maps: both last longer than the screen is shown."""

from functools import partial
from typing import TYPE_CHECKING

from vramtui.app.context import AppContext, Feature
from vramtui.app.terminal.closed_screens import collect_garbage
from vramtui.app.terminal.delayed_calls import call_after

if TYPE_CHECKING:
    from vramtui.app.plan.each_card import CardRunner
    from vramtui.app.plan.model import PlanModel
    from vramtui.app.plan.view import PlanView
    from vramtui.app.plan.worker import GridWorker
    from vramtui.app.ui.view_screen import ViewScreen


FORGET_AFTER = 20.0  # seconds away, after which what Plan worked out is let go of: who looks again waits as at first


class PlanController(Feature):
    """Makes the screen and what it shows. The thread works only while the screen is shown.

    Args:
        shared: the dashboard's own parts.
        runner: runs a script on emulated cards; None where nothing does.
    """

    __slots__ = ("_left", "_model", "_runner", "_shared", "_worker")

    def __init__(self, shared: AppContext, runner: "CardRunner | None") -> None:
        self._shared = shared
        self._runner = runner
        self._model: PlanModel | None = None
        self._worker: GridWorker | None = None
        self._left = 0

    @property
    def model(self) -> "PlanModel":
        """What was chosen on the screen."""
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
        """Another screen is shown: work at nothing, and hold nothing where it stays so."""
        self.close()
        self._left += 1
        call_after(self._shared.app, FORGET_AFTER, partial(self._forget, self._left))

    def _forget(self, left: int) -> None:
        """Let go of maps and estimates, unless somebody has come back since it was left for that time."""
        current = self._shared.screens.current
        if left != self._left or (current is not None and current.PLACE == "plan"):
            return
        from vramtui.estimators.analytic import forget_estimates

        self.model.forget_answers()
        forget_estimates()
        collect_garbage()

    def screen(self) -> "ViewScreen":
        from vramtui.app.plan.screen import PlanScreen

        return PlanScreen(self._shared, self)

    def ask_cards(self) -> None:
        """Ask which script is to run on which cards."""
        from vramtui.app.plan.each_card import ask_cards

        ask_cards(self._shared, self._runner)

    def view(self) -> "PlanView":
        state = self._shared.state
        shown = self.model.view(state)
        self.worker.want(self.model.jobs, state.predictor.estimator)
        return shown

    def _progressed(self) -> None:
        current = self._shared.screens.current
        if current is not None and current.PLACE == "plan":
            self._shared.redraw.now()

    def _failed(self, problem: str) -> None:
        """A map could not be filled."""
        self._shared.app.notify(f"Heatmap incomplete: {problem}", severity="error", markup=False)
        self._progressed()
