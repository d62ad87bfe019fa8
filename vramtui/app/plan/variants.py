"""What becomes of a variant of a preset: the workload in Watch's panel, or a preset of the person's own."""

import threading
from typing import TYPE_CHECKING

from vramtui.app.messages import VariantSaved
from vramtui.app.monitor.dashboard_base import DashboardBase
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.app.plan.model import PlanModel

NO_CHANGES = "No single change found yet that frees memory."
CHOOSE_FIRST = "Choose a preset first: p"


class PlanVariants(DashboardBase):
    """The keys that use the cell under the cursor."""

    _plan_desk: "PlanModel | None" = None

    @property
    def plan_desk(self) -> "PlanModel":
        """What was chosen on the Plan screen."""
        if self._plan_desk is None:
            from vramtui.app.plan.model import PlanModel  # noqa: PLC0415 - estimators, not needed for the first paint

            self._plan_desk = PlanModel()
        return self._plan_desk

    def action_take_variant(self) -> None:
        """Make the cell's variant what Watch's panel shows."""
        self._take(self._variant())

    def _take(self, told: tuple[Workload, str] | None) -> None:
        if told is not None:
            workload, how = told
            self.desk.put(workload)
            self.plan_desk.go_home()
            self.plan_desk.choice.forget()
            self.notify(f"Watch estimates {how} now; u goes back to the file, w saves it.", markup=False)
            self.draw()

    def action_take_change(self) -> None:
        """Make the chosen change to the cell's variant, and that what Watch's panel shows."""
        self._take(self._changed())

    def action_save_change(self) -> None:
        """Ask for a name, and save the cell's variant with the chosen change."""
        self._ask_name(self._changed())

    def action_save_variant(self) -> None:
        """Ask for a name, and save the cell's variant as a preset of the person's own."""
        self._ask_name(self._variant())

    def _ask_name(self, told: tuple[Workload, str] | None) -> None:
        found = self.desk.presets.get(self.desk.panel_key or "")
        if told is None or found is None:
            return
        from vramtui.app.plan.save_preset import proposed_name  # noqa: PLC0415 - reads and writes presets
        from vramtui.app.plan.widgets.name import PlanName  # noqa: PLC0415 - as above

        workload, how = told

        def named(name: str | None) -> None:
            if name is not None:
                self._save_aside(found, workload, name, how)

        about = f"{printable(found.key)} with {how}, as your own preset; the original file is unchanged."
        self.push_screen(PlanName(proposed_name(found, how), about), named)

    def _variant(self) -> tuple[Workload, str] | None:
        """The workload under the cursor and its name; says why where there is none."""
        side = self.plan_desk.view(self.desk).side
        if side is None:
            self.notify(CHOOSE_FIRST, markup=False)
        elif side.workload is None or side.estimate is None:
            reason = side.answer.reason if side.answer is not None else ""
            self.notify(f"{side.how} is not possible: {printable(reason)}", severity="warning", markup=False)
        else:
            return side.workload, side.how
        return None

    def _changed(self) -> tuple[Workload, str] | None:
        """The workload under the cursor with the chosen change, and its name; says why where there is none."""
        from vramtui.estimators.planner.planner import with_values  # noqa: PLC0415 - estimators, as above

        desk = self.plan_desk
        side = desk.view(self.desk).side
        if side is not None and side.workload is not None and desk.changes:
            change = desk.changes[desk.choice.at(desk.changes)]
            return with_values(side.workload, change.changes), f"{side.how} · {change.lever}"
        if self._variant() is not None:
            self.notify(NO_CHANGES, markup=False)
        return None

    def _save_aside(self, found: PresetFile, workload: Workload, name: str, how: str) -> None:
        def save() -> None:
            from vramtui.app.plan.save_preset import save_variant  # noqa: PLC0415 - as above

            try:
                made = save_variant(found, workload, name, how)
                self.post_message(VariantSaved(made, made.path))
            except (UserError, OSError) as error:
                self.post_message(VariantSaved(None, problem=str(error)))

        threading.Thread(target=save, name="save variant", daemon=True).start()

    def on_variant_saved(self, message: VariantSaved) -> None:
        """It is the panel's preset from now on."""
        if message.found is None:
            self.notify(message.problem, title="Not saved", severity="error", markup=False)
            return
        self.desk.undo_steps()
        self.desk.add_preset(message.found)
        self.desk.panel_key = message.found.key
        self.notify(
            f"{printable(message.path)}\nIt is the preset on the screen now; p lists it.",
            title="Saved as a preset",
            markup=False,
        )
        self.draw()
