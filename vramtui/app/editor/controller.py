"""Opens the preset editor or the user's own one, and connects the editor to the dashboard."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from vramtui.app.context import AppContext, why_no_preset
from vramtui.app.state.dashboard_state import row_ledger
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.app.editor.form_panel import DraftEstimator
    from vramtui.app.editor.screen import EditorScreen
    from vramtui.presets.draft import Draft
    from vramtui.presets.library import PresetLibrary


class EditorController:
    """Opens the editor on the panel's preset, and takes what it saves. `forget_frame` draws everything again after
    another program had the terminal.
    """

    __slots__ = ("_app", "_forget_frame", "_library", "_shared", "_state", "process")

    def __init__(self, shared: AppContext, library: object, forget_frame: Callable[[], None]) -> None:
        self._shared, self._app, self._state = shared, shared.app, shared.state
        self._library, self._forget_frame = library, forget_frame
        self.process: ProcessKey | None = None  # which the open editor's preset was opened for

    def edit(self) -> None:
        from vramtui.presets.draft import differences, spelt

        opened = self._opened()
        if opened is None:
            return
        preset_file, draft, estimator = opened
        if preset_file.derived:
            self._app.notify(f"Derived from {preset_file.derived}; Ctrl+S saves it as a preset.")
        # Changes of the panel come along unsaved, if the text can hold them, and the job's values into a copy.
        wanted, saved = self._state.workload(preset_file), preset_file
        if preset_file.bundled and self.process is not None:
            saved = self._state.session.presets.get(preset_file.key, preset_file)
        of_job = wanted == preset_file.preset.workload
        changes = differences(saved.preset.workload, wanted)
        for key, value in changes.items():
            draft.unset(key) if value is None else draft.set_value(key, spelt(value))
        if changes and (draft.preset is None or draft.preset.workload != wanted):
            draft.revert()
        elif changes:
            draft.brought = draft.text if of_job else ""
            whose = "job's values" if of_job else "panel's changes"
            self._app.notify(f"The {whose} are here, not saved yet; Ctrl+R discards them.")
        self._open(draft, estimator)

    def _opened(self) -> "tuple[PresetFile, Draft, DraftEstimator] | None":
        """Return the panel's preset, its draft and an estimator. If there is none, say why."""
        from vramtui.app.editor.form_panel import DraftCard, DraftEstimator
        from vramtui.presets.draft import Draft

        preset_file = self._state.panel_preset()
        if preset_file is None:
            self._app.notify(why_no_preset(self._state))
            return None
        panel, row = self._state.view().panel, self._state.view().chosen
        process = row.id if row is not None and row.preset in {None, preset_file.key} else None
        self.process = process if isinstance(process, ProcessKey) else None
        if panel is None or panel.gpu is None:
            device = self._state.device()
            card = DraftCard(device, device.name)
        else:
            card = DraftCard(panel.device, f"GPU {panel.gpu.index}", panel.room)
        estimator = DraftEstimator(self._state.session.predictor, card)
        try:
            return preset_file, Draft.open(preset_file, try_out=estimator), estimator
        except UserError as error:
            self._app.notify(str(error), title="Preset", severity="error")
            return None

    def edit_outside(self) -> None:
        """Edit the preset in `$VISUAL` or `$EDITOR`. A bundled one is copied into the user's own folder first; the copy
        is deleted if nothing was changed. A file with errors opens in the editor here.
        """
        from vramtui.presets.draft import Draft, run_editor

        opened = self._opened()
        if opened is None:
            return
        preset_file, draft, estimator = opened
        copied = draft.text if draft.bundled and not draft.is_changed else None
        try:
            path = draft.save() if draft.bundled or draft.path is None else draft.path
            with self._app.suspend():
                run_editor(path)
            after = Draft.at(path, try_out=estimator)
            if after.text == copied:
                after.delete()
        except UserError as error:
            self._app.notify(str(error), title="Preset", severity="error")
            return
        except SuspendNotSupported:
            self._app.notify("This terminal cannot run another program in its place.", severity="error")
            return
        self._forget_frame()
        self._app.refresh()
        name, where = printable(preset_file.key), printable(str(path))
        if after.path is None:
            self._app.notify(f"Nothing was changed: {name} stays the bundled one.")
        elif after.problems or after.preset is None:
            self._open(after, estimator)
        else:
            self.preset_saved(PresetFile(key=after.name, path=str(path), bundled=False, preset=after.preset))
            self._shared.redraw.now()
            message = f"Read {where} again"
            if preset_file.bundled:
                message = f"Yours now, overrides the bundled one; delete {where} to undo this."
            self._app.notify(message, title="Preset")

    def _open(self, draft: "Draft", estimator: "DraftEstimator") -> None:
        from vramtui.app.editor.screen import EditorScreen  # loads the text area

        self._app.push_screen(EditorScreen(draft, estimator, self))
        self._shared.redraw.now()

    @property
    def screen(self) -> "EditorScreen | None":
        current = self._shared.screens.current
        if current is None or current.PLACE != "editor":
            return None
        from vramtui.app.editor.screen import EditorScreen

        return current if isinstance(current, EditorScreen) else None

    def show(self, name: str) -> None:
        """Show another screen. The editor asks about unsaved changes first."""
        editor, screens = self.screen, self._shared.screens
        if editor is None:
            screens.show(name)
        elif self._app.screen is editor:

            def on_left() -> None:
                editor.leave()
                screens.show(name)

            editor.ask_to_leave(on_left)

    def asks_first(self, leave: Callable[[], None]) -> bool:
        """Ask about unsaved changes before the program ends, once; return whether it waits for an answer."""
        editor = self.screen
        if editor is None or editor.is_asking or not editor.draft.is_unsaved or self._app.screen is not editor:
            return False
        editor.ask_to_leave(leave)
        return True

    def preset_saved(self, preset_file: PresetFile) -> None:
        """Use a preset as it was saved: in the panel, in the list, and to match processes."""
        self._state.add_preset(preset_file)
        self._state.panel_key = preset_file.key
        self._state.undo_steps()

    def preset_deleted(self, key: str) -> None:
        """Forget a preset. A bundled one with that name is used again."""
        from vramtui.presets.library import PresetLibrary

        try:
            self._state.add_preset(PresetLibrary().get(key))
        except UserError:
            self._state.session.presets.pop(key, None)
            self._state.take_presets(())

    def preset_closed(self) -> None:
        self._shared.redraw.now()

    def observed(self) -> Ledger | None:
        """Return the observed memory of the process that the preset was opened for, while it runs."""
        row = self._state.view().chosen
        is_here = row is not None and row.id == self.process
        return row_ledger(self._state.session.jobs, row) if row is not None and is_here else None

    def use(self, key: str) -> None:
        """Assign a preset to that process, with all its values: the job's own came into the editor."""
        if self.process is not None:
            self._state.assign(self.process, key, whole=True)

    def running(self) -> tuple[int, str] | None:
        """Return pid and command of the selected process."""
        row = self._state.view().chosen
        process = row.process if row is not None else None
        return (process.pid, process.command) if process is not None and process.command else None

    @property
    def known_presets(self) -> "PresetLibrary":
        from vramtui.presets.library import PresetLibrary

        return self._library if isinstance(self._library, PresetLibrary) else PresetLibrary()
