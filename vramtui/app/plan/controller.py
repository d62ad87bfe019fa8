"""What the Plan screen's keys ask for, and the thread that fills its maps."""

import msgspec

from vramtui.app.messages import CellChosen, CellMoved, PlanProgressed
from vramtui.app.plan.variants import CHOOSE_FIRST, PlanVariants
from vramtui.app.plan.worker import GridWorker
from vramtui.app.screen_registry import FIRST
from vramtui.app.state import View
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import CARDS
from vramtui.core.observation.snapshot import device_of

PLACE = "plan"
USUAL, NOTHING = "/usual", "/nothing"


class PlanController(PlanVariants):
    """The Plan screen's actions. Its thread works only while the screen is shown."""

    _plan_worker: GridWorker | None = None

    @property
    def plan_worker(self) -> GridWorker:
        """What fills the maps."""
        if self._plan_worker is None:
            self._plan_worker = GridWorker(
                lambda: self.post_message(PlanProgressed()),
                lambda error: self.post_message(PlanProgressed(f"{type(error).__name__}: {error}")),
            )
        return self._plan_worker

    @property
    def is_busy(self) -> bool:
        """While a map is filled."""
        return (self._plan_worker is not None and self._plan_worker.is_busy) or super().is_busy

    def complete(self, view: View, place: str) -> View:
        """The Plan screen's part; elsewhere nothing is worked at."""
        view = super().complete(view, place)
        if place != PLACE:
            if self._plan_worker is not None:
                self._plan_worker.stop()
            return view
        shown = self.plan_desk.view(self.desk)
        predictor = self.desk.predictor
        self.plan_worker.want(self.plan_desk.jobs, predictor.estimator, predictor.correct)
        return msgspec.structs.replace(view, plan=shown)

    def stop_reading(self) -> None:
        """Leave the maps as they are."""
        super().stop_reading()
        if self._plan_worker is not None:
            self._plan_worker.stop()

    def on_plan_progressed(self, message: PlanProgressed) -> None:
        """More cells, or another sentence."""
        if message.problem:
            self.notify(f"Heatmap incomplete: {message.problem}", severity="error", markup=False)
        if self.place is not None and self.place.PLACE == PLACE:
            self.draw()

    # --- the cursor ----------------------------------------------------------------------------------------------

    def on_cell_moved(self, message: CellMoved) -> None:
        """An arrow."""
        self.plan_desk.move(message.across, message.down)
        self.draw_for_key()

    def on_cell_chosen(self, message: CellChosen) -> None:
        """A click."""
        self.plan_desk.go(message.x, message.y)
        self.draw_for_key()

    def action_plan_home(self) -> None:
        """The preset's own values."""
        self.plan_desk.go_home()
        self.draw()

    def action_plan_edge(self) -> None:
        """The last cell of the row that fits."""
        if not self.plan_desk.go_to_edge():
            self.notify("Nothing in this row fits.", timeout=2, markup=False)
        self.draw()

    # --- the changes that free memory ------------------------------------------------------------------------------

    def action_move_change(self, down: int) -> None:
        """An arrow in their list."""
        desk = self.plan_desk
        self.action_choose_change(desk.choice.at(desk.changes) + down)

    def action_choose_change(self, at: int) -> None:
        """The one at a place."""
        self.plan_desk.choice.go(self.plan_desk.changes, at)
        self.draw_for_key()

    # --- what is varied, and where -------------------------------------------------------------------------------

    def action_choose_axis(self, across: bool) -> None:
        """Ask what is to be varied along the columns or the rows."""
        from vramtui.app.plan.widgets.chooser import PlanChooser  # noqa: PLC0415 - loads the list widgets

        desk = self.plan_desk
        if not desk.axes:
            self.notify(CHOOSE_FIRST, markup=False)
            return
        choices = [(axis.name, axis.name, f"{axis.title}: {_range(axis.labels)}") for axis in desk.axes]

        def chosen(name: str | None) -> None:
            if name is not None:
                desk.choose_axis(name, across=across)
                self.draw()

        title = "Horizontal axis (columns)" if across else "Vertical axis (rows)"
        self.push_screen(PlanChooser(title, choices, desk.names[0 if across else 1]), chosen)

    def action_swap_axes(self) -> None:
        """Swap the axes."""
        if self.plan_desk.axes:
            self.plan_desk.swap()
            self.draw()

    def action_choose_card(self) -> None:
        """Ask which card it has to fit."""
        from vramtui.app.plan.widgets.chooser import PlanChooser  # noqa: PLC0415 - as above

        desk = self.plan_desk
        gpus = self.desk.sample.gpus if self.desk.sample is not None else ()
        here = {
            f"/{gpu.uuid}": (f"GPU {gpu.index}, {printable(gpu.name)}", device_of(gpu))
            for gpu in gpus
            if gpu.memory.total is not None
        }
        known = {name: (name, card) for name, card in sorted(CARDS.items(), key=lambda item: item[1].total_memory)}
        cards = here | known
        usual = self.desk.device()
        choices = [(USUAL, "as on Watch", f"{printable(usual.name)}, {format_bytes(usual.total_memory)}")]
        choices += [
            (key, name, f"{format_bytes(card.total_memory)}, compute capability {'.'.join(map(str, card.capability))}")
            for key, (name, card) in cards.items()
        ]

        def chosen(key: str | None) -> None:
            if key is not None:
                desk.where, desk.card = cards.get(key, ("", None))
                self.draw()

        present = next((key for key, (name, _) in cards.items() if desk.card is not None and name == desk.where), USUAL)
        self.push_screen(PlanChooser("Which card does it have to fit?", choices, present), chosen)

    def action_choose_beside(self) -> None:
        """Ask what the preset is to be set beside."""
        from vramtui.app.plan.model import AS_IN_FILE  # noqa: PLC0415 - as above
        from vramtui.app.plan.widgets.chooser import PlanChooser  # noqa: PLC0415 - as above

        desk = self.plan_desk
        if not desk.axes:
            self.notify(CHOOSE_FIRST, markup=False)
            return
        choices = [
            (NOTHING, "nothing", "no comparison"),
            (AS_IN_FILE, "its saved file", "the cell beside this preset's saved values"),
        ]
        choices += [
            (found.key, printable(found.key), printable(found.preset.name))
            for found in sorted(self.desk.presets.values(), key=lambda found: found.key)
            if found.key != self.desk.panel_key
        ]

        def chosen(key: str | None) -> None:
            if key is not None:
                desk.second = "" if key == NOTHING else key
                self.draw()

        self.push_screen(PlanChooser("Compare with", choices, desk.second or NOTHING), chosen)

    def action_leave_plan(self) -> None:
        """Back to Watch."""
        self.action_show(FIRST)


def _range(labels: tuple[str, ...]) -> str:
    """Labels in short."""
    return ", ".join(labels) if len(labels) < 6 else f"{labels[0]}, {labels[1]} … {labels[-1]}"
