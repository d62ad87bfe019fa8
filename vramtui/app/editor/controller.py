"""The preset editor, and the person's own one: what opens them, and what they need of the dashboard."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from textual.app import SuspendNotSupported

from vramtui.app.context import AppContext, why_no_preset
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.app.editor.editor_view import DraftEstimator
    from vramtui.app.editor.screen import EditorScreen
    from vramtui.presets.draft.draft import Draft
    from vramtui.presets.library import PresetLibrary


class PresetRuns(Protocol):
    """The history of runs, as far as the editor takes figures from it."""

    def read(self) -> None: ...

    def of_preset(self, key: str) -> tuple[Run, ...]:
        """Those of one preset that are known, the chosen one first."""
        ...


class EditorController:
    """Opens the editor on the panel's preset, and takes what it saves.

    Args:
        shared: the dashboard's own parts.
        library: where presets come from.
        runs: past runs.
        forget_frame: lets everything be drawn again after another program had the terminal.
    """

    def __init__(self, shared: AppContext, library: object, runs: PresetRuns, forget_frame: Callable[[], None]) -> None:
        self._shared = shared
        self._app = shared.app
        self._state = shared.state
        self._library = library
        self._runs = runs
        self._forget_frame = forget_frame

    # --- opening -------------------------------------------------------------------------------------------------

    def edit(self) -> None:
        opened = self._opened()
        if opened is not None:
            preset_file, draft, estimator = opened
            if preset_file.derived:
                self._app.notify(f"Derived from {preset_file.derived}; Ctrl+S saves it as a preset.", markup=False)
            self._carry_over(draft, preset_file)
            self._open(draft, estimator)

    def _opened(self) -> "tuple[PresetFile, Draft, DraftEstimator] | None":
        """The panel's preset, a draft of it and what estimates that; None, and said why, where there is none."""
        from vramtui.presets.draft.draft import Draft

        preset_file = self._panel_preset()
        if preset_file is None:
            return None
        estimator = self._estimator()
        try:
            return preset_file, Draft.open(preset_file, try_out=estimator), estimator
        except UserError as error:
            self._refuse(error)
            return None

    def _refuse(self, error: UserError) -> None:
        self._app.notify(str(error), title="Preset", severity="error", markup=False)

    def _carry_over(self, draft: "Draft", preset_file: PresetFile) -> None:
        """What was stepped in the panel comes along, unsaved; not at all where the text cannot say it."""
        from vramtui.presets.draft.variants import differences
        from vramtui.presets.form.form import spelt

        wanted = self._state.workload(preset_file)
        if wanted == preset_file.preset.workload:
            return
        for key, value in differences(preset_file.preset.workload, wanted).items():
            draft.unset(key) if value is None else draft.set_value(key, spelt(value))
        if draft.is_changed and (draft.preset is None or draft.preset.workload != wanted):
            draft.revert()
        elif draft.is_changed:
            self._app.notify("The panel's changes are here, not saved yet; Ctrl+R discards them.", markup=False)

    def edit_outside(self) -> None:
        """Edit it in `$VISUAL` or `$EDITOR`; a bundled one is copied into the person's own folder first, where it stays
        if anything was changed.
        """
        from vramtui.presets.draft.draft import Draft
        from vramtui.presets.draft.external_editor import run_editor

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
            self._refuse(error)
            return
        except SuspendNotSupported:
            self._app.notify("This terminal cannot run another program in its place.", severity="error", markup=False)
            return
        self._forget_frame()
        self._app.refresh()
        if after.path is None:
            self._app.notify(f"Nothing was changed: {printable(preset_file.key)} stays the bundled one.", markup=False)
            return
        self._take_edited(after, estimator, copied=preset_file.bundled)

    def _take_edited(self, draft: "Draft", estimator: "DraftEstimator", *, copied: bool) -> None:
        """Know it from now on; one with something wrong is shown in the editor."""
        if draft.problems or draft.preset is None:
            self._open(draft, estimator)
            return
        path = str(draft.path)
        self.preset_saved(PresetFile(key=draft.name, path=path, bundled=False, preset=draft.preset))
        self._shared.redraw.now()
        message = f"Read {printable(path)} again"
        if copied:
            stands = "it stands in for the bundled one"
            message = f"From now on {printable(draft.name)} is yours: {stands}. Delete {printable(path)} to undo this."
        self._app.notify(message, title="Preset", markup=False)

    def _open(self, draft: "Draft", estimator: "DraftEstimator") -> None:
        from vramtui.app.editor.screen import EditorScreen  # loads the text area

        self._runs.read()
        self._app.push_screen(EditorScreen(draft, estimator, self))
        self._shared.redraw.now()

    def _panel_preset(self) -> PresetFile | None:
        preset_file = self._state.panel_preset()
        if preset_file is None:
            self._app.notify(why_no_preset(self._state), markup=False)
        return preset_file

    def _estimator(self) -> "DraftEstimator":
        from vramtui.app.editor.editor_view import DraftCard, DraftEstimator

        panel = self._state.view().panel
        if panel is None or panel.gpu is None:
            device = self._state.device()
            return DraftEstimator(self._state.predictor, DraftCard(device, device.name))
        return DraftEstimator(self._state.predictor, DraftCard(panel.device, f"GPU {panel.gpu.index}", panel.room))

    # --- leaving -------------------------------------------------------------------------------------------------

    @property
    def screen(self) -> "EditorScreen | None":
        """The editor, where one is open, whatever lies on top of it."""
        current = self._shared.screens.current
        if current is None or current.PLACE != "editor":
            return None
        from vramtui.app.editor.screen import EditorScreen

        return current if isinstance(current, EditorScreen) else None

    def show(self, name: str) -> None:
        """Show another screen; from the editor, what is not saved is asked about first."""
        editor, screens = self.screen, self._shared.screens
        if editor is None:
            screens.show(name)
        elif self._app.screen is editor:

            def on_left() -> None:
                editor.file.leave()
                screens.show(name)

            editor.file.ask(on_left)

    def asks_first(self, leave: Callable[[], None]) -> bool:
        """Whether leaving the program waits for an answer about what is not saved. Never twice."""
        editor = self.screen
        if editor is None or editor.file.is_asking or not editor.draft.is_changed or self._app.screen is not editor:
            return False
        editor.file.ask(leave)
        return True

    # --- what the editor needs -----------------------------------------------------------------------------------

    def preset_saved(self, preset_file: PresetFile) -> None:
        """Know a preset as it was saved: in the panel, in the list, and to match processes by."""
        self._state.add_preset(preset_file)
        self._state.panel_key = preset_file.key
        self._state.undo_steps()

    def preset_deleted(self, key: str) -> None:
        """Forget it; one that came with the program under that name is there again."""
        from vramtui.presets.library import PresetLibrary

        try:
            self._state.add_preset(PresetLibrary().get(key))
        except UserError:
            self._state.presets.pop(key, None)
            self._state.take_presets(())

    def preset_closed(self) -> None:
        """Show what lies below the editor as it is now."""
        self._shared.redraw.now()

    def running(self) -> tuple[int, str] | None:
        """Pid and command of the chosen process."""
        row = self._state.view().chosen
        process = row.process if row is not None else None
        return (process.pid, process.command) if process is not None and process.command else None

    def runs_of(self, key: str) -> tuple[Run, ...]:
        """The chosen process's run where it runs that preset, then those of the history."""
        stored = self._runs.of_preset(key)
        now = self._run_now(key)
        return stored if now is None else (now, *(run for run in stored if run.key != now.key))

    def _run_now(self, key: str) -> Run | None:
        state = self._state
        sample, row = state.sample, state.view().chosen
        if sample is None or row is None or not isinstance(row.id, ProcessKey) or row.preset != key:
            return None
        tracker = state.session.run_tracker()
        return next(iter(tracker.update(sample, state.history, {row.id: state.presets[key]})), None)

    @property
    def known_presets(self) -> "PresetLibrary":
        from vramtui.presets.library import PresetLibrary

        return self._library if isinstance(self._library, PresetLibrary) else PresetLibrary()
