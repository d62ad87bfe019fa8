"""The preset editor, and the person's own one: what opens them, and what they need of the dashboard."""

from typing import TYPE_CHECKING

from textual.app import SuspendNotSupported

from vramtui.app.history.controller import HistoryController
from vramtui.app.monitor.run_writer import RunWriting
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.runs.run import Run
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.app.editor.editor_view import DraftEstimator
    from vramtui.app.editor.file_actions import FileActions
    from vramtui.presets.draft.draft import Draft
    from vramtui.presets.library import PresetLibrary

CHOOSE_FIRST = "Choose a preset first: p"


class EditorController(RunWriting, HistoryController):
    """Opens the editor on the panel's preset, and takes what it saves."""

    # --- opening -------------------------------------------------------------------------------------------------

    def action_edit(self) -> None:
        """Edit the panel's preset."""
        from vramtui.presets.draft.draft import Draft  # noqa: PLC0415 - not needed for the first paint

        found = self._panel_preset()
        if found is None:
            return
        judge = self._judge()
        try:
            draft = Draft.open(found, try_out=judge)
        except UserError as error:
            self.notify(str(error), title="Preset", severity="error", markup=False)
            return
        self._carry_over(draft, found)
        self._open(draft, judge)

    def _carry_over(self, draft: "Draft", found: PresetFile) -> None:
        """What was stepped in the panel comes along, unsaved; not at all where the text cannot say it."""
        from vramtui.app.plan.save_preset import differences  # noqa: PLC0415 - as above
        from vramtui.presets.form.fields import spelt  # noqa: PLC0415 - as above

        wanted = self.desk.workload(found)
        for key, value in differences(found.preset.workload, wanted).items():
            draft.unset(key) if value is None else draft.set_value(key, spelt(value))
        if draft.is_changed and (draft.preset is None or draft.preset.workload != wanted):
            draft.revert()
        elif draft.is_changed:
            self.notify("The panel's changes are here, not saved yet; Ctrl+R discards them.", markup=False)

    def action_edit_outside(self) -> None:
        """Edit it in `$VISUAL` or `$EDITOR`; a bundled one is copied into the person's own folder first."""
        from vramtui.presets.draft.draft import Draft  # noqa: PLC0415 - as above
        from vramtui.presets.draft.external_editor import run_editor  # noqa: PLC0415 - as above

        found = self._panel_preset()
        if found is None:
            return
        judge = self._judge()
        try:
            draft = Draft.open(found, try_out=judge)
            path = draft.save() if draft.bundled or draft.path is None else draft.path
            with self.suspend():
                run_editor(path)
            after = Draft.at(path, try_out=judge)
        except UserError as error:
            self.notify(str(error), title="Preset", severity="error", markup=False)
            return
        except SuspendNotSupported:
            self.notify("This terminal cannot run another program in its place.", severity="error", markup=False)
            return
        self.forget_frame()
        self.refresh()
        self._take_edited(after, judge, copied=found.bundled)

    def _take_edited(self, draft: "Draft", judge: "DraftEstimator", *, copied: bool) -> None:
        """Know it from now on; one with something wrong is shown in the editor."""
        if draft.problems or draft.preset is None:
            self._open(draft, judge)
            return
        path = str(draft.path)
        self.preset_saved(PresetFile(key=draft.name, path=path, bundled=False, preset=draft.preset))
        self.draw()
        said = f"It is a bundled preset; your copy is {printable(path)}" if copied else f"Read {printable(path)} again"
        self.notify(said, title="Preset", markup=False)

    def _open(self, draft: "Draft", judge: "DraftEstimator") -> None:
        from vramtui.app.editor.screen import EditorScreen  # noqa: PLC0415 - loads the text area

        if self.past is not None:
            self.read_past()
        self.push_screen(EditorScreen(draft, judge, self))
        self.draw()

    def _panel_preset(self) -> PresetFile | None:
        found = self.desk.presets.get(self.desk.panel_key or "")
        if found is None:
            self.notify(CHOOSE_FIRST, markup=False)
        return found

    def _judge(self) -> "DraftEstimator":
        from vramtui.app.editor.editor_view import DraftCard, DraftEstimator  # noqa: PLC0415 - as above

        panel = self.desk.view().panel
        if panel is None or panel.gpu is None:
            device = self.desk.device()
            return DraftEstimator(self.desk.predictor, DraftCard(device, device.name))
        return DraftEstimator(self.desk.predictor, DraftCard(panel.device, f"GPU {panel.gpu.index}", panel.room))

    # --- leaving -------------------------------------------------------------------------------------------------

    @property
    def editor(self) -> "FileActions | None":
        """The editor, where one is open, whatever lies on top of it."""
        place = self.place
        if place is None or place.PLACE != "editor":
            return None
        from vramtui.app.editor.file_actions import FileActions  # noqa: PLC0415 - as above

        return place if isinstance(place, FileActions) else None

    def action_show(self, name: str) -> None:
        """From the editor: what is not saved is asked about first."""
        editor = self.editor
        if editor is None:
            super().action_show(name)
        elif self.screen is editor:
            go = super().action_show

            def on() -> None:
                editor.leave()
                go(name)

            editor.ask(on)

    def asks_first(self, code: int) -> bool:
        """Whether leaving the program with `code` waits for an answer about what is not saved. Never twice."""
        editor = self.editor
        if editor is None or editor.is_asking or not editor.draft.is_changed or self.screen is not editor:
            return False
        editor.ask(lambda: self.go(code))
        return True

    def go(self, code: int) -> None:
        """End the program."""
        raise NotImplementedError

    # --- what the editor needs -----------------------------------------------------------------------------------

    def preset_saved(self, found: PresetFile) -> None:
        """Know a preset as it was saved: in the panel, in the list, and to match processes by."""
        self.desk.add_preset(found)
        self.desk.panel_key = found.key
        self.desk.undo_steps()

    def preset_deleted(self, key: str) -> None:
        """Forget it; one that came with the program under that name is there again."""
        from vramtui.presets.library import PresetLibrary  # noqa: PLC0415 - as above

        try:
            self.desk.add_preset(PresetLibrary().get(key))
        except UserError:
            self.desk.presets.pop(key, None)
            self.desk.take_presets(())

    def preset_closed(self) -> None:
        """Show what lies below the editor as it is now."""
        self.draw()

    def running(self) -> tuple[int, str] | None:
        """Pid and command of the chosen process."""
        row = self.desk.view().chosen
        process = row.process if row is not None else None
        return (process.pid, process.command) if process is not None and process.command else None

    def runs_of(self, key: str) -> tuple[Run, ...]:
        """The chosen process's run where it runs that preset, then those of the history."""
        kept = [kept.run for kept in self.past_desk.view(self._now()).runs if kept.run.preset == key]
        chosen = self.past_desk.chosen
        if chosen is not None and chosen.run in kept:
            kept.remove(chosen.run)
            kept.insert(0, chosen.run)
        now = self._run_now(key)
        if now is not None:
            kept = [now, *(run for run in kept if run.key != now.key)]
        return tuple(kept)

    def _run_now(self, key: str) -> Run | None:
        from vramtui.core.runs.run_tracker import RunTracker  # noqa: PLC0415 - as above

        sample, row = self.desk.sample, self.desk.view().chosen
        if sample is None or row is None or not isinstance(row.id, ProcessKey) or row.preset != key:
            return None
        watched = RunTracker(self._predicted, self._told)
        return next(iter(watched.update(sample, self.desk.history, {row.id: self.desk.presets[key]})), None)

    @property
    def known_presets(self) -> "PresetLibrary":
        """The presets that a new one can begin with."""
        from vramtui.presets.library import PresetLibrary  # noqa: PLC0415 - as above

        return self._library if isinstance(self._library, PresetLibrary) else PresetLibrary()
