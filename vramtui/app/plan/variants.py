"""What becomes of a variant of a preset: the workload in Watch's panel, or a preset of the person's own."""

import threading

from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Input, Static

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.plan.model import PlanModel
from vramtui.app.ui.dialog import Window, ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.estimators.planner.keys import with_values
from vramtui.presets.draft.creation import checked_name
from vramtui.presets.draft.variants import proposed_name, save_variant

NO_CHANGES = "No single change found yet that frees memory."


class PlanVariants:
    """What is done with the cell under the cursor."""

    __slots__ = ("_app", "_model", "_redraw", "_state")

    def __init__(self, shared: AppContext, model: PlanModel) -> None:
        self._app = shared.app
        self._state = shared.state
        self._redraw = shared.redraw.now
        self._model = model

    def take_variant(self) -> None:
        """Make the cell's variant what Watch's panel shows."""
        self._take(self._variant())

    def _take(self, chosen: tuple[Workload, str] | None) -> None:
        if chosen is not None:
            workload, how = chosen
            self._state.put(workload)
            self._model.go_home()
            self._model.choice.forget()
            self._app.notify(f"Watch estimates {how} now; u goes back to the file, w saves it.", markup=False)
            self._redraw()

    def take_change(self) -> None:
        """Make the chosen change to the cell's variant, and that what Watch's panel shows."""
        self._take(self._changed())

    def save_variant(self) -> None:
        """Ask for a name, and save the cell's variant as a preset of the person's own."""
        self._ask_name(self._variant())

    def _ask_name(self, chosen: tuple[Workload, str] | None) -> None:
        preset_file = self._state.panel_preset()
        if chosen is None or preset_file is None:
            return

        workload, how = chosen

        about = f"{printable(preset_file.key)} with {how}, as your own preset; the original file is unchanged."
        window = PlanName(proposed_name(preset_file, how), about)
        ask(self._app, window, lambda name: self._save_in_background(preset_file, workload, name, how))

    def _variant(self) -> tuple[Workload, str] | None:
        """The workload under the cursor and its name; says why where there is none."""
        side = self._model.view(self._state).side
        if side is None:
            self._app.notify(why_no_preset(self._state), markup=False)
        elif side.workload is None or side.estimate is None:
            reason = side.answer.reason if side.answer is not None else ""
            self._app.notify(f"{side.how} is not possible: {printable(reason)}", severity="warning", markup=False)
        else:
            return side.workload, side.how
        return None

    def _changed(self) -> tuple[Workload, str] | None:
        """The workload under the cursor with the chosen change, and its name; says why where there is none."""
        model = self._model
        side = model.view(self._state).side
        if side is not None and side.workload is not None and model.changes:
            change = model.changes[model.choice.at(model.changes)]
            return with_values(side.workload, change.changes), f"{side.how} · {change.mitigation}"
        if self._variant() is not None:
            self._app.notify(NO_CHANGES, markup=False)
        return None

    def _save_in_background(self, preset_file: PresetFile, workload: Workload, name: str, how: str) -> None:
        def save() -> None:
            try:
                self._app.call_later(self._saved, save_variant(preset_file, workload, name, how))
            except (UserError, OSError) as error:
                self._app.call_later(self._app.notify, str(error), title="Not saved", severity="error", markup=False)

        threading.Thread(target=save, name="save variant", daemon=True).start()

    def _saved(self, preset_file: PresetFile) -> None:
        """Show the saved file as the panel's preset from now on."""
        self._state.undo_steps()
        self._state.add_preset(preset_file)
        self._state.panel_key = preset_file.key
        self._app.notify(
            f"{printable(preset_file.path)}\nIt is the preset on the screen now; p lists it.",
            title="Saved as a preset",
            markup=False,
        )
        self._redraw()


class PlanName(Window[str]):
    """Dismissed with a name that a file may have.

    Args:
        name: what is proposed.
        about: what will be saved, and where.
    """

    DEFAULT_CSS = """
    PlanName Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0; }
    PlanName Input:focus { border: none; }
    PlanName #fault { color: $error; height: auto; }
    """

    def __init__(self, name: str, about: str) -> None:
        super().__init__("Save this variant as a preset", "Enter save · Esc cancel")
        self._name_proposed, self._about = name, about

    def inside(self) -> ComposeResult:
        yield Static(Content(self._about))
        line = Input(self._name_proposed, placeholder="name of the preset")
        line.cursor_blink = False
        yield line
        yield Static("", id="fault", markup=False)

    def on_mount(self) -> None:
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close, or say what is wrong with the name."""
        event.stop()
        try:
            self.dismiss(checked_name(event.value.strip()))
        except UserError as error:
            self.query_one("#fault", Static).update(str(error))
